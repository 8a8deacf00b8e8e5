//! A lying worker: a rented instance whose host joins as it, makes false claims, and requests data that it was not
//! given.

mod messages;
mod reports;

use serde_json::{Value, json};

use self::messages::{sends_odd_messages, uses_its_token_elsewhere};
use self::reports::{charges_what_it_likes, guesses_fences, stores_where_it_likes};
use crate::api::Api;
use crate::attacks;
use crate::report::{Outcome, Promise, Report};
use crate::stage::{self, CANARY, Stage, Who};

const SURFACE: &str = "worker";

/// Endpoints of the victim that a stranger's machine may not run, with the requirement that excludes it.
const CLOSED: [(&str, &str); 3] = [("owned", "min_trust"), ("shut-in", "min_sandbox"), ("at-home", "regions")];

struct Target {
    stage: Stage,
    /// The tenant that owns the jobs.
    victim: Api,
}

/// A worker that sends requests to the gateway and runs nothing.
pub(crate) struct Liar<'a> {
    stage: &'a Stage,
    token: String,
    pub(crate) id: String,
}

pub(crate) async fn run(report: &mut Report) {
    let target = Target::start().await;
    attacks!(
        report,
        SURFACE,
        "-",
        Promise::Holds,
        &target,
        [
            leases_what_it_may_not_run,
            asks_for_secrets_without_a_lease,
            guesses_fences,
            charges_what_it_likes,
            stores_where_it_likes,
            sends_odd_messages,
            uses_its_token_elsewhere,
        ]
    );
}

impl Target {
    async fn start() -> Self {
        // No worker extends the leases that the attacks hold.
        let stage = Stage::start(Who::Root, &["--workers", "0"], &[("STOKE_LEASE_MS", "20000")]);
        let victim = stage.tenant("victim", &["admin"]).await;
        let secret = victim.request("PUT", "/v1/secrets/TOKEN").json(&json!({"value": CANARY})).send().await.unwrap();
        secret.error_for_status().unwrap();
        let demands = [json!({"min_trust": "owned"}), json!({"min_sandbox": "L2"}), json!({"regions": ["home"]})];
        for ((name, _), demands) in CLOSED.iter().zip(demands) {
            let version = stage::version(name, json!({"demands": demands, "secrets": ["TOKEN"]}));
            let (status, answer) = stage::deploy(&victim, &version).await;
            assert_eq!(status, 201, "{answer}");
            for n in 0..5 {
                victim.submit(name, json!({"canary": CANARY, "n": n})).await;
            }
        }
        let anybodys = json!({"secrets": ["TOKEN"], "demands": {"min_trust": "community"}});
        let (status, answer) = stage::deploy(&victim, &stage::version("anybodys", anybodys)).await;
        assert_eq!(status, 201, "{answer}");
        Self { stage, victim }
    }
}

impl<'a> Liar<'a> {
    /// Joins with a new token of a machine of this trust, and with these claims.
    pub(crate) async fn join(stage: &'a Stage, trust: &str, says: Value) -> Self {
        let token = json!({"name": "stranger", "roles": ["worker"], "trust": trust, "region": "abroad"});
        let joined = Self::try_join(stage, &stage.token(&token).await, says).await;
        joined.unwrap_or_else(|answer| panic!("it may not join: {answer}"))
    }

    /// Joins with this token.
    ///
    /// # Errors
    /// Any other response of the gateway.
    pub(crate) async fn try_join(stage: &'a Stage, token: &str, says: Value) -> Result<Self, String> {
        let mut request = json!({"protocol": 1, "release": "1.2.3", "name": "liar", "slots": 4, "gpus": []});
        for (name, value) in says.as_object().unwrap() {
            request[name] = value.clone();
        }
        let joined = stage.as_token(token).request("POST", "/worker/v1/join").json(&request).send().await.unwrap();
        if !joined.status().is_success() {
            return Err(joined.text().await.unwrap());
        }
        let joined: Value = joined.json().await.unwrap();
        let text = |name: &str| joined[name].as_str().unwrap().to_owned();
        Ok(Self { stage, token: text("token"), id: text("worker_id") })
    }

    /// Sends a GET. Returns the status and the response.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        let api = self.stage.as_token(&self.token);
        let answer = api.request("GET", &format!("/worker/v1/{path}")).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap_or_default())
    }

    /// Sends a message. Returns the status and the response.
    pub(crate) async fn post(&self, verb: &str, body: &Value) -> (u16, Value) {
        self.post_text(verb, body.to_string()).await
    }

    async fn post_text(&self, verb: &str, body: String) -> (u16, Value) {
        let api = self.stage.as_token(&self.token);
        let answer = api.request("POST", &format!("/worker/v1/{verb}")).header("content-type", "application/json");
        let answer = answer.body(body).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap_or(Value::Null))
    }

    /// Leases as many jobs as it can at once.
    pub(crate) async fn lease(&self, offer: Value) -> Vec<Value> {
        let mut request = json!({"want": 10, "reach_gib": 0, "wait_ms": 0});
        for (name, value) in offer.as_object().unwrap() {
            request[name] = value.clone();
        }
        let (_, answer) = self.post("lease", &request).await;
        answer["leases"].as_array().cloned().unwrap_or_default()
    }
}

