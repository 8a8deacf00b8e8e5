//! Jobs that need a GPU: why they wait, where they go when a GPU is too small, and the needs that are learned from
//! them.

use reqwest::Method;
use serde_json::{Value, json};

use crate::stack::{Stack, echo};
use crate::worker::Worker;

/// A stack with `echo` deployed for a GPU of 4 GiB.
async fn stack() -> Stack {
    let stack = Stack::start().await;
    let mut endpoint = echo();
    endpoint["vram_gib"] = json!(4);
    stack.deploy(endpoint).await;
    stack
}

async fn lease(stack: &Stack, worker: &Worker<'_>, reach_gib: u32) -> Value {
    let ask = json!({"want": 1, "reach_gib": reach_gib, "wait_ms": 0});
    stack.json(worker.post("lease", &ask)).await["leases"][0].clone()
}

async fn out_of_memory(stack: &Stack, worker: &Worker<'_>, lease: &Value, need_mib: u64) {
    let report = json!({"job_id": lease["job_id"], "fence": lease["fence"], "outcome": "failed", "vram_need_mib": need_mib,
        "error": {"code": "oom_gpu", "message": "CUDA out of memory"}});
    let reply = stack.json(worker.post("finish", &json!({"finish": [report]}))).await;
    assert_eq!(reply["finished"], json!(["ok"]));
}

#[tokio::test]
async fn a_job_is_told_what_it_waits_for() {
    let stack = stack().await;
    let id = stack.submit("hi").await;
    let job = stack.job(&id).await;
    assert_eq!((&job["state"], &job["waiting"]["reason"]), (&json!("queued"), &json!("unschedulable")), "{job}");
    let queue = stack.json(stack.get("/v1/queue")).await;
    let lane = &queue["lanes"][0];
    assert_eq!(
        (&lane["endpoint"], &lane["vram_class_gib"], &lane["jobs"]),
        (&json!("echo"), &json!(4), &json!(1)),
        "{queue}"
    );
    assert_eq!(lane["waiting"]["reason"], "unschedulable");
}

#[tokio::test]
async fn a_job_that_has_outgrown_a_gpu_goes_on_where_there_is_a_larger_one_and_the_next_starts_there() {
    let stack = stack().await;
    // The worker's GPU has 24 GiB, and represents a larger one of another worker.
    let worker = Worker::join(&stack).await;
    let id = stack.submit("hi").await;
    let first = lease(&stack, &worker, 6).await;
    out_of_memory(&stack, &worker, &first, 6_200).await;
    let job = stack.job(&id).await;
    assert_eq!((&job["state"], &job["oom_events"]), (&json!("queued"), &json!(1)), "{job}");
    assert_eq!(lease(&stack, &worker, 6).await, Value::Null, "6 GiB do not reach it any more");
    assert_eq!(lease(&stack, &worker, 8).await["job_id"], json!(id));
    stack.submit("again").await;
    assert_eq!(lease(&stack, &worker, 6).await, Value::Null, "nor the next one");
    assert_ne!(lease(&stack, &worker, 8).await, Value::Null);
}

#[tokio::test]
async fn a_job_that_has_outgrown_every_gpu_fails_and_the_next_is_tried_all_the_same() {
    let stack = stack().await;
    let worker = Worker::join(&stack).await;
    let id = stack.submit("hi").await;
    let first = lease(&stack, &worker, 24).await;
    // The worker cannot know this much: only its own GPU has been too small.
    out_of_memory(&stack, &worker, &first, 1 << 40).await;
    let job = stack.job(&id).await;
    assert_eq!((&job["state"], &job["error"]["code"]), (&json!("failed"), &json!("oom_gpu")), "{job}");
    stack.submit("again").await;
    assert_ne!(lease(&stack, &worker, 4).await, Value::Null);
}

