//! The worker of a rented instance: it joins only as that instance, and only while the instance is wanted.

use std::time::Duration;

use serde_json::{Value, json};
use stokehold_api::token::for_machine;
use stokehold_queue::Registry;
use stokehold_queue::registry::{MachineRecord, Term, Wanted};
use stokehold_queue::requirements::Trust;

use crate::stack::{PATIENCE, Stack, echo, shown};
use crate::worker::{joining, post};

/// One rented instance, `m-1`, and the autoscaler that leads.
struct Rented {
    stack: Stack,
    registry: Registry,
    term: Term,
}

fn text(answer: &Value, name: &str) -> String {
    answer[name].as_str().unwrap().to_owned()
}

impl Rented {
    async fn start() -> Self {
        let stack = Stack::start().await;
        let registry = stack.queue.registry();
        let term = registry.lead("test", 600_000).await.unwrap().unwrap();
        let rented = Self { stack, registry, term };
        rented.want(Wanted::Running).await;
        rented
    }

    async fn want(&self, wanted: Wanted) {
        self.want_offer(wanted, Value::Null).await;
    }

    async fn want_offer(&self, wanted: Wanted, offer: Value) {
        let machine = MachineRecord {
            id: "m-1".to_owned(),
            provider: "cloud".to_owned(),
            rental: None,
            offer,
            wanted,
            wanted_ms: 1,
            is_done: true,
            rented_ms: 1,
            drained_ms: None,
            then: None,
            usd_micros_per_hour: 345_000,
            agreed_usd_micros_per_hour: None,
            booting_usd_micros_per_hour: None,
            made_ms: None,
            listed_ms: None,
            released_ms: None,
            stopped_usd_micros_per_hour: 0,
            is_interruptible: false,
            missed_ms: None,
            on_disk: Vec::new(),
        };
        assert!(self.registry.put_machine(self.term, &machine).await.unwrap());
    }

    async fn invite(&self) -> String {
        let (record, token) = for_machine("m-1", "acme", (Trust::Community, "eu"), &self.stack.key).unwrap();
        self.registry.put_token(&record).await.unwrap();
        token.expose().to_owned()
    }

    fn join(&self, token: &str) -> reqwest::RequestBuilder {
        post(&self.stack, "join", token, &joining("somebody"))
    }

    async fn joined(&self, token: &str) -> Value {
        self.stack.json(self.join(token)).await
    }

    async fn is_refused(&self, token: &str) -> bool {
        let (status, code) = self.stack.problem(self.join(token)).await;
        assert_eq!((status, code.as_str()), (401, "unauthorized"));
        true
    }

