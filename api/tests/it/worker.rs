//! A worker as the gateway sees it, and what the gateway owes it.

use serde_json::{Value, json};
use stokehold_queue::gateway::PROTOCOL;
use stokehold_queue::job::Priority;
use stokehold_queue::now_ms;
use stokehold_queue::registry::{AutoscalerStatus, Decision, Eta, Notice};

use crate::stack::{Stack, sha256, shown};

/// A joined worker that runs nothing: tests say what it reports.
pub(crate) struct Worker<'a> {
    stack: &'a Stack,
    token: String,
    pub(crate) id: String,
}

impl<'a> Worker<'a> {
    pub(crate) async fn join(stack: &'a Stack) -> Self {
        let token = stack.join_token(false).await;
        let reply = stack.json(post(stack, "join", &token, &joining("rack"))).await;
        let text = |name: &str| reply[name].as_str().unwrap().to_owned();
        Self { stack, token: text("token"), id: text("worker_id") }
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    pub(crate) fn post(&self, verb: &str, body: &Value) -> reqwest::RequestBuilder {
        post(self.stack, verb, &self.token, body)
    }

    pub(crate) fn get(&self, path: &str) -> reqwest::RequestBuilder {
        self.stack.client.get(format!("{}/worker/v1/{path}", self.stack.url)).bearer_auth(&self.token)
    }

    /// Leases one job, waiting for it.
    pub(crate) async fn lease(&self) -> Value {
        let reply = self.stack.json(self.post("lease", &json!({"want": 1, "reach_gib": 0, "wait_ms": 20_000}))).await;
        reply["leases"][0].clone()
    }

    pub(crate) async fn succeed(&self, lease: &Value, result: Value) -> Value {
        let report =
            json!({"job_id": lease["job_id"], "fence": lease["fence"], "outcome": "succeeded", "result": result});
        self.stack.json(self.post("finish", &json!({"finish": [report]}))).await["finished"][0].clone()
    }

    pub(crate) async fn fail(&self, lease: &Value, code: &str) -> Value {
        let error = json!({"code": code, "message": "no luck"});
        let report = json!({"job_id": lease["job_id"], "fence": lease["fence"], "outcome": "failed", "error": error});
        self.stack.json(self.post("finish", &json!({"finish": [report]}))).await["finished"][0].clone()
    }

    /// Tells one event of a job.
    pub(crate) async fn tell(&self, lease: &Value, mut event: Value) {
        event["job_id"] = lease["job_id"].clone();
        event["fence"] = lease["fence"].clone();
        self.stack.json(self.post("events", &json!({"events": [event]}))).await;
    }
}

pub(crate) fn post(stack: &Stack, verb: &str, token: &str, body: &Value) -> reqwest::RequestBuilder {
    stack.client.post(format!("{}/worker/v1/{verb}", stack.url)).bearer_auth(token).body(body.to_string())
}

pub(crate) fn joining(name: &str) -> Value {
    let gpu = json!({"index": 0, "uuid": "GPU-1", "name": "Test 24", "vram_mib": 24576});
    json!({"protocol": PROTOCOL, "release": "1.2.3", "name": name, "slots": 4, "gpus": [gpu]})
}

#[tokio::test]
async fn a_worker_joins_leases_reports_and_is_listed() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let token = stack.join_token(true).await;
    let joined = post(&stack, "join", &token, &joining("desk")).send().await.unwrap();
    insta::assert_json_snapshot!("join", shown(joined).await);
    let again = post(&stack, "join", &token, &joining("desk"));
    assert_eq!(stack.problem(again).await, (401, "unauthorized".to_owned()), "a single-use token is spent");

    let worker = Worker::join(&stack).await;
    let id = stack.submit("hi").await;
    let leased = worker.post("lease", &json!({"want": 1, "reach_gib": 0, "wait_ms": 0})).send().await.unwrap();
    let leased = shown(leased).await;
    insta::assert_json_snapshot!("lease", leased);

