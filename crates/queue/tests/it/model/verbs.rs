//! Random histories.

use proptest::prelude::*;
use stokehold_queue::budgets::{AtBudget, Budget};
use stokehold_queue::gateway::Outgrown;
use stokehold_queue::job::ErrorCode;
use stokehold_queue::queue::Limits;

/// Names of tenants. One of them is a name that no tenant should have: the scripts keep other entries beside tenants in
/// some hashes.
pub(super) const TENANTS: [&str; 3] = ["acme", "v", "zoo"];
pub(super) const ENDPOINTS: [&str; 3] = ["a", "b", "c"];
const CODES: [ErrorCode; 6] = [
    ErrorCode::HandlerError,
    ErrorCode::BadOutput,
    ErrorCode::Infra,
    ErrorCode::OomGpu,
    ErrorCode::RunnerCrashed,
    ErrorCode::Timeout,
];

/// Differences of a job from the plainest one.
#[derive(Debug, Clone, Default)]
pub(super) struct Shape {
    pub(super) delay_ms: Option<u64>,
    pub(super) start_by_ms: Option<u64>,
    pub(super) deadline_ms: Option<u64>,
    pub(super) key: Option<(usize, u32)>,
    pub(super) depends_on: Vec<(usize, bool)>,
    pub(super) steps: (bool, bool),
    pub(super) on: bool,
}

/// Outcome of a blocked job.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fate {
    Queue,
    Step,
    Succeed,
    Fail,
}

#[derive(Debug, Clone)]
pub(super) enum Verb {
    Submit {
        jobs: usize,
        tenant: usize,
        endpoint: usize,
        priority: usize,
        class: u32,
        shape: Shape,
    },
    Lease {
        worker: usize,
        want: u32,
        reach_gib: u32,
    },
    Succeed(usize),
    Fail(usize, ErrorCode),
    Outgrow(usize, Outgrown),
    Release(usize),
    Extend(usize),
    Cancel(usize, usize),
    Limit {
        tenant: usize,
        endpoint: Option<usize>,
        limits: Option<Limits>,
    },
    /// Compares this spending with a budget of this amount.
    Pause {
        tenant: usize,
        endpoint: Option<usize>,
        budget: u64,
        spent: u64,
    },
    Due {
        fate: Fate,
        stale: bool,
    },
    Settle(usize, Fate),
    Promote,
    Reap,
    Expire,
    Advance(u64),
    /// One worker leases one job after the other and ends each after the given number of ms.
    Run(Vec<u64>),
}

fn shape() -> impl Strategy<Value = Shape> {
    let some = |range| prop::option::weighted(0.15, range);
    let depends_on = prop_oneof![4 => Just(0..1usize), 1 => Just(1..4usize)]
        .prop_flat_map(|sizes| prop::collection::vec((any::<usize>(), any::<bool>()), sizes));
    let steps = (prop::bool::weighted(0.1), prop::bool::weighted(0.1));
    let key = prop::option::weighted(0.3, (0..2usize, 1..3u32));
    (some(1..5_000u64), some(1..40_000u64), some(1..60_000u64), key, depends_on, steps, prop::bool::weighted(0.2))
        .prop_map(|(delay_ms, start_by_ms, deadline_ms, key, depends_on, steps, on)| Shape {
            delay_ms,
            start_by_ms,
            deadline_ms,
            key,
            depends_on,
            steps,
            on,
        })
}

fn limits() -> impl Strategy<Value = Option<Limits>> {
    let weight = prop::option::of(prop::sample::select(vec![0.5, 2.0, 3.0]));
    let max_running = prop::option::of(0..4u32);
    let max_open = prop::option::weighted(0.2, 5..20u64);
    let rate = prop::option::weighted(0.4, prop::sample::select(vec![0, 7, 60, 600]));
    prop::option::weighted(
        0.7,
        (weight, max_running, max_open, rate, prop::option::weighted(0.4, 1..3u64)).prop_map(
            |(weight, max_running, max_open, starts_per_minute, budget)| Limits {
                weight,
                max_running,
                max_open,
                starts_per_minute,
                max_memory_bytes: None,
                budget: budget.map(budget_of),
            },
        ),
    )
}

pub(super) fn budget_of(usd_micros_per_day: u64) -> Budget {
    Budget { usd_micros_per_day, at: AtBudget::Drain }
}