/// Makes every claim that a lease call allows, with workers that report different properties.
async fn leases_what_it_may_not_run(target: &Target) -> Outcome {
    let gpu = json!({"index": 0, "uuid": "GPU-1", "name": "Test 24", "vram_mib": 24_576, "compute_capability": "9.0"});
    let says = [
        json!({}),
        json!({"sandbox": "L0"}),
        json!({"sandbox": "L1", "gpus": [gpu]}),
        json!({"name": "home", "region": "home", "trust": "owned", "sandbox": "L1"}),
        json!({"slots": 1_000}),
    ];
    let mut outcome = Outcome::default();
    for says in says {
        let liar = Liar::join(&target.stage, "community", says.clone()).await;
        for (endpoint, what) in CLOSED {
            for version in [1, 0, 2].into_iter().take(stage::size(1, 3)) {
                for card_gib in [0_u64, 1, 1_000, u64::from(u32::MAX)] {
                    for takes in [1, 5, u32::MAX] {
                        let model = json!({"tenant": "victim", "endpoint": endpoint, "version": version, "takes": takes, "card_gib": card_gib});
                        let warm = json!([model]);
                        let card = json!({"index": 0, "reach_gib": card_gib, "whole_gib": card_gib});
                        let offers = [
                            json!({"warm": warm}),
                            json!({"warm": warm, "reach_gib": card_gib, "cold_ms": 0}),
                            json!({"warm": [model, model], "cards": [card], "reach_gib": 1_000, "cold_ms": u64::MAX}),
                            json!({"only": card_gib, "warm": warm, "cards": [card]}),
                        ];
                        for offer in offers {
                            let leases = liar.lease(offer.clone()).await;
                            let wrong: Vec<_> = leases.iter().filter(|lease| is_closed(lease)).collect();
                            outcome.open_if(!wrong.is_empty(), || {
                                format!("{endpoint} ({what}) to one that says {says}, by {offer}")
                            });
                            give_back(&liar, &leases).await;
                        }
                    }
                }
            }
        }
    }
    outcome
}

fn is_closed(lease: &Value) -> bool {
    CLOSED.iter().any(|(name, _)| lease["endpoint"] == *name)
}

async fn give_back(liar: &Liar<'_>, leases: &[Value]) {
    let held: Vec<_> = leases.iter().map(|lease| json!({"job_id": lease["job_id"], "fence": lease["fence"]})).collect();
    if !held.is_empty() {
        liar.post("release", &json!({"leases": held})).await;
    }
}

/// Requests secrets of models: without a lease, with a lease of another model, with an ended one, with invented ones.
async fn asks_for_secrets_without_a_lease(target: &Target) -> Outcome {
    let liar = Liar::join(&target.stage, "community", json!({})).await;
    let job = target.victim.submit("anybodys", json!({})).await;
    let leases = liar.lease(json!({})).await;
    let lease = leases.iter().find(|lease| lease["job_id"] == job.as_str()).expect("it may run these").clone();
    let held = json!({"job_id": lease["job_id"], "fence": lease["fence"]});
    // The attack works where it is allowed: with a lease of that very model.
    let own = json!({"model": {"tenant": "victim", "endpoint": "anybodys", "version": 1}, "lease": held});
    let (_, answer) = liar.post("secrets", &own).await;
    assert!(answer.to_string().contains(CANARY), "{answer}");

    let others = target.victim.get("/v1/jobs?limit=100").await;
    let others: Vec<String> =
        others["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap().to_owned()).collect();
    let mut tried: Vec<Value> = Vec::new();
    for (endpoint, _) in CLOSED {
        let model = |version: u64| json!({"tenant": "victim", "endpoint": endpoint, "version": version});
        for version in [0, 1, 2, u64::from(u32::MAX)] {
            tried.push(json!({"model": model(version)}));
            tried.push(json!({"model": model(version), "lease": held}));
            tried.push(json!({"model": model(version), "lease": null}));
        }
        for other in &others {
            for fence in [lease["fence"].as_str().unwrap(), "1.0000000000000000", "", "0", "1", "*", "1.*"] {
                tried.push(json!({"model": model(1), "lease": {"job_id": other, "fence": fence}}));
            }
        }
    }
    let mut outcome = Outcome::default();
    for request in &tried {
        let (_, answer) = liar.post("secrets", request).await;
        outcome.open_if(answer.to_string().contains(CANARY), || request.to_string());
    }
    give_back(&liar, &leases).await;
    let (_, answer) = liar.post("secrets", &own).await;
    outcome.open_if(answer.to_string().contains(CANARY), || "a lease that was given back".to_owned());
    outcome
}
