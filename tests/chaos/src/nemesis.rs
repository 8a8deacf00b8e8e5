//! The nemesis, which breaks the system and repairs it. One loop owns the cluster: it does the due actions, never waits
//! for long, and records faults that landed. A fault that finds no target waits for one.

mod strike;

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::cluster::Cluster;
use crate::cluster::process::Process;
use crate::history::{Event, Kind, wall_ms};
use crate::plan::{Fault, Plan, Planned};
use crate::proxy::Weather;

const TICK: Duration = Duration::from_millis(10);

/// Pause before a fault without a target is tried again.
const LATER: Duration = Duration::from_millis(100);

/// Maximum delay of faults; a fault that has not landed by then makes the run void. One of the two
/// replicas always runs without a fault, so faults of replicas wait for each other.
const LATE_MAX: Duration = Duration::from_secs(60);

/// Time after a worker's death by which its runners must be gone (I14).
const RUNNERS_GONE: Duration = Duration::from_secs(5);

/// Time without another fault that a worker has after a pause: two heartbeats, by which it learns of cancelled jobs. Two
/// pauses in a row would be one that is longer than any in the plan.
const REST: Duration = Duration::from_secs(1);

/// Timeout for the reply that the fault drops.
const DROP_LIMIT: Duration = Duration::from_secs(10);

/// Maximum number of ends in a report's call: those of a worker that dies before it are run again.
const UNTOLD_MAX: u64 = 100;

/// Target of a fault. A target has at most one fault at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Target {
    Redis,
    Api(usize),
    Worker(usize),
    Front,
    S3,
}

/// An action that is due later.
#[derive(Debug, Clone)]
enum Then {
    RestartWorker(usize),
    ContinueWorker {
        n: usize,
        all: bool,
    },
    /// The next fault may strike.
    Free(Target),
    RestartRedis(Event),
    ContinueRedis,
    RestartApi(usize),
    HealGateway(usize),
    HealRedisLine(usize),
    HealS3,
    CheckRunners {
        worker: String,
        pids: Vec<u32>,
    },
    /// A process that will die by itself.
    Watch {
        target: Target,
        point: String,
        planned: Planned,
        until: Instant,
    },
    /// A process that was asked to end, and is replaced once it has.
    Replace {
        target: Target,
        fault: Fault,
        /// Runners of a worker that ends.
        runners: Vec<u32>,
        until: Instant,
    },
    CheckDrop {
        target: Target,
        fault: Fault,
        before: u64,
        until: Instant,
    },
}

/// The loop.
pub(crate) struct Nemesis {
    cluster: Cluster,
    schedule: VecDeque<(Instant, Planned)>,
    later: Vec<(Instant, Then)>,
    /// Targets with a current fault, or that are not up again yet.
    busy: HashSet<Target>,
    starting: Vec<Target>,
    over: Instant,
}

impl Nemesis {
    pub(crate) fn new(cluster: Cluster, plan: &Plan) -> Self {
        let start = Instant::now();
        let schedule = plan.schedule().into_iter().map(|planned| (start + planned.at, planned)).collect();
        let over = start + plan.duration + LATE_MAX;
        Self { cluster, schedule, later: Vec::new(), busy: HashSet::new(), starting: Vec::new(), over }
    }

    /// Carries out the plan, then repairs everything. Returns the repaired cluster.
    ///
    /// # Errors
    /// If a part of the cluster does not come up again: that is a defect of the product as well.
    pub(crate) async fn run(mut self) -> Result<Cluster> {
        while self.is_pending() && Instant::now() < self.over {
            self.tick().await?;
            sleep(TICK).await;
        }
        for (_, missed) in std::mem::take(&mut self.schedule) {
            self.missed(missed.fault, "no target");
        }
        while !(self.later.is_empty() && self.starting.is_empty()) {
            self.tick().await?;
            sleep(TICK).await;
        }
        self.cluster.journal.write(Event::new("nemesis", Kind::Ok, "heal"));
        Ok(self.cluster)
    }

    /// Whether a fault has not landed yet. One that waits for a failpoint is scheduled again if it is not reached.
    fn is_pending(&self) -> bool {
        !self.schedule.is_empty() || self.later.iter().any(|(_, then)| matches!(then, Then::Watch { .. }))
    }

