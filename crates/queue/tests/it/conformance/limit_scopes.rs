//! Limits of tenants and endpoints.

use stokehold_queue::budgets::{AtBudget, Budget};
use stokehold_queue::job::{ErrorCode, JobSpec, JobState};
use stokehold_queue::queue::{HeldBy, LimitScope, Limits, Signal, Usage};
use stokehold_queue::{Error, ManualClock, Queue};

use super::{
    LEASE_MS, cancels, fails, held, keyed, limit_tenant, of, one, owned, parking, spec, state, submit, succeeds, take,
};

fn running(most: u32) -> Limits {
    Limits { max_running: Some(most), ..Limits::default() }
}

fn rate(starts_per_minute: u32) -> Limits {
    Limits { starts_per_minute: Some(starts_per_minute), ..Limits::default() }
}

fn endpoint(endpoint: &str) -> LimitScope {
    LimitScope::Endpoint { tenant: "acme".into(), endpoint: endpoint.into() }
}

pub(crate) async fn a_tenant_runs_no_more_than_it_may<Q: Queue>(queue: &Q, _: &ManualClock) {
    limit_tenant(queue, "acme", running(2)).await;
    submit(queue, (0..3).flat_map(|_| [spec("a"), spec("b")])).await;
    submit(queue, vec![owned("zoo", "a"); 3]).await;
    let leases = take(queue, 10).await;
    let acme: Vec<_> = leases.iter().filter(|lease| lease.spec.tenant == "acme").collect();
    assert_eq!((leases.len(), acme.len()), (5, 2), "the other tenant is not held");
    assert_eq!(take(queue, 10).await.len(), 0);
    succeeds(queue, acme[0]).await;
    assert_eq!(take(queue, 10).await.len(), 1);
    queue.limit(&LimitScope::Tenant("acme".into()), None).await.unwrap();
    assert_eq!(take(queue, 10).await.len(), 3);
}

pub(crate) async fn an_endpoint_runs_no_more_than_it_may_and_stops_nobody_else<Q: Queue>(queue: &Q, _: &ManualClock) {
    queue.limit(&endpoint("a"), Some(&running(1))).await.unwrap();
    submit(queue, vec![spec("a"); 3]).await;
    submit(queue, vec![spec("b"); 3]).await;
    let leases = take(queue, 10).await;
    let a: Vec<_> = leases.iter().filter(|lease| lease.spec.endpoint == "a").collect();
    assert_eq!((leases.len(), a.len()), (4, 1));
    succeeds(queue, a[0]).await;
    let next = one(queue).await;
    assert_eq!(take(queue, 10).await.len(), 0);
    queue.limit(&endpoint("a"), Some(&running(5))).await.unwrap();
    assert_eq!(one(queue).await.spec.endpoint, next.spec.endpoint);
}

pub(crate) async fn a_cap_of_nothing_stops_all_until_it_is_lifted<Q: Queue>(queue: &Q, _: &ManualClock) {
    limit_tenant(queue, "acme", running(0)).await;
    submit(queue, [spec("a"), spec("b")]).await;
    assert_eq!(take(queue, 10).await.len(), 0);
    submit(queue, [spec("a")]).await;
    assert_eq!(take(queue, 10).await.len(), 0);
    limit_tenant(queue, "acme", Limits::default()).await;
    queue.limit(&endpoint("a"), Some(&running(0))).await.unwrap();
    assert_eq!(take(queue, 10).await.len(), 1);
    queue.limit(&endpoint("a"), None).await.unwrap();
    assert_eq!(take(queue, 10).await.len(), 2);
}

pub(crate) async fn nothing_of_a_disabled_tenant_starts_until_it_is_enabled_whatever_its_limits<Q: Queue>(
    queue: &Q,
    _: &ManualClock,
) {
    submit(queue, vec![spec("a"); 3]).await;
    let runs = one(queue).await;
    for _ in 0..2 {
        queue.disable("acme", true).await.unwrap();
    }
    submit(queue, [spec("b"), owned("zoo", "a")]).await;
    let leases = take(queue, 10).await;
    assert_eq!(leases.iter().map(|lease| lease.spec.tenant.as_str()).collect::<Vec<_>>(), ["zoo"]);
    // A running job ends as usual. Neither its end nor another limit lets the next one start.
    succeeds(queue, &runs).await;
    limit_tenant(queue, "acme", running(50)).await;
    assert_eq!(take(queue, 10).await.len(), 0);
    let may_start = queue.flow().await.unwrap().into_iter().filter(|flow| flow.tenant == "acme");
    assert!(may_start.map(|flow| flow.may_start).all(|most| most == Some(0)), "no machine is wanted for them");
    queue.disable("acme", false).await.unwrap();
    assert_eq!(take(queue, 10).await.len(), 3);
}

