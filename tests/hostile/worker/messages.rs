//! Invalid messages, and tokens used at the wrong API.

use serde_json::json;

use super::{Liar, Target};
use crate::report::Outcome;
use crate::stage::CANARY;

/// Sends invalid messages to every route.
pub(super) async fn sends_odd_messages(target: &Target) -> Outcome {
    let liar = Liar::join(&target.stage, "community", json!({})).await;
    let deep = "[".repeat(100_000);
    let wide = format!("{{\"leases\": [{}1]}}", "1,".repeat(200_000));
    let bodies = [
        "",
        "null",
        "1",
        "[]",
        "{}",
        "\"x\"",
        "{\"want\": -1}",
        "{\"want\": 1e309}",
        "{\"want\": 4294967296}",
        "{\"want\": 101, \"reach_gib\": 0, \"wait_ms\": 0}",
        "{\"want\": 1, \"want\": 2}",
        "{\"leases\": null}",
        "{\"\\ud800\": 1}",
        "\u{feff}{}",
        "{\"events\": [{\"job_id\": \"*\", \"fence\": \"*\"}]}",
        "{\"finish\": [{\"job_id\": \"0192f0c1a2b37cde8f00112233445500\", \"fence\": \"1.x\", \"outcome\": \"none\"}]}",
        "{\"want\": 1, \"reach_gib\": 4294967295, \"wait_ms\": 18446744073709551615, \"cold_ms\": 18446744073709551615}",
        deep.as_str(),
        wide.as_str(),
    ];
    let mut outcome = Outcome::default();
    for verb in
        ["join", "lease", "extend", "finish", "release", "events", "uploads", "secrets", "nothing", "../v1/jobs"]
    {
        for body in bodies {
            // A call that would wait ends with the test's timeout otherwise.
            let sent =
                tokio::time::timeout(std::time::Duration::from_secs(30), liar.post_text(verb, body.to_owned())).await;
            let is_bad = sent.as_ref().is_ok_and(|(status, _)| *status >= 500) || sent.is_err();
            outcome.open_if(is_bad, || format!("{verb}: {:.60}: {sent:?}", body));
        }
    }
    for path in [
        "endpoints/victim/owned/0",
        "endpoints/*/owned/1",
        "endpoints/victim/../1",
        "endpoints/victim/owned/x",
        "endpoints/%00/x/1",
        "endpoints/victim%2fowned/1/1",
    ] {
        let (status, _) = liar.get(path).await;
        outcome.open_if(!(400..500).contains(&status), || format!("{path}: {status}"));
    }
    let lives = target.stage.api.request("GET", "/healthz").send().await.unwrap().status();
    outcome.open_if(!lives.is_success(), || format!("the API answers {lives} after it"));
    outcome
}

/// Uses a worker's token and a join token at the public API, and an API token at the gateway.
pub(super) async fn uses_its_token_elsewhere(target: &Target) -> Outcome {
    let liar = Liar::join(&target.stage, "owned", json!({})).await;
    let join = target.stage.token(&json!({"name": "join", "roles": ["worker"]})).await;
    let document = target.stage.api.get("/openapi.json").await;
    let mut outcome = Outcome::default();
    let nobody = target.stage.as_token("");
    for (path, methods) in document["paths"].as_object().unwrap() {
        let filled = path
            .replace("{tenant}", "victim")
            .replace("{name}", "owned")
            .replace("{id}", "0192f0c1a2b37cde8f00112233445500");
        for method in methods.as_object().unwrap().keys() {
            let public = nobody.request(&method.to_uppercase(), &filled).send().await.unwrap().status();
            if public.is_success() || public.is_redirection() {
                continue;
            }
            for token in [&liar.token, &join] {
                let api = target.stage.as_token(token);
                let answer = api.request(&method.to_uppercase(), &filled).json(&json!({})).send().await.unwrap();
                let (status, said) = (answer.status().as_u16(), answer.text().await.unwrap_or_default());
                outcome.open_if(!(400..500).contains(&status) || said.contains(CANARY), || {
                    format!("{method} {path}: {status} {said:.200}")
                });
            }
        }
    }
    for verb in ["join", "lease", "extend", "finish", "release", "events", "uploads", "secrets"] {
        let answer =
            target.victim.request("POST", &format!("/worker/v1/{verb}")).json(&json!({})).send().await.unwrap();
        let status = answer.status().as_u16();
        outcome.open_if(!(400..500).contains(&status), || format!("{verb} with a tenant's token: {status}"));
    }
    outcome
}
