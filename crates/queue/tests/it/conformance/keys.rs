//! Concurrency keys.

use stokehold_queue::job::{ErrorCode, JobSpec, JobState};
use stokehold_queue::queue::{LimitScope, Limits};
use stokehold_queue::{JobId, ManualClock, Queue};

use super::{LEASE_MS, cancels, fails, held, ids, keyed, one, query, spec, state, submit, succeeds, take};

pub(crate) async fn jobs_of_one_key_run_one_after_the_other_in_order<Q: Queue>(queue: &Q, _: &ManualClock) {
    let jobs = submit(queue, vec![keyed("k", 1); 10]).await;
    let mut order = Vec::new();
    loop {
        let leases = take(queue, 10).await;
        let [lease] = &leases[..] else {
            assert!(leases.is_empty(), "never two at once");
            break;
        };
        order.push(lease.job_id);
        assert_eq!(take(queue, 10).await.len(), 0);
        succeeds(queue, lease).await;
    }
    assert_eq!(order, jobs);
}

pub(crate) async fn different_keys_and_tenants_do_not_wait_for_one_another<Q: Queue>(queue: &Q, _: &ManualClock) {
    let foreign = JobSpec { tenant: "zoo".into(), ..keyed("k", 1) };
    submit(queue, [keyed("k", 1), keyed("k", 1), keyed("l", 1), spec("echo"), foreign]).await;
    assert_eq!(take(queue, 10).await.len(), 4);
}

pub(crate) async fn a_key_lets_through_as_many_as_it_says<Q: Queue>(queue: &Q, _: &ManualClock) {
    submit(queue, vec![keyed("k", 3); 8]).await;
    let leases = take(queue, 10).await;
    assert_eq!(leases.len(), 3);
    for lease in &leases[..2] {
        succeeds(queue, lease).await;
    }
    assert_eq!(take(queue, 10).await.len(), 2);
    assert_eq!(take(queue, 10).await.len(), 0);
}

pub(crate) async fn however_the_holder_ends_the_next_goes_on<Q: Queue>(queue: &Q, clock: &ManualClock) {
    let deadline_ms = Some(clock.now_ms() + 1_000);
    submit(queue, [JobSpec { deadline_ms, ..keyed("k", 1) }]).await;
    let jobs = submit(queue, vec![keyed("k", 1); 5]).await;
    one(queue).await;
    assert_eq!(take(queue, 10).await.len(), 0);

    clock.advance_ms(1_000);
    assert_eq!(queue.expire().await.unwrap().jobs, 1);
    assert_eq!(one(queue).await.job_id, jobs[0]);
    cancels(queue, jobs[0]).await;
    let crashed = one(queue).await;
    assert_eq!(crashed.job_id, jobs[1]);
    fails(queue, &crashed, ErrorCode::RunnerCrashed).await;
    assert_eq!(one(queue).await.job_id, jobs[2]);
    clock.advance_ms(LEASE_MS);
    queue.reap().await.unwrap();
    // The lost job keeps its position in the line; the crashed job returns after its backoff.
    let next = one(queue).await;
    assert_eq!(take(queue, 10).await.len(), 0);
    queue.release(&[held(&next)]).await.unwrap();
    queue.promote().await.unwrap();
    let mut left = 0;
    while let [lease] = &take(queue, 10).await[..] {
        succeeds(queue, lease).await;
        left += 1;
    }
    assert_eq!(left, 4);
}

pub(crate) async fn a_waiter_that_leaves_lets_the_others_wait_in_peace<Q: Queue>(queue: &Q, clock: &ManualClock) {
    let start_by_ms = Some(clock.now_ms() + 10);
    let jobs = submit(queue, vec![keyed("k", 1); 2]).await;
    let late = submit(queue, [JobSpec { start_by_ms, ..keyed("k", 1) }]).await[0];
    let last = submit(queue, [keyed("k", 1)]).await[0];
    let holder = one(queue).await;
    assert_eq!(take(queue, 10).await.len(), 0, "now they wait");
    cancels(queue, jobs[1]).await;
    clock.advance_ms(10);
    assert_eq!(queue.expire().await.unwrap().jobs, 1);
    assert_eq!(state(queue, late).await, JobState::Expired);
    assert_eq!(take(queue, 10).await.len(), 0);
    assert_eq!(queue.depth().await.unwrap()[0].jobs, 1);
    succeeds(queue, &holder).await;
    assert_eq!(one(queue).await.job_id, last);
    assert!(queue.depth().await.unwrap().is_empty());
}