    stack.queue.registry().worker(&worker.id).await.unwrap().expect("is kept");
    let lease = {
        // The snapshot hides the fence; a second job's lease shows it.
        stack.submit("again").await;
        worker.lease().await
    };
    let held = json!({"leases": [{"job_id": lease["job_id"], "fence": lease["fence"]}], "status": {
        "loaded": ["echo@1"], "running": 1, "gpus": [{"index": 0, "vram_used_mib": 1000, "temperature_c": 60}],
    }});
    let extended = worker.post("extend", &held).send().await.unwrap();
    insta::assert_json_snapshot!("extend", shown(extended).await);
    insta::assert_json_snapshot!("workers", shown(stack.get("/v1/workers").send().await.unwrap()).await);

    let report = json!({"job_id": lease["job_id"], "fence": lease["fence"], "outcome": "succeeded", "result": {"b": 1, "a": [2.50]}});
    let finished = worker.post("finish", &json!({"finish": [report]})).send().await.unwrap();
    insta::assert_json_snapshot!("finish", shown(finished).await);
    let repeated = worker.post("finish", &json!({"finish": [report]})).send().await.unwrap();
    insta::assert_json_snapshot!("finish_repeated", shown(repeated).await);
    let after = worker.post("extend", &held).send().await.unwrap();
    insta::assert_json_snapshot!("extend_lost", shown(after).await);

    let result = stack.get(&format!("/v1/jobs/{}/result", lease["job_id"].as_str().unwrap()));
    assert_eq!(result.send().await.unwrap().text().await.unwrap(), r#"{"a":[2.5],"b":1}"#);
    assert_eq!(stack.job(&id).await["state"], "running");
}

#[tokio::test]
async fn reports_ride_with_the_next_lease() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let worker = Worker::join(&stack).await;
    let (first, second) = (stack.submit("1").await, stack.submit("2").await);
    let lease = worker.lease().await;
    assert_eq!(lease["job_id"], first.as_str());
    let report = json!({"job_id": first, "fence": lease["fence"], "outcome": "failed", "timing": {"run_ms": 7},
        "error": {"code": "rejected", "class": "Reject", "message": "not this"}});
    let both = worker.post("lease", &json!({"want": 5, "reach_gib": 0, "wait_ms": 1000, "finish": [report]}));
    let both = stack.json(both).await;
    assert_eq!(both["finished"], json!(["ok"]));
    assert_eq!(both["leases"][0]["job_id"], second.as_str());
    let job = shown(stack.get(&format!("/v1/jobs/{first}")).send().await.unwrap()).await;
    insta::assert_json_snapshot!("job_failed", job);
}

#[tokio::test]
async fn a_released_job_goes_to_the_next_worker() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let id = stack.submit("hi").await;
    let (first, second) = (Worker::join(&stack).await, Worker::join(&stack).await);
    let lease = first.lease().await;
    let lease_ref = json!({"job_id": id, "fence": lease["fence"]});
    let released = stack.json(first.post("release", &json!({"leases": [lease_ref]}))).await;
    assert_eq!(released, json!({"released": ["ok"]}));
    let lease = second.lease().await;
    assert_eq!((lease["job_id"].as_str(), lease["attempt"].as_u64()), (Some(id.as_str()), Some(2)));

    assert_eq!(first.succeed(&lease_ref, json!("late")).await, "stale_fence");
    assert_eq!(second.succeed(&lease, json!("right")).await, "ok");
    let job = shown(stack.get(&format!("/v1/jobs/{id}")).send().await.unwrap()).await;
    insta::assert_json_snapshot!("job_released_then_succeeded", job);
}

