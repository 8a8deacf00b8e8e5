//! Jobs that share a call of their handler.

use serde_json::{Value, json};
use stokehold_protocol::endpoint::EndpointSpec;
use stokehold_protocol::gateway::{FinishReport, LeaseRef, ModelState};
use stokehold_protocol::job::ErrorCode;

use crate::stage::{Setup, Stage, error, pack, result, spec};

/// A worker with one slot, and the handler in `batched.py`: up to 4 jobs per call, of which the first waits two seconds
/// for others.
async fn stage(warmup: Vec<Value>) -> Stage {
    let stage = Stage::single().await;
    let gate = stage.signal_file().to_string_lossy().into_owned();
    let source = include_str!("handlers/batched.py").replace("@GATE@", &gate);
    let batched = EndpointSpec { max_batch_size: 4, max_wait_ms: 2_000.0, warmup, ..spec("batched") };
    stage.gateway.deploy("batched", pack(&source), batched);
    stage
}

fn submit(stage: &Stage, how: &str, jobs: usize) -> Vec<LeaseRef> {
    (0..jobs).map(|_| stage.submit_to("batched", json!({"how": how}))).collect()
}

async fn ends(stage: &Stage, jobs: &[LeaseRef]) -> Vec<FinishReport> {
    let mut ends = Vec::new();
    for job in jobs {
        ends.push(stage.gateway.end(job).await);
    }
    ends
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_are_there_share_a_call_and_a_slot() {
    let stage = stage(vec![]).await;
    let jobs = submit(&stage, "fine", 12);
    let ends = ends(&stage, &jobs).await;
    // Which jobs share a call is not defined: the last call reports the sizes of all calls.
    let last = ends.iter().find(|end| result(end)["sizes"].as_array().is_some_and(|sizes| sizes.len() == 3));
    assert_eq!(result(last.expect("three calls"))["sizes"], json!([4, 4, 4]), "each call is full");
    assert!(ends.iter().all(|end| end.timing.batch_size == 4));
    let alone = stage.gateway.end(&stage.submit("fine")).await;
    assert_eq!(alone.timing.batch_size, 0, "another handler takes one at a time");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_has_its_own_failure_and_a_crash_is_everybodys() {
    let stage = stage(vec![]).await;
    let jobs = [submit(&stage, "fail", 1), submit(&stage, "fine", 3)].concat();
    let ended = ends(&stage, &jobs).await;
    assert_eq!(error(&ended[0], ErrorCode::HandlerError).message, "as it was told");
    let pid = result(&ended[1])["pid"].clone();
    let jobs = [submit(&stage, "segfault", 1), submit(&stage, "fine", 3)].concat();
    for end in ends(&stage, &jobs).await {
        assert_eq!(error(&end, ErrorCode::RunnerCrashed).class, "SIGSEGV");
    }
    let next = stage.gateway.end(&submit(&stage, "fine", 1)[0]).await;
    assert_ne!(result(&next)["pid"], pid);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_cancelled_does_not_end_those_beside_it() {
    let stage = stage(vec![]).await;
    let jobs = submit(&stage, "wait", 4);
    stage.gateway.first_log(&jobs[0]).await;
    stage.gateway.lose(&jobs[0]);
    // The next heartbeat carries the cancel to the worker, which has dropped the job by the one after.
    stage.gateway.until("the job to be given up", |seen| (seen.status.running == 3).then_some(())).await;
    std::fs::write(stage.signal_file(), "").unwrap();
    for end in ends(&stage, &jobs[1..]).await {
        assert_eq!(result(&end)["sizes"], json!([4]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_is_warmed_up_with_as_many_as_a_call_can_have() {
    let stage = stage(vec![json!({"how": "fine"}), json!({"how": "also fine"})]).await;
    let end = stage.gateway.end(&submit(&stage, "fine", 1)[0]).await;
    assert_eq!(result(&end)["sizes"], json!([4, 4, 1]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_waits_for_more_jobs_gets_the_next_one_although_another_process_is_idle() {
    let variables = vec![("STOKE_SLOTS", "2".to_owned())];
    let stage = Stage::with(Setup { variables, ..Setup::default() }).await;
    let source = include_str!("handlers/batched.py").replace("@GATE@", &stage.signal_file().to_string_lossy());
    let batched = EndpointSpec { max_batch_size: 2, max_wait_ms: 600_000.0, ..spec("batched") };
    stage.gateway.deploy("batched", pack(&source), batched);
    // Enough jobs to justify two processes, and a full call for each of them.
    let jobs = submit(&stage, "wait", 4);
    let are_two = |seen: &crate::gateway::Seen| {
        let models = &seen.status.models;
        (models.len() == 2 && models.iter().all(|model| model.state != ModelState::Loading)).then_some(())
    };
    stage.gateway.until("two processes", are_two).await;
    std::fs::write(stage.signal_file(), "").unwrap();
    ends(&stage, &jobs).await;

    let waits = submit(&stage, "fine", 1);
    let is_gathering = |seen: &crate::gateway::Seen| {
        let states: Vec<_> = seen.status.models.iter().map(|model| model.state).collect();
        (seen.extended == waits && states.contains(&ModelState::Busy)).then_some(())
    };
    stage.gateway.until("a job that waits for another", is_gathering).await;
    let joins = submit(&stage, "fine", 1);
    for end in ends(&stage, &[waits, joins].concat()).await {
        assert_eq!(end.timing.batch_size, 2);
    }
}
