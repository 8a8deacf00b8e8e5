//! Implementation of each fault.

use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use serde_json::json;
use tokio::time::Instant;

use super::{DROP_LIMIT, Nemesis, RUNNERS_GONE, TICK, Target, Then, UNTOLD_MAX, fault_event};
use crate::cluster::process::send;
use crate::history::{Event, Kind};
use crate::plan::{Fault, Planned};
use crate::proxy::Weather;

/// Downtime of a killed process, seconds.
const DOWN: std::ops::Range<f64> = 0.05..0.6;

/// Failpoints: the process that dies, the place, and the maximum number of passes before it dies. A worker dies between
/// the end of a run, or of its upload, and its report.
const POINTS: [(Who, &str, u32); 10] = [
    (Who::Api, "submit.before", 8),
    (Who::Api, "submit.after", 8),
    (Who::Api, "finish.before", 8),
    (Who::Api, "finish.after", 8),
    (Who::Api, "lease.after", 8),
    (Who::Api, "cancel.after", 2),
    (Who::Api, "hook.claimed", 4),
    (Who::Api, "hook.posted", 4),
    (Who::Worker, "run.ended", 40),
    (Who::Worker, "upload.after", 1),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Api,
    Worker,
}

/// Maximum time for a process to exit after it was asked to: a worker's runs continue for 30 s at most.
const END_LIMIT: Duration = Duration::from_secs(40);

/// Maximum time for a process to reach its failpoint.
const ARMED_LIMIT: Duration = Duration::from_secs(8);

/// Picks `submit.before`, for a process that did not reach its own failpoint: every replica gets submits, but workers and
/// clients keep their connections, so that a replica may get no other calls.
const OFTEN_REACHED: f64 = 0.05;

impl Nemesis {
    /// Applies a fault; false if there is currently no target for it.
    pub(super) fn strike(&mut self, planned: &Planned) -> Result<bool> {
        let lease = Duration::from_millis(self.cluster.size.lease_ms);
        let slots = u64::from(self.cluster.size.slots);
        let of_worker = slots + UNTOLD_MAX;
        let of_all = of_worker * self.cluster.workers.len() as u64;
        let down = Duration::from_secs_f64(DOWN.start + (DOWN.end - DOWN.start) * planned.size);
        let fault = planned.fault;
        match fault {
            Fault::KillWorker => {
                let Some(n) = self.worker(planned, false) else { return Ok(false) };
                let (pids, worker_id) = (self.cluster.runners(n), self.cluster.worker_id(n));
                let worker = &mut self.cluster.workers[n];
                worker.process.kill();
                let worker = format!("{}.{}", worker.name, worker.incarnation);
                self.landed(fault, of_worker, json!({"target": worker, "worker_id": worker_id, "runners": pids.len()}));
                self.after(RUNNERS_GONE, Then::CheckRunners { worker, pids });
                self.after(down, Then::RestartWorker(n));
            }
            Fault::KillRunner => {
                let Some(n) = self.worker(planned, true) else { return Ok(false) };
                let pid = self.cluster.runners(n).first().copied();
                if !pid.is_some_and(|pid| send(pid, Signal::SIGKILL)) {
                    self.busy.remove(&Target::Worker(n));
                    return Ok(false);
                }
                self.landed(fault, slots, json!({"target": self.cluster.workers[n].name, "pid": pid}));
                self.busy.remove(&Target::Worker(n));
            }
            Fault::PauseWorker | Fault::PauseWorkerAlone => {
                let Some(n) = self.worker(planned, false) else { return Ok(false) };
                let all = fault == Fault::PauseWorker;
                self.cluster.workers[n].process.signal(Signal::SIGSTOP, all);
                let long = lease.mul_f64(1.15 + 0.6 * planned.size) + Duration::from_millis(200);
                let more = json!({"target": self.cluster.workers[n].name, "ms": long.as_millis()});
                self.landed(fault, of_worker, more);
                self.after(long, Then::ContinueWorker { n, all });
            }
            Fault::KillRedis | Fault::LongRedisOutage => {
                if !self.take(Target::Redis) {
                    return Ok(false);
                }
                self.cluster.redis.process.kill();
                let long = if fault == Fault::LongRedisOutage { lease.mul_f64(1.1 + 0.3 * planned.size) } else { down };
                let runs = if long * 2 >= lease { of_all } else { 0 };
                let event = fault_event(fault, runs, json!({"ms": long.as_millis()}));
                self.after(long, Then::RestartRedis(event));
            }
            Fault::PauseRedis => {
                if !self.take(Target::Redis) {
                    return Ok(false);
                }
                self.cluster.redis.process.signal(Signal::SIGSTOP, false);
                let long = lease.mul_f64(0.3 + 0.6 * planned.size);
                self.landed(fault, of_all, json!({"ms": long.as_millis()}));
                self.after(long, Then::ContinueRedis);
            }
            Fault::Failpoint => return self.arm(planned),
            Fault::RollApi | Fault::RollWorker => return Ok(self.roll(fault)),
            Fault::KillApi => {
                let Some(n) = self.api(planned) else { return Ok(false) };
                let api = &mut self.cluster.apis[n];
                let target = format!("{}.{}", api.name, api.incarnation);
                api.process.kill();
                self.landed(fault, 0, json!({"target": target}));
                self.after(down, Then::RestartApi(n));
            }
            Fault::PartitionWorker | Fault::OneWayWorker => {
                let Some(n) = self.worker(planned, false) else { return Ok(false) };
                let gateway = &self.cluster.workers[n].gateway;
                if gateway.passed().open == 0 {
                    self.busy.remove(&Target::Worker(n));
                    return Ok(false);
                }
                let weather = match (fault, planned.pick < 0.5) {
                    (Fault::PartitionWorker, _) => Weather::partition(),
                    (_, true) => Weather { cut_up: true, ..Weather::default() },
                    (_, false) => Weather { cut_down: true, ..Weather::default() },
                };
                gateway.set(weather);
                let long = lease.mul_f64(0.6 + planned.size);
                let more =
                    json!({"target": self.cluster.workers[n].name, "ms": long.as_millis(), "up": planned.pick < 0.5});
                self.landed(fault, of_worker, more);
                self.after(long, Then::HealGateway(n));
            }
            Fault::PartitionRedis => {
                let Some(n) = self.api(planned) else { return Ok(false) };
                self.cluster.apis[n].redis.set(Weather::partition());
                let long = lease.mul_f64(0.5 + planned.size);
                self.landed(fault, of_all, json!({"target": self.cluster.apis[n].name, "ms": long.as_millis()}));
                self.after(long, Then::HealRedisLine(n));
            }
            Fault::DropRedisReply | Fault::DropGatewayReply | Fault::DropClientReply => {
                let target = match fault {
                    Fault::DropRedisReply => self.api(planned).map(Target::Api),
                    Fault::DropGatewayReply => self.worker(planned, false).map(Target::Worker),
                    _ => self.take(Target::Front).then_some(Target::Front),
                };
                let Some(target) = target else { return Ok(false) };
                let before = self.line(target).passed().replies_dropped;
                self.line(target).drop_replies(1);
                self.after(TICK, Then::CheckDrop { target, fault, before, until: Instant::now() + DROP_LIMIT });
            }
            Fault::BreakS3 | Fault::SlowS3 => {
                if !self.take(Target::S3) {
                    return Ok(false);
                }
                let slow = Weather {
                    delay: Duration::from_millis(150),
                    jitter: Duration::from_millis(300),
                    ..Weather::default()
                };
                let broken = Weather { refuse: true, ..Weather::default() };
                self.s3_weather(if fault == Fault::SlowS3 { &slow } else { &broken });
                if fault == Fault::BreakS3 {
                    self.cluster.apis.iter().for_each(|api| api.s3.reset());
                    self.cluster.public_s3.reset();
                }
                let long = Duration::from_secs_f64(0.5 + planned.size);
                // At most, every result that was due to be stored meanwhile.
                self.landed(fault, of_all, json!({"ms": long.as_millis()}));
                self.after(long, Then::HealS3);
            }
        }
        Ok(true)
    }

