//! Model test: random verbs through the Lua scripts and through `MemoryQueue`, which moves jobs by `state::next` alone.
//! After each step both must agree on every job and on every counter.

mod verbs;

use std::collections::HashMap;
use std::ops::RangeInclusive;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use stokehold_queue::budgets::{Stood, standing};
use stokehold_queue::capability::{Capability, parts_of};
use stokehold_queue::costs::day_of;
use stokehold_queue::gateway::{FinishReport, LeaseRef};
use stokehold_queue::job::{
    Concurrency, Dependency, DependencyOn, ErrorCode, Job, JobError, JobSpec, JobState, NewJob, Priority, RetryPolicy,
    SLOT_PARTS, Stage, StepRun, Timing, TokenUsage,
};
use stokehold_queue::queue::{Due, Lease, LeaseQuery, LimitScope, Settlement, Usage, Verdict, WarmLane};
use stokehold_queue::{Clock, Error, JobId, ManualClock, Queue, Shards};
use stokehold_queue_model::MemoryQueue;

use verbs::{ENDPOINTS, Fate, Shape, TENANTS, Verb, budget_of, busy_verb, verb};

use crate::conformance::{LEASE_MS, START_MS, fail, job, outgrow, raw, spec, step_spec, succeed};

/// The two queues side by side, with the leases that each has given for the same job and attempt.
struct Pair {
    redis: Shards,
    memory: MemoryQueue,
    clock: ManualClock,
    ids: Vec<(JobId, &'static str)>,
    leases: Vec<(Lease, Lease)>,
}

/// Makes the same call on both queues and compares the replies.
macro_rules! both {
    ($pair:ident, |$queue:ident| $call:expr) => {{
        let redis = {
            let $queue = &$pair.redis;
            $call.await.map_err(|error| error.to_string())
        };
        let memory = {
            let $queue = &$pair.memory;
            $call.await.map_err(|error| error.to_string())
        };
        assert_eq!(redis, memory);
        redis
    }};
}

/// Lanes of the models that one of the workers has loaded, without their priority, and the number of further jobs that
/// each accepts.
const WARM: [(&str, u32); 4] = [("8:acme:a", 2), ("0:acme:a", 100), ("24:acme:b", 1), ("0:zoo:c", 1)];

/// The days that a history may span.
const SPENT_DAYS: RangeInclusive<u32> = 19_675..=19_680;

/// The capability of a worker: one of the workers meets some requirements.
fn reach(worker: &str, reach_gib: u32) -> Capability {
    let met = if worker == "w2" { Some((3, reach_gib)) } else { None };
    std::iter::once((0, reach_gib)).chain(met).collect()
}

impl Pair {
    async fn step(&mut self, verb: &Verb) {
        match verb {
            Verb::Submit { jobs, tenant, endpoint, priority, class, shape } => {
                let base = JobSpec {
                    tenant: TENANTS[*tenant].into(),
                    priority: Priority::ALL[*priority],
                    vram_class_gib: parts_of(*class).1,
                    demands: parts_of(*class).0,
                    share: [1, 4, 64][*endpoint % 3],
                    max_attempts: 3,
                    ..spec(ENDPOINTS[*endpoint])
                };
                let new: Vec<NewJob> = (0..*jobs).map(|_| self.shaped(base.clone(), shape)).collect();
                if both!(self, |queue| queue.submit(new.clone())).is_ok() {
                    self.ids.extend(new.iter().map(|new| (new.id, TENANTS[*tenant])));
                }
            }
            Verb::Run(times) => {
                for took in times {
                    let had = self.leases.len();
                    self.lease("w1", 1, 24).await;
                    self.clock.advance_ms(*took);
                    if let [(redis, memory)] = &self.leases[had..] {
                        let (redis, memory) = ([succeed(redis)], [succeed(memory)]);
                        assert_eq!(
                            self.redis.finish(&redis).await.unwrap(),
                            self.memory.finish(&memory).await.unwrap()
                        );
                    }
                }
            }
            Verb::Lease { worker, want, reach_gib } => self.lease(["w1", "w2"][*worker], *want, *reach_gib).await,
            Verb::Succeed(n) => self.finish(*n, succeed).await,
            Verb::Fail(n, code) => self.finish(*n, |lease| fail(lease, *code)).await,
            Verb::Outgrow(n, outgrown) => self.finish(*n, |lease| outgrow(lease, *outgrown)).await,
            Verb::Release(n) => {
                let Some((redis, memory)) = self.pick(*n) else { return };
                let (redis, memory) = (self.redis.release(&[redis]).await, self.memory.release(&[memory]).await);
                assert_eq!(redis.unwrap(), memory.unwrap());
            }
            Verb::Extend(n) => {
                let Some((redis, memory)) = self.pick(*n) else { return };
                let (redis, memory) = (self.redis.extend(&[redis]).await, self.memory.extend(&[memory]).await);
                assert_eq!(redis.unwrap(), memory.unwrap());
            }
            Verb::Cancel(n, jobs) => {
                let Some((_, tenant)) = self.id(*n) else { return };
                let ids: Vec<JobId> =
                    (0..*jobs).filter_map(|more| self.id(n.wrapping_add(more))).map(|(id, _)| id).collect();
                both!(self, |queue| queue.cancel(tenant, &ids)).unwrap();
            }
            Verb::Limit { tenant, endpoint, limits } => {
                let scope = scope(*tenant, *endpoint);
                both!(self, |queue| queue.limit(&scope, limits.as_ref())).unwrap();
            }
            Verb::Pause { tenant, endpoint, budget, spent } => {
                let (scope, budget) = (scope(*tenant, *endpoint), budget_of(*budget));
                let standing = standing(*spent, budget.usd_micros_per_day);
                let stood = Stood { day: day_of(self.clock.now_ms()), spent_usd_micros: *spent, standing };
                both!(self, |queue| queue.pause(&scope, &budget, &stood)).unwrap();
            }
            Verb::Due { fate, stale } => {
                for due in both!(self, |queue| queue.due(1_000)).unwrap() {
                    match due {
                        Due::Ended(id) => drop(both!(self, |queue| queue.unblock(id)).unwrap()),
                        Due::Ready(id) => self.settle(id, *fate, *stale).await,
                    }
                }
            }
            Verb::Settle(n, fate) => {
                let Some((id, _)) = self.id(*n) else { return };
                self.settle(id, *fate, false).await;
            }
            Verb::Promote => drop(both!(self, |queue| queue.promote())),
            Verb::Reap => drop(both!(self, |queue| queue.reap())),
            Verb::Expire => drop(both!(self, |queue| queue.expire())),
            Verb::Advance(ms) => self.clock.advance_ms(*ms),
        }
    }