pub(crate) async fn a_waiter_let_on_too_early_keeps_its_place<Q: Queue>(queue: &Q, _: &ManualClock) {
    let jobs = submit(queue, vec![keyed("k", 1); 3]).await;
    let holder = one(queue).await;
    assert_eq!(take(queue, 10).await.len(), 0);
    succeeds(queue, &holder).await;
    // The second job is back in its lane; a more urgent job of the same key arrives in between.
    let urgent = JobSpec { priority: stokehold_queue::job::Priority::Interactive, ..keyed("k", 1) };
    let urgent = submit(queue, [urgent]).await[0];
    let holder = one(queue).await;
    assert_eq!(holder.job_id, urgent);
    assert_eq!(take(queue, 10).await.len(), 0);
    succeeds(queue, &holder).await;
    let holder = one(queue).await;
    assert_eq!(holder.job_id, jobs[1], "before the third, as it came");
    succeeds(queue, &holder).await;
    assert_eq!(one(queue).await.job_id, jobs[2]);
}

pub(crate) async fn a_long_line_for_one_key_stops_nobody_behind_it<Q: Queue>(queue: &Q, _: &ManualClock) {
    submit(queue, vec![keyed("k", 1); 300]).await;
    let other = submit(queue, [spec("echo")]).await[0];
    one(queue).await;
    assert_eq!(one(queue).await.job_id, other);
    assert_eq!(queue.depth().await.unwrap()[0].jobs, 299, "who waits for a key is still queued");
}

pub(crate) async fn a_waiter_before_a_closed_endpoint_stops_nobody_else<Q: Queue>(queue: &Q, _: &ManualClock) {
    let closed = LimitScope::Endpoint { tenant: "acme".into(), endpoint: "closed".into() };
    let of_closed = JobSpec { endpoint: "closed".into(), ..keyed("k", 1) };
    let holder = submit(queue, [keyed("k", 1)]).await[0];
    assert_eq!(ids(&take(queue, 1).await), [holder]);
    submit(queue, [of_closed]).await;
    let open = submit(queue, vec![keyed("k", 1); 2]).await;
    assert_eq!(take(queue, 10).await.len(), 0, "all three wait for the key, the one of the closed endpoint first");
    queue.limit(&closed, Some(&Limits { max_running: Some(0), ..Limits::default() })).await.unwrap();
    cancels(queue, holder).await;
    for id in open {
        let lease = one(queue).await;
        assert_eq!(lease.job_id, id);
        succeeds(queue, &lease).await;
    }
    assert_eq!(take(queue, 10).await.len(), 0);
    queue.limit(&closed, None).await.unwrap();
    one(queue).await;
}

fn keyed_on(endpoint: &str, max: u32) -> JobSpec {
    JobSpec { endpoint: endpoint.into(), ..keyed("k", max) }
}

/// The order in which these jobs start when a worker leases up to `want` at a time and ends them one after the other.
async fn order_of_starts<Q: Queue>(queue: &Q, want: u32) -> Vec<JobId> {
    let (mut started, mut running) = (Vec::new(), std::collections::VecDeque::new());
    loop {
        for lease in take(queue, want).await {
            started.push(lease.job_id);
            running.push_back(lease);
        }
        let Some(lease) = running.pop_front() else { return started };
        succeeds(queue, &lease).await;
    }
}

