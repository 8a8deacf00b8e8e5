//! What every implementation of [`Queue`] owes, whoever keeps the records.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use stokehold_queue::gateway::{
    ExtendAnswer, FinishAnswer, FinishOutcome, FinishReport, JobEventReport, JobMessage, LeaseRef, LogStream,
};
use stokehold_queue::job::{
    AttemptOutcome, ErrorCode, Idempotency, JobError, JobResult, JobSpec, JobState, NewJob, Priority, Timing,
};
use stokehold_queue::queue::{CancelAnswer, Lease, LeaseQuery, ListFilter, Signal, Submitted, Waiter};
use stokehold_queue::retry::MAX_INFRA_ATTEMPTS;
use stokehold_queue::{Error, Fence, JobId, ManualClock, Queue};

/// Where the tests' clock starts: in the past, since the ids of stream entries are made by the server's own clock.
pub(crate) const START_MS: u64 = 1_700_000_000_000;
pub(crate) const LEASE_MS: u64 = 30_000;

pub(crate) fn spec(endpoint: &str) -> JobSpec {
    JobSpec {
        tenant: "acme".into(),
        endpoint: endpoint.into(),
        version: 1,
        priority: Priority::Standard,
        vram_class_gib: 0,
        timeout_ms: 60_000,
        max_attempts: 3,
        metadata: BTreeMap::new(),
        files: vec![],
        ..JobSpec::default()
    }
}

pub(crate) fn job(endpoint: &str) -> NewJob {
    of(spec(endpoint))
}