    /// Restarts a process that will die by itself at a random failpoint.
    fn arm(&mut self, planned: &Planned) -> Result<bool> {
        let at = (0..POINTS.len()).collect::<Vec<_>>();
        let (who, place, most) = POINTS[pick(&at, planned.size).unwrap_or(0)];
        let point = format!("{place}=exit@{}", 1 + (planned.pick * 1_000.0) as u32 % most);
        let target = match who {
            Who::Api => {
                let Some(n) = self.api(planned) else { return Ok(false) };
                self.cluster.apis[n].process.kill();
                self.cluster.restart_api(n, Some(&point))?;
                Target::Api(n)
            }
            Who::Worker => {
                let Some(n) = self.worker(planned, false) else { return Ok(false) };
                self.cluster.workers[n].process.kill();
                self.cluster.restart_worker(n, Some(&point))?;
                Target::Worker(n)
            }
        };
        self.after(TICK, Then::Watch { target, point, planned: planned.clone(), until: Instant::now() + ARMED_LIMIT });
        Ok(true)
    }

    /// Checks whether a process has died at its failpoint. One that does not reach it in time is replaced by another.
    pub(super) fn watch(&mut self, target: Target, point: String, planned: Planned, until: Instant) -> Result<()> {
        let Some(process) = self.process(target) else { return Ok(()) };
        let died = process.has_aborted().with_context(|| format!("{target:?} did not reach {point}"))?;
        if !died && Instant::now() < until {
            self.after(TICK, Then::Watch { target, point, planned, until });
            return Ok(());
        }
        if died {
            let runs =
                if matches!(target, Target::Worker(_)) { u64::from(self.cluster.size.slots) + UNTOLD_MAX } else { 0 };
            self.landed(Fault::Failpoint, runs, json!({"point": point}));
        } else {
            if let Some(process) = self.process(target) {
                process.kill();
            }
            let now = Instant::now();
            if now < self.over {
                self.schedule.push_back((now, Planned { size: OFTEN_REACHED, ..planned }));
            } else {
                self.missed(planned.fault, "not reached");
            }
        }
        let restart = match target {
            Target::Api(n) => Then::RestartApi(n),
            Target::Worker(n) => Then::RestartWorker(n),
            Target::Redis | Target::Front | Target::S3 => return Ok(()),
        };
        self.after(Duration::from_secs_f64(DOWN.start), restart);
        Ok(())
    }

