//! Model test: random verbs through the Lua scripts and through `MemoryQueue`, which moves jobs by `state::next` alone. After each
//! step both must say the same of every job.

use std::collections::HashMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use stokehold_queue::gateway::LeaseRef;
use stokehold_queue::job::{ErrorCode, JobSpec, JobState, NewJob, Priority};
use stokehold_queue::queue::{Lease, LeaseQuery};
use stokehold_queue::{Clock, JobId, ManualClock, MemoryQueue, Queue, RedisQueue};

use crate::conformance::{LEASE_MS, START_MS, fail, job, spec, succeed};

#[derive(Debug, Clone)]
enum Verb {
    Submit { endpoint: usize, priority: usize, class: u32, delay_ms: u64 },
    Lease { want: u32, reach_gib: u32 },
    Succeed(usize),
    Fail(usize, ErrorCode),
    Release(usize),
    Extend(usize),
    Cancel(usize),
    Promote,
    Reap,
    Advance(u64),
}

fn verb() -> impl Strategy<Value = Verb> {
    let any = any::<usize>();
    let delay = prop_oneof![3 => Just(0), 1 => 1..5_000u64];
    prop_oneof![
        4 => (0..3usize, 0..3usize, prop_oneof![Just(0), Just(8), Just(24)], delay)
            .prop_map(|(endpoint, priority, class, delay_ms)| Verb::Submit { endpoint, priority, class, delay_ms }),
        4 => (1..4u32, prop_oneof![Just(0), Just(24)]).prop_map(|(want, reach_gib)| Verb::Lease { want, reach_gib }),
        2 => any.prop_map(Verb::Succeed),
        2 => (any, prop_oneof![Just(ErrorCode::HandlerError), Just(ErrorCode::BadOutput), Just(ErrorCode::Infra)])
            .prop_map(|(n, code)| Verb::Fail(n, code)),
        1 => any.prop_map(Verb::Release),
        1 => any.prop_map(Verb::Extend),
        1 => any.prop_map(Verb::Cancel),
        1 => Just(Verb::Promote),
        1 => Just(Verb::Reap),
        2 => (1..20_000u64).prop_map(Verb::Advance),
    ]
}

/// The two queues side by side, with the leases each has given for the same job and attempt.
struct Pair {
    redis: RedisQueue,
    memory: MemoryQueue,
    clock: ManualClock,
    ids: Vec<JobId>,
    leases: Vec<(Lease, Lease)>,
}

impl Pair {
    async fn step(&mut self, verb: &Verb) {
        match verb {
            Verb::Submit { endpoint, priority, class, delay_ms } => {
                let spec = JobSpec {
                    priority: Priority::ALL[*priority],
                    vram_class_gib: *class,
                    max_attempts: 2,
                    ..spec(["a", "b", "c"][*endpoint])
                };
                let run_after_ms = if *delay_ms == 0 { 0 } else { self.clock.now_ms() + delay_ms };
                let new = NewJob { spec, run_after_ms, ..job("a") };
                self.ids.push(new.id);
                assert_eq!(
                    self.redis.submit(vec![new.clone()]).await.unwrap(),
                    self.memory.submit(vec![new]).await.unwrap()
                );
            }
            Verb::Lease { want, reach_gib } => {
                let query = LeaseQuery { worker_id: "w".into(), want: *want, reach_gib: *reach_gib, park: None };
                let redis = self.redis.lease(query.clone()).await.unwrap();
                let memory = self.memory.lease(query).await.unwrap();
                let facts = |leases: &[Lease]| -> Vec<(JobId, u32, u64)> {
                    leases.iter().map(|lease| (lease.job_id, lease.attempt, lease.fence.counter())).collect()
                };
                assert_eq!(facts(&redis), facts(&memory), "the same jobs in the same order");
                self.leases.extend(redis.into_iter().zip(memory));
            }
            Verb::Succeed(n) => self.finish(*n, succeed).await,
            Verb::Fail(n, code) => self.finish(*n, |lease| fail(lease, *code)).await,
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
            Verb::Cancel(n) => {
                let Some(id) = (!self.ids.is_empty()).then(|| self.ids[n % self.ids.len()]) else { return };
                assert_eq!(
                    self.redis.cancel("acme", &[id]).await.unwrap(),
                    self.memory.cancel("acme", &[id]).await.unwrap()
                );
            }
            Verb::Promote => {
                assert_eq!(self.redis.promote().await.unwrap(), self.memory.promote().await.unwrap());
            }
            Verb::Reap => assert_eq!(self.redis.reap().await.unwrap(), self.memory.reap().await.unwrap()),
            Verb::Advance(ms) => self.clock.advance_ms(*ms),
        }
    }