    async fn lease(&mut self, worker: &str, want: u32, reach_gib: u32) {
        // The other worker has two models loaded.
        let loaded = |(place, takes): (&str, u32)| WarmLane { place: place.to_owned(), takes };
        let warm = if worker == "w1" { WARM.map(loaded).to_vec() } else { Vec::new() };
        // It also has few slots: with the jobs leased ahead of those, a history of this length reaches the bound.
        let (slots, taken_elsewhere) = if worker == "w2" { (Some(1), 30 * SLOT_PARTS) } else { (None, 0) };
        let query = LeaseQuery {
            warm,
            patience_ms: 700,
            slots,
            taken_elsewhere,
            ..LeaseQuery::new(worker, want, reach(worker, reach_gib))
        };
        let redis = self.redis.lease(query.clone()).await;
        let memory = self.memory.lease(query).await;
        let is_full = |outcome: &Result<Vec<Lease>, Error>| matches!(outcome, Err(Error::Full));
        assert_eq!(is_full(&redis), is_full(&memory), "both are full, or none");
        if is_full(&redis) {
            return;
        }
        let (redis, memory) = (redis.unwrap(), memory.unwrap());
        let facts = |leases: &[Lease]| -> Vec<(JobId, u32, u64)> {
            leases.iter().map(|lease| (lease.job_id, lease.attempt, lease.fence.counter())).collect()
        };
        assert_eq!(facts(&redis), facts(&memory), "the same jobs in the same order");
        self.leases.extend(redis.into_iter().zip(memory));
    }

