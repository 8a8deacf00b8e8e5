//! The output of jobs: results, files, messages.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use stokehold_protocol::gateway::{FinishOutcome, JobMessage, LogStream};

use crate::gateway::{PutFault, Seen};
use crate::stage::{Setup, Stage, pack, result, spec};

#[tokio::test(flavor = "multi_thread")]
async fn a_large_result_is_stored_before_it_is_reported() {
    let stage = Stage::single().await;
    let job = stage.submit_with(json!({"how": "large", "count": 1_000_000}));
    let end = stage.gateway.end(&job).await;
    let stored = stage.gateway.seen().objects[&format!("{}/output.json", job.job_id)].clone();
    assert!(matches!(end.outcome, FinishOutcome::Stored { size_bytes: 1_000_002 }), "{:?}", end.outcome);
    assert_eq!(serde_json::from_slice::<String>(&stored).unwrap(), "x".repeat(1_000_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_in_trouble_gets_the_same_result_again() {
    let stage = Stage::single().await;
    stage.gateway.fail_puts([PutFault::Busy, PutFault::Lost, PutFault::Busy]);
    let job = stage.submit_with(json!({"how": "large", "count": 1_000_000}));
    let end = stage.gateway.end(&job).await;
    assert!(matches!(end.outcome, FinishOutcome::Stored { .. }), "{:?}", end.outcome);
    let seen = stage.gateway.seen();
    assert_eq!((seen.puts, seen.put.len(), seen.objects.len()), (4, 1, 1));
}

/// Five retries end within seconds; an outage lasts longer.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_away_is_waited_for_while_other_jobs_run() {
    let stage = Stage::single().await;
    stage.gateway.store_away(true);
    let waiting = stage.submit_with(json!({"how": "large", "count": 1_000_000}));
    stage.gateway.until("more tries than a hiccup takes", |seen| (seen.puts > 6).then_some(())).await;
    result(&stage.end_of("fine").await);
    assert!(!stage.gateway.seen().finished.contains_key(&waiting.job_id));
    stage.gateway.store_away(false);
    let end = stage.gateway.end(&waiting).await;
    assert!(matches!(end.outcome, FinishOutcome::Stored { .. }), "{:?}", end.outcome);
}

#[tokio::test(flavor = "multi_thread")]
async fn results_that_wait_for_the_store_are_bounded_and_go_back_when_the_worker_leaves() {
    let variables = vec![("STOKE_SLOTS", "1".to_owned()), ("STOKE_DRAIN_GRACE_MS", "100".to_owned())];
    let stage = Stage::with(Setup { variables, ..Setup::default() }).await;
    stage.gateway.store_away(true);
    for _ in 0..20 {
        stage.submit_with(json!({"how": "large", "count": 300_000}));
    }
    stage.gateway.until("as many as may wait", |seen| (seen.put.len() == 16).then_some(())).await;
    stage.stop();
    let gateway = stage.gone().await;
    let seen = gateway.seen();
    assert_eq!((seen.put.len(), seen.finished.len()), (16, 0), "no more than those, and none is lost as a failure");
    assert!(seen.released.len() >= 17, "those, and the one that kept the slot: {}", seen.released.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_stored_and_the_result_names_their_keys() {
    let stage = Stage::single().await;
    let job = stage.submit_with(json!({"how": "files", "count": 9}));
    let result = result(&stage.gateway.end(&job).await);
    assert_eq!(result["made"].as_array().unwrap().len(), 9);
    for n in 0..9 {
        let (name, content) = (format!("{n}.txt"), format!("file {n}"));
        let expected = json!({
            "$file": name,
            "url": format!("/v1/jobs/{}/files/{name}", job.job_id),
            "size_bytes": 6,
            "sha256": hex::encode(Sha256::digest(&content)),
            "content_type": "text/plain",
        });
        assert_eq!(result["made"][n], expected);
        assert_eq!(stage.gateway.seen().objects[&format!("{}/{name}", job.job_id)], content);
    }
    assert_eq!(result["first"], result["made"][0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_a_job_arrive_once_in_order_and_before_its_end() {
    let stage = Stage::single().await;
    let job = stage.submit_with(json!({"how": "say", "count": 200}));
    let end = stage.gateway.end(&job).await;
    assert_eq!(result(&end), Value::Null);
    let events = stage.gateway.seen().events[&job.job_id].clone();
    let text = |wanted: LogStream| -> String {
        let of = |message: &JobMessage| match message {
            JobMessage::Log { stream, text } if *stream == wanted => Some(text.clone()),
            JobMessage::Log { .. }
            | JobMessage::Progress { .. }
            | JobMessage::Output { .. }
            | JobMessage::Outputs { .. } => None,
        };
        events.iter().filter_map(of).collect()
    };
    let said = text(LogStream::Stdout);
    let lines: Vec<&str> = said.lines().skip(1).collect();
    assert_eq!(lines, (0..200).map(|n| format!("line {n}")).collect::<Vec<_>>());
    assert_eq!(text(LogStream::Stderr), "from C\n");
    let last = events.iter().rev().find_map(|message| match message {
        JobMessage::Progress { fraction, message } => Some((*fraction, message.clone())),
        JobMessage::Log { .. } | JobMessage::Output { .. } | JobMessage::Outputs { .. } => None,
    });
    assert_eq!(last, Some((1.0, "200 of 200".to_owned())));
}

/// Yields its second item once the first gate exists, and returns once the second one does.
const YIELDER: &str = r#"
import os, time
from collections.abc import Iterator
from stokehold import endpoint

def wait(gate):
    while not os.path.exists(gate):
        time.sleep(0.005)

@endpoint
def yielder(gates: list[str], last: int) -> Iterator[str]:
    yield "first"
    wait(gates[0])
    yield "x" * last
    wait(gates[1])
"#;

/// What readers see of a job's outputs if the second one has this length, after the worker reported it or, with the
/// gateway down, could not report it.
async fn ends_of_outputs(last: usize, is_down: bool) -> Vec<(u64, usize)> {
    let stage = Stage::single().await;
    stage.gateway.deploy("yielder", pack(YIELDER), spec("yielder"));
    let gates = ["first", "second"].map(|name| stage.dir.path().join(name));
    let job = stage.submit_to("yielder", json!({"gates": gates, "last": last}));
    let outputs = |seen: &Seen| -> Vec<(u64, usize)> {
        let of = |message: &JobMessage| match message {
            JobMessage::Outputs { index, values } => Some((*index, values.len())),
            JobMessage::Output { index, .. } => Some((*index, 1)),
            JobMessage::Log { .. } | JobMessage::Progress { .. } => None,
        };
        seen.events.get(&job.job_id).into_iter().flatten().filter_map(of).collect()
    };
    stage.gateway.until("the first output", |seen| (outputs(seen).len() == 1).then_some(())).await;
    let calls = stage.gateway.seen().calls["events"];
    stage.gateway.down(if is_down { &["events"] } else { &[] });
    std::fs::write(&gates[0], "").unwrap();
    // Two to relay it, and two to store it.
    let tries = if is_down { 4 } else { 1 };
    stage.gateway.until("the second output", |seen| (seen.calls["events"] == calls + tries).then_some(())).await;
    stage.gateway.down(&[]);
    std::fs::write(&gates[1], "").unwrap();
    let end = stage.gateway.end(&job).await;
    assert!(!matches!(end.outcome, FinishOutcome::Failed { .. }), "{:?}", end.outcome);
    let seen = stage.gateway.seen();
    outputs(&seen)
}

#[tokio::test(flavor = "multi_thread")]
async fn outputs_are_relayed_as_they_come_and_stored_together() {
    let stage = Stage::single().await;
    stage.gateway.deploy("yielder", pack(YIELDER), spec("yielder"));
    let gates = ["first", "second"].map(|name| stage.dir.path().join(name));
    let job = stage.submit_to("yielder", json!({"gates": gates, "last": 3}));
    let counts = |messages: &[JobMessage]| -> Vec<(u64, usize)> {
        let of = |message: &JobMessage| match message {
            JobMessage::Outputs { index, values } => (*index, values.len()),
            other => panic!("{other:?}"),
        };
        messages.iter().map(of).collect()
    };
    let relayed = |seen: &Seen| seen.relayed.get(&job.job_id).map(|messages| counts(messages));
    let first = stage.gateway.until("the first output", relayed).await;
    assert_eq!(first, [(0, 1)]);
    std::fs::write(&gates[0], "").unwrap();
    let has_both = |seen: &Seen| relayed(seen).filter(|outputs| outputs.len() == 2);
    assert_eq!(stage.gateway.until("the second output", has_both).await, [(0, 1), (1, 1)]);
    std::fs::write(&gates[1], "").unwrap();
    stage.gateway.end(&job).await;
    let stored = counts(&stage.gateway.seen().events[&job.job_id]);
    let values: usize = stored.iter().map(|(_, values)| values).sum();
    assert_eq!((stored[0].0, values), (0, 2), "{stored:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn relayed_outputs_are_stored_at_once_when_the_gateway_asks() {
    let stage = Stage::single().await;
    stage.gateway.deploy("yielder", pack(YIELDER), spec("yielder"));
    let gates = ["first", "second"].map(|name| stage.dir.path().join(name));
    let job = stage.submit_to("yielder", json!({"gates": gates, "last": 3}));
    stage.gateway.change(|seen| seen.has_new_reader = true);
    let stored = |seen: &Seen| seen.events.get(&job.job_id).map(Vec::len);
    let calls = |seen: &Seen| stored(seen).map(|_| seen.calls["events"]);
    assert_eq!(stage.gateway.until("the first output", calls).await, 2, "one to relay it, and one to store it");
    assert_eq!(stored(&stage.gateway.seen()), Some(1));
    for gate in &gates {
        std::fs::write(gate, "").unwrap();
    }
    stage.gateway.end(&job).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_run_has_the_number_of_outputs_if_the_last_ones_are_missing() {
    assert_eq!(ends_of_outputs(1, false).await, [(0, 1), (1, 1)], "none is missing");
    assert_eq!(ends_of_outputs(1, true).await, [(0, 1), (2, 0)], "the second was lost on its way");
    assert_eq!(
        ends_of_outputs(100_000, false).await,
        [(0, 1), (2, 0)],
        "the second is too large, and in the result alone"
    );
}
