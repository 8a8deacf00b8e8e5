//! The order of leases.

use stokehold_queue::capability::Capability;
use stokehold_queue::job::{JobSpec, JobState, NewJob, Priority};
use stokehold_queue::queue::{AGE_AFTER_MS, HOLD_AFTER_MS, LEASE_BYTES, Lease, LeaseQuery, Signal, Waiter};
use stokehold_queue::{JobId, ManualClock, Queue};

use super::{ids, job, of, one, query, raw, spec, state, submit, take, warm};

pub(crate) async fn a_lane_is_first_in_first_out<Q: Queue>(queue: &Q, _: &ManualClock) {
    let jobs: Vec<NewJob> = (0..10).map(|_| job("echo")).collect();
    let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    queue.submit(jobs).await.unwrap();
    let leased: Vec<JobId> = queue.lease(query(100, 0)).await.unwrap().iter().map(|lease| lease.job_id).collect();
    assert_eq!(leased, ids);
}

pub(crate) async fn a_reply_with_large_inputs_ends_early_and_the_rest_keeps_its_turn<Q: Queue>(
    queue: &Q,
    _: &ManualClock,
) {
    let mut signals = queue.listen("api-1").await.unwrap();
    let large = |endpoint| NewJob { input: raw(&format!("\"{}\"", "x".repeat(1 << 20))), ..job(endpoint) };
    let jobs: Vec<NewJob> = (0..12).map(|n| if n % 2 == 0 { large("echo") } else { large("other") }).collect();
    let mut left: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    for job in jobs {
        queue.submit(vec![job]).await.unwrap();
    }
    let waiter = Waiter { replica: "api-1".into(), waiter: 7 };
    assert!(
        queue
            .lease(LeaseQuery { reach: Capability::usual(0), park: Some(waiter), only: Some(24), ..query(1, 0) })
            .await
            .unwrap()
            .is_empty()
    );
    let first = queue.lease(query(100, 0)).await.unwrap();
    assert_eq!(first.len(), LEASE_BYTES >> 20, "each is a little more than 1 MiB");
    assert_eq!(signals.recv().await, Some(Signal::Wake(7)), "there is more for others");
    left.retain(|id| !ids(&first).contains(id));

    // A job larger than the rest of the reply, or than the whole reply, is leased nevertheless.
    let tiny = LeaseQuery { max_bytes: 1, ..query(100, 0) };
    let second = queue.lease(tiny).await.unwrap();
    assert_eq!(second.len(), 1);
    left.retain(|id| *id != second[0].job_id);
    // Jobs that were not added stay in their lane, in order; none is lost.
    let rest = queue.lease(query(100, 0)).await.unwrap();
    let of = |endpoint: &str, leases: &[Lease]| -> Vec<JobId> {
        leases.iter().filter(|lease| lease.spec.endpoint == endpoint).map(|lease| lease.job_id).collect()
    };
    assert_eq!(rest.len(), 3);
    for endpoint in ["echo", "other"] {
        let expected: Vec<JobId> = left.iter().copied().filter(|id| of(endpoint, &rest).contains(id)).collect();
        assert_eq!(of(endpoint, &rest), expected);
    }
    let again: Vec<_> = rest.iter().map(|lease| lease.named()).collect();
    queue.release(&again).await.unwrap();
    assert_eq!(
        ids(&queue.lease(LeaseQuery { max_bytes: 1, ..query(100, 0) }).await.unwrap()).len(),
        1,
        "from the front too"
    );
}

pub(crate) async fn urgent_priorities_go_first<Q: Queue>(queue: &Q, _: &ManualClock) {
    for priority in [Priority::Batch, Priority::Standard, Priority::Interactive] {
        queue.submit(vec![of(JobSpec { priority, ..spec("echo") })]).await.unwrap();
    }
    let leases = queue.lease(query(3, 0)).await.unwrap();
    let priorities: Vec<Priority> = leases.iter().map(|lease| lease.spec.priority).collect();
    assert_eq!(priorities, Priority::ALL);
}

pub(crate) async fn lanes_take_turns<Q: Queue>(queue: &Q, _: &ManualClock) {
    queue.submit((0..100).map(|_| job("flood")).collect()).await.unwrap();
    queue.submit(vec![of(JobSpec { tenant: "other".into(), ..spec("flood") }), job("quiet")]).await.unwrap();
    let leases = queue.lease(query(6, 0)).await.unwrap();
    assert_eq!(leases.len(), 6);
    assert!(leases.iter().any(|lease| lease.spec.endpoint == "quiet"), "an endpoint with one job is not starved");
    assert!(leases.iter().any(|lease| lease.spec.tenant == "other"), "nor is a tenant with one job");
}