    fn id(&self, n: usize) -> Option<(JobId, &'static str)> {
        (!self.ids.is_empty()).then(|| self.ids[n % self.ids.len()])
    }

    fn shaped(&self, base: JobSpec, shape: &Shape) -> NewJob {
        let now = self.clock.now_ms();
        let at = |in_ms: Option<u64>| in_ms.map(|in_ms| now + in_ms);
        let (before, after) = shape.steps;
        let steps = [(before, Stage::Before), (after, Stage::After)];
        let depends_on = shape.depends_on.iter().filter_map(|(n, success)| {
            let on = if *success { DependencyOn::Success } else { DependencyOn::Completion };
            Some(Dependency { job: self.id(*n)?.0, on })
        });
        let spec = JobSpec {
            start_by_ms: at(shape.start_by_ms),
            deadline_ms: at(shape.deadline_ms),
            concurrency: shape.key.map(|(key, max)| Concurrency { key: ["k", "l"][key].into(), max }),
            depends_on: depends_on.collect(),
            steps: steps.into_iter().filter(|(there, _)| *there).map(|(_, stage)| step_spec("guard", stage)).collect(),
            retry: RetryPolicy {
                on: if shape.on { vec![ErrorCode::Timeout, ErrorCode::RunnerCrashed] } else { vec![] },
                ..RetryPolicy::default()
            },
            ..base
        };
        NewJob { spec, run_after_ms: at(shape.delay_ms).unwrap_or(0), ..job("a") }
    }

    async fn settle(&mut self, id: JobId, fate: Fate, stale: bool) {
        let seen = self.redis.get(id).await.unwrap().unwrap();
        let verdict = match fate {
            Fate::Queue => Verdict::Queue { input: Some(raw("[1]")) },
            Fate::Step => {
                let spec = JobSpec { tenant: seen.spec.tenant.clone(), step_of: Some(id), ..spec("guard") };
                Verdict::Step { input: None, job: Box::new(NewJob { spec, ..job("guard") }) }
            }
            // A report without a result can succeed only for a job that already has one.
            Fate::Succeed => Verdict::Succeed { result: seen.attempts.is_empty().then(|| raw("2")) },
            Fate::Fail => Verdict::Fail { error: JobError::new(ErrorCode::DependencyFailed, "no") },
        };
        let mut steps = Vec::new();
        let mut new = None;
        if let Verdict::Step { job, .. } = &verdict {
            new = Some((job.id, tenant_of(&seen)));
            let (scores, timing) = (std::collections::BTreeMap::new(), Timing::default());
            steps.push(StepRun {
                job: job.id,
                state: JobState::Queued,
                decision: None,
                reason: None,
                scores,
                timing,
                cost_usd_micros: None,
            });
        }
        let revision = if stale { format!("{}x", seen.revision) } else { seen.revision };
        let settlement = Settlement { id, revision, steps, verdict };
        if both!(self, |queue| queue.settle(&settlement)).unwrap() {
            self.ids.extend(new);
        }
    }

    fn pick(&self, n: usize) -> Option<(LeaseRef, LeaseRef)> {
        let held = |lease: &Lease| LeaseRef { job_id: lease.job_id, fence: lease.fence.clone() };
        self.recent(n).map(|(redis, memory)| (held(redis), held(memory)))
    }

    /// A random lease, more often a recent one: the older ones have mostly ended.
    fn recent(&self, n: usize) -> Option<&(Lease, Lease)> {
        let among = if n.is_multiple_of(4) { self.leases.len() } else { self.leases.len().min(12) };
        (among > 0).then(|| &self.leases[self.leases.len() - 1 - n / 4 % among])
    }