pub(crate) async fn jobs_of_one_key_on_several_endpoints_start_in_the_order_of_their_submit<Q: Queue>(
    queue: &Q,
    _: &ManualClock,
) {
    for want in [1, 10] {
        // Two submits in one call, calls for one endpoint, and jobs without a key in between.
        let mut jobs = submit(queue, [keyed_on("a", 1), keyed_on("a", 1), keyed_on("b", 1)]).await;
        submit(queue, [spec("b"), spec("c")]).await;
        for endpoint in ["a", "c", "b", "b", "c", "a", "a", "b"] {
            jobs.extend(submit(queue, [keyed_on(endpoint, 1)]).await);
        }
        let started: Vec<JobId> =
            order_of_starts(queue, want).await.into_iter().filter(|id| jobs.contains(id)).collect();
        assert_eq!(started, jobs, "{want} at a time");
    }
}

pub(crate) async fn every_free_place_of_a_key_is_taken_in_the_order_of_submit<Q: Queue>(queue: &Q, _: &ManualClock) {
    let endpoints = ["a", "a", "a", "b", "b", "a", "b", "b", "b", "a"];
    let jobs = submit(queue, endpoints.map(|endpoint| keyed_on(endpoint, 3))).await;
    let first = take(queue, 10).await;
    let mut started = ids(&first);
    started.sort_by_key(|id| jobs.iter().position(|job| job == id));
    assert_eq!(started, jobs[..3]);
    // Two places become free at once, and both are taken.
    succeeds(queue, &first[0]).await;
    succeeds(queue, &first[1]).await;
    let mut next = ids(&take(queue, 10).await);
    next.sort_by_key(|id| jobs.iter().position(|job| job == id));
    assert_eq!(next, jobs[3..5]);
}

pub(crate) async fn a_job_that_comes_back_keeps_its_place_among_endpoints<Q: Queue>(queue: &Q, clock: &ManualClock) {
    let jobs = submit(queue, ["a", "b", "a", "b"].map(|endpoint| keyed_on(endpoint, 1))).await;
    let first = one(queue).await;
    assert_eq!(first.job_id, jobs[0]);
    assert_eq!(take(queue, 10).await.len(), 0);
    queue.release(&[held(&first)]).await.unwrap();
    let first = one(queue).await;
    assert_eq!(first.job_id, jobs[0], "before those that came later, though they were let on");
    assert_eq!(take(queue, 10).await.len(), 0);
    clock.advance_ms(LEASE_MS);
    assert_eq!(queue.reap().await.unwrap().jobs, 1);
    assert_eq!(order_of_starts(queue, 10).await, jobs);
}

pub(crate) async fn a_job_for_another_worker_stops_nobody_with_its_key<Q: Queue>(queue: &Q, _: &ManualClock) {
    let large = JobSpec { vram_class_gib: 24, ..keyed_on("large", 1) };
    let jobs = submit(queue, [large, keyed_on("small", 1), keyed_on("small", 1)]).await;
    for id in &jobs[1..] {
        let lease = one(queue).await;
        assert_eq!(lease.job_id, *id, "no card here is large enough for the first");
        succeeds(queue, &lease).await;
    }
    assert_eq!(ids(&queue.lease(query(1, 24)).await.unwrap()), [jobs[0]]);
}

pub(crate) async fn a_job_set_aside_for_one_that_does_not_start_goes_on_after_a_while<Q: Queue>(
    queue: &Q,
    clock: &ManualClock,
) {
    let large = |spec| JobSpec { vram_class_gib: 24, ..spec };
    let before = submit(queue, [large(spec("large")), large(spec("large")), spec("small")]).await;
    assert_eq!(ids(&queue.lease(query(1, 24)).await.unwrap()), [before[0]], "now it is the small ones' turn");
    let after = submit(queue, [large(keyed_on("large", 1)), keyed_on("small", 1), spec("small")]).await;
    assert_eq!(ids(&queue.lease(query(2, 24)).await.unwrap()), [before[2], before[1]]);
    // The worker with the large GPU, which could have taken the key's first job next, is gone.
    assert_eq!(ids(&take(queue, 10).await), [after[2]], "the second of the key was set aside for the first");
    clock.advance_ms(2_000);
    queue.promote().await.unwrap();
    assert_eq!(ids(&take(queue, 10).await), [after[1]]);
}