fn of(spec: JobSpec) -> NewJob {
    let input = RawValue::from_string(r#"{"text": "hi"}"#.into()).unwrap();
    NewJob { id: JobId::new(0), spec, input, run_after_ms: 0, idempotency: None }
}

pub(crate) fn succeed(lease: &Lease) -> FinishReport {
    let result = RawValue::from_string(format!("\"{}\"", lease.fence)).unwrap();
    report(lease, FinishOutcome::Succeeded { result })
}

pub(crate) fn fail(lease: &Lease, code: ErrorCode) -> FinishReport {
    let error = JobError { code, class: "E".into(), message: "no \"luck\"".into(), traceback: None, stderr: None };
    report(lease, FinishOutcome::Failed { error })
}

fn report(lease: &Lease, outcome: FinishOutcome) -> FinishReport {
    let timing = Timing { run_ms: 5, ..Timing::default() };
    FinishReport { job_id: lease.job_id, fence: lease.fence.clone(), timing, cost_usd_micros: None, outcome }
}

fn held(lease: &Lease) -> LeaseRef {
    LeaseRef { job_id: lease.job_id, fence: lease.fence.clone() }
}

fn query(want: u32, reach_gib: u32) -> LeaseQuery {
    LeaseQuery { worker_id: "w1".into(), want, reach_gib, park: None }
}

fn parking(reach_gib: u32, waiter: u64) -> LeaseQuery {
    LeaseQuery { park: Some(Waiter { replica: "api-1".into(), waiter }), ..query(1, reach_gib) }
}

async fn one<Q: Queue>(queue: &Q) -> Lease {
    let mut leases = queue.lease(query(1, 0)).await.unwrap();
    assert_eq!(leases.len(), 1, "one job is ready");
    leases.remove(0)
}

async fn state<Q: Queue>(queue: &Q, id: JobId) -> JobState {
    queue.get(id).await.unwrap().unwrap().state
}

/// Runs every case on a fresh queue each.
pub(crate) async fn exercise<Q: Queue>(fresh: impl AsyncFn() -> (Q, ManualClock)) {
    macro_rules! cases {
        ($($case:ident)*) => { $({
            eprintln!("conformance: {}", stringify!($case));
            let (queue, clock) = fresh().await;
            $case(&queue, &clock).await;
        })* };
    }
    cases! {
        a_job_goes_from_submit_to_its_result
        a_lane_is_first_in_first_out
        urgent_priorities_go_first
        lanes_take_turns
        a_worker_gets_only_what_fits_and_the_biggest_first
        the_same_id_twice_is_one_job
        an_idempotency_key_gives_one_job_or_a_conflict
        a_conflict_accepts_nothing_of_its_bulk
        a_job_for_later_waits_for_its_time
        a_failed_attempt_is_retried_after_a_backoff_until_the_budget_is_spent
        a_final_failure_is_not_retried
        our_own_failures_have_a_budget_of_their_own
        an_expired_lease_goes_to_the_front_under_a_new_fence
        a_job_that_keeps_losing_its_worker_fails_in_the_end
        an_extended_lease_is_not_reaped
        a_stale_worker_can_end_nothing
        a_report_told_twice_counts_once
        a_released_job_is_first_again_and_has_lost_nothing
        a_cancelled_job_never_gets_a_result
        a_cancelled_job_leaves_its_lane
        another_tenants_job_cannot_be_cancelled
        a_large_result_lies_under_the_winning_attempt
        one_submit_wakes_one_waiter_the_smallest_that_fits
        a_wake_is_passed_on_while_there_is_work
        a_waiter_that_left_says_whether_a_wake_is_under_way
        a_watched_job_signals_each_change
        events_are_kept_in_order_and_only_from_the_holder
        lists_page_newest_first_and_filter
        depth_counts_ready_jobs
        unknown_ids_are_not_found
    }
}

async fn a_job_goes_from_submit_to_its_result<Q: Queue>(queue: &Q, clock: &ManualClock) {
    let new = job("echo");
    let id = new.id;
    assert_eq!(queue.submit(vec![new]).await.unwrap(), [Submitted::New(id)]);
    assert_eq!(state(queue, id).await, JobState::Queued);

    let lease = one(queue).await;
    assert_eq!((lease.job_id, lease.attempt, lease.fence.counter()), (id, 1, 1));
    assert_eq!(lease.input.get(), r#"{"text": "hi"}"#, "the input is untouched");
    let running = queue.get(id).await.unwrap().unwrap();
    assert_eq!(running.state, JobState::Running);
    assert_eq!(running.attempts[0].outcome, AttemptOutcome::Running);
    assert_eq!(queue.held(&held(&lease)).await.unwrap(), Some((lease.spec.clone(), 1)));

    clock.advance_ms(5);
    assert_eq!(queue.finish(&[succeed(&lease)]).await.unwrap(), [FinishAnswer::Ok]);
    let ended = queue.get(id).await.unwrap().unwrap();
    assert_eq!(ended.state, JobState::Succeeded);
    assert_eq!(ended.ended_ms, Some(clock.now_ms()));
    assert!(matches!(ended.result, Some(JobResult::Inline(ref json)) if json.get() == format!("\"{}\"", lease.fence)));
    let attempt = &ended.attempts[0];
    assert_eq!(
        (attempt.outcome, attempt.timing.run_ms, attempt.worker_id.as_str()),
        (AttemptOutcome::Succeeded, 5, "w1")
    );
    assert_eq!(ended.winner(), Some(attempt));
}

async fn a_lane_is_first_in_first_out<Q: Queue>(queue: &Q, _: &ManualClock) {
    let jobs: Vec<NewJob> = (0..10).map(|_| job("echo")).collect();
    let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    queue.submit(jobs).await.unwrap();
    let leased: Vec<JobId> = queue.lease(query(100, 0)).await.unwrap().iter().map(|lease| lease.job_id).collect();
    assert_eq!(leased, ids);
}

async fn urgent_priorities_go_first<Q: Queue>(queue: &Q, _: &ManualClock) {
    for priority in [Priority::Batch, Priority::Standard, Priority::Interactive] {
        queue.submit(vec![of(JobSpec { priority, ..spec("echo") })]).await.unwrap();
    }
    let leases = queue.lease(query(3, 0)).await.unwrap();
    let priorities: Vec<Priority> = leases.iter().map(|lease| lease.spec.priority).collect();
    assert_eq!(priorities, Priority::ALL);
}

async fn lanes_take_turns<Q: Queue>(queue: &Q, _: &ManualClock) {
    queue.submit((0..100).map(|_| job("flood")).collect()).await.unwrap();
    queue.submit(vec![of(JobSpec { tenant: "other".into(), ..spec("flood") }), job("quiet")]).await.unwrap();
    let leases = queue.lease(query(6, 0)).await.unwrap();
    assert_eq!(leases.len(), 6);
    assert!(leases.iter().any(|lease| lease.spec.endpoint == "quiet"), "an endpoint with one job is not starved");
    assert!(leases.iter().any(|lease| lease.spec.tenant == "other"), "nor is a tenant with one job");
}

async fn a_worker_gets_only_what_fits_and_the_biggest_first<Q: Queue>(queue: &Q, _: &ManualClock) {
    for vram_class_gib in [0, 24, 8, 80] {
        queue.submit(vec![of(JobSpec { vram_class_gib, ..spec("echo") })]).await.unwrap();
    }
    let leases = queue.lease(query(10, 24)).await.unwrap();
    let classes: Vec<u32> = leases.iter().map(|lease| lease.spec.vram_class_gib).collect();
    assert_eq!(classes, [24, 8, 0]);
}

async fn the_same_id_twice_is_one_job<Q: Queue>(queue: &Q, _: &ManualClock) {
    let new = job("echo");
    queue.submit(vec![new.clone()]).await.unwrap();
    assert_eq!(queue.submit(vec![new.clone()]).await.unwrap(), [Submitted::New(new.id)]);
    assert_eq!(queue.lease(query(10, 0)).await.unwrap().len(), 1);
}

fn keyed(key: &str, request_hash: &str) -> NewJob {
    let idempotency = Some(Idempotency { key: key.into(), request_hash: request_hash.into() });
    NewJob { idempotency, ..job("echo") }
}

async fn an_idempotency_key_gives_one_job_or_a_conflict<Q: Queue>(queue: &Q, _: &ManualClock) {
    let first = keyed("k", "h1");
    let id = first.id;
    queue.submit(vec![first]).await.unwrap();
    assert_eq!(queue.submit(vec![keyed("k", "h1")]).await.unwrap(), [Submitted::Repeat(id)]);
    let conflict = queue.submit(vec![keyed("k", "h2")]).await;
    assert!(matches!(conflict, Err(Error::IdempotencyConflict { key }) if key == "k"));
    let mut foreign = keyed("k", "h2");
    foreign.spec.tenant = "other".into();
    assert!(matches!(queue.submit(vec![foreign]).await.unwrap()[..], [Submitted::New(_)]), "keys are per tenant");
}

async fn a_conflict_accepts_nothing_of_its_bulk<Q: Queue>(queue: &Q, _: &ManualClock) {
    queue.submit(vec![keyed("k", "h1")]).await.unwrap();
    let fresh = job("echo");
    let id = fresh.id;
    assert!(queue.submit(vec![fresh, keyed("k", "h2")]).await.is_err());
    assert!(queue.get(id).await.unwrap().is_none());
    assert_eq!(queue.depth().await.unwrap()[0].jobs, 1);
}

async fn a_job_for_later_waits_for_its_time<Q: Queue>(queue: &Q, clock: &ManualClock) {
    let due = clock.now_ms() + 1_000;
    let later = NewJob { run_after_ms: due, ..job("echo") };
    let id = later.id;
    queue.submit(vec![later]).await.unwrap();
    assert_eq!(state(queue, id).await, JobState::Scheduled);
    let swept = queue.promote().await.unwrap();
    assert_eq!((swept.jobs, swept.next_due_ms), (0, Some(due)));
    clock.advance_ms(1_000);
    let swept = queue.promote().await.unwrap();
    assert_eq!((swept.jobs, swept.next_due_ms), (1, None));
    assert_eq!(one(queue).await.job_id, id);
}

async fn a_failed_attempt_is_retried_after_a_backoff_until_the_budget_is_spent<Q: Queue>(
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

async fn a_final_failure_is_not_retried<Q: Queue>(queue: &Q, _: &ManualClock) {
    queue.submit(vec![job("echo")]).await.unwrap();
    let lease = one(queue).await;
    queue.finish(&[fail(&lease, ErrorCode::BadOutput)]).await.unwrap();
    assert_eq!(state(queue, lease.job_id).await, JobState::Failed);
}

async fn our_own_failures_have_a_budget_of_their_own<Q: Queue>(queue: &Q, clock: &ManualClock) {
    queue.submit(vec![job("echo")]).await.unwrap();
    for _ in 0..4 {
        let lease = one(queue).await;
        queue.finish(&[fail(&lease, ErrorCode::Infra)]).await.unwrap();
        assert_eq!(state(queue, lease.job_id).await, JobState::Scheduled, "more than max_attempts, and still alive");
        clock.advance_ms(60_000);
        queue.promote().await.unwrap();
    }
}

async fn an_expired_lease_goes_to_the_front_under_a_new_fence<Q: Queue>(queue: &Q, clock: &ManualClock) {
    queue.submit(vec![job("echo"), job("echo")]).await.unwrap();
    let lost = one(queue).await;
    clock.advance_ms(LEASE_MS);
    assert_eq!(queue.reap().await.unwrap().jobs, 1);
    let again = one(queue).await;
    assert_eq!((again.job_id, again.attempt), (lost.job_id, 2));
    assert!(again.fence.counter() > lost.fence.counter());
    let job = queue.get(lost.job_id).await.unwrap().unwrap();
    assert_eq!(job.attempts[0].outcome, AttemptOutcome::Lost);
    assert_eq!(job.attempts[0].error.as_ref().unwrap().code, ErrorCode::WorkerLost);
}

async fn a_job_that_keeps_losing_its_worker_fails_in_the_end<Q: Queue>(queue: &Q, clock: &ManualClock) {
    let new = job("echo");
    let id = new.id;
    queue.submit(vec![new]).await.unwrap();
    for _ in 0..MAX_INFRA_ATTEMPTS {
        one(queue).await;
        clock.advance_ms(LEASE_MS);
        queue.reap().await.unwrap();
    }
    let job = queue.get(id).await.unwrap().unwrap();
    assert_eq!((job.state, job.error.unwrap().code), (JobState::Failed, ErrorCode::WorkerLost));
}

async fn an_extended_lease_is_not_reaped<Q: Queue>(queue: &Q, clock: &ManualClock) {
    queue.submit(vec![job("echo")]).await.unwrap();
    let lease = one(queue).await;
    clock.advance_ms(LEASE_MS - 1);
    assert_eq!(queue.extend(&[held(&lease)]).await.unwrap(), [ExtendAnswer::Held]);
    clock.advance_ms(LEASE_MS - 1);
    assert_eq!(queue.reap().await.unwrap().jobs, 0);
    assert_eq!(queue.finish(&[succeed(&lease)]).await.unwrap(), [FinishAnswer::Ok]);
}

async fn a_stale_worker_can_end_nothing<Q: Queue>(queue: &Q, clock: &ManualClock) {
    queue.submit(vec![job("echo")]).await.unwrap();
    let stale = one(queue).await;
    clock.advance_ms(LEASE_MS);
    queue.reap().await.unwrap();
    let stale_everywhere = async || {
        assert_eq!(queue.finish(&[succeed(&stale)]).await.unwrap(), [FinishAnswer::StaleFence]);
        assert_eq!(queue.finish(&[fail(&stale, ErrorCode::BadOutput)]).await.unwrap(), [FinishAnswer::StaleFence]);
        assert_eq!(queue.release(&[held(&stale)]).await.unwrap(), [FinishAnswer::StaleFence]);
        assert_eq!(queue.extend(&[held(&stale)]).await.unwrap(), [ExtendAnswer::Lost]);
        assert_eq!(queue.held(&held(&stale)).await.unwrap(), None);
    };
    stale_everywhere().await;
    let winner = one(queue).await;
    stale_everywhere().await;
    queue.finish(&[succeed(&winner)]).await.unwrap();
    stale_everywhere().await;
    let job = queue.get(stale.job_id).await.unwrap().unwrap();
    assert!(matches!(job.result, Some(JobResult::Inline(ref json)) if json.get() == format!("\"{}\"", winner.fence)));
    let forged = LeaseRef { job_id: winner.job_id, fence: Fence::new(winner.fence.counter(), "0000000000000000") };
    assert_eq!(queue.extend(&[forged]).await.unwrap(), [ExtendAnswer::Lost], "the counter alone is no proof");
}

async fn a_report_told_twice_counts_once<Q: Queue>(queue: &Q, _: &ManualClock) {
    queue.submit(vec![job("echo")]).await.unwrap();
    let lease = one(queue).await;
    let answers = queue.finish(&[succeed(&lease), succeed(&lease), fail(&lease, ErrorCode::BadOutput)]).await.unwrap();
    assert_eq!(answers, [FinishAnswer::Ok, FinishAnswer::AlreadyEnded, FinishAnswer::AlreadyEnded]);
    assert_eq!(queue.get(lease.job_id).await.unwrap().unwrap().attempts.len(), 1);
}

async fn a_released_job_is_first_again_and_has_lost_nothing<Q: Queue>(queue: &Q, _: &ManualClock) {
    queue.submit((0..3).map(|_| job("echo")).collect()).await.unwrap();
    let lease = one(queue).await;
    assert_eq!(queue.release(&[held(&lease)]).await.unwrap(), [FinishAnswer::Ok]);
    assert_eq!(queue.release(&[held(&lease)]).await.unwrap(), [FinishAnswer::StaleFence]);
    let again = one(queue).await;
    assert_eq!(again.job_id, lease.job_id);
    let job = queue.get(lease.job_id).await.unwrap().unwrap();
    assert_eq!(job.attempts[0].outcome, AttemptOutcome::Released);
    assert_eq!(job.attempts.len(), 2);
}

async fn a_cancelled_job_never_gets_a_result<Q: Queue>(queue: &Q, _: &ManualClock) {
    queue.submit(vec![job("echo")]).await.unwrap();
    let lease = one(queue).await;
    assert_eq!(queue.cancel("acme", &[lease.job_id]).await.unwrap()[0], CancelAnswer::Cancelled);
    assert_eq!(queue.finish(&[succeed(&lease)]).await.unwrap(), [FinishAnswer::StaleFence]);
    assert_eq!(queue.extend(&[held(&lease)]).await.unwrap(), [ExtendAnswer::Lost], "its worker learns");
    let job = queue.get(lease.job_id).await.unwrap().unwrap();
    assert!(job.result.is_none());
    assert_eq!((job.state, job.attempts[0].outcome), (JobState::Cancelled, AttemptOutcome::Cancelled));
    let again = queue.cancel("acme", &[lease.job_id]).await.unwrap()[0];
    assert_eq!(again, CancelAnswer::AlreadyEnded(JobState::Cancelled));
    assert_eq!(queue.lease(query(1, 0)).await.unwrap().len(), 0);
}

async fn a_cancelled_job_leaves_its_lane<Q: Queue>(queue: &Q, clock: &ManualClock) {
    let (doomed, kept) = (job("echo"), job("echo"));
    let later = NewJob { run_after_ms: clock.now_ms() + 5, ..job("echo") };
    let (doomed_id, kept_id, later_id) = (doomed.id, kept.id, later.id);
    queue.submit(vec![doomed, kept, later]).await.unwrap();
    for id in [doomed_id, later_id] {
        assert_eq!(queue.cancel("acme", &[id]).await.unwrap()[0], CancelAnswer::Cancelled);
    }
    assert_eq!(queue.depth().await.unwrap()[0].jobs, 1);
    clock.advance_ms(5);
    assert_eq!(queue.promote().await.unwrap().jobs, 0);
    assert_eq!(one(queue).await.job_id, kept_id);
    assert!(queue.depth().await.unwrap().is_empty());
}

async fn another_tenants_job_cannot_be_cancelled<Q: Queue>(queue: &Q, _: &ManualClock) {
    let new = job("echo");
    let id = new.id;
    queue.submit(vec![new]).await.unwrap();
    assert_eq!(queue.cancel("other", &[id]).await.unwrap()[0], CancelAnswer::NotFound);
    assert_eq!(state(queue, id).await, JobState::Queued);
}

async fn a_large_result_lies_under_the_winning_attempt<Q: Queue>(queue: &Q, _: &ManualClock) {
    queue.submit(vec![job("echo")]).await.unwrap();
    let lease = one(queue).await;
    queue.finish(&[report(&lease, FinishOutcome::Stored { size_bytes: 99 })]).await.unwrap();
    let job = queue.get(lease.job_id).await.unwrap().unwrap();
    let Some(JobResult::Object { key, size_bytes: 99 }) = job.result else { panic!("{:?}", job.result) };
    assert_eq!(key, format!("results/acme/{}/1-{}/output.json", lease.job_id, lease.fence));
}

async fn one_submit_wakes_one_waiter_the_smallest_that_fits<Q: Queue>(queue: &Q, _: &ManualClock) {
    let mut signals = queue.listen("api-1").await.unwrap();
    for (reach, waiter) in [(80, 1), (24, 2), (0, 3), (24, 4)] {
        assert!(queue.lease(parking(reach, waiter)).await.unwrap().is_empty());
    }
    let submit = async |vram_class_gib| {
        queue.submit(vec![of(JobSpec { vram_class_gib, ..spec("echo") })]).await.unwrap();
    };
    submit(16).await;
    assert_eq!(signals.recv().await, Some(Signal::Wake(2)));
    submit(0).await;
    assert_eq!(signals.recv().await, Some(Signal::Wake(3)));
    submit(141).await;
    submit(48).await;
    assert_eq!(signals.recv().await, Some(Signal::Wake(1)), "nobody was woken for what nobody can take");
    assert!(signals.try_recv().is_err());
}

async fn a_wake_is_passed_on_while_there_is_work<Q: Queue>(queue: &Q, _: &ManualClock) {
    let mut signals = queue.listen("api-1").await.unwrap();
    for waiter in 1..=3 {
        queue.lease(parking(0, waiter)).await.unwrap();
    }
    queue.submit(vec![job("echo"), job("echo")]).await.unwrap();
    assert_eq!(signals.recv().await, Some(Signal::Wake(1)));
    one(queue).await;
    assert_eq!(signals.recv().await, Some(Signal::Wake(2)), "the first left a job: the next is woken");
    one(queue).await;
    assert!(signals.try_recv().is_err(), "nothing is left: the third sleeps on");
}

async fn a_waiter_that_left_says_whether_a_wake_is_under_way<Q: Queue>(queue: &Q, _: &ManualClock) {
    let mut signals = queue.listen("api-1").await.unwrap();
    let waiter = |waiter| Waiter { replica: "api-1".into(), waiter };
    queue.lease(parking(0, 1)).await.unwrap();
    assert!(queue.unpark(&waiter(1)).await.unwrap(), "nothing was under way");

    queue.lease(parking(0, 2)).await.unwrap();
    queue.lease(parking(0, 3)).await.unwrap();
    queue.submit(vec![job("echo")]).await.unwrap();
    assert_eq!(signals.recv().await, Some(Signal::Wake(2)));
    assert!(!queue.unpark(&waiter(2)).await.unwrap());
    queue.wake_next().await.unwrap();
    assert_eq!(signals.recv().await, Some(Signal::Wake(3)), "the wake is not lost");
}

async fn a_watched_job_signals_each_change<Q: Queue>(queue: &Q, _: &ManualClock) {
    let mut signals = queue.listen("api-1").await.unwrap();
    let new = job("echo");
    let id = new.id;
    queue.submit(vec![new, job("unwatched")]).await.unwrap();
    assert_eq!(queue.watch(id, "api-1").await.unwrap().unwrap().state, JobState::Queued);
    let leases = queue.lease(query(2, 0)).await.unwrap();
    assert_eq!(signals.recv().await, Some(Signal::Job(id)));
    queue.finish(&leases.iter().map(succeed).collect::<Vec<_>>()).await.unwrap();
    assert_eq!(signals.recv().await, Some(Signal::Job(id)));
    assert_eq!(queue.watch(id, "api-1").await.unwrap().unwrap().state, JobState::Succeeded);
    assert!(signals.try_recv().is_err(), "the other job is nobody's business");
}

async fn events_are_kept_in_order_and_only_from_the_holder<Q: Queue>(queue: &Q, _: &ManualClock) {
    queue.submit(vec![job("echo")]).await.unwrap();
    let lease = one(queue).await;
    let event = |fence: &Fence, event| JobEventReport { job_id: lease.job_id, fence: fence.clone(), event };
    let log = |text: &str| JobMessage::Log { stream: LogStream::Stdout, text: text.into() };
    let progress = JobMessage::Progress { fraction: 0.5, message: "half".into() };
    let stale = Fence::new(lease.fence.counter(), "0000000000000000");
    let events = [event(&lease.fence, log("one")), event(&stale, log("forged")), event(&lease.fence, progress)];
    queue.append_events(&events).await.unwrap();

    let kept = queue.read_events(lease.job_id, "", 10).await.unwrap();
    assert_eq!(kept.len(), 2);
    assert!(matches!(&kept[0].message, JobMessage::Log { text, .. } if text == "one"));
    assert_eq!(kept[0].attempt, 1);
    let rest = queue.read_events(lease.job_id, &kept[0].id, 10).await.unwrap();
    assert!(matches!(&rest[..], [event] if matches!(event.message, JobMessage::Progress { .. })));
    let job = queue.get(lease.job_id).await.unwrap().unwrap();
    assert_eq!(job.progress.unwrap().message, "half");
}

async fn lists_page_newest_first_and_filter<Q: Queue>(queue: &Q, _: &ManualClock) {
    let mut jobs: Vec<NewJob> = (0..250).map(|_| job("echo")).collect();
    jobs[7].spec.endpoint = "rare".into();
    jobs[9].spec.metadata.insert("run".into(), "r1".into());
    let newest_first: Vec<JobId> = jobs.iter().rev().map(|job| job.id).collect();
    let (rare, labelled) = (jobs[7].id, jobs[9].id);
    queue.submit(jobs).await.unwrap();

    let all = async |filter: ListFilter, limit| {
        let (mut seen, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let page = queue.list("acme", &filter, cursor.as_deref(), limit).await.unwrap();
            assert!(page.jobs.len() <= limit as usize);
            seen.extend(page.jobs.iter().map(|job| job.id));
            cursor = page.next_cursor;
            if cursor.is_none() {
                return seen;
            }
        }
    };
    assert_eq!(all(ListFilter::default(), 30).await, newest_first);
    assert_eq!(all(ListFilter { endpoint: Some("rare".into()), ..Default::default() }, 20).await, [rare]);
    let label = vec![("run".to_owned(), "r1".to_owned())];
    assert_eq!(all(ListFilter { metadata: label, ..Default::default() }, 20).await, [labelled]);
    assert_eq!(all(ListFilter { state: Some(JobState::Running), ..Default::default() }, 20).await, []);
    assert!(queue.list("other", &ListFilter::default(), None, 20).await.unwrap().jobs.is_empty());
    let filter = ListFilter { endpoint: Some("rare".into()), ..Default::default() };
    assert!(queue.list("other", &filter, None, 20).await.unwrap().jobs.is_empty());
}

async fn depth_counts_ready_jobs<Q: Queue>(queue: &Q, _: &ManualClock) {
    queue.submit(vec![job("a"), job("b"), job("b")]).await.unwrap();
    let depths: Vec<(String, u64)> =
        queue.depth().await.unwrap().into_iter().map(|depth| (depth.lane, depth.jobs)).collect();
    assert_eq!(depths, [("1:0:acme:b".to_owned(), 2), ("1:0:acme:a".to_owned(), 1)]);
}

async fn unknown_ids_are_not_found<Q: Queue>(queue: &Q, _: &ManualClock) {
    let id = JobId::new(0);
    let lease = LeaseRef { job_id: id, fence: Fence::new(1, "x") };
    assert!(queue.get(id).await.unwrap().is_none());
    assert!(queue.watch(id, "api-1").await.unwrap().is_none());
    assert_eq!(queue.cancel("acme", &[id]).await.unwrap()[0], CancelAnswer::NotFound);
    assert_eq!(queue.extend(std::slice::from_ref(&lease)).await.unwrap(), [ExtendAnswer::Lost]);
    assert_eq!(queue.release(&[lease]).await.unwrap(), [FinishAnswer::NotFound]);
    assert!(queue.read_events(id, "", 10).await.unwrap().is_empty());
}
