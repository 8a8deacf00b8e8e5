//! A worker whose disk is full. The disk is a small tmpfs; where mounting is not allowed, the tests print a message and
//! do nothing.

use serde_json::json;
use stokehold_protocol::job::ErrorCode;
use stokehold_tests::small_disk::SmallDisk;

use crate::stage::{Setup, Stage, error, result};

async fn stage_on(disk: &SmallDisk) -> Stage {
    let variables = vec![("STOKE_SLOTS", "1".to_owned())];
    Stage::with(Setup { data_dir: Some(disk.path().to_owned()), variables, ..Setup::default() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_runs_out_of_disk_is_tried_elsewhere_and_costs_its_handler_nothing() {
    let Some(disk) = SmallDisk::mount(96) else { return };
    let stage = stage_on(&disk).await;
    let job = stage.submit_with(json!({"how": "fill", "count": 200}));
    let end = stage.gateway.end(&job).await;
    let told = &error(&end, ErrorCode::Infra).message;
    assert!(told.starts_with("this worker's disk is full: ") && told.contains("Errno 28"), "{told}");
    // Its files are removed with its run.
    result(&stage.end_of("fine").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_takes_no_jobs_until_there_is_room() {
    let Some(disk) = SmallDisk::mount(96) else { return };
    disk.fill();
    let stage = stage_on(&disk).await;
    let job = stage.submit("fine");
    let beats = |seen: &crate::gateway::Seen| seen.calls.get("extend").copied().unwrap_or(0);
    stage.gateway.until("some heartbeats", |seen| (beats(seen) >= 3).then_some(())).await;
    assert_eq!(stage.gateway.seen().calls.get("lease"), None, "nothing is asked for");
    disk.make_room();
    result(&stage.gateway.end(&job).await);
}