    async fn finish(&self, n: usize, report: impl Fn(&Lease) -> FinishReport) {
        let Some((redis, memory)) = self.recent(n) else { return };
        // Some of them shared a call.
        let told = |lease| {
            let report = report(lease);
            let (batch_size, load_ms) = (u32::try_from(n % 3).unwrap(), (n % 7) as u64);
            let timing = Timing { batch_size, load_ms, ..report.timing };
            let machine = ["m-1", "rack|2"][n % 2].to_owned();
            // Some have tokens, one of them more than is possible.
            let usage = (n.is_multiple_of(2)).then(|| TokenUsage {
                prompt_tokens: n as u64 % 50,
                cached_tokens: n as u64 % 11,
                completion_tokens: if n.is_multiple_of(14) { u64::MAX } else { n as u64 % 5 },
            });
            [FinishReport { timing, machine, cost_usd_micros: Some((n % 1_000) as u64), usage, ..report }]
        };
        let (redis, memory) = (self.redis.finish(&told(redis)).await, self.memory.finish(&told(memory)).await);
        assert_eq!(redis.unwrap(), memory.unwrap());
    }

    /// Compares every job of the two queues and checks the queue's own bookkeeping.
    async fn compare(&self) {
        let mut ready: HashMap<String, u64> = HashMap::new();
        let mut usage: HashMap<String, Usage> = HashMap::new();
        for (id, _) in &self.ids {
            let (redis, memory) =
                (self.redis.get(*id).await.unwrap().unwrap(), self.memory.get(*id).await.unwrap().unwrap());
            assert_eq!(facts(&redis), facts(&memory), "job {id}");
            assert!(job_is_sane(&redis), "{redis:?}");
            let JobSpec { tenant, endpoint, priority, .. } = &redis.spec;
            if redis.state == JobState::Queued {
                let lane = format!("{}:{}:{tenant}:{endpoint}", priority.digit(), redis.spec.class());
                *ready.entry(lane).or_default() += 1;
            }
            for scope in [format!("t:{tenant}"), format!("e:{tenant}:{endpoint}")] {
                let usage = usage.entry(scope).or_default();
                usage.open += u64::from(!redis.state.is_terminal());
                usage.running += u64::from(redis.state == JobState::Running);
            }
        }
        let flow = both!(self, |queue| queue.flow()).unwrap();
        for of in &flow {
            let scope = format!("e:{}:{}", of.tenant, of.endpoint);
            assert_eq!(of.running, usage.get(&scope).map_or(0, |usage| usage.running), "{scope}");
            for lane in &of.lanes {
                assert!(lane.arrived >= lane.started && lane.started >= lane.late, "{lane:?}");
            }
        }
        let spent = both!(self, |queue| queue.spent(SPENT_DAYS, None)).unwrap();
        assert!(spent.is_sorted());
        let today = day_of(self.clock.now_ms());
        for budgeted in both!(self, |queue| queue.budgets(today)).unwrap() {
            let of_gate =
                spent.iter().filter(|it| it.day == today && it.tenant == budgeted.scope.tenant()).filter(|it| {
                    matches!(&budgeted.scope, LimitScope::Tenant(_))
                        || matches!(&budgeted.scope, LimitScope::Endpoint { endpoint, .. } if *endpoint == it.endpoint)
                });
            let sum: u64 = of_gate.map(|it| it.run_usd_micros + it.load_usd_micros).sum();
            assert_eq!(budgeted.spent_usd_micros, sum, "{budgeted:?}");
        }
        assert_eq!(runs(&self.redis).await, runs(&self.memory).await);
        let depth = self.redis.depth().await.unwrap();
        assert_eq!(depth, self.memory.depth().await.unwrap());
        assert_eq!(depth.into_iter().map(|depth| (depth.lane, depth.jobs)).collect::<HashMap<_, _>>(), ready);
        for scope in (0..3).flat_map(|tenant| [None, Some(0), Some(1), Some(2)].map(|endpoint| scope(tenant, endpoint)))
        {
            let (_, now) = both!(self, |queue| queue.usage(&scope)).unwrap();
            assert_eq!(now, usage.get(&scope.to_string()).copied().unwrap_or_default(), "{scope}");
        }
    }
}

/// The running jobs; fences differ.
async fn runs<Q: Queue>(queue: &Q) -> Vec<(JobId, String, String, String, u64)> {
    let running = queue.running().await.unwrap();
    let mut runs: Vec<_> =
        running.into_iter().map(|it| (it.id, it.tenant, it.endpoint, it.worker_id, it.leased_ms)).collect();
    runs.sort();
    runs
}

fn tenant_of(job: &Job) -> &'static str {
    TENANTS.into_iter().find(|tenant| *tenant == job.spec.tenant).unwrap()
}

