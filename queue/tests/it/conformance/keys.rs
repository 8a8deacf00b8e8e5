//! Concurrency keys.

use stokehold_queue::job::{ErrorCode, JobSpec, JobState};
use stokehold_queue::queue::{Gate, Limits};
use stokehold_queue::{ManualClock, Queue};

use super::{LEASE_MS, cancels, fails, held, ids, keyed, one, spec, state, submit, succeeds, take};

pub(super) async fn jobs_of_one_key_run_one_after_the_other_in_order<Q: Queue>(queue: &Q, _: &ManualClock) {
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

pub(super) async fn different_keys_and_tenants_do_not_wait_for_one_another<Q: Queue>(queue: &Q, _: &ManualClock) {
    let foreign = JobSpec { tenant: "zoo".into(), ..keyed("k", 1) };
    submit(queue, [keyed("k", 1), keyed("k", 1), keyed("l", 1), spec("echo"), foreign]).await;
    assert_eq!(take(queue, 10).await.len(), 4);
}

pub(super) async fn a_key_lets_through_as_many_as_it_says<Q: Queue>(queue: &Q, _: &ManualClock) {
    submit(queue, vec![keyed("k", 3); 8]).await;
    let leases = take(queue, 10).await;
    assert_eq!(leases.len(), 3);
    for lease in &leases[..2] {
        succeeds(queue, lease).await;
    }
    assert_eq!(take(queue, 10).await.len(), 2);
    assert_eq!(take(queue, 10).await.len(), 0);
}

pub(super) async fn however_the_holder_ends_the_next_goes_on<Q: Queue>(queue: &Q, clock: &ManualClock) {
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
    // The lost one keeps the place it had in the line, the crashed one comes back after its backoff.
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

pub(super) async fn a_waiter_that_leaves_lets_the_others_wait_in_peace<Q: Queue>(queue: &Q, clock: &ManualClock) {
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

pub(super) async fn a_waiter_let_on_too_early_keeps_its_place<Q: Queue>(queue: &Q, _: &ManualClock) {
    let jobs = submit(queue, vec![keyed("k", 1); 3]).await;
    let holder = one(queue).await;
    assert_eq!(take(queue, 10).await.len(), 0);
    succeeds(queue, &holder).await;
    // The second is back in its lane; a more urgent one of the same key comes in between.
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

pub(super) async fn a_long_line_for_one_key_stops_nobody_behind_it<Q: Queue>(queue: &Q, _: &ManualClock) {
    submit(queue, vec![keyed("k", 1); 300]).await;
    let other = submit(queue, [spec("echo")]).await[0];
    one(queue).await;
    assert_eq!(one(queue).await.job_id, other);
    assert_eq!(queue.depth().await.unwrap()[0].jobs, 299, "who waits for a key is still queued");
}

pub(super) async fn a_waiter_before_a_closed_endpoint_stops_nobody_else<Q: Queue>(queue: &Q, _: &ManualClock) {
    let closed = Gate::Endpoint { tenant: "acme".into(), endpoint: "closed".into() };
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