    fn pick(&self, n: usize) -> Option<(LeaseRef, LeaseRef)> {
        let held = |lease: &Lease| LeaseRef { job_id: lease.job_id, fence: lease.fence.clone() };
        (!self.leases.is_empty())
            .then(|| &self.leases[n % self.leases.len()])
            .map(|(redis, memory)| (held(redis), held(memory)))
    }

    async fn finish(&self, n: usize, report: impl Fn(&Lease) -> stokehold_queue::gateway::FinishReport) {
        if self.leases.is_empty() {
            return;
        }
        let (redis, memory) = &self.leases[n % self.leases.len()];
        let (redis, memory) = (self.redis.finish(&[report(redis)]).await, self.memory.finish(&[report(memory)]).await);
        assert_eq!(redis.unwrap(), memory.unwrap());
    }

    /// Both agree on every job, and the queue's own bookkeeping adds up.
    async fn compare(&self) {
        let mut ready: HashMap<String, u64> = HashMap::new();
        for id in &self.ids {
            let (redis, memory) =
                (self.redis.get(*id).await.unwrap().unwrap(), self.memory.get(*id).await.unwrap().unwrap());
            let facts = |job: &stokehold_queue::job::Job| {
                let attempts: Vec<_> = job
                    .attempts
                    .iter()
                    .map(|a| (a.attempt, a.outcome, a.fence.counter(), a.ended_ms, a.error.clone()))
                    .collect();
                (job.state, job.run_after_ms, job.ended_ms, job.error.clone(), job.result.is_some(), attempts)
            };
            assert_eq!(facts(&redis), facts(&memory), "job {id}");
            assert!(job_is_sane(&redis), "{redis:?}");
            if redis.state == JobState::Queued {
                let lane = format!(
                    "{}:{}:acme:{}",
                    redis.spec.priority.digit(),
                    redis.spec.vram_class_gib,
                    redis.spec.endpoint
                );
                *ready.entry(lane).or_default() += 1;
            }
        }
        let depth = self.redis.depth().await.unwrap();
        assert_eq!(depth, self.memory.depth().await.unwrap());
        assert_eq!(depth.into_iter().map(|depth| (depth.lane, depth.jobs)).collect::<HashMap<_, _>>(), ready);
    }
}

fn job_is_sane(job: &stokehold_queue::job::Job) -> bool {
    let fences: Vec<u64> = job.attempts.iter().map(|attempt| attempt.fence.counter()).collect();
    fences.is_sorted_by(|a, b| a < b)
        && job.ended_ms.is_some() == job.state.is_terminal()
        && job.result.is_some() == (job.state == JobState::Succeeded)
        && job.error.is_some() == (job.state == JobState::Failed)
        && job.run_after_ms.is_some() == (job.state == JobState::Scheduled)
}

/// `STOKE_MODEL_CASES` raises the number of cases for a nightly run.
#[test]
fn lua_and_the_state_table_agree_after_every_step() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (server, _dir) = runtime.block_on(async { crate::redis::server(&[]) });
    let cases = std::env::var("STOKE_MODEL_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(48);
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    runner
        .run(&prop::collection::vec(verb(), 1..60), |verbs| {
            runtime.block_on(async {
                let clock = ManualClock::new(START_MS);
                let redis = crate::redis::queue(&server, Clock::Manual(clock.clone())).await;
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
