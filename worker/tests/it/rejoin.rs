//! A worker whose token is refused joins again without losing its work in progress.

use std::time::Duration;

use serde_json::json;
use stokehold_protocol::endpoint::EndpointSpec;
use stokehold_protocol::gateway::{FinishOutcome, JobMessage, Secrets};

use crate::gateway::HeartbeatConfig;
use crate::stage::{Setup, Stage, pack, result, spec};

/// Prints twice, the second time once the gate exists; returns more than fits into a report.
const SPEAKER: &str = r#"
import os, time
from stokehold import endpoint

@endpoint
def speaker(gate: str) -> str:
    print("begun", flush=True)
    while not os.path.exists(gate):
        time.sleep(0.005)
    print(os.environ["TOKEN"][:2] + " done", flush=True)
    return "x" * 100_000
"#;

fn one_slot() -> Vec<(&'static str, String)> {
    vec![("STOKE_SLOTS", "1".to_owned())]
}

/// Refuses the worker's token in the middle of a job, at the call of this route, and holds the join until the worker
/// has sent it.
async fn survives(route: &'static str) {
    let stage = Stage::single().await;
    stage.gateway.change(|seen| {
        seen.secrets = Secrets::from_iter([("TOKEN".to_owned(), "ok-secret".to_owned())]);
    });
    let speaker = EndpointSpec { secrets: vec!["TOKEN".to_owned()], ..spec("speaker") };
    stage.gateway.deploy("speaker", pack(SPEAKER), speaker);
    stage.gateway.until("its first heartbeat", |seen| seen.calls.get("extend").map(drop)).await;
    stage.gateway.hold_joins(true);
    stage.gateway.expire_at(route);
    std::fs::write(stage.signal_file(), "").unwrap();
    let job = stage.submit_to("speaker", json!({"gate": stage.signal_file()}));

    let refused = |seen: &crate::gateway::Seen| {
        (seen.unauthorized.contains_key(route) && seen.joined_with.len() == 2).then_some(())
    };
    stage.gateway.until("a refused call and a join", refused).await;
    // A heartbeat during the join carries the worker's current token, even if it is no longer valid.
    let beats = stage.gateway.seen().calls["extend"];
    stage.gateway.until("another heartbeat", |seen| (seen.calls["extend"] > beats + 1).then_some(())).await;
    assert!(!stage.gateway.seen().finished.contains_key(&job.job_id), "{route}");
    stage.gateway.hold_joins(false);

    let end = stage.gateway.end(&job).await;
    assert!(matches!(end.outcome, FinishOutcome::Stored { size_bytes: 100_002 }), "{route}: {:?}", end.outcome);
    let seen = stage.gateway.seen();
    let resumed: Vec<Option<&str>> = seen.joins.iter().map(|join| join.resume.as_deref()).collect();
    assert_eq!(resumed, [None, Some("w_test.proof")], "it says which worker it is, so that its leases stay its own");
    let lines = seen.events[&job.job_id].iter().map(|event| match event {
        JobMessage::Log { text, .. } => text.as_str(),
        JobMessage::Progress { .. } | JobMessage::Output { .. } | JobMessage::Outputs { .. } => "",
    });
    assert_eq!(lines.collect::<String>(), "begun\nok done\n", "{route}");
    assert_eq!(seen.joins.len(), 2, "one join for all calls that were refused");
    let leaked: Vec<_> = seen.called_with.iter().filter(|token| token.starts_with("jt_")).collect();
    assert!(leaked.is_empty(), "calls carried the join token: {leaked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_refused_at_an_upload_costs_no_finished_run() {
    survives("uploads").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_refused_at_a_report_costs_no_finished_run() {
    survives("finish").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_refused_at_a_message_loses_none() {
    survives("events").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_refused_where_secrets_are_asked_for_fails_no_job() {
    survives("secrets").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_refused_where_an_endpoint_is_asked_for_fails_no_job() {
    survives("endpoints").await;
}

/// Writes a file only when it is canceled.
const STOPPED: &str = r#"
import time
from pathlib import Path
from stokehold import endpoint

@endpoint
def stopped(mark: str) -> None:
    print("begun", flush=True)
    try:
        while True:
            time.sleep(0.01)
    finally:
        Path(mark).write_text("")
"#;

#[tokio::test(flavor = "multi_thread")]
async fn attempts_are_stopped_before_others_start_them_while_the_worker_joins_again() {
    let heartbeat = HeartbeatConfig { lease: Duration::from_millis(1_500), every: Duration::from_millis(300) };
    let stage = Stage::with(Setup { heartbeat, variables: one_slot(), ..Setup::default() }).await;
    stage.gateway.deploy("stopped", pack(STOPPED), spec("stopped"));
    let mark = stage.dir.path().join("mark");
    let job = stage.submit_to("stopped", json!({"mark": mark}));
    stage.gateway.first_log(&job).await;
    stage.gateway.hold_joins(true);
    stage.gateway.forget_token();
    // Each heartbeat checks again: the jobs continue.
    stage.gateway.until("the attempt to be stopped", |_| mark.exists().then_some(())).await;
    assert_eq!(stage.gateway.seen().joined_with.len(), 2, "the first call of the second join is still under way");
    stage.gateway.hold_joins(false);
    result(&stage.end_of("fine").await);
    assert!(!stage.gateway.seen().finished.contains_key(&job.job_id));
}

/// The retries of one call end within seconds; a restart of the gateway takes longer.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_gives_no_upload_urls_for_a_while_costs_no_finished_run() {
    let stage = Stage::single().await;
    stage.gateway.down(&["uploads"]);
    let job = stage.submit_with(json!({"how": "large", "count": 100_000}));
    let refused = |seen: &crate::gateway::Seen| {
        if let Some(end) = seen.finished.get(&job.job_id) {
            panic!("{:?}", end.outcome);
        }
        (seen.calls.get("uploads").copied().unwrap_or(0) > 6).then_some(())
    };
    stage.gateway.until("more tries than one call makes", refused).await;
    assert!(!stage.gateway.seen().finished.contains_key(&job.job_id));
    stage.gateway.down(&[]);
    let end = stage.gateway.end(&job).await;
    assert!(matches!(end.outcome, FinishOutcome::Stored { .. }), "{:?}", end.outcome);
}
