//! A worker as the gateway sees it, and the gateway's duties towards it.

use serde_json::{Value, json};
use stokehold_queue::gateway::PROTOCOL;
use stokehold_queue::job::Priority;
use stokehold_queue::now_ms;
use stokehold_queue::registry::{AutoscalerStatus, Decision, Eta, Notice};

use crate::stack::{Stack, echo, sha256, shown};

/// A joined worker that runs nothing: tests decide what it reports.
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

    /// Leases one job, and waits for it.
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

    /// Sends one event of a job.
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
        // The snapshot hides the fence; the lease of a second job shows it.
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
    let missing = async |path: &str| {
        let problem = stack.problem(worker.get(&format!("endpoints/{path}"))).await;
        assert_eq!(problem, (404, "not_found".to_owned()), "{path}");
    };
    missing("acme/echo/1").await;
    stack.submit("hi").await;
    let lease = worker.lease().await;
    let spec = worker.get("endpoints/acme/echo/1").send().await.unwrap();
    let url = {
        let spec = stack.json(worker.get("endpoints/acme/echo/1")).await;
        spec["package_url"].as_str().unwrap().to_owned()
    };
    insta::assert_json_snapshot!("runner_spec", shown(spec).await);
    assert_eq!(stack.client.get(url).send().await.unwrap().bytes().await.unwrap(), crate::stack::PACKAGE);
    for path in ["acme/echo/2", "acme/echo/x", "other/echo/1"] {
        missing(path).await;
    }
    // A lease of another worker does not authorize it, and neither does an ended one.
    let other = Worker::join(&stack).await;
    assert_eq!(stack.problem(other.get("endpoints/acme/echo/1")).await, (404, "not_found".to_owned()));
    worker.succeed(&lease, json!(1)).await;
    missing("acme/echo/1").await;
}

