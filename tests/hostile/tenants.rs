//! Attacks of one tenant on another with its own tokens: on data that it may not see, rights that it may not obtain,
//! and resources that it may not take.

pub(crate) mod flood;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::api::Api;
use crate::attacks;
use crate::report::{Outcome, Promise, Report};
use crate::stage::{self, CANARY, Stage, Who};

const SURFACE: &str = "tenants";

/// Names with a special meaning elsewhere.
const ODD: [&str; 14] = [
    "*",
    "?",
    "[a-z]*",
    "..%2fvictim",
    "%2e%2e",
    "%00",
    "victim%00",
    "victim%20",
    "VICTIM",
    "v%C3%ADctim",
    "{victim}",
    "%E2%80%AEmitciv",
    "victim:owned",
    "%F0%9F%92%A9",
];

struct Target {
    stage: Stage,
    victim: Api,
    attacker: Api,
    /// Ids of the victim, by the words of paths for them.
    ids: Vec<String>,
    document: Value,
}

pub(crate) async fn run(report: &mut Report) {
    let target = Target::start().await;
    attacks!(
        report,
        SURFACE,
        "-",
        Promise::Holds,
        &target,
        [sees_nothing_of_others, names_itself_otherwise, becomes_nobody_else]
    );
    drop(target);
    flood::run(report).await;
}

impl Target {
    async fn start() -> Self {
        let stage = Stage::start(Who::Root, &["--workers", "0"], &[]);
        let (victim, attacker) = (stage.tenant("victim", &["admin"]).await, stage.tenant("attacker", &["admin"]).await);
        let (status, answer) =
            stage::deploy(&victim, &stage::version("owned", json!({"env": {"CANARY": CANARY}}))).await;
        assert_eq!(status, 201, "{answer}");
        let mut ids = vec![victim.submit("owned", json!({"canary": CANARY})).await];
        let made = [
            ("POST", "/v1/tokens", json!({"name": CANARY, "roles": ["read"]})),
            (
                "POST",
                "/v1/schedules",
                json!({"name": CANARY, "cron": "0 0 1 1 *", "job": {"endpoint": "owned", "input": CANARY}}),
            ),
            ("POST", "/v1/files", json!({"name": CANARY, "size_bytes": 1, "sha256": "0".repeat(64)})),
            ("PUT", "/v1/secrets/CANARY", json!({"value": CANARY})),
            ("POST", "/v1/batches", json!({"endpoint": "owned", "input_file": "none"})),
        ];
        for (method, path, body) in made {
            let answer = victim.request(method, path).json(&body).send().await.unwrap();
            let answer: Value = answer.json().await.unwrap_or(Value::Null);
            ids.extend(
                [&answer["id"], &answer["record"]["id"]].into_iter().filter_map(Value::as_str).map(str::to_owned),
            );
        }
        let document = stage.api.get("/openapi.json").await;
        Self { stage, victim, attacker, ids, document }
    }

    /// Every operation with every id of the victim in its path.
    fn operations(&self) -> BTreeSet<(String, String)> {
        let mut found = BTreeSet::new();
        for (path, methods) in self.document["paths"].as_object().unwrap() {
            for method in methods.as_object().unwrap().keys().map(|method| method.to_uppercase()) {
                for id in &self.ids {
                    let filled = path.replace("{id}", id).replace("{name}", "owned").replace("{tenant}", "victim");
                    let filled = filled.split('/').map(|part| if part.starts_with('{') { id.as_str() } else { part });
                    found.insert((method.clone(), filled.collect::<Vec<_>>().join("/")));
                }
            }
        }
        found
    }

    /// The victim's data, as the victim sees it.
    async fn whole(&self) -> String {
        let mut all = String::new();
        for path in
            ["/v1/jobs?limit=100", "/v1/endpoints", "/v1/endpoints/owned/versions", "/v1/schedules", "/v1/secrets"]
        {
            all += &self.victim.request("GET", path).send().await.unwrap().text().await.unwrap();
        }
        all
    }
}

/// Whether a response contains data of the victim, or reveals too much by its failure.
async fn told(answer: reqwest::Response) -> Option<String> {
    let status = answer.status().as_u16();
    // A stream does not end; its beginning is sufficient.
    let mut said = Vec::new();
    let mut answer = answer;
    while let Ok(Ok(Some(part))) = tokio::time::timeout(std::time::Duration::from_millis(500), answer.chunk()).await {
        said.extend_from_slice(&part);
    }
    let said = String::from_utf8_lossy(&said).into_owned();
    (said.contains(CANARY) || status >= 500).then(|| format!("{status} {said:.200}"))
}

