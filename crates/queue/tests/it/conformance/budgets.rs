//! Daily budgets, and the pause when one is spent.

use stokehold_queue::budgets::{AtBudget, Budget, Budgeted, FOREVER_MS, Standing, Stood};
use stokehold_queue::costs::day_of;
use stokehold_queue::gateway::FinishReport;
use stokehold_queue::job::{BatchLine, JobSpec, Timing};
use stokehold_queue::queue::{LimitScope, Limits};
use stokehold_queue::{ManualClock, Queue};

use super::{START_MS, limit_tenant, one, owned, spec, submit, succeed, succeeds, take};

const DAY_MS: u64 = 86_400_000;

fn budget(usd_micros_per_day: u64) -> Budget {
    Budget { usd_micros_per_day, at: AtBudget::Drain }
}

fn may_spend(usd_micros_per_day: u64) -> Limits {
    Limits { budget: Some(budget(usd_micros_per_day)), ..Limits::default() }
}

fn acme() -> LimitScope {
    LimitScope::Tenant("acme".into())
}

fn at(standing: Standing) -> Stood {
    Stood { day: day_of(START_MS), spent_usd_micros: 100, standing }
}

async fn reached<Q: Queue>(queue: &Q, scope: &LimitScope, usd_micros_per_day: u64) {
    let answer = queue.pause(scope, &budget(usd_micros_per_day), &at(Standing::Reached)).await.unwrap();
    assert!(answer.is_some(), "it has this budget");
}

async fn budgets<Q: Queue>(queue: &Q) -> Vec<Budgeted> {
    queue.budgets(day_of(START_MS)).await.unwrap()
}

pub(crate) async fn a_gate_whose_budget_is_spent_starts_nothing_until_midnight<Q: Queue>(
    queue: &Q,
    clock: &ManualClock,
) {
    limit_tenant(queue, "acme", may_spend(100)).await;
    submit(queue, vec![spec("a"); 2]).await;
    reached(queue, &acme(), 100).await;
    assert_eq!(take(queue, 10).await.len(), 0);
    submit(queue, [spec("b"), owned("zoo", "a")]).await;
    assert_eq!(one(queue).await.spec.tenant, "zoo", "another tenant goes on");
    assert_eq!(take(queue, 10).await.len(), 0);
    let midnight = (START_MS / DAY_MS + 1) * DAY_MS;
    assert_eq!(queue.promote().await.unwrap().next_due_ms, Some(midnight));
    assert_eq!(budgets(queue).await[0].paused_until_ms, Some(midnight));
    clock.advance_ms(midnight - START_MS - 1);
    queue.promote().await.unwrap();
    assert_eq!(take(queue, 10).await.len(), 0);
    clock.advance_ms(1);
    queue.promote().await.unwrap();
    assert_eq!(take(queue, 10).await.len(), 3, "nobody had to lift it");
}

pub(crate) async fn a_budget_of_nothing_lets_nothing_start_on_any_day<Q: Queue>(queue: &Q, clock: &ManualClock) {
    submit(queue, vec![spec("a"); 2]).await;
    limit_tenant(queue, "acme", may_spend(0)).await;
    assert_eq!(take(queue, 10).await.len(), 0, "before anybody has looked");
    assert_eq!(budgets(queue).await[0].paused_until_ms, Some(FOREVER_MS));
    reached(queue, &acme(), 0).await;
    clock.advance_ms(2 * DAY_MS);
    queue.promote().await.unwrap();
    assert_eq!(take(queue, 10).await.len(), 0, "nor on another day");
    limit_tenant(queue, "acme", may_spend(1)).await;
    assert_eq!(take(queue, 10).await.len(), 2);
}

pub(crate) async fn what_runs_goes_on_and_is_told_of<Q: Queue>(queue: &Q, clock: &ManualClock) {
    limit_tenant(queue, "acme", may_spend(100)).await;
    let line = BatchLine { id: "batch_7".to_owned(), line: 1, custom_id: None };
    submit(queue, [JobSpec { batch: Some(line), ..spec("a") }]).await;
    let since = clock.now_ms();
    let lease = one(queue).await;
    clock.advance_ms(5_000);
    reached(queue, &acme(), 100).await;
    let running = queue.running().await.unwrap();
    let [it] = &running[..] else { panic!("{running:?}") };
    assert_eq!((it.id, &it.fence, it.leased_ms), (lease.job_id, &lease.fence, since));
    assert_eq!((it.tenant.as_str(), it.endpoint.as_str(), it.batch.as_deref()), ("acme", "a", Some("batch_7")));
    let of = |endpoint: &str| it.is_of(&LimitScope::Endpoint { tenant: "acme".into(), endpoint: endpoint.into() });
    assert!(it.is_of(&acme()) && of("a") && !of("b") && !it.is_of(&LimitScope::Tenant("zoo".into())));
    succeeds(queue, &lease).await;
    assert_eq!(queue.running().await.unwrap(), []);
}

