//! Why a job waits, with an estimate: the line before it, the instance that is rented for it, the model that is loaded.

use std::time::Duration;

use serde_json::{Value, json};
use stokehold_queue::now_ms;
use stokehold_queue::registry::{AutoscalerStatus, MachineRecord, Term};

use crate::stack::{PATIENCE, Stack, echo};
use crate::worker::Worker;

/// Repeats `look` until it returns a value: facts are cached for a second.
async fn until<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("{what}"))
}

/// What a job waits for, once its reason is this one.
async fn waiting(stack: &Stack, id: &str, reason: &str) -> Value {
    until(reason, async || {
        let waiting = stack.job(id).await["waiting"].clone();
        (waiting["reason"] == reason).then_some(waiting)
    })
    .await
}

async fn machine(stack: &Stack, term: Term, since_ms: u64, more: Value) {
    let mut record = json!({
        "id": "m-1", "provider": "cloud", "wanted": "running", "wanted_ms": since_ms, "rented_ms": since_ms,
        "is_done": true, "usd_micros_per_hour": 345_000,
        "offer": {"kind": "RTX 4090", "cards": 1, "vram_gb": 24.0, "slots": 1, "boot_s": 60.0},
    });
    more.as_object().unwrap().iter().for_each(|(name, value)| record[name] = value.clone());
    let record: MachineRecord = serde_json::from_value(record).unwrap();
    assert!(stack.queue.registry().put_machine(term, &record).await.unwrap());
}

#[tokio::test]
async fn a_job_waits_for_the_instance_that_is_rented_for_it() {
    let stack = Stack::start().await;
    let mut large = echo();
    large["vram_gib"] = json!(20);
    stack.deploy(large).await;
    let id = stack.submit("hi").await;
    let nothing = waiting(&stack, &id, "unschedulable").await;
    assert_eq!((&nothing["estimate_s"], nothing["phase_s"].is_u64()), (&Value::Null, true), "{nothing}");

    let registry = stack.queue.registry();
    let term = registry.lead("test", 600_000).await.unwrap().unwrap();
    let since_ms = now_ms() - 5_000;
    machine(&stack, term, since_ms, json!({})).await;
    let renting = waiting(&stack, &id, "renting").await;
    assert_eq!(renting["message"], "renting an RTX 4090");
    // A minute to boot, of which some seconds have passed, and ten seconds for a model that was never loaded.
    let estimate_s = renting["estimate_s"].as_u64().unwrap();
    assert!((1..=65).contains(&estimate_s) && renting["phase_s"].as_u64() >= Some(5), "{renting}");

    machine(&stack, term, since_ms, json!({"listed_ms": now_ms()})).await;
    let booting = waiting(&stack, &id, "booting").await;
    assert_eq!(booting["message"], "an RTX 4090 is booting", "{booting}");

    let boots_s = [("RTX 4090".to_owned(), 1)].into();
    let status = AutoscalerStatus { at_ms: now_ms(), boots_s, ..AutoscalerStatus::default() };
    assert!(registry.put_autoscaler(term, &status).await.unwrap());
    let late = until("the usual time has passed", async || {
        let waiting = stack.job(&id).await["waiting"].clone();
        waiting["estimate_s"].is_null().then_some(waiting)
    })
    .await;
    assert_eq!(late["message"], "an RTX 4090 is booting; this takes longer than usual", "{late}");
}

#[tokio::test]
async fn records_that_cannot_be_read_hide_no_job_and_an_autoscaler_that_runs_says_why_it_rents_nothing() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let registry = stack.queue.registry();
    let term = registry.lead("test", 600_000).await.unwrap().unwrap();
    stack.redis.ask::<u32>(&["HSET", "{stoke:registry}:machines", "m-9", "{"]);
    stack.redis.ask::<u32>(&["HSET", "{stoke:registry}:autoscaler", "status", "{"]);
    let id = stack.submit("hi").await;
    let alone = waiting(&stack, &id, "unschedulable").await;
    assert_eq!(alone["message"], "there are no workers; start one with `stoke worker run`");
    let fleet = stack.json(stack.get("/v1/fleet")).await;
    assert_eq!(fleet["machines"], json!([]), "{fleet}");

    let notice = json!({"kind": "max_usd_per_hour", "text": "$5 of $5", "since_ms": 1});
    let notices = vec![serde_json::from_value(notice).unwrap()];
    let status = AutoscalerStatus { at_ms: now_ms(), notices, ..AutoscalerStatus::default() };
    assert!(registry.put_autoscaler(term, &status).await.unwrap());
    let held = until("the autoscaler says why", async || {
        let waiting = stack.job(&id).await["waiting"].clone();
        (waiting["message"] != alone["message"]).then_some(waiting)
    })
    .await;
    assert_eq!(
        (&held["reason"], &held["message"]),
        (
            &json!("unschedulable"),
            &json!(
                "there are no workers, and the autoscaler rents no instance: its limit of the cost per hour \
                 (max_usd_per_hour) is reached"
            )
        )
    );
}