    /// Repeats a call until its response has this status.
    async fn until(&self, status: u16, verb: &str, token: &str, body: &Value) {
        let answered = async {
            while post(&self.stack, verb, token, body).send().await.unwrap().status() != status {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(PATIENCE, answered).await.expect("it is answered so at last");
    }
}

#[tokio::test]
async fn a_rented_machine_joins_as_itself_whatever_it_says() {
    let rented = Rented::start().await;
    let token = rented.invite().await;
    let mut request = joining("another");
    request["price_usd_micros_per_hour"] = json!(1);
    let answer = post(&rented.stack, "join", &token, &request).send().await.unwrap();
    insta::assert_json_snapshot!("join", shown(answer).await);
    let workers = rented.registry.workers().await.unwrap();
    let worker = &workers[0];
    assert_eq!((worker.name.as_str(), worker.price_usd_micros_per_hour), ("m-1", 345_000));
    assert_eq!((worker.trust, worker.region.as_str()), (Trust::Community, "eu"));
}

#[tokio::test]
async fn each_join_answers_what_the_next_one_is_made_with_and_spends_the_last() {
    let rented = Rented::start().await;
    let first = rented.invite().await;
    let lost = rented.joined(&first).await;
    // The response was lost, so the instance repeats the request; the secret in the lost response is invalid.
    let second = text(&rented.joined(&first).await, "rejoin_token");
    assert!(rented.is_refused(&text(&lost, "rejoin_token")).await);
    let third = text(&rented.joined(&second).await, "rejoin_token");
    assert!(rented.is_refused(&first).await, "it is spent once the next was used");
    rented.joined(&third).await;
    assert!(rented.is_refused(&second).await);
    assert_eq!(rented.registry.tokens().await.unwrap().iter().filter(|token| token.machine.is_some()).count(), 1);
}

#[tokio::test]
async fn only_a_machine_that_is_to_run_joins() {
    let rented = Rented::start().await;
    let token = rented.invite().await;
    rented.want(Wanted::Stopped).await;
    assert!(rented.is_refused(&token).await);
    rented.want(Wanted::Gone).await;
    assert!(rented.is_refused(&token).await);
    // A refused join does not use up the token.
    rented.want(Wanted::Running).await;
    let next = text(&rented.joined(&token).await, "rejoin_token");
    assert!(rented.registry.drop_machine(rented.term, "m-1").await.unwrap());
    assert!(rented.is_refused(&next).await);
}

#[tokio::test]
async fn a_worker_of_a_machine_that_is_given_back_is_no_worker_any_more() {
    let rented = Rented::start().await;
    let worker = text(&rented.joined(&rented.invite().await).await, "token");
    let (lease, beat) = (json!({"want": 1, "reach_gib": 24, "wait_ms": 0}), json!({"leases": [], "status": {}}));
    rented.until(200, "extend", &worker, &beat).await;
    rented.want(Wanted::Gone).await;
    for (verb, body) in [
        ("extend", &beat),
        ("lease", &lease),
        ("finish", &json!({"finish": []})),
        ("release", &json!({"leases": []})),
        ("events", &json!({"events": []})),
    ] {
        rented.until(401, verb, &worker, body).await;
    }
}

#[tokio::test]
async fn a_worker_of_a_machine_that_is_to_be_stopped_gets_nothing_and_ends_what_it_has() {
    let rented = Rented::start().await;
    let mut endpoint = echo();
    endpoint["demands"] = json!({"min_trust": "community"});
    rented.stack.deploy(endpoint).await;
    let worker = text(&rented.joined(&rented.invite().await).await, "token");
    let ask = || post(&rented.stack, "lease", &worker, &json!({"want": 1, "reach_gib": 24, "wait_ms": 0}));
    rented.stack.submit("held").await;
    let held = rented.stack.json(ask()).await["leases"][0].clone();
    assert!(held["job_id"].is_string(), "{held}");
    rented.want(Wanted::Stopped).await;
    // This replica uses the record that it read within the last second.
    let mut given = 0;
    let refused = async {
        loop {
            rented.stack.submit("more").await;
            let leases = rented.stack.json(ask()).await["leases"].as_array().map_or(0, Vec::len);
            if leases == 0 {
                break;
            }
            given += leases;
        }
    };
    tokio::time::timeout(PATIENCE, refused).await.expect("it is given nothing at last");
    let report = json!({"job_id": held["job_id"], "fence": held["fence"], "outcome": "succeeded", "result": "done"});
    let told = rented.stack.json(post(&rented.stack, "finish", &worker, &json!({"finish": [report]}))).await;
    assert_eq!(told["finished"], json!(["ok"]), "after {given} more");
}

#[tokio::test]
async fn a_host_that_may_not_run_an_endpoint_is_not_shown_its_code() {
    let rented = Rented::start().await;
    let worker = text(&rented.joined(&rented.invite().await).await, "token");
    for (trust, version, status) in [("owned", 1, 404), ("community", 2, 200)] {
        let mut endpoint = echo();
        endpoint["demands"] = json!({"min_trust": trust});
        rented.stack.deploy(endpoint).await;
        // The worker reports the model as loaded, and asks for its jobs.
        rented.stack.submit("hi").await;
        let warm = json!([{"tenant": "acme", "endpoint": "echo", "version": version, "takes": 5, "card_gib": 0}]);
        let ask = json!({"want": 1, "reach_gib": 0, "wait_ms": 0, "warm": warm});
        rented.stack.json(post(&rented.stack, "lease", &worker, &ask)).await;
        let url = format!("{}/worker/v1/endpoints/acme/echo/{version}", rented.stack.url);
        let shown = rented.stack.client.get(url).bearer_auth(&worker).send().await.unwrap();
        assert_eq!(shown.status(), status, "{trust}");
    }
}

#[tokio::test]
async fn a_rented_machine_has_the_slots_of_the_ledger_whatever_it_says() {
    let rented = Rented::start().await;
    rented.want_offer(Wanted::Running, json!({"slots": 1, "cards": 1})).await;
    let mut endpoint = echo();
    endpoint["demands"] = json!({"min_trust": "community"});
    rented.stack.deploy(endpoint).await;
    let jobs: Vec<Value> = (0..305).map(|n| json!({"endpoint": "echo", "input": {"text": n.to_string()}})).collect();
    rented.stack.json(rented.stack.post("/v1/jobs/bulk", &json!({"jobs": jobs}))).await;
    let mut request = joining("somebody");
    request["slots"] = json!(1_000);
    let joined = rented.stack.json(post(&rented.stack, "join", &rented.invite().await, &request)).await;
    let mut leases = 0;
    for _ in 0..7 {
        let ask = json!({"want": 100, "reach_gib": 0, "wait_ms": 0});
        let reply = rented.stack.json(post(&rented.stack, "lease", &text(&joined, "token"), &ask)).await;
        leases += reply["leases"].as_array().map_or(0, Vec::len);
    }
    assert_eq!(leases, 1 + 32);
}

#[tokio::test]
async fn a_rented_machine_that_was_evicted_does_not_join_again() {
    let rented = Rented::start().await;
    let joined = rented.joined(&rented.invite().await).await;
    let path = format!("/v1/workers/{}/evict", text(&joined, "worker_id"));
    rented.stack.json(rented.stack.post(&path, &json!({}))).await;
    let beat = json!({"leases": [], "status": {}});
    rented.until(401, "extend", &text(&joined, "token"), &beat).await;
    let refused = async |token: &str| {
        assert_eq!(rented.stack.problem(rented.join(token)).await, (403, "forbidden".to_owned()));
    };
    refused(&text(&joined, "rejoin_token")).await;
    refused(&rented.invite().await).await;
}

/// A worker may report any model as loaded, so the report proves nothing.
#[tokio::test]
async fn a_worker_is_leased_no_job_that_it_may_not_run_whatever_it_says_is_loaded() {
    let rented = Rented::start().await;
    let worker = text(&rented.joined(&rented.invite().await).await, "token");
    let demands = [
        json!({"min_trust": "owned"}),
        json!({"min_trust": "community", "min_sandbox": "L2"}),
        json!({"min_trust": "community", "regions": ["mars"]}),
    ];
    for (n, demands) in demands.into_iter().enumerate() {
        let mut endpoint = echo();
        endpoint["name"] = json!(format!("private{n}"));
        endpoint["demands"] = demands;
        rented.stack.deploy(endpoint).await;
        let job = json!({"endpoint": format!("private{n}"), "input": {"text": "secret"}});
        rented.stack.json(rented.stack.post("/v1/jobs", &job)).await;
    }
    let warm: Vec<Value> = (0..3)
        .map(|n| json!({"tenant": "acme", "endpoint": format!("private{n}"), "version": 1, "takes": 5, "card_gib": 1000}))
        .collect();
    for reach_gib in [0, 1000] {
        let ask = json!({"want": 10, "reach_gib": reach_gib, "wait_ms": 0, "warm": warm});
        let reply = rented.stack.json(post(&rented.stack, "lease", &worker, &ask)).await;
        assert_eq!(reply.get("leases"), None, "{reply}");
    }
}