    fn take(&mut self, target: Target) -> bool {
        self.busy.insert(target)
    }

    /// A worker without a current fault, provided that another one continues.
    fn worker(&mut self, planned: &Planned, with_runner: bool) -> Option<usize> {
        let all = self.cluster.workers.len();
        let mut free: Vec<usize> = (0..all).filter(|n| !self.busy.contains(&Target::Worker(*n))).collect();
        if free.len() < 2.min(all) {
            return None;
        }
        if with_runner {
            free.retain(|n| !self.cluster.runners(*n).is_empty());
        }
        let n = pick(&free, planned.pick)?;
        self.take(Target::Worker(n)).then_some(n)
    }

    /// Asks the process of this kind that was rolled least often to exit.
    fn roll(&mut self, fault: Fault) -> bool {
        let least = match fault {
            Fault::RollApi => self.least_rolled(self.cluster.apis.iter().map(|api| api.rolls), Target::Api),
            _ => self.least_rolled(self.cluster.workers.iter().map(|worker| worker.rolls), Target::Worker),
        };
        let Some(target) = least.filter(|target| self.take(*target)) else { return false };
        let mut runners = Vec::new();
        match target {
            Target::Worker(n) => {
                runners = self.cluster.runners(n);
                self.cluster.workers[n].process.signal(Signal::SIGTERM, false);
            }
            Target::Api(n) => self.cluster.apis[n].process.signal(Signal::SIGTERM, false),
            Target::Redis | Target::Front | Target::S3 => {}
        }
        self.after(TICK, Then::Replace { target, fault, runners, until: Instant::now() + END_LIMIT });
        true
    }

    /// `None` while another process of its kind is away: a roll takes one at a time.
    fn least_rolled(&self, rolls: impl Iterator<Item = u32>, target: fn(usize) -> Target) -> Option<Target> {
        let all: Vec<(u32, Target)> = rolls.enumerate().map(|(n, rolls)| (rolls, target(n))).collect();
        let is_free = all.iter().all(|(_, target)| !self.busy.contains(target));
        all.into_iter().min_by_key(|(rolls, _)| *rolls).filter(|_| is_free).map(|(_, target)| target)
    }

    /// Starts the other release in place of a process that has exited. A process that does not exit is killed, and
    /// counts as a fault without a target.
    pub(super) fn replace(&mut self, target: Target, fault: Fault, runners: Vec<u32>, until: Instant) -> Result<()> {
        let has_ended = self.process(target).is_some_and(|process| process.end().is_some());
        if !has_ended && Instant::now() < until {
            self.after(TICK, Then::Replace { target, fault, runners, until });
            return Ok(());
        }
        let (name, rolls) = match target {
            Target::Worker(n) => {
                let worker = &mut self.cluster.workers[n];
                worker.process.kill();
                worker.rolls += 1;
                let (name, rolls) = (format!("{}.{}", worker.name, worker.incarnation), worker.rolls);
                self.cluster.restart_worker(n, None)?;
                (name, rolls)
            }
            Target::Api(n) => {
                let api = &mut self.cluster.apis[n];
                api.process.kill();
                api.rolls += 1;
                let (name, rolls) = (format!("{}.{}", api.name, api.incarnation), api.rolls);
                self.cluster.restart_api(n, None)?;
                (name, rolls)
            }
            Target::Redis | Target::Front | Target::S3 => return Ok(()),
        };
        if fault == Fault::RollWorker {
            self.after(RUNNERS_GONE, Then::CheckRunners { worker: name.clone(), pids: runners });
        }
        // A draining worker releases the jobs that did not end in time, and they are run again.
        let runs = if fault == Fault::RollWorker { u64::from(self.cluster.size.slots) } else { 0 };
        let event = fault_event(fault, runs, json!({"target": name, "rolls": rolls}));
        let kind = if has_ended { Kind::Ok } else { Kind::Fail };
        self.cluster.journal.write(Event { kind, ..event });
        self.starting.push(target);
        Ok(())
    }

    /// A replica without a current fault, provided that another one continues.
    fn api(&mut self, planned: &Planned) -> Option<usize> {
        let all = self.cluster.apis.len();
        let free: Vec<usize> = (0..all).filter(|n| !self.busy.contains(&Target::Api(*n))).collect();
        if free.len() < 2.min(all) {
            return None;
        }
        let n = pick(&free, planned.pick)?;
        self.take(Target::Api(n)).then_some(n)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "an index of a short list"
)]
fn pick(free: &[usize], part: f64) -> Option<usize> {
    free.get((part * free.len() as f64) as usize).copied()
}
