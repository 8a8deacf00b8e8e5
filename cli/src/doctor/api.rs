//! What the API says of itself, and of whoever asks.

use serde_json::{Value, json};
use stokehold_queue::now_ms;
use stokehold_worker::machine::Finding;

use super::{LIMIT, network};
use crate::client::{Client, query};
use crate::{Global, output};

/// A session lasts twelve hours, or as long as its token: one that ends before this ends with its token.
const SESSION_MS: u64 = 11 * 3600 * 1000;

/// Deliveries that are looked at.
const DELIVERIES: &str = "50";

pub(super) async fn checks(global: &Global) -> Vec<Finding> {
    let known = Client::connect(global);
    let (client, unknown) = match (&known, Client::without_token(global)) {
        (Ok(client), _) => (client.clone(), None),
        (Err(error), Ok(client)) => (client, Some(error)),
        (Err(error), Err(_)) => return vec![nobody(error)],
    };
    let open = |path: &str| client.http().get(format!("{}{path}", client.url())).timeout(LIMIT).send();
    let health = match open("/healthz").await {
        Ok(health) => health,
        Err(_) => match unknown {
            Some(error) => return vec![nobody(error)],
            None => return vec![network::unreached("API", client.url()).await],
        },
    };
    let clock = network::clock("clock beside the API's", health.headers());
    let health: Value = health.json().await.unwrap_or_default();
    let (release, durability) = (output::cell(&health["release"]), output::cell(&health["durability"]));
    let mut checks = vec![if release == env!("CARGO_PKG_VERSION") {
        Finding::ok("API", format!("{} of release {release}, durability {durability}", client.url()))
    } else {
        Finding::warn(
            "API",
            format!("{} of release {release}", client.url()),
            "Use the `stoke` of the API's own release.",
        )
    }];
    checks.extend(clock);
    checks.push(admission(&health));
    let ready: Value = match open("/readyz").await {
        Ok(answer) => answer.json().await.unwrap_or_default(),
        Err(_) => Value::Null,
    };
    for (what, member) in [("API to Redis", "redis"), ("API to S3", "s3")] {
        checks.push(if ready[member] == true {
            Finding::ok(what, "answers")
        } else {
            Finding::fail(what, "does not answer", "See the API's log lines.")
        });
    }
    checks.push(duties(&ready));
    match unknown {
        Some(error) => checks.push(Finding::warn("token", format!("{error:#}"), "What it may do is checked with one.")),
        None => {
            checks.push(token(&client).await);
            checks.extend(deliveries(&client).await);
            checks.extend(quarantine(&client).await);
        }
    }
    checks
}

fn nobody(error: &anyhow::Error) -> Finding {
    Finding::warn("API", format!("{error:#}"), "Nothing to check until there is one.")
}