pub(crate) async fn every_end_of_an_attempt_gives_its_place_back<Q: Queue>(queue: &Q, clock: &ManualClock) {
    limit_tenant(queue, "acme", running(1)).await;
    queue.limit(&endpoint("a"), Some(&running(1))).await.unwrap();
    submit(queue, vec![spec("a"); 5]).await;
    let lease = one(queue).await;
    succeeds(queue, &lease).await;
    let lease = one(queue).await;
    fails(queue, &lease, ErrorCode::HandlerError).await;
    let lease = one(queue).await;
    queue.release(&[held(&lease)]).await.unwrap();
    let lease = one(queue).await;
    cancels(queue, lease.job_id).await;
    one(queue).await;
    clock.advance_ms(LEASE_MS);
    queue.reap().await.unwrap();
    let lease = one(queue).await;
    assert_eq!(take(queue, 10).await.len(), 0);
    succeeds(queue, &lease).await;
    submit(queue, [JobSpec { deadline_ms: Some(clock.now_ms() + 10), ..spec("a") }, spec("a")]).await;
    while let [lease] = &take(queue, 1).await[..] {
        match lease.spec.deadline_ms {
            None => succeeds(queue, lease).await,
            Some(_) => {
                clock.advance_ms(10);
                assert_eq!(queue.expire().await.unwrap().jobs, 1);
            }
        }
    }
    let (_, usage) = queue.usage(&endpoint("a")).await.unwrap();
    assert_eq!(usage, Usage { open: 1, running: 0 }, "the one that failed waits for its retry");
}

pub(crate) async fn starts_a_minute_are_spread_over_it<Q: Queue>(queue: &Q, clock: &ManualClock) {
    limit_tenant(queue, "acme", rate(600)).await;
    submit(queue, vec![spec("echo"); 40]).await;
    assert_eq!(take(queue, 20).await.len(), 10, "what one second lets through");
    assert_eq!(take(queue, 20).await.len(), 0);
    let mut started = 0;
    for _ in 0..10 {
        let due = queue.promote().await.unwrap().next_due_ms.unwrap();
        clock.advance_ms(due - clock.now_ms());
        queue.promote().await.unwrap();
        started += take(queue, 20).await.len();
        assert_eq!(take(queue, 20).await.len(), 0);
    }
    assert_eq!(started, 10, "then one every 100 ms");
    clock.advance_ms(60_000);
    queue.promote().await.unwrap();
    assert_eq!(take(queue, 20).await.len(), 10, "rest is not saved up");

    queue.limit(&endpoint("rare"), Some(&rate(6))).await.unwrap();
    queue.limit(&LimitScope::Tenant("acme".into()), None).await.unwrap();
    take(queue, 100).await;
    submit(queue, vec![spec("rare"); 3]).await;
    one(queue).await;
    assert_eq!(take(queue, 10).await.len(), 0);
    clock.advance_ms(9_999);
    queue.promote().await.unwrap();
    assert_eq!(take(queue, 10).await.len(), 0);
    clock.advance_ms(1);
    queue.promote().await.unwrap();
    assert_eq!(take(queue, 10).await.len(), 1);
}

pub(crate) async fn a_rate_of_nothing_starts_nothing<Q: Queue>(queue: &Q, clock: &ManualClock) {
    limit_tenant(queue, "acme", rate(0)).await;
    submit(queue, [spec("echo")]).await;
    assert_eq!(take(queue, 10).await.len(), 0);
    clock.advance_ms(3_600_000);
    queue.promote().await.unwrap();
    assert_eq!(take(queue, 10).await.len(), 0);
    limit_tenant(queue, "acme", Limits::default()).await;
    one(queue).await;
}

pub(crate) async fn a_weight_of_nothing_breaks_no_shelf<Q: Queue>(queue: &Q, _: &ManualClock) {
    limit_tenant(queue, "acme", Limits { weight: Some(0.0), ..Limits::default() }).await;
    submit(queue, vec![spec("echo"); 3]).await;
    submit(queue, vec![owned("zoo", "echo"); 3]).await;
    for _ in 0..6 {
        succeeds(queue, &one(queue).await).await;
    }
}

pub(crate) async fn a_gate_that_opens_wakes_a_waiter<Q: Queue>(queue: &Q, clock: &ManualClock) {
    let mut signals = queue.listen("api-1").await.unwrap();
    limit_tenant(queue, "acme", running(1)).await;
    submit(queue, vec![spec("echo"); 3]).await;
    let lease = one(queue).await;
    assert!(queue.lease(parking(0, 1)).await.unwrap().is_empty());
    succeeds(queue, &lease).await;
    assert_eq!(signals.recv().await, Some(Signal::Wake(1)));
    one(queue).await;
    assert!(queue.lease(parking(0, 2)).await.unwrap().is_empty());
    limit_tenant(queue, "acme", rate(60)).await;
    assert_eq!(signals.recv().await, Some(Signal::Wake(2)));
    one(queue).await;
    submit(queue, [spec("echo")]).await;
    assert!(queue.lease(parking(0, 3)).await.unwrap().is_empty());
    clock.advance_ms(1_000);
    queue.promote().await.unwrap();
    assert_eq!(signals.recv().await, Some(Signal::Wake(3)));
}