#[tokio::test]
async fn a_job_waits_behind_others_and_then_for_its_model() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let worker = Worker::join(&stack).await;
    // The first run is what the next ones are expected to take; its start is a usual start.
    let id = stack.submit("first").await;
    let lease = worker.lease().await;
    let report = json!({"job_id": id, "fence": lease["fence"], "outcome": "succeeded", "result": 1,
        "timing": {"env_ms": 20_000, "boot_ms": 500, "load_ms": 7_500, "run_ms": 1}});
    stack.json(worker.post("finish", &json!({"finish": [report]}))).await;

    // Every slot is in use.
    let status =
        |leases: Value, starting: Value| json!({"leases": leases, "status": {"running": 4, "starting": starting}});
    stack.json(worker.post("extend", &status(json!([]), json!([])))).await;
    let mut ids = Vec::new();
    for n in 0..4 {
        ids.push(stack.submit(&n.to_string()).await);
    }
    let first = waiting(&stack, &ids[0], "busy").await;
    assert_eq!(first["ahead"], Value::Null, "{first}");
    let last = until("three jobs are before it", async || {
        let waiting = stack.job(&ids[3]).await["waiting"].clone();
        (waiting["ahead"] == 3).then_some(waiting)
    })
    .await;
    assert_eq!(last["reason"], "behind_others", "{last}");
    assert_eq!(last["message"], "every slot is in use, and 3 jobs are before it");
    assert_eq!(last["estimate_s"], 1, "its jobs take a moment: {last}");

    let lease = worker.lease().await;
    let id = lease["job_id"].as_str().unwrap().to_owned();
    assert_eq!(id, ids[0]);
    let another = json!({"job_id": ids[1], "phase": "environment", "phase_ms": 0});
    let report = async |phase: &str, phase_ms: u64| {
        let starting = json!([{"job_id": id, "phase": phase, "phase_ms": phase_ms}, another]);
        let held = json!([{"job_id": id, "fence": lease["fence"]}]);
        stack.json(worker.post("extend", &status(held, starting))).await
    };
    report("environment", 4_000).await;
    let environment = waiting(&stack, &id, "environment").await;
    assert_eq!(environment["message"], "building the environment");
    // Times are known to 5 %.
    let estimate_s = environment["estimate_s"].as_u64().unwrap();
    assert!((15..=26).contains(&estimate_s), "{environment}");
    let queued = stack.job(&ids[1]).await;
    assert_ne!(queued["waiting"]["reason"], "environment", "its worker has not leased it: {queued}");

    report("weights", 0).await;
    until("the weights are downloaded", async || {
        (stack.job(&id).await["waiting"]["message"] == "downloading the weights").then_some(())
    })
    .await;
    report("loading", 2_000).await;
    until("the model is loaded", async || {
        let waiting = stack.job(&id).await["waiting"].clone();
        let is_loading = waiting["message"] == "loading the model" && waiting["estimate_s"].as_u64() <= Some(7);
        is_loading.then_some(())
    })
    .await;
    // A phase of a later release is no reason to refuse a heartbeat.
    assert_eq!(report("thawing", 1).await["leases"], json!(["held"]));
    until("the handler runs", async || {
        let job = stack.job(&id).await;
        (job["state"] == "running" && job["waiting"].is_null()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_job_that_does_not_start_expires_in_the_queue() {
    let stack = Stack::start().await;
    let mut hasty = echo();
    hasty["queue_timeout_s"] = json!(1);
    stack.deploy(hasty).await;
    let id = stack.submit("late").await;
    let job = until("it expires", async || {
        let job = stack.job(&id).await;
        (job["state"] == "expired").then_some(job)
    })
    .await;
    assert_eq!(job["error"]["code"], "queue_timeout", "{job}");
    let message = job["error"]["message"].as_str().unwrap();
    assert_eq!(
        message,
        "the job expired in the queue: it did not start within its queue_timeout_s (7 days by default)"
    );
}