#[tokio::test]
async fn what_a_worker_is_to_fetch_ahead_it_may_know() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let worker = Worker::join(&stack).await;
    stack.submit("waits").await;
    // Waiting jobs are read once a second.
    let told = async {
        loop {
            let beat = stack.json(worker.post("extend", &json!({"leases": [], "status": {}}))).await;
            if beat["next"][0]["endpoint"] == "echo" {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(crate::stack::PATIENCE, told).await.expect("it is told what waits");
    stack.json(worker.get("endpoints/acme/echo/1")).await;
}

/// All leases that a worker receives when it polls until there are no more.
async fn lease_all(stack: &Stack, worker: &Worker<'_>) -> Vec<Value> {
    let mut leases = Vec::new();
    loop {
        let ask = json!({"want": 100, "reach_gib": 0, "wait_ms": 0});
        match stack.json(worker.post("lease", &ask)).await["leases"].as_array() {
            Some(more) if !more.is_empty() => leases.extend(more.iter().cloned()),
            _ => return leases,
        }
    }
}

#[tokio::test]
async fn a_worker_is_leased_what_its_slots_run_and_a_few_ahead() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let jobs: Vec<Value> = (0..305).map(|n| json!({"endpoint": "echo", "input": {"text": n.to_string()}})).collect();
    stack.json(stack.post("/v1/jobs/bulk", &json!({"jobs": jobs}))).await;
    let worker = Worker::join(&stack).await;
    let leases = lease_all(&stack, &worker).await;
    assert_eq!(leases.len(), 4 + 32 + 2, "four slots, what is on its way, and half a second of them");
    // The poll waits for the worker's own jobs to end instead of returning empty.
    let held = json!({"want": 1, "reach_gib": 0, "wait_ms": 20_000});
    let waiting = tokio::spawn(worker.post("lease", &held).send());
    worker.succeed(&leases[0], json!(1)).await;
    let more: Value = waiting.await.unwrap().unwrap().json().await.unwrap();
    assert_eq!(more["leases"].as_array().map(Vec::len), Some(1), "{more}");
}

#[tokio::test]
async fn jobs_that_share_a_slot_are_leased_together() {
    let stack = Stack::start().await;
    let mut endpoint = echo();
    endpoint["max_concurrency"] = json!(64);
    stack.deploy(endpoint).await;
    let jobs: Vec<Value> = (0..305).map(|n| json!({"endpoint": "echo", "input": {"text": n.to_string()}})).collect();
    stack.json(stack.post("/v1/jobs/bulk", &json!({"jobs": jobs}))).await;
    let worker = Worker::join(&stack).await;
    assert_eq!(lease_all(&stack, &worker).await.len(), 4 * 64 + 32 + 2);
}

#[tokio::test]
async fn a_fence_is_good_for_the_worker_that_was_given_it() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let (worker, thief) = (Worker::join(&stack).await, Worker::join(&stack).await);
    let id = stack.submit("hi").await;
    let lease = worker.lease().await;
    assert_eq!(thief.succeed(&lease, json!("forged")).await, "stale_fence");
    assert_eq!(thief.fail(&lease, "handler_error").await, "stale_fence");
    let held = json!([{"job_id": lease["job_id"], "fence": lease["fence"]}]);
    let extended = stack.json(thief.post("extend", &json!({"leases": held, "status": {}}))).await;
    assert_eq!(extended["leases"], json!(["lost"]));
    let released = stack.json(thief.post("release", &json!({"leases": held}))).await;
    assert_eq!(released["released"], json!(["stale_fence"]));
    let file = json!({"name": "a.txt", "size_bytes": 1, "sha256": sha256(b"a"), "content_type": "text/plain"});
    let uploads = json!({"job_id": lease["job_id"], "fence": lease["fence"], "files": [file]});
    assert_eq!(stack.problem(thief.post("uploads", &uploads)).await, (409, "stale_fence".to_owned()));
    let model = json!({"tenant": "acme", "endpoint": "echo", "version": 1});
    let secrets = json!({"model": model, "lease": held[0]});
    assert_eq!(stack.problem(thief.post("secrets", &secrets)).await, (409, "stale_fence".to_owned()));
    thief.tell(&lease, json!({"event": "progress", "fraction": 0.9, "message": "forged"})).await;
    assert!(stack.job(&id).await["progress"].is_null());
    // The worker that now holds the job is not affected by any of this.
    stack.json(worker.post("uploads", &uploads)).await;
    stack.json(worker.post("secrets", &secrets)).await;
    worker.tell(&lease, json!({"event": "progress", "fraction": 0.5, "message": "half"})).await;
    assert_eq!(stack.job(&id).await["progress"]["message"], "half");
    assert_eq!(worker.succeed(&lease, json!("real")).await, "ok");
    assert_eq!(stack.job(&id).await["result"], "real");
}

#[tokio::test]
async fn a_worker_that_joins_again_keeps_its_runs_and_nobody_else_gets_them() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let token = stack.join_token(false).await;
    let join = async |resume: &Value, token: &str| -> Value {
        let mut request = joining("rack");
        request["resume"] = resume.clone();
        stack.json(post(&stack, "join", token, &request)).await
    };
    let first = join(&Value::Null, &token).await;
    let id = stack.submit("hi").await;
    let ask = json!({"want": 1, "reach_gib": 0, "wait_ms": 20_000});
    let lease = stack.json(post(&stack, "lease", first["token"].as_str().unwrap(), &ask)).await["leases"][0].clone();
    let report = json!({"job_id": lease["job_id"], "fence": lease["fence"], "outcome": "succeeded", "result": "done"});
    let finish = json!({"finish": [report]});
    // The same name and the same token make a different worker. So do an invented proof, and a proof sent with another
    // token.
    let forged = json!(format!("{}.{}", first["worker_id"].as_str().unwrap(), "0".repeat(64)));
    let other = stack.join_token(false).await;
    for (resume, token) in [(&Value::Null, &token), (&forged, &token), (&first["resume"], &other)] {
        let another = join(resume, token).await;
        assert_ne!(another["worker_id"], first["worker_id"]);
        let told = stack.json(post(&stack, "finish", another["token"].as_str().unwrap(), &finish)).await;
        assert_eq!(told["finished"], json!(["stale_fence"]));
    }
    let again = join(&first["resume"], &token).await;
    assert_eq!(again["worker_id"], first["worker_id"]);
    let told = stack.json(post(&stack, "finish", again["token"].as_str().unwrap(), &finish)).await;
    assert_eq!(told["finished"], json!(["ok"]));
    assert_eq!(stack.job(&id).await["result"], "done");
}

