//! Leases, and the ways to lose them.

use stokehold_queue::gateway::{ExtendAnswer, FinishAnswer, LeaseRef};
use stokehold_queue::job::{AttemptOutcome, ErrorCode, JobResult, JobSpec, JobState, SLOT_PARTS};
use stokehold_queue::queue::{Lease, LeaseQuery, LimitScope, Limits, Signal};
use stokehold_queue::retry::MAX_INFRA_ATTEMPTS;
use stokehold_queue::{Error, Fence, ManualClock, Queue};

use super::{
    LEASE_MS, cancels, fail, held, job, limit_tenant, one, owned, parking, query, spec, submit, succeed, succeeds, take,
};

pub(crate) async fn an_expired_lease_goes_to_the_front_under_a_new_fence<Q: Queue>(queue: &Q, clock: &ManualClock) {
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

pub(crate) async fn a_job_that_keeps_losing_its_worker_fails_in_the_end<Q: Queue>(queue: &Q, clock: &ManualClock) {
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

pub(crate) async fn an_extended_lease_is_not_reaped<Q: Queue>(queue: &Q, clock: &ManualClock) {
    queue.submit(vec![job("echo")]).await.unwrap();
    let lease = one(queue).await;
    clock.advance_ms(LEASE_MS - 1);
    assert_eq!(queue.extend(&[held(&lease)]).await.unwrap(), [ExtendAnswer::Held]);
    clock.advance_ms(LEASE_MS - 1);
    assert_eq!(queue.reap().await.unwrap().jobs, 0);
    assert_eq!(queue.finish(&[succeed(&lease)]).await.unwrap(), [FinishAnswer::Ok]);
}

pub(crate) async fn a_stale_worker_can_end_nothing<Q: Queue>(queue: &Q, clock: &ManualClock) {
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

pub(crate) async fn a_report_told_twice_counts_once<Q: Queue>(queue: &Q, _: &ManualClock) {
    queue.submit(vec![job("echo")]).await.unwrap();
    let lease = one(queue).await;
    let answers = queue.finish(&[succeed(&lease), succeed(&lease), fail(&lease, ErrorCode::BadOutput)]).await.unwrap();
    assert_eq!(answers, [FinishAnswer::Ok, FinishAnswer::AlreadyEnded, FinishAnswer::AlreadyEnded]);
    assert_eq!(queue.get(lease.job_id).await.unwrap().unwrap().attempts.len(), 1);
}

pub(crate) async fn a_released_job_is_first_again_and_has_lost_nothing<Q: Queue>(queue: &Q, _: &ManualClock) {
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

pub(crate) async fn the_jobs_of_a_worker_that_has_ended_come_back_at_once<Q: Queue>(queue: &Q, _: &ManualClock) {
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

pub(crate) async fn a_lease_says_how_many_jobs_its_lane_has_left<Q: Queue>(queue: &Q, _: &ManualClock) {
    submit(queue, vec![spec("a"); 5]).await;
    submit(queue, vec![owned("zoo", "b"); 3]).await;
    let behind = |leases: Vec<stokehold_queue::queue::Lease>| -> Vec<(String, u64)> {
        leases.into_iter().map(|lease| (lease.spec.endpoint, lease.behind)).collect()
    };
    // The tenants take turns: the count is the number of jobs left after the whole call.
    let mut first = behind(take(queue, 4).await);
    first.sort();
    assert_eq!(first, [("a".into(), 3), ("a".into(), 3), ("b".into(), 1), ("b".into(), 1)]);
    // Jobs that a limit holds back could not start even if a slot were free.
    let endpoint = LimitScope::Endpoint { tenant: "acme".into(), endpoint: "a".into() };
    queue.limit(&endpoint, Some(&Limits { max_running: Some(4), ..Limits::default() })).await.unwrap();
    limit_tenant(queue, "zoo", Limits { max_running: Some(3), ..Limits::default() }).await;
    let mut second = behind(take(queue, 2).await);
    second.sort();
    assert_eq!(second, [("a".into(), 1), ("b".into(), 0)]);
}

/// Number of leases that a worker with one slot may hold for an endpoint that has not run yet.
const OF_ONE_SLOT: usize = 1 + 32;

fn bounded(want: u32) -> LeaseQuery {
    LeaseQuery { slots: Some(1), ..query(want, 0) }
}

/// All leases that a worker receives when it polls until there are no more.
async fn all<Q: Queue>(queue: &Q, query: &LeaseQuery) -> Vec<Lease> {
    let mut leases = Vec::new();
    loop {
        match queue.lease(query.clone()).await {
            Ok(more) if more.is_empty() => return leases,
            Ok(more) => leases.extend(more),
            Err(Error::Full) => return leases,
            Err(error) => panic!("{error}"),
        }
    }
}

pub(crate) async fn a_worker_holds_no_more_than_its_slots_run_and_a_few_ahead<Q: Queue>(queue: &Q, _: &ManualClock) {
    submit(queue, vec![spec("echo"); 305]).await;
    let leases = all(queue, &bounded(100)).await;
    assert_eq!(leases.len(), OF_ONE_SLOT);
    assert!(matches!(queue.lease(bounded(1)).await, Err(Error::Full)));
    // Other workers still receive their jobs.
    let other = LeaseQuery { worker_id: "w2".into(), ..bounded(100) };
    assert_eq!(all(queue, &other).await.len(), OF_ONE_SLOT);
    let elsewhere = LeaseQuery { worker_id: "w3".into(), taken_elsewhere: 30 * SLOT_PARTS, ..bounded(100) };
    assert_eq!(all(queue, &elsewhere).await.len(), OF_ONE_SLOT - 30);
    assert_eq!(take(queue, 100).await.len(), 100, "without a bound it gets what it asks for");
    // Jobs with short runs may be held ahead in larger numbers: a round trip for each would take longer than the run.
    succeeds(queue, &leases[0]).await;
    let short = LeaseQuery { worker_id: "w4".into(), ..bounded(100) };
    assert_eq!(queue.lease(short).await.unwrap().len(), 100);
}

pub(crate) async fn every_way_a_lease_ends_gives_its_place_back<Q: Queue>(queue: &Q, clock: &ManualClock) {
    let deadline_ms = clock.now_ms() + 1_000_000;
    submit(queue, vec![JobSpec { deadline_ms: Some(deadline_ms), ..spec("echo") }; 400]).await;
    let leases = all(queue, &bounded(100)).await;
    assert_eq!(leases.len(), OF_ONE_SLOT);
    // Jobs whose runs are not short are not held ahead.
    clock.advance_ms(LEASE_MS - 1);
    queue.release(&[held(&leases[0])]).await.unwrap();
    cancels(queue, leases[1].job_id).await;
    queue.finish(&[fail(&leases[2], ErrorCode::BadOutput)]).await.unwrap();
    assert_eq!(all(queue, &bounded(100)).await.len(), 3);
    queue.abandon(&bounded(1).worker_id).await.unwrap();
    assert_eq!(all(queue, &bounded(100)).await.len(), OF_ONE_SLOT);
    clock.advance_ms(LEASE_MS);
    queue.reap().await.unwrap();
    assert_eq!(all(queue, &bounded(100)).await.len(), OF_ONE_SLOT);
    clock.advance_ms(1_000_000);
    while queue.expire().await.unwrap().jobs > 0 {}
    submit(queue, vec![spec("echo"); 100]).await;
    assert_eq!(all(queue, &bounded(100)).await.len(), OF_ONE_SLOT);
}

pub(crate) async fn jobs_that_share_a_slot_take_a_part_of_it<Q: Queue>(queue: &Q, _: &ManualClock) {
    submit(queue, vec![JobSpec { share: 64, ..spec("batched") }; 200]).await;
    assert_eq!(all(queue, &bounded(100)).await.len(), 64 + 32);
    let other = LeaseQuery { worker_id: "w2".into(), slots: Some(2), ..query(100, 0) };
    assert_eq!(all(queue, &other).await.len(), 104, "all that are left: 128 and 33 would be too many");
    // The jobs take less than two of its slots, and 33 more jobs may be held ahead.
    submit(queue, vec![spec("alone"); 100]).await;
    assert_eq!(all(queue, &other).await.len(), 33);
}

pub(crate) async fn who_holds_as_many_as_it_may_passes_the_wake_on<Q: Queue>(queue: &Q, _: &ManualClock) {
    submit(queue, vec![spec("echo"); OF_ONE_SLOT]).await;
    all(queue, &bounded(100)).await;
    let mut signals = queue.listen("api-1").await.unwrap();
    let full = LeaseQuery { slots: Some(1), ..parking(0, 7) };
    assert!(queue.lease(full.clone()).await.unwrap().is_empty());
    let other = LeaseQuery { worker_id: "w2".into(), rank: 1, ..parking(0, 8) };
    assert!(queue.lease(other).await.unwrap().is_empty());
    submit(queue, vec![spec("echo")]).await;
    assert_eq!(signals.recv().await, Some(Signal::Wake(7)), "the cheapest is woken, whatever it holds");
    assert!(matches!(queue.lease(full).await, Err(Error::Full)));
    assert_eq!(signals.recv().await, Some(Signal::Wake(8)));
}