#[tokio::test]
async fn files_and_large_results_lie_under_their_attempt_alone() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let worker = Worker::join(&stack).await;
    let id = stack.submit("hi").await;
    let lease = worker.lease().await;
    let file = |name: &str, bytes: &[u8]| json!({"name": name, "size_bytes": bytes.len(), "sha256": sha256(bytes), "content_type": "application/json"});
    let files = json!([file("output.json", b"[1,2]"), file("Bericht für 図 1.png", b"png")]);
    let asked = json!({"job_id": id, "fence": lease["fence"], "files": files});
    let uploads = stack.json(worker.post("uploads", &asked)).await;
    for (upload, bytes) in uploads["uploads"].as_array().unwrap().iter().zip([b"[1,2]".as_slice(), b"png"]) {
        assert!(
            upload["url"]
                .as_str()
                .unwrap()
                .contains(&format!("results/acme/{id}/1-{}/", lease["fence"].as_str().unwrap()))
        );
        stack.upload(&upload["url"], &upload["headers"], bytes).await;
    }
    let report = json!({"job_id": id, "fence": lease["fence"], "outcome": "stored", "size_bytes": 5});
    let finished = stack.json(worker.post("finish", &json!({"finish": [report]}))).await;
    assert_eq!(finished["finished"], json!(["ok"]));

    for (path, bytes) in [("result", "[1,2]"), ("files/Bericht%20f%C3%BCr%20%E5%9B%B3%201.png", "png")] {
        let redirected = stack.get(&format!("/v1/jobs/{id}/{path}")).send().await.unwrap();
        assert_eq!(redirected.status(), 307);
        let url = redirected.headers()["location"].to_str().unwrap().to_owned();
        assert_eq!(stack.client.get(url).send().await.unwrap().text().await.unwrap(), bytes);
    }
    for name in ["b.png", "..", "%2e%2e%2fpackages"] {
        let missing = stack.get(&format!("/v1/jobs/{id}/files/{name}"));
        assert_eq!(missing.send().await.unwrap().status(), 404, "{name}");
    }
    assert_eq!(stack.problem(worker.post("uploads", &asked)).await, (409, "stale_fence".to_owned()));
    insta::assert_json_snapshot!("job_stored", shown(stack.get(&format!("/v1/jobs/{id}")).send().await.unwrap()).await);
}

#[tokio::test]
async fn the_time_that_a_job_waited_in_its_worker_is_shown() {
    let (stack, clock) = Stack::start_on_clock().await;
    stack.deploy_echo().await;
    let worker = Worker::join(&stack).await;
    let id = stack.submit("hi").await;
    let lease = worker.lease().await;
    clock.advance_ms(1_300);
    let timing = json!({"turn_ms": 1_234, "inputs_ms": 56, "run_ms": 7});
    let report =
        json!({"job_id": id, "fence": lease["fence"], "outcome": "succeeded", "result": "x", "timing": timing});
    stack.json(worker.post("finish", &json!({"finish": [report]}))).await;
    let job = stack.job(&id).await;
    for timing in [&job["timing"], &job["attempts"][0]["timing"]] {
        let parts = [&timing["worker_wait_ms"], &timing["inputs_ms"], &timing["run_ms"]];
        assert_eq!(parts, [&json!(1_234), &json!(56), &json!(7)], "{job}");
    }
}

#[tokio::test]
async fn a_result_that_is_not_in_s3_is_no_result() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let worker = Worker::join(&stack).await;
    let id = stack.submit("hi").await;
    let lease = worker.lease().await;
    let report = json!({"job_id": id, "fence": lease["fence"], "outcome": "stored", "size_bytes": 5});
    stack.json(worker.post("finish", &json!({"finish": [report]}))).await;
    let job = stack.job(&id).await;
    assert_ne!(job["state"], "succeeded");
    assert_eq!(job["attempts"][0]["error"]["code"], "infra");
}

#[tokio::test]
async fn what_a_worker_must_not_send_is_refused() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let worker = Worker::join(&stack).await;
    let id = stack.submit("hi").await;
    let lease = worker.lease().await;
    let upload = |name: &str| {
        let file = json!({"name": name, "size_bytes": 1, "sha256": sha256(b"x"), "content_type": "text/plain"});
        json!({"job_id": id, "fence": lease["fence"], "files": [file]})
    };
    let large = json!({"job_id": id, "fence": lease["fence"], "outcome": "succeeded", "result": "x".repeat(17 << 10)});
    let endless = json!({"job_id": id, "fence": lease["fence"], "event": "log", "stream": "stdout", "text": "x".repeat(65 << 10)});
    for (verb, body) in [
        ("lease", json!({"want": 101, "reach_gib": 0, "wait_ms": 0})),
        ("uploads", upload("../x")),
        ("uploads", upload("")),
        ("finish", json!({"finish": [large]})),
        ("events", json!({"events": [endless]})),
        ("release", json!({"leases": vec![json!({"job_id": id, "fence": lease["fence"]}); 101]})),
    ] {
        assert_eq!(stack.problem(worker.post(verb, &body)).await, (400, "invalid_request".to_owned()), "{verb}");
    }
    let mut old = joining("desk");
    old["protocol"] = json!(PROTOCOL + 1);
    let token = stack.join_token(true).await;
    assert_eq!(stack.problem(post(&stack, "join", &token, &old)).await, (409, "protocol_mismatch".to_owned()));
    stack.json(post(&stack, "join", &token, &joining("desk"))).await;
}