/// Every operation of the API's own document, with the victim's ids.
async fn sees_nothing_of_others(target: &Target) -> Outcome {
    let before = target.whole().await;
    assert!(before.contains(CANARY), "there is something to be seen: {before}");
    let mut outcome = Outcome::default();
    let (nobody, all) = (target.stage.as_token("sk_0"), target.operations());
    for (n, (method, path)) in all.iter().enumerate() {
        if !stage::is_full() && n % 3 != 0 {
            continue;
        }
        for api in [&target.attacker, &nobody] {
            let request = api.request(method, path);
            let request = if method == "GET" || method == "DELETE" { request } else { request.json(&json!({})) };
            let got = told(request.send().await.unwrap()).await;
            outcome.tried(got.map(|got| format!("{method} {path}: {got}")));
        }
    }
    for id in &target.ids {
        for path in [
            format!("/v1/jobs?batch={id}"),
            format!("/v1/jobs?schedule={id}"),
            format!("/v1/jobs?cursor={id}"),
            "/v1/jobs?endpoint=owned&limit=100&tenant=victim".to_owned(),
            "/v1/costs?by=job&tenant=victim".to_owned(),
            format!("/v1/audit?tenant=victim&after={id}"),
            "/v1/series?tenant=victim".to_owned(),
            "/v1/live?topics=queue,jobs,fleet,batches,costs&tenant=victim".to_owned(),
        ] {
            let got = told(target.attacker.request("GET", &path).send().await.unwrap()).await;
            outcome.tried(got.map(|got| format!("{path}: {got}")));
        }
        for body in [
            json!({"endpoint": "mine", "input": {"$file": id}}),
            json!({"endpoint": "mine", "input": {}, "depends_on": [id]}),
            json!({"endpoint": "victim/owned", "input": {}}),
            json!({"endpoint": "owned", "input": {}, "tenant": "victim"}),
        ] {
            let got = told(target.attacker.request("POST", "/v1/jobs").json(&body).send().await.unwrap()).await;
            outcome.tried(got.map(|got| format!("{body}: {got}")));
        }
    }
    let after = target.whole().await;
    outcome.open_if(before != after, || format!("something of the victim's is not as it was: {before} {after}"));
    outcome
}

/// Names in paths with a meaning for Redis, S3, a file system or a proxy.
async fn names_itself_otherwise(target: &Target) -> Outcome {
    let mut outcome = Outcome::default();
    let paths: Vec<&String> =
        target.document["paths"].as_object().unwrap().keys().filter(|path| path.contains('{')).collect();
    for path in paths {
        for odd in ODD {
            let filled: Vec<&str> =
                path.split('/').map(|part| if part.starts_with('{') { odd } else { part }).collect();
            let got = told(target.attacker.request("GET", &filled.join("/")).send().await.unwrap()).await;
            outcome.tried(got.map(|got| format!("{filled:?}: {got}")));
        }
    }
    outcome
}

/// Tokens beyond its own rights, tenants of others, limits, join tokens.
async fn becomes_nobody_else(target: &Target) -> Outcome {
    let mut wishes = Vec::new();
    for scope in [
        "workers:join",
        "workers:read",
        "tenants:write",
        "tenants:read",
        "limits:write",
        "limits:read",
        "secrets:rewrap",
        "*",
        "jobs:*",
        "operator",
    ] {
        wishes.push(("/v1/tokens", json!({"name": "x", "scopes": [scope]})));
        wishes.push(("/v1/tokens", json!({"name": "x", "scopes": ["jobs:read", scope]})));
    }
    for role in ["operator", "worker", "root", "OPERATOR", "operator\u{0}"] {
        wishes.push(("/v1/tokens", json!({"name": "x", "roles": [role]})));
        wishes.push(("/v1/tokens", json!({"name": "x", "roles": [role], "tenant": "attacker", "trust": "owned"})));
    }
    for tenant in ["victim", "default", "VICTIM", "victim ", "", "*"] {
        wishes.push(("/v1/tokens", json!({"name": "x", "roles": ["read"], "tenant": tenant})));
    }
    wishes.push(("/v1/tenants", json!({"name": "another"})));
    wishes.push(("/v1/tenants/victim/disable", json!({})));
    wishes.push(("/v1/tenants/attacker/enable", json!({})));
    wishes.push(("/v1/secrets/rewrap", json!({})));
    wishes.push(("/v1/quarantine/readmit", json!({"ids": target.ids})));
    let mut outcome = Outcome::default();
    for (path, body) in wishes {
        let answer = target.attacker.request("POST", path).json(&body).send().await.unwrap();
        let status = answer.status().as_u16();
        outcome.open_if(!(400..500).contains(&status), || format!("{path} {body}: {status}"));
    }
    for (path, body) in [
        ("/v1/limits/victim", json!({"weight": 1})),
        ("/v1/limits/attacker", json!({"weight": 1000})),
        ("/v1/limits/attacker/endpoints/x", json!({"weight": 2})),
    ] {
        let answer = target.attacker.request("PUT", path).json(&body).send().await.unwrap();
        let status = answer.status().as_u16();
        outcome.open_if(!(400..500).contains(&status), || format!("{path} {body}: {status}"));
    }
    outcome
}