fn pause() -> impl Strategy<Value = Verb> {
    (0..3usize, prop::option::of(0..3usize), 1..3u64, 0..3u64)
        .prop_map(|(tenant, endpoint, budget, spent)| Verb::Pause { tenant, endpoint, budget, spent })
}

pub(super) fn verb() -> impl Strategy<Value = Verb> {
    let any = any::<usize>();
    let fate = prop::sample::select(vec![Fate::Queue, Fate::Queue, Fate::Step, Fate::Succeed, Fate::Fail]);
    let class = prop::sample::select(vec![0, 8, 24, 3_008]);
    prop_oneof![
        8 => (1..8usize, 0..3usize, 0..3usize, 0..3usize, class, shape()).prop_map(
            |(jobs, tenant, endpoint, priority, class, shape)| Verb::Submit { jobs, tenant, endpoint, priority, class, shape }
        ),
        8 => (0..2usize, 1..12u32, prop::sample::select(vec![0, 24]))
            .prop_map(|(worker, want, reach_gib)| Verb::Lease { worker, want, reach_gib }),
        4 => any.prop_map(Verb::Succeed),
        4 => (any, prop::sample::select(CODES.to_vec())).prop_map(|(n, code)| Verb::Fail(n, code)),
        1 => (any, prop::sample::select(vec![Outgrown::To(8), Outgrown::To(24), Outgrown::All]))
            .prop_map(|(n, outgrown)| Verb::Outgrow(n, outgrown)),
        1 => any.prop_map(Verb::Release),
        1 => any.prop_map(Verb::Extend),
        2 => (any, 1..4usize).prop_map(|(n, jobs)| Verb::Cancel(n, jobs)),
        2 => (0..3usize, prop::option::of(0..3usize), limits())
            .prop_map(|(tenant, endpoint, limits)| Verb::Limit { tenant, endpoint, limits }),
        2 => pause(),
        3 => (fate.clone(), prop::bool::weighted(0.1)).prop_map(|(fate, stale)| Verb::Due { fate, stale }),
        1 => (any, fate).prop_map(|(n, fate)| Verb::Settle(n, fate)),
        2 => Just(Verb::Promote),
        1 => Just(Verb::Reap),
        1 => Just(Verb::Expire),
        3 => prop_oneof![6 => 1..20_000u64, 1 => 100_000..400_000u64].prop_map(Verb::Advance),
    ]
}

/// Verbs that keep the class queues full, so that virtual starts, turns and age decide every start.
pub(super) fn busy_verb() -> impl Strategy<Value = Verb> {
    let any = any::<usize>();
    let shape = prop_oneof![6 => Just(Shape::default()), 1 => shape()];
    let priority = prop_oneof![4 => Just(1usize), 1 => 0..3usize];
    // A few jobs, so that tenants come and go, and many, so that other tenants stay.
    let jobs = prop_oneof![3 => 1..3usize, 1 => 15..40usize];
    let class = prop_oneof![8 => Just(0), 1 => Just(24)];
    let run = prop::collection::vec(prop::sample::select(vec![10, 900, 1_000, 7_000]), 1..8);
    prop_oneof![
        9 => (jobs, 0..3usize, 0..3usize, priority, class, shape).prop_map(
            |(jobs, tenant, endpoint, priority, class, shape)| Verb::Submit { jobs, tenant, endpoint, priority, class, shape }
        ),
        8 => run.prop_map(Verb::Run),
        3 => (0..2usize, prop_oneof![1..8u32, Just(25)]).prop_map(|(worker, want)| Verb::Lease { worker, want, reach_gib: 24 }),
        4 => any.prop_map(Verb::Succeed),
        1 => any.prop_map(|n| Verb::Fail(n, ErrorCode::HandlerError)),
        1 => any.prop_map(Verb::Release),
        1 => (any, 1..4usize).prop_map(|(n, jobs)| Verb::Cancel(n, jobs)),
        1 => (0..3usize, prop::option::of(0..3usize), limits())
            .prop_map(|(tenant, endpoint, limits)| Verb::Limit { tenant, endpoint, limits }),
        2 => pause(),
        1 => Just(Verb::Promote),
        1 => Just(Verb::Reap),
        1 => prop_oneof![1..5_000u64, Just(300_000)].prop_map(Verb::Advance),
    ]
}