#[tokio::test]
async fn a_lease_is_not_extended_for_ever() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let worker = Worker::join(&stack).await;
    stack.submit("hi").await;
    let lease = worker.lease().await;
    let held = json!({"leases": [{"job_id": lease["job_id"], "fence": lease["fence"]}], "status": {}});
    let key = format!("{{stoke:0}}:j:{}", lease["job_id"].as_str().unwrap());
    let run: String = stack.redis.ask(&["HGET", &key, "run"]);
    // As if the job had been leased that long ago.
    let leased = async |ago_s: u64| {
        let mut words: Vec<String> = run.split(' ').map(str::to_owned).collect();
        words[1] = (now_ms() - ago_s * 1_000).to_string();
        let _: u64 = stack.redis.ask(&["HSET", &key, "run", &words.join(" ")]);
        stack.json(worker.post("extend", &held)).await["leases"][0].clone()
    };
    assert_eq!(leased(2 * 3_600 + 500).await, "held", "600 s are the job's own");
    assert_eq!(leased(2 * 3_600 + 700).await, "lost");
}

#[tokio::test]
async fn a_job_shares_its_time_with_no_more_than_its_version_takes() {
    let stack = Stack::start().await;
    let mut endpoint = echo();
    endpoint["max_batch_size"] = json!(4);
    stack.deploy(endpoint).await;
    stack.deploy_echo().await;
    let worker = Worker::join(&stack).await;
    for (version, most) in [(1, 4), (2, 1)] {
        let job = json!({"endpoint": "echo", "version": version, "input": {"text": "hi"}});
        let id = stack.json(stack.post("/v1/jobs", &job)).await["id"].as_str().unwrap().to_owned();
        let lease = worker.lease().await;
        let timing = json!({"run_ms": 1, "batch_size": 1_000, "sharers_milli": 900_000});
        let report = json!({"job_id": lease["job_id"], "fence": lease["fence"], "timing": timing, "outcome": "succeeded", "result": 1});
        stack.json(worker.post("finish", &json!({"finish": [report]}))).await;
        assert_eq!(stack.job(&id).await["timing"]["batch_size"], most, "version {version}");
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
    // The worker keeps its jobs: its heartbeat is answered, and readers see that it is drained.
    stack.json(worker.post("extend", &json!({"leases": [], "status": {}}))).await;
    let listed = stack.json(stack.get("/v1/workers")).await;
    assert_eq!(listed["workers"][0]["state"], "draining", "{listed}");
    assert!(registry.worker(&worker.id).await.unwrap().unwrap().status.draining);
    let fleet = stack.json(stack.get("/v1/fleet")).await;
    let machine = &fleet["machines"][0];
    assert_eq!((&machine["provider"], &machine["state"]), (&json!("joined"), &json!("draining")), "{fleet}");

    let notice = Notice { kind: "gateway_unreachable".to_owned(), text: "no worker is heard".to_owned(), since_ms: 1 };
    let eta = Eta { endpoint: "acme/echo".to_owned(), priority: Priority::Standard.digit(), seconds: Some(90) };
    let decision = Decision {
        at_ms: 1,
        action: "rent".to_owned(),
        reason: "1 job waits".to_owned(),
        machine: Some("m-1".to_owned()),
        failure: None,
    };
    let status = AutoscalerStatus {
        at_ms: now_ms(),
        notices: vec![notice],
        etas: vec![eta],
        decisions: vec![decision],
        ..AutoscalerStatus::default()
    };
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