#[tokio::test]
async fn what_workers_see_of_a_model_is_told_to_the_next_one() {
    let stack = stack().await;
    let worker = Worker::join(&stack).await;
    let need = |gpu: &str, need_mib: u64| json!({"tenant": "acme", "endpoint": "echo", "version": 1, "gpu": gpu, "need_mib": need_mib});
    // The worker cannot have measured the last two: it has no such GPU, and none of that size.
    let learned =
        json!([need("Test 24", 7_000), need("Test 24", 6_000), need("Test 80", 9_000), need("Test 24", 30_000)]);
    stack.json(worker.post("extend", &json!({"leases": [], "status": {"learned": learned}}))).await;
    stack.submit("first").await;
    assert_ne!(lease(&stack, &worker, 4).await, Value::Null);
    let spec = worker.get("endpoints/acme/echo/1");
    assert_eq!(stack.json(spec).await["needs_mib"], json!({"Test 24": 7_000}));
    // The value applies to that kind of GPU only: the class of a job stays the declared one.
    stack.submit("hi").await;
    assert_ne!(lease(&stack, &worker, 4).await, Value::Null);

    let needs = || stack.get("/v1/endpoints/echo/needs");
    assert_eq!(stack.json(needs()).await["needs"], json!([{"version": 1, "gpu": "Test 24", "need_mib": 7_000}]));
    let forget = || stack.request(Method::DELETE, "/v1/endpoints/echo/needs");
    assert_eq!(stack.json(forget()).await, json!({"forgotten": 1}));
    assert_eq!(stack.json(needs()).await["needs"], json!([]));
    assert_eq!(stack.json(forget()).await, json!({"forgotten": 0}));
    let told = stack.json(worker.post("extend", &json!({"leases": [], "status": {}}))).await;
    assert_eq!((&told["forgotten"][0]["tenant"], &told["forgotten"][0]["endpoint"]), (&json!("acme"), &json!("echo")));
    assert_eq!(stack.problem(stack.request(Method::DELETE, "/v1/endpoints/nobody/needs")).await.0, 404);
}

#[tokio::test]
async fn a_share_of_a_gpu_is_checked_and_kept() {
    let stack = stack().await;
    let mut engine = echo();
    (engine["name"], engine["vram_gib"], engine["vram_fraction"]) = (json!("engine"), json!(18), json!(0.9));
    assert_eq!(stack.deploy(engine.clone()).await["vram_fraction"], 0.9);
    for (gib, fraction, at) in [
        (18.0, 0.0, "/vram_fraction"),
        (18.0, 1.1, "/vram_fraction"),
        (0.0, 0.9, "/vram_fraction"),
        (385.0, 0.9, "/vram_gib"),
    ] {
        (engine["vram_gib"], engine["vram_fraction"]) = (json!(gib), json!(fraction));
        let answer = stack.post("/v1/endpoints", &engine).send().await.unwrap();
        assert_eq!(answer.status(), 400, "{engine}");
        let problem: Value = answer.json().await.unwrap();
        assert!(problem.to_string().contains(at), "{problem}");
    }
}

#[tokio::test]
async fn a_heartbeat_is_answered_with_what_to_keep_loaded_and_what_to_fetch_ahead() {
    let stack = stack().await;
    let mut kept = echo();
    (kept["name"], kept["vram_gib"], kept["min_warm"]) = (json!("kept"), json!(16), json!(1));
    stack.deploy(kept.clone()).await;
    let worker = Worker::join(&stack).await;
    let cards = json!([{"index": 0, "reach_gib": 0}]);
    let well = json!([{"index": 0, "health": "well"}]);
    let beat = async |models: Value| {
        let status = json!({"gpus": well, "models": models});
        stack.json(worker.post("extend", &json!({"leases": [], "cards": cards, "status": status}))).await
    };
    let named = |endpoint: &str, version: u32| json!({"tenant": "acme", "endpoint": endpoint, "version": version});
    stack.submit("hi").await;
    let told = beat(json!([])).await;
    assert_eq!((&told["keep"], &told["next"]), (&json!([named("kept", 1)]), &json!([named("echo", 1)])), "{told}");
    // From the next version on, that one is kept warm; with 0 none is. A loaded model does not have to be fetched.
    kept["entry"] = json!("handler.py:other");
    stack.deploy(kept.clone()).await;
    let loaded = json!([{"tenant": "acme", "name": "echo@1", "state": "idle"}]);
    let told = until(async || beat(loaded.clone()).await, |told| told["keep"][0]["version"] == 2).await;
    assert_eq!((&told["keep"], &told["next"]), (&json!([named("kept", 2)]), &Value::Null), "{told}");
    // The state at each heartbeat is recorded: one reading per half minute.
    let workers = stack.json(stack.get("/v1/workers")).await;
    let path = format!("/v1/workers/{}/readings", workers["workers"][0]["id"].as_str().unwrap());
    let readings = stack.json(stack.get(&path)).await;
    let readings = readings["readings"].as_array().unwrap();
    assert!((1..=2).contains(&readings.len()), "{readings:?}");
    assert_eq!(readings.last().unwrap()["gpus"][0]["index"], 0);
    assert_eq!(stack.problem(stack.get("/v1/workers/w_gone/readings")).await.0, 404);
    kept["min_warm"] = json!(0);
    stack.deploy(kept).await;
    until(async || beat(json!([])).await, |told| told["keep"] == json!([])).await;
}

/// Repeats a request until the response satisfies `is_so`: the list of models to keep ready may be a second old.
async fn until(ask: impl AsyncFn() -> Value, is_so: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..300 {
        let told = ask().await;
        if is_so(&told) {
            return told;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("it is not so: {}", ask().await);
}