pub(crate) async fn a_quota_refuses_all_of_a_call_and_says_why<Q: Queue>(queue: &Q, _: &ManualClock) {
    limit_tenant(queue, "acme", Limits { max_open: Some(4), ..Limits::default() }).await;
    queue.limit(&endpoint("a"), Some(&Limits { max_open: Some(2), ..Limits::default() })).await.unwrap();
    let first = submit(queue, [spec("a"), spec("b")]).await;
    let refused = queue.submit(vec![of(spec("b")), of(spec("a")), of(spec("a"))]).await;
    assert!(
        matches!(&refused, Err(Error::Quota { scope, most: 4, open: 2 }) if scope == "t:acme"),
        "the tenant's comes first: {refused:?}"
    );
    let refused = queue.submit(vec![of(spec("a")), of(spec("a"))]).await;
    assert!(matches!(&refused, Err(Error::Quota { scope, most: 2, open: 1 }) if scope == "e:acme:a"), "{refused:?}");
    let (_, usage) = queue.usage(&LimitScope::Tenant("acme".into())).await.unwrap();
    assert_eq!(usage.open, 2, "a refusal leaves nothing");
    cancels(queue, first[0]).await;
    submit(queue, [spec("a"), spec("a"), spec("b")]).await;
    submit(queue, vec![owned("zoo", "a"); 10]).await;
}

pub(crate) async fn what_is_used_is_counted<Q: Queue>(queue: &Q, _: &ManualClock) {
    let tenant = LimitScope::Tenant("acme".into());
    let limits = Limits {
        weight: Some(2.5),
        max_running: Some(9),
        max_open: Some(99),
        starts_per_minute: Some(600),
        max_memory_bytes: Some(1 << 40),
        budget: Some(Budget { usd_micros_per_day: 5_000_000, at: AtBudget::Stop }),
    };
    limit_tenant(queue, "acme", limits).await;
    assert_eq!(queue.usage(&tenant).await.unwrap(), (limits, Usage::default()));
    let ids = submit(queue, [spec("a"), spec("a"), spec("b")]).await;
    let leases = take(queue, 2).await;
    assert_eq!(queue.usage(&tenant).await.unwrap().1, Usage { open: 3, running: 2 });
    for lease in &leases {
        succeeds(queue, lease).await;
    }
    for id in ids {
        if state(queue, id).await == JobState::Queued {
            cancels(queue, id).await;
        }
    }
    assert_eq!(queue.usage(&tenant).await.unwrap().1, Usage::default());
    assert_eq!(queue.usage(&endpoint("a")).await.unwrap(), (Limits::default(), Usage::default()));
}

pub(crate) async fn what_holds_a_job_back_is_told<Q: Queue>(queue: &Q, clock: &ManualClock) {
    let a = spec("a");
    assert_eq!(queue.held_by(&a).await.unwrap(), None);
    queue.limit(&endpoint("a"), Some(&running(1))).await.unwrap();
    submit(queue, vec![a.clone(); 2]).await;
    assert_eq!(queue.held_by(&a).await.unwrap(), None, "the first may start");
    let first = take(queue, 10).await;
    assert_eq!(first.len(), 1);
    assert_eq!(queue.held_by(&a).await.unwrap(), Some(HeldBy::Running { scope: endpoint("a"), most: 1 }));
    assert_eq!(queue.held_by(&spec("b")).await.unwrap(), None);
    succeeds(queue, &first[0]).await;
    assert_eq!(queue.held_by(&a).await.unwrap(), None);
    succeeds(queue, &take(queue, 10).await[0]).await;
    queue.limit(&endpoint("a"), None).await.unwrap();

    limit_tenant(queue, "acme", rate(2)).await;
    submit(queue, vec![a.clone(); 2]).await;
    let lease = take(queue, 10).await;
    assert_eq!(lease.len(), 1);
    let tenant = LimitScope::Tenant("acme".into());
    let until_ms = Some(clock.now_ms() + 30_000);
    let held = Some(HeldBy::Rate { scope: tenant.clone(), per_minute: 2, until_ms });
    assert_eq!(queue.held_by(&a).await.unwrap(), held);
    clock.advance_ms(30_000);
    assert_eq!(queue.held_by(&a).await.unwrap(), None);
    succeeds(queue, &lease[0]).await;
    succeeds(queue, &take(queue, 10).await[0]).await;
    queue.limit(&tenant, None).await.unwrap();

    let keyed = keyed("k", 1);
    submit(queue, vec![keyed.clone(); 2]).await;
    let lease = take(queue, 10).await;
    assert_eq!(lease.len(), 1);
    assert_eq!(queue.held_by(&keyed).await.unwrap(), Some(HeldBy::Key { most: 1 }));
    succeeds(queue, &lease[0]).await;
    assert_eq!(queue.held_by(&keyed).await.unwrap(), None);
    succeeds(queue, &take(queue, 10).await[0]).await;

    queue.disable("acme", true).await.unwrap();
    assert_eq!(queue.held_by(&a).await.unwrap(), Some(HeldBy::Disabled));
    queue.disable("acme", false).await.unwrap();
}