pub(crate) async fn a_pause_stays_until_the_budget_is_raised_or_lifted<Q: Queue>(queue: &Q, _: &ManualClock) {
    submit(queue, vec![spec("a"); 3]).await;
    let lease = one(queue).await;
    for (then, starts) in [(Some(may_spend(100)), 0), (Some(may_spend(99)), 0), (Some(may_spend(101)), 1), (None, 1)] {
        queue.limit(&acme(), Some(&may_spend(100))).await.unwrap();
        reached(queue, &acme(), 100).await;
        queue.limit(&acme(), then.as_ref()).await.unwrap();
        let leases = take(queue, 1).await;
        assert_eq!(leases.len(), starts, "{then:?}");
        queue.limit(&acme(), None).await.unwrap();
    }
    succeeds(queue, &lease).await;
}

pub(crate) async fn a_pause_and_limits_do_not_overwrite_each_other<Q: Queue>(queue: &Q, _: &ManualClock) {
    limit_tenant(queue, "acme", may_spend(100)).await;
    assert_eq!(queue.pause(&acme(), &budget(100), &at(Standing::Warned)).await.unwrap(), Some(None));
    submit(queue, vec![spec("a"); 3]).await;
    assert_eq!(take(queue, 1).await.len(), 1, "one who is warned goes on");
    reached(queue, &acme(), 100).await;
    limit_tenant(queue, "acme", Limits { max_running: Some(5), ..may_spend(100) }).await;
    assert_eq!(take(queue, 10).await.len(), 0, "other limits lift no pause");
    assert_eq!(queue.usage(&acme()).await.unwrap().0, Limits { max_running: Some(5), ..may_spend(100) });
    let before = queue.pause(&acme(), &budget(100), &at(Standing::Reached)).await.unwrap();
    assert_eq!(before, Some(Some(at(Standing::Reached))), "it says how it stood before");
    // The budget was raised in the meantime: a decision that used the old one comes too late.
    limit_tenant(queue, "acme", Limits { max_running: Some(5), ..may_spend(200) }).await;
    assert_eq!(queue.pause(&acme(), &budget(100), &at(Standing::Reached)).await.unwrap(), None);
    assert_eq!(take(queue, 10).await.len(), 2);
    assert_eq!(queue.pause(&LimitScope::Tenant("zoo".into()), &budget(1), &at(Standing::Reached)).await.unwrap(), None);
}

pub(crate) async fn what_is_spent_at_a_gate_is_told_by_day<Q: Queue>(queue: &Q, _: &ManualClock) {
    limit_tenant(queue, "acme", may_spend(1_000)).await;
    let scope = LimitScope::Endpoint { tenant: "acme".into(), endpoint: "a".into() };
    queue.limit(&scope, Some(&may_spend(500))).await.unwrap();
    submit(queue, [spec("a"), spec("b"), owned("zoo", "a")]).await;
    let timing = Timing { run_ms: 60, load_ms: 30, ..Timing::default() };
    for lease in take(queue, 3).await {
        let report = FinishReport { cost_usd_micros: Some(90), timing, ..succeed(&lease) };
        queue.finish(&[report]).await.unwrap();
    }
    let facts = |all: Vec<Budgeted>| all.into_iter().map(|it| (it.scope, it.spent_usd_micros)).collect::<Vec<_>>();
    assert_eq!(facts(budgets(queue).await), [(scope.clone(), 90), (acme(), 180)]);
    let tomorrow = queue.budgets(day_of(START_MS) + 1).await.unwrap();
    assert_eq!(facts(tomorrow), [(scope, 0), (acme(), 0)]);
}

pub(crate) async fn an_endpoint_without_budget_stops_nobody_else<Q: Queue>(queue: &Q, _: &ManualClock) {
    let scope = LimitScope::Endpoint { tenant: "acme".into(), endpoint: "a".into() };
    queue.limit(&scope, Some(&may_spend(0))).await.unwrap();
    submit(queue, [spec("a"), spec("b")]).await;
    reached(queue, &scope, 0).await;
    assert_eq!(one(queue).await.spec.endpoint, "b");
    let flows = queue.flow().await.unwrap();
    let may_start = |name: &str| flows.iter().find(|flow| flow.endpoint == name).unwrap().may_start;
    assert_eq!((may_start("a"), may_start("b")), (Some(0), None), "no machine is wanted for what may not start");
    queue.limit(&scope, None).await.unwrap();
    assert_eq!(one(queue).await.spec.endpoint, "a");
}
