//! Blocked jobs: verdicts, steps before and after a job, and results that wait for approval.

use std::collections::BTreeMap;

use stokehold_queue::gateway::{FinishAnswer, FinishOutcome};
use stokehold_queue::job::{ErrorCode, JobError, JobResult, JobSpec, JobState, NewJob, Stage, StepRun, Timing};
use stokehold_queue::queue::{Due, Settlement, Verdict};
use stokehold_queue::{JobId, ManualClock, Queue};

use super::{cancels, look, of, one, raw, report, spec, state, step_spec, submit, succeed, succeeds, take};

fn guarded(stage: Stage) -> JobSpec {
    JobSpec { steps: vec![step_spec("guard", stage)], ..spec("echo") }
}

async fn settle<Q: Queue>(queue: &Q, id: JobId, verdict: Verdict) -> bool {
    let revision = look(queue, id).await.revision;
    queue.settle(&Settlement { id, revision, steps: vec![], verdict }).await.unwrap()
}

fn go(input: Option<&str>) -> Verdict {
    Verdict::Queue { input: input.map(raw) }
}

async fn due<Q: Queue>(queue: &Q) -> Vec<Due> {
    queue.due(1_000).await.unwrap()
}

pub(crate) async fn a_blocked_job_goes_on_with_the_input_it_was_given<Q: Queue>(queue: &Q, _: &ManualClock) {
    let ids = submit(queue, vec![guarded(Stage::Before); 2]).await;
    assert_eq!(due(queue).await, [Due::Ready(ids[0]), Due::Ready(ids[1])]);
    assert_eq!(take(queue, 2).await.len(), 0);
    assert!(settle(queue, ids[0], go(Some(r#"{"text":"milder"}"#))).await);
    assert!(settle(queue, ids[1], go(None)).await);
    let leases = take(queue, 2).await;
    let inputs: Vec<&str> = leases.iter().map(|lease| lease.input.get()).collect();
    assert_eq!(inputs, [r#"{"text":"milder"}"#, r#"{"text": "hi"}"#]);
}

pub(crate) async fn a_blocked_job_for_later_still_waits_for_its_time<Q: Queue>(queue: &Q, clock: &ManualClock) {
    let run_after_ms = clock.now_ms() + 1_000;
    let later = NewJob { run_after_ms, ..of(guarded(Stage::Before)) };
    let id = later.id;
    queue.submit(vec![later]).await.unwrap();
    assert!(settle(queue, id, go(None)).await);
    let job = look(queue, id).await;
    assert_eq!((job.state, job.run_after_ms), (JobState::Scheduled, Some(run_after_ms)));
    clock.advance_ms(1_000);
    assert_eq!(queue.promote().await.unwrap().jobs, 1);
    assert_eq!(one(queue).await.job_id, id);
}

pub(crate) async fn of_two_who_settle_one_is_heard<Q: Queue>(queue: &Q, clock: &ManualClock) {
    let id = submit(queue, [guarded(Stage::Before)]).await[0];
    let revision = look(queue, id).await.revision;
    let by = |verdict| Settlement { id, revision: revision.clone(), steps: vec![], verdict };
    let step = Verdict::Step { input: None, job: Box::new(of(spec("guard"))) };
    assert!(queue.settle(&by(step)).await.unwrap());
    let fail = Verdict::Fail { error: JobError::new(ErrorCode::Rejected, "no") };
    assert!(!queue.settle(&by(fail)).await.unwrap(), "still blocked, and yet no longer as it was seen");
    assert!(!queue.settle(&by(go(None))).await.unwrap());
    assert_eq!(state(queue, id).await, JobState::Blocked);
    cancels(queue, id).await;
    assert!(!settle(queue, id, go(None)).await, "an ended job is settled");
    clock.advance_ms(1_000);
    assert_eq!(due(queue).await, []);
}

pub(crate) async fn a_step_is_a_job_that_its_job_waits_for<Q: Queue>(queue: &Q, _: &ManualClock) {
    let id = submit(queue, [guarded(Stage::Before)]).await[0];
    due(queue).await;
    let step = of(JobSpec { step_of: Some(id), ..spec("guard") });
    let run = StepRun {
        job: step.id,
        state: JobState::Queued,
        decision: None,
        reason: None,
        scores: BTreeMap::new(),
        timing: Timing::default(),
        cost_usd_micros: None,
    };
    let step_id = step.id;
    let revision = look(queue, id).await.revision;
    let verdict = Verdict::Step { input: Some(raw("1")), job: Box::new(step) };
    let settlement = Settlement { id, revision, steps: vec![run.clone()], verdict };
    assert!(queue.settle(&settlement).await.unwrap());
    let job = look(queue, id).await;
    assert_eq!((job.state, job.steps, job.input.get()), (JobState::Blocked, vec![run], "1"));
    let lease = one(queue).await;
    assert_eq!((lease.job_id, lease.spec.endpoint.as_str()), (step_id, "guard"));
    assert_eq!(due(queue).await, []);
    succeeds(queue, &lease).await;
    assert_eq!(due(queue).await, [Due::Ended(step_id)]);
    assert!(queue.unblock(step_id).await.unwrap());
    assert_eq!(due(queue).await, [Due::Ready(id)]);
    assert!(settle(queue, id, go(None)).await);
    assert_eq!(one(queue).await.job_id, id);
}

/// A job that has produced its result, which now waits for approval.
async fn held_back<Q: Queue>(queue: &Q, stored: bool) -> JobId {
    let id = submit(queue, [guarded(Stage::After)]).await[0];
    let lease = one(queue).await;
    let outcome = match stored {
        true => FinishOutcome::Stored { size_bytes: 99 },
        false => FinishOutcome::Succeeded { result: raw("\"ok\"") },
    };
    let end = report(&lease, outcome);
    let answers = queue.finish(&[end.clone(), end]).await.unwrap();
    assert_eq!(answers, [FinishAnswer::Ok, FinishAnswer::AlreadyEnded], "told twice, it is still the one that won");
    let job = look(queue, id).await;
    assert_eq!(job.state, JobState::Blocked);
    assert!(job.result.is_none() && job.ended_ms.is_none());
    assert_eq!(due(queue).await, [Due::Ready(id)]);
    assert_eq!(take(queue, 1).await.len(), 0);
    id
}

pub(crate) async fn a_result_is_not_seen_before_it_is_allowed<Q: Queue>(queue: &Q, _: &ManualClock) {
    let id = held_back(queue, false).await;
    assert!(settle(queue, id, Verdict::Succeed { result: None }).await);
    let job = look(queue, id).await;
    assert_eq!(job.state, JobState::Succeeded);
    assert!(matches!(job.result, Some(JobResult::Inline(ref json)) if json.get() == "\"ok\""));

    let id = held_back(queue, true).await;
    assert!(settle(queue, id, Verdict::Succeed { result: None }).await);
    let job = look(queue, id).await;
    let fence = job.winner().unwrap().fence.clone();
    let Some(JobResult::Object { key, size_bytes: 99 }) = job.result else { panic!("{:?}", job.result) };
    assert_eq!(key, format!("results/acme/{id}/1-{fence}/output.json"), "it lies where its attempt put it");
}

pub(crate) async fn an_allowed_result_may_be_another<Q: Queue>(queue: &Q, _: &ManualClock) {
    for stored in [false, true] {
        let id = held_back(queue, stored).await;
        assert!(settle(queue, id, Verdict::Succeed { result: Some(raw("\"milder\"")) }).await);
        let result = look(queue, id).await.result;
        assert!(matches!(result, Some(JobResult::Inline(ref json)) if json.get() == "\"milder\""), "{result:?}");
    }
}

pub(crate) async fn a_rejected_result_is_never_seen<Q: Queue>(queue: &Q, _: &ManualClock) {
    let id = held_back(queue, false).await;
    assert!(settle(queue, id, Verdict::Fail { error: JobError::new(ErrorCode::Rejected, "no") }).await);
    let job = look(queue, id).await;
    assert_eq!((job.state, job.error.unwrap().code), (JobState::Failed, ErrorCode::Rejected));
    assert!(job.result.is_none());
    let cancelled = held_back(queue, false).await;
    cancels(queue, cancelled).await;
    assert!(look(queue, cancelled).await.result.is_none());
}

pub(crate) async fn a_held_result_can_expire<Q: Queue>(queue: &Q, clock: &ManualClock) {
    let deadline_ms = Some(clock.now_ms() + 1_000);
    let id = submit(queue, [JobSpec { deadline_ms, ..guarded(Stage::After) }]).await[0];
    let lease = one(queue).await;
    succeeds(queue, &lease).await;
    clock.advance_ms(1_000);
    assert_eq!(queue.expire().await.unwrap().jobs, 1);
    let job = look(queue, id).await;
    assert!(job.state == JobState::Expired && job.result.is_none());
    assert_eq!(due(queue).await, [], "nothing is left to settle");
    assert_eq!(queue.finish(&[succeed(&lease)]).await.unwrap(), [FinishAnswer::AlreadyEnded]);
}