/// Whether the replica that answered does its background work.
fn duties(ready: &Value) -> Finding {
    const WHAT: &str = "background duties";
    let failing: Vec<&str> = ready["failing"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if failing.is_empty() {
        Finding::ok(WHAT, "none fails again and again")
    } else {
        Finding::fail(WHAT, format!("fail again and again: {}", failing.join(", ")), "See the API's log lines.")
    }
}

/// Whether the API takes new work, and how much room is left.
fn admission(health: &Value) -> Finding {
    const WHAT: &str = "new work";
    let (redis, number) = (&health["redis"], |value: &Value| value.as_u64().unwrap_or(0));
    let (used, max) = (number(&redis["memory_used_bytes"]), number(&redis["memory_max_bytes"]));
    let of = if max > 0 { format!(" of {}", output::bytes(max)) } else { String::new() };
    let room = format!(
        "Redis uses {}{of}, replicas in step {}, waited for {}",
        output::bytes(used),
        number(&redis["replicas"]),
        number(&health["replicas_to_wait"]),
    );
    if health["admission"]["open"] == true {
        Finding::ok(WHAT, format!("taken; {room}"))
    } else {
        let why = output::cell(&health["admission"]["reason"]);
        Finding::fail(
            WHAT,
            format!("not taken: {why}; {room}"),
            "docs/durability.md says what to do about each reason.",
        )
    }
}

/// Whose the token is, what it may do, and for how long.
async fn token(client: &Client) -> Finding {
    const WHAT: &str = "token";
    let body = json!({ "token": client.token() });
    let asked = client.http().post(format!("{}/v1/session", client.url())).json(&body).timeout(LIMIT).send().await;
    let answer = match asked {
        Ok(answer) if answer.status().is_success() => answer.json::<Value>().await.unwrap_or_default(),
        Ok(answer) => {
            let problem: Value = answer.json().await.unwrap_or_default();
            return Finding::fail(WHAT, output::cell(&problem["detail"]), "`stoke token create` makes another.");
        }
        Err(_) => return Finding::fail(WHAT, "the API does not say whose it is", "See the API's log lines."),
    };
    judged(&answer, now_ms())
}

fn judged(session: &Value, now_ms: u64) -> Finding {
    let scopes: Vec<String> = session["scopes"].as_array().into_iter().flatten().map(output::cell).collect();
    let found = format!("of tenant {}, may {}", output::cell(&session["tenant"]), scopes.join(" "));
    if scopes.is_empty() {
        return Finding::fail(
            "token",
            found,
            "It may do nothing; `stoke token create --role submit` makes one that may.",
        );
    }
    let left_ms = session["expires_ms"].as_u64().map(|ends| ends.saturating_sub(now_ms));
    match left_ms.filter(|left| *left < SESSION_MS) {
        Some(left) => {
            let found = format!("{found}; it ends in {}", output::millis(left));
            Finding::warn(
                "token",
                found,
                "`stoke token rotate` makes the next one, and lets this one live on for a day.",
            )
        }
        None => Finding::ok("token", found),
    }
}

/// Webhooks that were given up lately; `None` where the token may not see them, or nothing was sent.
async fn deliveries(client: &Client) -> Option<Finding> {
    const WHAT: &str = "webhooks";
    let found = client.get(&query("/v1/webhooks/deliveries", &[("limit", Some(DELIVERIES))])).await.ok()?;
    let all = found["deliveries"].as_array().filter(|all| !all.is_empty())?;
    let given_up: Vec<&Value> =
        all.iter().filter(|one| matches!(one["state"].as_str(), Some("exhausted" | "disabled"))).collect();
    let Some(first) = given_up.first() else {
        return Some(Finding::ok(WHAT, format!("none of the last {} was given up", all.len())));
    };
    let found =
        format!("{} of the last {} were given up, as to {}", given_up.len(), all.len(), output::cell(&first["url"]));
    Some(Finding::warn(
        WHAT,
        found,
        "`stoke webhook get ID` tells each try, `stoke doctor --webhook URL` tries the address.",
    ))
}

/// Jobs whose records cannot be read; `None` where the token may not see them.
async fn quarantine(client: &Client) -> Option<Finding> {
    const WHAT: &str = "quarantine";
    let found = client.get("/v1/quarantine").await.ok()?;
    let jobs = found["jobs"].as_array()?;
    Some(match jobs.first() {
        None => Finding::ok(WHAT, "empty: every job's record can be read"),
        Some(first) => Finding::warn(
            WHAT,
            format!(
                "{} jobs cannot be read, e.g. {}: {}",
                output::cell(&found["total"]),
                output::cell(&first["id"]),
                output::cell(&first["why"])
            ),
            "`stoke job quarantined` lists them, and puts them back or ends them.",
        ),
    })
}

#[cfg(test)]
mod tests {
    use stokehold_worker::machine::Verdict;

    use super::*;

    #[test]
    fn a_token_is_told_with_its_rights_and_when_it_ends_soon() {
        let session =
            |scopes: &[&str], expires_ms: u64| json!({"tenant": "acme", "scopes": scopes, "expires_ms": expires_ms});
        let lasting = judged(&session(&["jobs:read", "jobs:submit"], 12 * 3_600_000), 0);
        assert_eq!(
            (lasting.verdict, lasting.found.as_str()),
            (Verdict::Ok, "of tenant acme, may jobs:read jobs:submit")
        );
        assert_eq!(judged(&session(&["jobs:read"], 3_600_000), 0).verdict, Verdict::Warn);
        assert_eq!(judged(&session(&[], 12 * 3_600_000), 0).verdict, Verdict::Fail);
    }
}
