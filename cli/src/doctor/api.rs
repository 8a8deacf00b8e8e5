//! Checks of the API and of the token.

use serde_json::{Value, json};
use stokehold_client::models::{
    DeliveryList, Health, Quarantine, Ready, Session, WebhookDelivery, WebhookDeliveryState,
};
use stokehold_queue::now_ms;
use stokehold_worker::machine::Finding;

use super::{LIMIT, network};
use crate::client::{Client, decode, query};
use crate::{Global, output};

/// Shortest time to the end of a session that is not limited by its token, milliseconds. A session lasts 12 hours or
/// until its token expires; one that ends sooner than this ends with its token.
const SESSION_MS: u64 = 11 * 3600 * 1000;

/// Number of webhook deliveries to check.
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
    let clock = network::clock("clock difference to the API", health.headers());
    let health: Health = health.json().await.unwrap_or_default();
    let (release, durability) = (output::text(health.release.as_str()), output::text(health.durability.as_str()));
    let mut checks = vec![if release == env!("CARGO_PKG_VERSION") {
        Finding::ok("API", format!("{}, release {release}, durability {durability}", client.url()))
    } else {
        Finding::warn("API", format!("{}, release {release}", client.url()), "Use the `stoke` version of the API.")
    }];
    checks.extend(clock);
    checks.push(admission(&health));
    let ready: Ready = match open("/readyz").await {
        Ok(answer) => answer.json().await.unwrap_or_default(),
        Err(_) => Ready::default(),
    };
    for (what, responds) in [("API to Redis", ready.redis), ("API to S3", ready.s3)] {
        checks.push(if responds {
            Finding::ok(what, "responds")
        } else {
            Finding::fail(what, "no response", "See the API's log.")
        });
    }
    checks.push(duties(&ready));
    match unknown {
        Some(error) => checks.push(Finding::warn("token", format!("{error:#}"), "Pass a token to check its rights.")),
        None => {
            checks.push(token(&client).await);
            checks.extend(deliveries(&client).await);
            checks.extend(quarantine(&client).await);
        }
    }
    checks
}

fn nobody(error: &anyhow::Error) -> Finding {
    Finding::warn("API", format!("{error:#}"), "Nothing was checked.")
}

/// Checks whether the background duties of the replica that responded work.
fn duties(Ready { failing, .. }: &Ready) -> Finding {
    const WHAT: &str = "background duties";
    if failing.is_empty() {
        Finding::ok(WHAT, "no repeated failures")
    } else {
        Finding::fail(WHAT, format!("fail repeatedly: {}", failing.join(", ")), "See the API's log.")
    }
}

/// Checks whether the API accepts new jobs, and how much memory is left.
fn admission(health: &Health) -> Finding {
    const WHAT: &str = "admission of new jobs";
    let redis = &health.redis;
    let (used, max) = (redis.memory_used_bytes, redis.memory_max_bytes);
    let of = if max > 0 { format!(" of {}", output::bytes(max)) } else { String::new() };
    let room = format!(
        "Redis uses {}{of}, {} replicas in sync, waits for {}",
        output::bytes(used),
        redis.replicas,
        health.replicas_to_wait,
    );
    if health.admission.open {
        Finding::ok(WHAT, format!("open; {room}"))
    } else {
        let why = output::text(health.admission.reason.as_deref());
        Finding::fail(WHAT, format!("closed: {why}; {room}"), "See docs/explanation/durability.md for each reason.")
    }
}

/// Checks the tenant, scopes and expiry of the token.
async fn token(client: &Client) -> Finding {
    const WHAT: &str = "token";
    let body = json!({ "token": client.token() });
    let asked = client.http().post(format!("{}/v1/session", client.url())).json(&body).timeout(LIMIT).send().await;
    let answer = match asked {
        Ok(answer) if answer.status().is_success() => answer.json::<Session>().await.unwrap_or_default(),
        Ok(answer) => {
            let problem: Value = answer.json().await.unwrap_or_default();
            return Finding::fail(WHAT, output::cell(&problem["detail"]), "Create another with `stoke token create`.");
        }
        Err(_) => return Finding::fail(WHAT, "the API cannot check it", "See the API's log."),
    };
    judged(&answer, now_ms())
}

