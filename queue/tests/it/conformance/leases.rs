//! The right to run, and how it is lost.

use stokehold_queue::gateway::{ExtendAnswer, FinishAnswer, LeaseRef};
use stokehold_queue::job::{AttemptOutcome, ErrorCode, JobResult, JobState};
use stokehold_queue::queue::{Gate, LeaseQuery, Limits};
use stokehold_queue::retry::MAX_INFRA_ATTEMPTS;
use stokehold_queue::{Fence, ManualClock, Queue};

use super::{LEASE_MS, fail, held, job, limit_tenant, one, owned, query, spec, submit, succeed, take};

pub(super) async fn an_expired_lease_goes_to_the_front_under_a_new_fence<Q: Queue>(queue: &Q, clock: &ManualClock) {
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

pub(super) async fn a_job_that_keeps_losing_its_worker_fails_in_the_end<Q: Queue>(queue: &Q, clock: &ManualClock) {
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

pub(super) async fn an_extended_lease_is_not_reaped<Q: Queue>(queue: &Q, clock: &ManualClock) {
    queue.submit(vec![job("echo")]).await.unwrap();
    let lease = one(queue).await;
    clock.advance_ms(LEASE_MS - 1);
    assert_eq!(queue.extend(&[held(&lease)]).await.unwrap(), [ExtendAnswer::Held]);
    clock.advance_ms(LEASE_MS - 1);
    assert_eq!(queue.reap().await.unwrap().jobs, 0);
    assert_eq!(queue.finish(&[succeed(&lease)]).await.unwrap(), [FinishAnswer::Ok]);
}

pub(super) async fn a_stale_worker_can_end_nothing<Q: Queue>(queue: &Q, clock: &ManualClock) {
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

pub(super) async fn a_report_told_twice_counts_once<Q: Queue>(queue: &Q, _: &ManualClock) {
    queue.submit(vec![job("echo")]).await.unwrap();
    let lease = one(queue).await;
    let answers = queue.finish(&[succeed(&lease), succeed(&lease), fail(&lease, ErrorCode::BadOutput)]).await.unwrap();
    assert_eq!(answers, [FinishAnswer::Ok, FinishAnswer::AlreadyEnded, FinishAnswer::AlreadyEnded]);
    assert_eq!(queue.get(lease.job_id).await.unwrap().unwrap().attempts.len(), 1);
}

pub(super) async fn a_released_job_is_first_again_and_has_lost_nothing<Q: Queue>(queue: &Q, _: &ManualClock) {
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

pub(super) async fn the_jobs_of_a_worker_that_has_ended_come_back_at_once<Q: Queue>(queue: &Q, _: &ManualClock) {
    queue.submit(vec![job("echo"), job("echo"), job("echo")]).await.unwrap();
    let (lost, other) = (one(queue).await, LeaseQuery { worker_id: "another".into(), ..query(1, 0) });
    let kept = queue.lease(other).await.unwrap().remove(0);
    assert_eq!(queue.abandon("nobody").await.unwrap(), 0);
    assert_eq!(queue.abandon(&query(1, 0).worker_id).await.unwrap(), 1);
    assert_eq!(queue.reap().await.unwrap().jobs, 0);
    let again = one(queue).await;
    assert_eq!((again.job_id, again.attempt), (lost.job_id, 2));
    assert_eq!(queue.get(lost.job_id).await.unwrap().unwrap().attempts[0].outcome, AttemptOutcome::Lost);
    assert_eq!(queue.extend(&[held(&lost), held(&kept)]).await.unwrap(), [ExtendAnswer::Lost, ExtendAnswer::Held]);
}

pub(super) async fn a_lease_says_how_many_jobs_its_lane_has_left<Q: Queue>(queue: &Q, _: &ManualClock) {
    submit(queue, vec![spec("a"); 5]).await;
    submit(queue, vec![owned("zoo", "b"); 3]).await;
    let behind = |leases: Vec<stokehold_queue::queue::Lease>| -> Vec<(String, u64)> {
        leases.into_iter().map(|lease| (lease.spec.endpoint, lease.behind)).collect()
    };
    // Both tenants in turn: what counts is what is left after the whole call.
    let mut first = behind(take(queue, 4).await);
    first.sort();
    assert_eq!(first, [("a".into(), 3), ("a".into(), 3), ("b".into(), 1), ("b".into(), 1)]);
    // Jobs that a limit holds back could not start, whoever made room for them.
    let endpoint = Gate::Endpoint { tenant: "acme".into(), endpoint: "a".into() };
    queue.limit(&endpoint, Some(&Limits { max_running: Some(4), ..Limits::default() })).await.unwrap();
    limit_tenant(queue, "zoo", Limits { max_running: Some(3), ..Limits::default() }).await;
    let mut second = behind(take(queue, 2).await);
    second.sort();
    assert_eq!(second, [("a".into(), 1), ("b".into(), 0)]);
}
