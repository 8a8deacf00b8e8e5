//! Retries: which failures, when, and how often.

use stokehold_queue::gateway::{FinishAnswer, Outgrown};
use stokehold_queue::job::{ErrorCode, JobSpec, JobState, RetryPolicy};
use stokehold_queue::queue::{LeaseQuery, Signal};
use stokehold_queue::retry::{MAX_OOM_ATTEMPTS, POISON_CRASHES};
use stokehold_queue::{JobId, ManualClock, Queue};

use super::{fail, fails, job, look, one, outgrow, parking, query, spec, state, submit};

pub(crate) async fn a_failed_attempt_is_retried_after_a_backoff_until_the_budget_is_spent<Q: Queue>(
    queue: &Q,
    clock: &ManualClock,
) {
    queue.submit(vec![job("echo")]).await.unwrap();
    for attempt in 1..=3 {
        let lease = one(queue).await;
        assert_eq!(lease.attempt, attempt);
        assert_eq!(queue.finish(&[fail(&lease, ErrorCode::HandlerError)]).await.unwrap(), [FinishAnswer::Ok]);
        let job = queue.get(lease.job_id).await.unwrap().unwrap();
        if attempt < 3 {
            assert_eq!(job.state, JobState::Scheduled);
            let wait = job.run_after_ms.unwrap() - clock.now_ms();
            let full = 1_000 << (attempt - 1);
            assert!((full / 2..=full).contains(&wait), "attempt {attempt} waits {wait} ms");
            assert_eq!(queue.promote().await.unwrap().jobs, 0, "not before its time");
            clock.advance_ms(wait);
            assert_eq!(queue.promote().await.unwrap().jobs, 1);
        } else {
            assert_eq!(job.state, JobState::Failed);
            let error = job.error.unwrap();
            assert_eq!((error.code, error.message.as_str()), (ErrorCode::HandlerError, "no \"luck\""));
            assert_eq!(job.attempts.len(), 3);
            assert_eq!(job.attempts[0].error, Some(error));
        }
    }
}

pub(crate) async fn a_final_failure_is_not_retried<Q: Queue>(queue: &Q, _: &ManualClock) {
    queue.submit(vec![job("echo")]).await.unwrap();
    let lease = one(queue).await;
    queue.finish(&[fail(&lease, ErrorCode::BadOutput)]).await.unwrap();
    assert_eq!(state(queue, lease.job_id).await, JobState::Failed);
}

pub(crate) async fn our_own_failures_have_a_budget_of_their_own<Q: Queue>(queue: &Q, clock: &ManualClock) {
    queue.submit(vec![job("echo")]).await.unwrap();
    for _ in 0..4 {
        let lease = one(queue).await;
        queue.finish(&[fail(&lease, ErrorCode::Infra)]).await.unwrap();
        assert_eq!(state(queue, lease.job_id).await, JobState::Scheduled, "more than max_attempts, and still alive");
        clock.advance_ms(60_000);
        queue.promote().await.unwrap();
    }
}

pub(crate) async fn only_the_failures_that_the_policy_names_are_retried<Q: Queue>(queue: &Q, clock: &ManualClock) {
    let retry = RetryPolicy { on: vec![ErrorCode::Timeout], ..RetryPolicy::default() };
    let id = submit(queue, [JobSpec { retry, ..spec("echo") }]).await[0];
    fails(queue, &one(queue).await, ErrorCode::Timeout).await;
    again(queue, clock, id).await;
    fails(queue, &one(queue).await, ErrorCode::Infra).await;
    again(queue, clock, id).await;
    fails(queue, &one(queue).await, ErrorCode::HandlerError).await;
    assert_eq!(state(queue, id).await, JobState::Failed, "our own failures are retried all the same, others are not");
}

/// Advances the clock past the backoff of a job.
async fn again<Q: Queue>(queue: &Q, clock: &ManualClock, id: JobId) -> u64 {
    let job = look(queue, id).await;
    assert_eq!(job.state, JobState::Scheduled);
    let wait = job.run_after_ms.unwrap() - clock.now_ms();
    clock.advance_ms(wait);
    assert_eq!(queue.promote().await.unwrap().jobs, 1);
    wait
}

pub(crate) async fn the_wait_follows_the_policy<Q: Queue>(queue: &Q, clock: &ManualClock) {
    let exact = RetryPolicy { backoff_ms: 100, backoff_max_ms: 350, jitter: 0.0, on: vec![] };
    let drawn = RetryPolicy { jitter: 1.0, backoff_max_ms: 100, ..exact.clone() };
    let id = submit(queue, [JobSpec { retry: exact, max_attempts: 5, ..spec("echo") }]).await[0];
    let mut waits = Vec::new();
    for _ in 0..4 {
        fails(queue, &one(queue).await, ErrorCode::HandlerError).await;
        waits.push(again(queue, clock, id).await);
    }
    assert_eq!(waits, [100, 200, 350, 350]);
    queue.cancel("acme", &[id]).await.unwrap();

    let id = submit(queue, [JobSpec { retry: drawn, max_attempts: 20, ..spec("echo") }]).await[0];
    let mut waits = Vec::new();
    for _ in 0..19 {
        fails(queue, &one(queue).await, ErrorCode::HandlerError).await;
        waits.push(again(queue, clock, id).await);
    }
    assert!(waits.iter().all(|wait| *wait <= 100), "{waits:?}");
    assert!(waits.iter().any(|wait| *wait < 50) && waits.iter().any(|wait| *wait > 50), "{waits:?}");
}