    async fn tick(&mut self) -> Result<()> {
        let now = Instant::now();
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.later).into_iter().partition(|(at, _)| *at <= now);
        self.later = later;
        for (_, then) in due {
            self.mend(then).await?;
        }
        self.free_started().await?;
        let due: Vec<Planned> = {
            let (due, rest): (VecDeque<_>, VecDeque<_>) =
                std::mem::take(&mut self.schedule).into_iter().partition(|(at, _)| *at <= now);
            self.schedule = rest;
            due.into_iter().map(|(_, planned)| planned).collect()
        };
        for planned in due {
            if !self.strike(&planned)? {
                self.schedule.push_back((now + LATER, planned));
            }
        }
        Ok(())
    }

    fn after(&mut self, pause: Duration, then: Then) {
        self.later.push((Instant::now() + pause, then));
    }

    /// Records that a fault landed.
    fn landed(&self, fault: Fault, runs_at_stake: u64, more: Value) {
        self.cluster.journal.write(fault_event(fault, runs_at_stake, more));
    }

    /// Records that a fault did not land.
    fn missed(&self, fault: Fault, why: &str) {
        let event = Event::new("nemesis", Kind::Fail, "fault").v(json!({"kind": fault.word()}));
        self.cluster.journal.write(event.err(why));
    }

    async fn mend(&mut self, then: Then) -> Result<()> {
        match then {
            Then::RestartWorker(n) => {
                self.cluster.restart_worker(n, None)?;
                self.starting.push(Target::Worker(n));
            }
            Then::ContinueWorker { n, all } => {
                self.cluster.workers[n].process.signal(Signal::SIGCONT, all);
                self.after(REST, Then::Free(Target::Worker(n)));
            }
            Then::Free(target) => {
                self.busy.remove(&target);
            }
            Then::RestartRedis(mut event) => {
                self.cluster.redis.restart().await?;
                if let Value::Object(v) = &mut event.v {
                    v.insert("redis_up_wall_ms".to_owned(), wall_ms().into());
                }
                self.cluster.journal.write(event);
                self.busy.remove(&Target::Redis);
            }
            Then::ContinueRedis => {
                self.cluster.redis.process.signal(Signal::SIGCONT, false);
                self.busy.remove(&Target::Redis);
            }
            Then::RestartApi(n) => {
                self.cluster.restart_api(n, None)?;
                self.starting.push(Target::Api(n));
            }
            Then::HealGateway(n) => {
                self.cluster.workers[n].gateway.heal();
                self.busy.remove(&Target::Worker(n));
            }
            Then::HealRedisLine(n) => {
                self.cluster.apis[n].redis.heal();
                self.busy.remove(&Target::Api(n));
            }
            Then::HealS3 => {
                self.cluster.apis.iter().for_each(|api| api.s3.heal());
                self.cluster.public_s3.heal();
                self.busy.remove(&Target::S3);
            }
            Then::CheckRunners { worker, pids } => {
                let left = pids.into_iter().filter(|pid| stokehold_tests::process::alive(*pid)).count();
                let event = Event::new("nemesis", Kind::Ok, "runner_check");
                self.cluster.journal.write(event.v(json!({"worker": worker, "left": left})));
            }
            Then::Replace { target, fault, runners, until } => self.replace(target, fault, runners, until)?,
            Then::Watch { target, point, planned, until } => self.watch(target, point, planned, until)?,
            Then::CheckDrop { target, fault, before, until } => {
                let dropped = self.line(target).passed().replies_dropped > before;
                if dropped || Instant::now() >= until {
                    let kind = if dropped { Kind::Ok } else { Kind::Fail };
                    let event = Event { kind, ..fault_event(fault, 0, json!({})) };
                    self.cluster.journal.write(event);
                    self.busy.remove(&target);
                } else {
                    self.after(TICK, Then::CheckDrop { target, fault, before, until });
                }
            }
        }
        Ok(())
    }

    /// Frees restarted targets once they serve.
    async fn free_started(&mut self) -> Result<()> {
        for target in std::mem::take(&mut self.starting) {
            let up = match target {
                Target::Worker(n) => !self.cluster.worker_id(n).is_empty(),
                Target::Api(n) => self.cluster.serves(n).await,
                Target::Redis | Target::Front | Target::S3 => true,
            };
            if up {
                self.busy.remove(&target);
            } else {
                if let Some(process) = self.process(target) {
                    process.ensure_running().with_context(|| format!("{target:?} does not start"))?;
                }
                self.starting.push(target);
            }
        }
        Ok(())
    }

    /// The process of a replica or a worker.
    fn process(&mut self, target: Target) -> Option<&mut Process> {
        match target {
            Target::Worker(n) => Some(&mut self.cluster.workers[n].process),
            Target::Api(n) => Some(&mut self.cluster.apis[n].process),
            Target::Redis | Target::Front | Target::S3 => None,
        }
    }

    /// The proxy that carries a target's replies.
    fn line(&self, target: Target) -> &crate::proxy::Proxy {
        match target {
            Target::Worker(n) => &self.cluster.workers[n].gateway,
            Target::Api(n) => &self.cluster.apis[n].redis,
            Target::S3 => &self.cluster.public_s3,
            Target::Front | Target::Redis => &self.cluster.front,
        }
    }

    /// Breaks S3 for all processes.
    fn s3_weather(&self, weather: &Weather) {
        self.cluster.apis.iter().for_each(|api| api.s3.set(weather.clone()));
        self.cluster.public_s3.set(weather.clone());
    }
}

fn fault_event(fault: Fault, runs_at_stake: u64, mut more: Value) -> Event {
    if let Value::Object(v) = &mut more {
        v.insert("kind".to_owned(), fault.word().into());
        v.insert("runs_at_stake".to_owned(), runs_at_stake.into());
        v.insert("wall_ms".to_owned(), wall_ms().into());
    }
    Event::new("nemesis", Kind::Ok, "fault").v(more)
}