pub(crate) async fn a_worker_gets_only_what_fits_and_the_biggest_first<Q: Queue>(queue: &Q, _: &ManualClock) {
    for vram_class_gib in [0, 24, 8, 80] {
        queue.submit(vec![of(JobSpec { vram_class_gib, ..spec("echo") })]).await.unwrap();
    }
    let leases = queue.lease(query(10, 24)).await.unwrap();
    let classes: Vec<u32> = leases.iter().map(|lease| lease.spec.vram_class_gib).collect();
    assert_eq!(classes, [24, 8, 0]);
}

pub(crate) async fn a_job_for_later_waits_for_its_time<Q: Queue>(queue: &Q, clock: &ManualClock) {
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

fn urgent(priority: Priority) -> JobSpec {
    JobSpec { priority, ..spec("echo") }
}

pub(crate) async fn old_work_gets_every_twentieth_start<Q: Queue>(queue: &Q, clock: &ManualClock) {
    let old = submit(queue, (0..3).map(|_| urgent(Priority::Batch))).await;
    clock.advance_ms(AGE_AFTER_MS);
    submit(queue, (0..100).map(|_| urgent(Priority::Interactive))).await;
    let mut started = Vec::new();
    for want in [1, 7, 100] {
        started.extend(ids(&take(queue, want).await));
    }
    let places: Vec<usize> = old.iter().map(|id| started.iter().position(|other| other == id).unwrap() + 1).collect();
    assert_eq!(places, [20, 40, 60]);
}

pub(crate) async fn young_work_waits_however_often_it_is_passed_over<Q: Queue>(queue: &Q, clock: &ManualClock) {
    submit(queue, [urgent(Priority::Standard)]).await;
    clock.advance_ms(AGE_AFTER_MS - 1);
    submit(queue, (0..60).map(|_| urgent(Priority::Interactive))).await;
    let started = take(queue, 60).await;
    assert!(started.iter().all(|lease| lease.spec.priority == Priority::Interactive));
    assert_eq!(one(queue).await.spec.priority, Priority::Standard);
}

pub(crate) async fn old_work_that_no_worker_here_can_take_stops_nobody<Q: Queue>(queue: &Q, clock: &ManualClock) {
    submit(queue, [JobSpec { vram_class_gib: 80, ..urgent(Priority::Standard) }]).await;
    clock.advance_ms(AGE_AFTER_MS);
    submit(queue, (0..60).map(|_| urgent(Priority::Interactive))).await;
    for _ in 0..6 {
        assert_eq!(take(queue, 10).await.len(), 10);
    }
    submit(queue, [urgent(Priority::Interactive)]).await;
    let large = queue.lease(query(1, 80)).await.unwrap();
    assert_eq!(large[0].spec.vram_class_gib, 80, "it is the first thing that a larger card takes");
}

pub(crate) async fn what_is_loaded_goes_first_for_as_long_as_loading_takes<Q: Queue>(queue: &Q, clock: &ManualClock) {
    let of_tenant = |tenant: &str, endpoint: &str, vram_class_gib| JobSpec {
        tenant: tenant.into(),
        vram_class_gib,
        ..spec(endpoint)
    };
    submit(queue, [of_tenant("acme", "cold", 8), of_tenant("acme", "warm", 8), of_tenant("zoo", "other", 0)]).await;
    submit(queue, (0..3).map(|_| of_tenant("zoo", "warm", 0))).await;
    let query = |want| LeaseQuery {
        warm: vec![warm("0:zoo:warm", 100), warm("8:acme:warm", 100)],
        patience_ms: 5_000,
        ..query(want, 24)
    };
    let endpoints = async |want| -> Vec<(String, String)> {
        let leases = queue.lease(query(want)).await.unwrap();
        leases.into_iter().map(|lease| (lease.spec.tenant, lease.spec.endpoint)).collect()
    };
    let named = |tenant: &str, endpoint: &str| (tenant.to_owned(), endpoint.to_owned());
    assert_eq!(endpoints(2).await, [named("zoo", "warm"), named("zoo", "warm")]);
    clock.advance_ms(5_000);
    assert_eq!(endpoints(1).await, [named("acme", "cold")], "it has waited for as long as loading it takes");
    let rest = endpoints(10).await;
    assert_eq!(rest.len(), 3);
    submit(queue, [of_tenant("acme", "cold", 8), of_tenant("acme", "warm", 8)]).await;
    submit(queue, [JobSpec { priority: Priority::Interactive, ..of_tenant("acme", "cold", 8) }]).await;
    assert_eq!(
        endpoints(2).await,
        [named("acme", "cold"), named("acme", "warm")],
        "what is more urgent goes before it"
    );
}

pub(crate) async fn a_loaded_model_takes_more_where_there_is_no_room_for_another<Q: Queue>(
    queue: &Q,
    clock: &ManualClock,
) {
    let mut signals = queue.listen("api-1").await.unwrap();
    let on_gpu = |endpoint| JobSpec { vram_class_gib: 8, ..spec(endpoint) };
    submit(queue, (0..3).map(|_| on_gpu("cold")).chain((0..5).map(|_| on_gpu("warm")))).await;
    let full = |want| LeaseQuery { warm: vec![warm("8:acme:warm", 2)], ..query(want, 0) };
    let endpoints = async |query| -> Vec<String> {
        let leases = queue.lease(query).await.unwrap();
        leases.into_iter().map(|lease| lease.spec.endpoint).collect()
    };
    let parked = LeaseQuery { park: Some(Waiter { replica: "api-1".into(), waiter: 1 }), ..query(1, 0) };
    assert!(queue.lease(parked).await.unwrap().is_empty());
    let parked = LeaseQuery {
        park: Some(Waiter { replica: "api-1".into(), waiter: 2 }),
        warm: vec![warm("8:acme:other", 1)],
        ..query(1, 0)
    };
    assert!(queue.lease(parked).await.unwrap().is_empty());
    assert_eq!(endpoints(full(10)).await, ["warm", "warm"], "as many as it takes");
    // However long the other jobs have waited, there is no room for them.
    clock.advance_ms(AGE_AFTER_MS);
    assert_eq!(endpoints(full(1)).await, ["warm"]);
    assert_eq!(endpoints(query(10, 0)).await, [""; 0]);
    let roomy = LeaseQuery { warm: vec![warm("8:acme:warm", 1)], patience_ms: u64::MAX >> 20, ..query(10, 8) };
    let rest = endpoints(roomy).await;
    assert_eq!((rest.len(), rest[0].as_str()), (5, "warm"), "where there is room everybody is served");
    submit(queue, [on_gpu("other")]).await;
    assert_eq!(signals.recv().await, Some(Signal::Wake(2)), "who has it is woken, though there is no room");
}

pub(crate) async fn a_gpu_is_held_by_one_worker_for_a_large_job_that_has_waited<Q: Queue>(
    queue: &Q,
    clock: &ManualClock,
) {
    let of_class = |vram_class_gib| JobSpec { vram_class_gib, ..spec("echo") };
    submit(queue, [of_class(8), of_class(24), of_class(80)]).await;
    let (now, could) = (Capability::usual(8), Capability::usual(24));
    clock.advance_ms(HOLD_AFTER_MS);
    assert_eq!(queue.hold("w1", &now, &could).await.unwrap(), None, "nobody knows yet that it is passed over");
    clock.advance_ms(HOLD_AFTER_MS - 1);
    assert_eq!(queue.hold("w2", &now, &could).await.unwrap(), None, "it may still come to its turn");
    clock.advance_ms(1);
    assert_eq!(queue.hold("w1", &now, &now).await.unwrap(), None, "its cards are too small");
    assert_eq!(queue.hold("w1", &now, &could).await.unwrap(), Some(24));
    assert_eq!(queue.hold("w2", &now, &could).await.unwrap(), None, "one is enough");
    submit(queue, [JobSpec { priority: Priority::Interactive, ..of_class(8) }]).await;
    let held = LeaseQuery { only: Some(24), ..query(10, 24) };
    let leases = queue.lease(held).await.unwrap();
    assert_eq!(leases.iter().map(|lease| lease.spec.vram_class_gib).collect::<Vec<_>>(), [24]);
    submit(queue, [of_class(24), of_class(24)]).await;
    assert_eq!(queue.hold("w1", &now, &could).await.unwrap(), None);
    clock.advance_ms(HOLD_AFTER_MS);
    assert_eq!(queue.lease(query(1, 24)).await.unwrap().len(), 1);
    assert_eq!(
        queue.hold("w1", &now, &could).await.unwrap(),
        None,
        "what is old, and is served all the same, needs no help"
    );
    let largest = Capability::usual(80);
    assert_eq!(queue.hold("w3", &now, &largest).await.unwrap(), None, "the wait of another class begins");
    for _ in 0..2 {
        clock.advance_ms(HOLD_AFTER_MS / 2);
        let lease = queue.lease(LeaseQuery { only: Some(80), ..query(1, 80) }).await.unwrap().remove(0);
        queue.release(&[lease.named()]).await.unwrap();
    }
    assert_eq!(queue.hold("w3", &now, &largest).await.unwrap(), Some(80), "a release does not restart its wait");
}