#[tokio::test]
async fn a_worker_gets_what_it_needs_to_start_a_runner() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let worker = Worker::join(&stack).await;
    let get =
        |path: &str| stack.client.get(format!("{}/worker/v1/endpoints/{path}", stack.url)).bearer_auth(&worker.token);
    let spec = get("acme/echo/1").send().await.unwrap();
    let url = {
        let spec = stack.json(get("acme/echo/1")).await;
        spec["package_url"].as_str().unwrap().to_owned()
    };
    insta::assert_json_snapshot!("runner_spec", shown(spec).await);
    assert_eq!(stack.client.get(url).send().await.unwrap().bytes().await.unwrap(), crate::stack::PACKAGE);
    for path in ["acme/echo/2", "acme/echo/x", "other/echo/1"] {
        assert_eq!(stack.problem(get(path)).await, (404, "not_found".to_owned()), "{path}");
    }
}

#[tokio::test]
async fn a_drained_worker_is_given_nothing_and_the_job_goes_to_another() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let registry = stack.queue.registry();
    let term = registry.lead("test", 60_000).await.unwrap().unwrap();
    registry.drain(term, "rack", Some(1)).await.unwrap();
    let worker = Worker::join(&stack).await;
    let id = stack.submit("hi").await;
    let ask = json!({"want": 1, "reach_gib": 0, "wait_ms": 0});
    assert!(stack.json(worker.post("lease", &ask)).await["leases"].as_array().is_none_or(Vec::is_empty));
    // What it has, it keeps: its heartbeat is answered, and those who read of it see that it is drained.
    stack.json(worker.post("extend", &json!({"leases": [], "status": {}}))).await;
    let listed = stack.json(stack.get("/v1/workers")).await;
    assert_eq!(listed["workers"][0]["state"], "draining", "{listed}");
    assert!(registry.worker(&worker.id).await.unwrap().unwrap().status.draining);
    let fleet = stack.json(stack.get("/v1/fleet")).await;
    let machine = &fleet["machines"][0];
    assert_eq!((&machine["provider"], &machine["state"]), (&json!("joined"), &json!("draining")), "{fleet}");

    let notice = Notice { kind: "deaf".to_owned(), text: "no worker is heard".to_owned(), since_ms: 1 };
    let eta = Eta { endpoint: "acme/echo".to_owned(), priority: Priority::Standard.digit(), seconds: Some(90) };
    let decision = Decision {
        at_ms: 1,
        action: "rent".to_owned(),
        reason: "1 job waits".to_owned(),
        machine: Some("m-1".to_owned()),
        failure: None,
    };
    let status =
        AutoscalerStatus { at_ms: now_ms(), notices: vec![notice], etas: vec![eta], decisions: vec![decision] };
    assert!(registry.put_autoscaler(term, &status).await.unwrap());
    let fleet = stack.json(stack.get("/v1/fleet")).await;
    assert_eq!(fleet["notices"][0]["text"], "no worker is heard", "{fleet}");
    let said = json!({"at": "1970-01-01T00:00:00.001Z", "action": "rent", "reason": "1 job waits", "machine": "m-1", "failure": null});
    assert_eq!(fleet["decisions"], json!([said]), "{fleet}");
    let queue = stack.json(stack.get("/v1/queue")).await;
    assert_eq!(queue["lanes"][0]["eta_s"], 90, "{queue}");
    assert!(queue["lanes"][0]["oldest_at"].is_string(), "{queue}");
    let late = AutoscalerStatus { at_ms: now_ms() - 61_000, ..status };
    assert!(registry.put_autoscaler(term, &late).await.unwrap());
    let queue = stack.json(stack.get("/v1/queue")).await;
    assert!(queue["lanes"][0]["eta_s"].is_null(), "nobody has said so lately: {queue}");

    let token = stack.join_token(false).await;
    let other = stack.json(post(&stack, "join", &token, &joining("desk"))).await;
    let leased = stack.json(post(&stack, "lease", other["token"].as_str().unwrap(), &ask)).await;
    assert_eq!(leased["leases"][0]["job_id"], id.as_str(), "{leased}");
}