fn scope(tenant: usize, endpoint: Option<usize>) -> LimitScope {
    let tenant = TENANTS[tenant].to_owned();
    match endpoint {
        None => LimitScope::Tenant(tenant),
        Some(endpoint) => LimitScope::Endpoint { tenant, endpoint: ENDPOINTS[endpoint].to_owned() },
    }
}

/// The facts of a job that both queues must agree on. Fences differ in their random part, and so do the results and
/// revisions that contain them.
fn facts(job: &Job) -> impl PartialEq + std::fmt::Debug + use<> {
    let attempts: Vec<_> = job
        .attempts
        .iter()
        .map(|a| {
            let fact = (a.attempt, a.outcome, a.fence.counter(), a.leased_ms, a.ended_ms, a.timing, a.error.clone());
            (fact, a.worker_id.clone(), a.usage)
        })
        .collect();
    let revision = (job.state == JobState::Blocked).then(|| job.revision.clone());
    let times = (job.run_after_ms, job.ended_ms);
    (
        (job.state, job.spec.vram_class_gib, job.oom_events),
        times,
        job.error.clone(),
        job.result.is_some(),
        job.input.get().to_owned(),
        job.steps.clone(),
        revision,
        attempts,
    )
}

fn job_is_sane(job: &Job) -> bool {
    let fences: Vec<u64> = job.attempts.iter().map(|attempt| attempt.fence.counter()).collect();
    fences.is_sorted_by(|a, b| a < b)
        && job.ended_ms.is_some() == job.state.is_terminal()
        && job.result.is_some() == (job.state == JobState::Succeeded)
        && job.error.is_some() == matches!(job.state, JobState::Failed | JobState::Expired)
        && (job.run_after_ms.is_some() == (job.state == JobState::Scheduled) || job.state == JobState::Blocked)
}

/// The number of cases; `STOKE_MODEL_CASES` raises it for a nightly run.
fn cases(usually: u32) -> u32 {
    std::env::var("STOKE_MODEL_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(usually)
}

#[test]
fn lua_and_the_state_table_agree_after_every_step() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (server, _dir) = runtime.block_on(async { crate::redis::server(&[]) });
    compare_on(&runtime, cases(48), async |clock| {
        // Thousands of histories would fill its memory.
        let _: String = server.ask(&["FLUSHALL"]);
        crate::shards::on_one(&server, clock).await
    });
}

#[test]
fn lua_and_the_state_table_agree_on_a_cluster() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (cluster, _dir) = crate::shards::cluster();
    compare_on(&runtime, cases(12), async |clock| {
        for node in cluster.nodes() {
            let _: String = node.ask(&["FLUSHALL"]);
        }
        crate::shards::on_cluster(&cluster, clock).await
    });
}

fn compare_on(runtime: &tokio::runtime::Runtime, cases: u32, fresh: impl AsyncFn(Clock) -> Shards) {
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    runner
        .run(&prop_oneof![prop::collection::vec(verb(), 1..60), prop::collection::vec(busy_verb(), 30..80)], |verbs| {
            runtime.block_on(async {
                let clock = ManualClock::new(START_MS);
                let redis = fresh(Clock::Manual(clock.clone())).await;
                let memory = MemoryQueue::new(Clock::Manual(clock.clone()), LEASE_MS);
                let mut pair = Pair { redis, memory, clock, ids: vec![], leases: vec![] };
                for verb in &verbs {
                    pair.step(verb).await;
                    pair.compare().await;
                }
            });
            Ok(())
        })
        .unwrap();
}
