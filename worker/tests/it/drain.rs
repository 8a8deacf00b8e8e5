//! Draining: running jobs finish or are returned to the queue, and nothing is left behind.

use std::path::Path;

use serde_json::json;

use crate::stage::{Setup, Stage, result};

fn slots(count: u32, grace_ms: u32) -> Setup {
    let variables = vec![("STOKE_SLOTS", count.to_string()), ("STOKE_DRAIN_GRACE_MS", grace_ms.to_string())];
    Setup { variables, ..Setup::default() }
}

fn is_running(pid: &str) -> bool {
    Path::new("/proc").join(pid.trim()).exists()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_is_finished_and_nothing_new_is_begun() {
    let stage = Stage::with(slots(1, 60_000)).await;
    let file = stage.dir.path().join("go");
    let job = stage.submit_with(json!({"how": "wait", "path": file}));
    let pid = stage.gateway.first_log(&job).await;
    stage.stop();
    stage.gateway.until("it to say that it drains", |seen| seen.status.draining.then_some(())).await;
    let late = stage.submit("fine");
    std::fs::write(&file, "").unwrap();
    let gateway = stage.gone().await;
    assert_eq!(result(&gateway.seen().finished[&job.job_id]), "waited");
    assert!(!gateway.seen().finished.contains_key(&late.job_id));
    assert!(!is_running(&pid));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_end_in_time_is_handed_back() {
    let stage = Stage::with(slots(1, 0)).await;
    let job = stage.submit("stubborn");
    let pid = stage.gateway.first_log(&job).await;
    stage.stop();
    let gateway = stage.gone().await;
    assert_eq!(gateway.seen().released, [job.job_id]);
    assert!(gateway.seen().finished.is_empty());
    assert!(!is_running(&pid));
}

#[tokio::test(flavor = "multi_thread")]
async fn ends_in_transit_when_it_drains_still_arrive() {
    let stage = Stage::with(slots(2, 60_000)).await;
    let jobs: Vec<_> = (0..300).map(|_| stage.submit("fine")).collect();
    stage.gateway.until("some ends", |seen| (seen.finished.len() > 50).then_some(())).await;
    stage.stop();
    let gateway = stage.gone().await;
    let seen = gateway.seen();
    // Every job was reported, returned, or never leased.
    assert_eq!(seen.active_leases(), 0);
    assert!(seen.finished.len() < jobs.len());
}