fn judged(session: &Session, now_ms: u64) -> Finding {
    let scopes = &session.scopes;
    let found = format!("tenant {}, scopes {}", output::text(session.tenant.as_str()), scopes.join(" "));
    if scopes.is_empty() {
        return Finding::fail(
            "token",
            found,
            "The token has no scopes; create one with `stoke token create --role submit`.",
        );
    }
    let left_ms = session.expires_ms.saturating_sub(now_ms);
    match Some(left_ms).filter(|left| session.expires_ms > 0 && *left < SESSION_MS) {
        Some(left) => {
            let found = format!("{found}; expires in {}", output::millis(left));
            Finding::warn("token", found, "Replace it with `stoke token rotate`; the old token stays valid for a day.")
        }
        None => Finding::ok("token", found),
    }
}

/// Checks for recent webhook deliveries that were abandoned; `None` if the token may not list them or there are none.
async fn deliveries(client: &Client) -> Option<Finding> {
    const WHAT: &str = "webhooks";
    let found = client.get(&query("/v1/webhooks/deliveries", &[("limit", Some(DELIVERIES))])).await.ok()?;
    let all = decode::<DeliveryList>(&found).ok()?.deliveries;
    let is_abandoned = |state: &WebhookDeliveryState| {
        matches!(state, WebhookDeliveryState::Exhausted | WebhookDeliveryState::Disabled)
    };
    let given_up: Vec<&WebhookDelivery> = all.iter().filter(|one| is_abandoned(&one.state)).collect();
    if all.is_empty() {
        return None;
    }
    let Some(first) = given_up.first() else {
        return Some(Finding::ok(WHAT, format!("none of the last {} deliveries was abandoned", all.len())));
    };
    let found = format!(
        "{} of the last {} deliveries were abandoned, e.g. to {}",
        given_up.len(),
        all.len(),
        output::text(first.url.as_str())
    );
    Some(Finding::warn(
        WHAT,
        found,
        "`stoke webhook get ID` shows each try, `stoke doctor --webhook URL` checks the address.",
    ))
}

/// Checks for jobs with unreadable records; `None` if the token may not list them.
async fn quarantine(client: &Client) -> Option<Finding> {
    const WHAT: &str = "quarantine";
    let found = client.get("/v1/quarantine").await.ok()?;
    let found: Quarantine = decode(&found).ok()?;
    Some(match found.jobs.first() {
        None => Finding::ok(WHAT, "empty: every job record is readable"),
        Some(first) => Finding::warn(
            WHAT,
            format!(
                "unreadable: {}, e.g. {}: {}",
                output::counted(found.total, "job record"),
                first.id,
                output::text(first.why.as_str())
            ),
            "List, requeue or discard them with `stoke job quarantined list`.",
        ),
    })
}

#[cfg(test)]
mod tests {
    use stokehold_worker::machine::Verdict;

    use super::*;

    #[test]
    fn a_token_is_told_with_its_rights_and_when_it_ends_soon() {
        let session = |scopes: &[&str], expires_ms: u64| Session {
            tenant: "acme".to_owned(),
            scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
            expires_ms,
        };
        let lasting = judged(&session(&["jobs:read", "jobs:submit"], 12 * 3_600_000), 0);
        assert_eq!(
            (lasting.verdict, lasting.found.as_str()),
            (Verdict::Ok, "tenant acme, scopes jobs:read jobs:submit")
        );
        assert_eq!(judged(&session(&["jobs:read"], 3_600_000), 0).verdict, Verdict::Warn);
        assert_eq!(judged(&session(&[], 12 * 3_600_000), 0).verdict, Verdict::Fail);
    }
}
