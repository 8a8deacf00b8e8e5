//! Lost leases, and gateways that do not answer.

use std::time::Duration;

use serde_json::json;
use stokehold_protocol::endpoint::EndpointSpec;

use crate::gateway::HeartbeatConfig;
use crate::stage::{Setup, Stage, pack, result, spec};

fn one_slot() -> Vec<(&'static str, String)> {
    vec![("STOKE_SLOTS", "1".to_owned())]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_lease_stops_its_run_and_nothing_is_reported() {
    let stage = Stage::single().await;
    let job = stage.submit("stubborn");
    let pid = stage.gateway.first_log(&job).await;
    stage.gateway.lose(&job);
    // The only slot is free again, and the runner that did not stop is gone.
    assert_ne!(result(&stage.end_of("fine").await)["pid"].to_string(), pid.trim());
    assert!(!stage.gateway.seen().finished.contains_key(&job.job_id));
    // Its runner keeps its home folder; the run leaves no files.
    let scratch = std::fs::read_dir(stage.dir.path().join("scratch")).unwrap().flatten().map(|entry| entry.path());
    let worker = scratch.filter(|path| path.is_dir()).flat_map(|folder| std::fs::read_dir(folder).unwrap().flatten());
    let runs = worker.filter(|entry| entry.file_name().to_string_lossy().starts_with("run-"));
    assert_eq!(runs.count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_silent_for_nearly_a_lease_stops_everything() {
    let heartbeat = HeartbeatConfig { lease: Duration::from_millis(1_500), every: Duration::from_millis(300) };
    let stage = Stage::with(Setup { heartbeat, variables: one_slot(), ..Setup::default() }).await;
    let job = stage.submit_with(json!({"how": "wait", "path": "/none"}));
    stage.gateway.first_log(&job).await;
    stage.gateway.down(&["extend"]);
    // Only a free slot leases it.
    result(&stage.end_of("fine").await);
    assert!(!stage.gateway.seen().finished.contains_key(&job.job_id));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_is_reported_until_the_gateway_accepts_it() {
    let stage = Stage::single().await;
    let file = stage.dir.path().join("go");
    let job = stage.submit_with(json!({"how": "wait", "path": file}));
    stage.gateway.first_log(&job).await;
    stage.gateway.down(&["finish", "lease"]);
    std::fs::write(&file, "").unwrap();
    // Longer than the retries of one call: reports of results are repeated for longer than other calls.
    let refused = |seen: &crate::gateway::Seen| (seen.calls.get("finish").copied().unwrap_or(0) > 6).then_some(());
    stage.gateway.until("refused reports", refused).await;
    assert!(!stage.gateway.seen().finished.contains_key(&job.job_id));
    stage.gateway.down(&[]);
    assert_eq!(result(&stage.gateway.end(&job).await), "waited");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_refused_is_replaced_by_joining_again() {
    let stage = Stage::single().await;
    result(&stage.end_of("fine").await);
    stage.gateway.forget_token();
    result(&stage.end_of("fine").await);
    assert_eq!(stage.gateway.seen().joins.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn gpus_are_shared_within_their_size() {
    let mut variables = one_slot();
    variables.push(("STOKE_FAKE_GPUS", "24576".to_owned()));
    let stage = Stage::with(Setup { variables, ..Setup::default() }).await;
    for name in ["red", "blue"] {
        let spec = EndpointSpec { vram_gib: 16.0, ..spec("plain") };
        stage.gateway.deploy(name, pack(include_str!("handlers/plain.py")), spec);
    }
    for name in ["red", "blue", "red"] {
        result(&stage.gateway.end(&stage.submit_to(name, json!({"how": "fine"}))).await);
        // Each takes most of the GPU: the idle one was evicted.
        stage
            .gateway
            .until("one loaded model", |seen| (seen.status.loaded == [format!("{name}@1")]).then_some(()))
            .await;
    }
    assert_eq!(stage.gateway.seen().joins[0].gpus[0].vram_mib, 24_576);
    // The idle model can be evicted: the whole GPU is within reach.
    stage.gateway.until("its reach", |seen| (seen.reach_gib == 24).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_is_given_up_gives_its_gpu_back() {
    let mut variables = one_slot();
    variables.push(("STOKE_FAKE_GPUS", "24576".to_owned()));
    let stage = Stage::with(Setup { variables, ..Setup::default() }).await;
    let source = include_str!("handlers/plain.py");
    let begun = stage.dir.path().join("begun");
    let never = format!("import time\nopen({begun:?}, 'w').close()\ntime.sleep(3_600)\n{source}");
    for (name, source) in [("never", never.as_str()), ("other", source)] {
        let spec = EndpointSpec { vram_gib: 16.0, ..spec("plain") };
        stage.gateway.deploy(name, pack(source), spec);
    }
    let job = stage.submit_to("never", json!({"how": "fine"}));
    // Every heartbeat checks again.
    stage.gateway.until("the load to begin", |_| begun.exists().then_some(())).await;
    stage.gateway.lose(&job);
    result(&stage.gateway.end(&stage.submit_to("other", json!({"how": "fine"}))).await);
}