pub(crate) async fn running_out_of_memory_has_a_budget_of_its_own<Q: Queue>(queue: &Q, clock: &ManualClock) {
    let id = submit(queue, [JobSpec { max_attempts: 1, ..spec("echo") }]).await[0];
    for _ in 1..MAX_OOM_ATTEMPTS {
        fails(queue, &one(queue).await, ErrorCode::OomGpu).await;
        again(queue, clock, id).await;
    }
    fails(queue, &one(queue).await, ErrorCode::OomGpu).await;
    let job = look(queue, id).await;
    assert_eq!((job.state, job.error.unwrap().code), (JobState::Failed, ErrorCode::OomGpu));
}

/// Crashes a job once on each of `workers`. Returns the job's failure code, if it failed.
async fn crash<Q: Queue>(queue: &Q, clock: &ManualClock, workers: &[&str]) -> Option<ErrorCode> {
    let id = submit(queue, [JobSpec { max_attempts: 5, ..spec("echo") }]).await[0];
    for (n, worker) in workers.iter().enumerate() {
        if n > 0 {
            again(queue, clock, id).await;
        }
        let query = LeaseQuery { worker_id: (*worker).to_owned(), ..query(1, 0) };
        let lease = queue.lease(query).await.unwrap().remove(0);
        fails(queue, &lease, [ErrorCode::RunnerCrashed, ErrorCode::RunnerExited][n % 2]).await;
    }
    look(queue, id).await.error.map(|error| error.code)
}

pub(crate) async fn a_job_that_crashes_on_two_workers_is_poison<Q: Queue>(queue: &Q, clock: &ManualClock) {
    assert_eq!(POISON_CRASHES, 3);
    assert_eq!(crash(queue, clock, &["w1", "w2"]).await, None, "twice may be chance");
    queue.cancel("acme", &[one_scheduled(queue).await]).await.unwrap();
    assert_eq!(crash(queue, clock, &["w1", "w2", "w1"]).await, Some(ErrorCode::Poison));
    assert_eq!(crash(queue, clock, &["w1", "w1", "w1", "w2"]).await, Some(ErrorCode::Poison));
}

async fn one_scheduled<Q: Queue>(queue: &Q) -> JobId {
    let filter = stokehold_queue::queue::ListFilter { state: Some(JobState::Scheduled), ..Default::default() };
    queue.list("acme", &filter, None, 10).await.unwrap().jobs[0].id
}

pub(crate) async fn a_job_that_crashes_on_one_worker_is_not_poison<Q: Queue>(queue: &Q, clock: &ManualClock) {
    assert_eq!(crash(queue, clock, &["w1"; 4]).await, None, "the worker may be to blame");
    queue.cancel("acme", &[one_scheduled(queue).await]).await.unwrap();
    assert_eq!(crash(queue, clock, &["w1"; 5]).await, Some(ErrorCode::RunnerCrashed), "its budget is spent");
}

fn on_gpu(class_gib: u32) -> JobSpec {
    JobSpec { vram_class_gib: class_gib, ..spec("render") }
}

pub(crate) async fn a_job_that_has_outgrown_its_gpu_goes_on_at_the_front_of_a_larger_class<Q: Queue>(
    queue: &Q,
    _: &ManualClock,
) {
    let ids = submit(queue, [on_gpu(4), on_gpu(12)]).await;
    let lease = queue.lease(query(1, 4)).await.unwrap().remove(0);
    assert_eq!(lease.job_id, ids[0]);
    assert_eq!(queue.finish(&[outgrow(&lease, Outgrown::To(12))]).await.unwrap(), [FinishAnswer::Ok]);
    assert_eq!(queue.finish(&[outgrow(&lease, Outgrown::To(12))]).await.unwrap(), [FinishAnswer::StaleFence]);
    assert!(queue.lease(query(1, 10)).await.unwrap().is_empty(), "a smaller card does not get it again");
    let lease = queue.lease(query(1, 12)).await.unwrap().remove(0);
    assert_eq!((lease.job_id, lease.attempt, lease.spec.vram_class_gib), (ids[0], 2, 12));
    assert_eq!(queue.get(ids[0]).await.unwrap().unwrap().oom_events, 1);
    // A job only moves to a larger class. A report that names a smaller one is retried like any other failure of the
    // GPU.
    queue.finish(&[outgrow(&lease, Outgrown::To(8))]).await.unwrap();
    let job = queue.get(ids[0]).await.unwrap().unwrap();
    assert_eq!((job.state, job.spec.vram_class_gib, job.oom_events), (JobState::Scheduled, 12, 2));
}

pub(crate) async fn a_job_that_has_outgrown_every_gpu_fails<Q: Queue>(queue: &Q, _: &ManualClock) {
    let id = submit(queue, [on_gpu(24)]).await[0];
    let lease = queue.lease(query(1, 24)).await.unwrap().remove(0);
    queue.finish(&[outgrow(&lease, Outgrown::All)]).await.unwrap();
    let job = queue.get(id).await.unwrap().unwrap();
    assert_eq!((job.state, job.error.unwrap().code, job.oom_events), (JobState::Failed, ErrorCode::OomGpu, 1));
}

pub(crate) async fn a_worker_that_waits_for_a_larger_gpu_is_woken_by_a_job_that_has_outgrown_its_own<Q: Queue>(
    queue: &Q,
    _: &ManualClock,
) {
    let mut signals = queue.listen("api-1").await.unwrap();
    submit(queue, [on_gpu(4)]).await;
    let lease = queue.lease(query(1, 4)).await.unwrap().remove(0);
    assert!(queue.lease(parking(24, 7)).await.unwrap().is_empty());
    queue.finish(&[outgrow(&lease, Outgrown::To(24))]).await.unwrap();
    assert_eq!(signals.recv().await, Some(Signal::Wake(7)));
}
