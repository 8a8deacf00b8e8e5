//! Removal of jobs from their current place, and their end, like `lua/lib/ends.lua` and `lua/finish.lua`.

use stokehold_protocol::gateway::{FinishAnswer, FinishOutcome, FinishReport, LeaseRef, Outgrown};
use stokehold_protocol::id::JobId;
use stokehold_protocol::job::{
    AttemptOutcome, Job, JobError, JobResult, JobSpec, JobState, OUTPUT_NAME, Responsible, Stage, Timing,
};
use stokehold_protocol::retry::{
    MAX_INFRA_ATTEMPTS, MAX_OOM_ATTEMPTS, POISON_CRASHES, POISON_WORKERS, backoff_ms, jitter,
};
use stokehold_protocol::state::JobEvent;
use stokehold_queue::implementation::{self, AttemptUse, RunCount};
use stokehold_queue::queue::{CancelAnswer, Swept, Work};

use super::class_queues::ClassQueueName;
use super::limit_scopes::{key_scope, scopes_of};
use super::{Inner, Lanes, Position, SWEEP_MAX};

fn shelf_of(spec: &JobSpec) -> ClassQueueName {
    (spec.priority.digit(), spec.class())
}

impl Inner {
    fn close_attempt(&mut self, id: JobId, outcome: AttemptOutcome, timing: Timing, error: Option<JobError>) {
        let now = self.now;
        if let Some(attempt) = self.record(id).job.attempts.last_mut() {
            attempt.ended_ms = Some(now);
            attempt.outcome = outcome;
            attempt.timing = Timing { queued_ms: attempt.timing.queued_ms, ..timing };
            attempt.error = error;
        }
    }

    /// Time for which a run occupied its slot, milliseconds. It excludes the wait for a slot inside the worker. A run
    /// that shared its slot counts its part of the time.
    fn took_ms(&mut self, id: JobId, timing: &Timing) -> f64 {
        let now = self.now as f64;
        let took_ms = self.record(id).job.attempts.last().map_or(0.0, |attempt| now - attempt.leased_ms as f64);
        (took_ms - timing.turn_ms as f64).max(0.0) / timing.sharers()
    }

    /// Stops a running job: frees its lease and its slots, and charges its tenant for the time it took.
    fn stop(&mut self, id: JobId, timing: &Timing) {
        let took = self.took_ms(id, timing);
        let record = self.record(id);
        let (spec, charged) = (record.job.spec.clone(), record.charged);
        self.leases.remove(&id);
        for scope in scopes_of(&spec) {
            self.running.take_one(&scope);
            if !self.freed.contains(&scope) {
                self.freed.push(scope);
            }
        }
        if let Some((scope, _)) = key_scope(&spec) {
            self.running.take_one(&scope);
            self.next_in_key(&scope);
        }
        self.charge(shelf_of(&spec), &spec.tenant, took - charged);
    }

    /// Applies charges and unblocks limit scopes. Runs at the end of every call that stops jobs.
    pub(super) fn flush(&mut self) {
        for ((class_queue, tenant), _) in self.charges.clone() {
            self.settle_charge(class_queue, &tenant);
        }
        for scope in std::mem::take(&mut self.freed) {
            self.resume(&scope);
        }
    }

    /// Removes a job from its current place.
    fn depart(&mut self, id: JobId) {
        let record = self.record(id);
        let (state, place, lane, key) =
            (record.job.state, record.place, implementation::lane(&record.job.spec), key_scope(&record.job.spec));
        match state {
            JobState::Running => self.stop(id, &Timing::default()),
            JobState::Scheduled => {
                self.scheduled.remove(&id);
            }
            JobState::Blocked => {
                self.due.remove(&(true, id));
            }
            JobState::Queued => {
                self.ready.take_one(&lane);
                if let Some((scope, _)) = &key {
                    self.leave_line(id, &lane, scope);
                }
                if place == Position::Key {
                    return;
                }
                if let Some(lane) = self.lanes.get_mut(&lane) {
                    lane.front.retain(|other| *other != id);
                    lane.queue.retain(|other| *other != id);
                }
                self.tidy_lane(&lane);
                // The job may have been requeued in place of one that stopped. The next job of the key queue then takes
                // its place.
                if let Some((scope, _)) = key {
                    self.next_in_key(&scope);
                }
            }
            JobState::Succeeded | JobState::Failed | JobState::Cancelled | JobState::Expired => {}
        }
    }

    /// Requeues a job under a new fence. Returns the lane to wake.
    fn requeue(&mut self, id: JobId, event: JobEvent) -> String {
        self.step(id, event);
        let record = self.record(id);
        record.bump_fence();
        record.job.progress = None;
        self.enqueue(id, true)
    }

    /// Ends a job that has left its place.
    pub(super) fn end_job(&mut self, id: JobId, event: JobEvent, error: Option<JobError>) {
        self.step(id, event);
        let record = self.record(id);
        record.job.run_after_ms = None;
        record.job.error = error;
        let (limit_scopes, batch) = (scopes_of(&record.job.spec), record.job.spec.batch.is_some());
        let (tenant, endpoint) = (record.job.spec.tenant.clone(), record.job.spec.endpoint.clone());
        let has_failed = matches!(record.job.state, JobState::Failed | JobState::Expired);
        self.grow(implementation::ended(&tenant, &endpoint), 1);
        if has_failed {
            self.grow(implementation::failed(&tenant, &endpoint), 1);
        }
        self.deadlines.remove(&id);
        for scope in limit_scopes {
            self.open.take_one(&scope);
        }
        if batch {
            self.announce(Work::Batches);
        }
        if self.dependents.contains_key(&id) {
            let now = self.now as f64;
            self.due.put((false, id), now);
            self.announce(Work::Settle);
        }
    }

    /// Counts a crash. Returns whether the job has crashed too often on too many workers.
    fn is_poison(&mut self, id: JobId) -> bool {
        let record = self.record(id);
        record.crashes += 1;
        let worker = record.job.attempts.last().map(|attempt| attempt.worker_id.clone()).unwrap_or_default();
        record.crashed.insert(worker);
        record.crashes >= POISON_CRASHES && record.crashed.len() >= POISON_WORKERS as usize
    }

    fn fail(&mut self, report: &FinishReport, error: &JobError) {
        let (id, fault) = (report.job_id, error.code.fault());
        if fault == Responsible::Crash && self.is_poison(id) {
            return self.end_job(id, JobEvent::Fail, Some(JobError::poison()));
        }
        let now = self.now;
        let record = self.record(id);
        let policy = &record.job.spec.retry;
        let tried_again = policy.on.is_empty() || policy.on.contains(&error.code);
        let (budget, most) = match fault {
            Responsible::Infra => (&mut record.lost, MAX_INFRA_ATTEMPTS),
            Responsible::Oom if report.outgrown == Some(Outgrown::All) => (&mut record.oom, 1),
            Responsible::Oom => (&mut record.oom, MAX_OOM_ATTEMPTS),
            Responsible::Model | Responsible::Crash if tried_again => {
                (&mut record.failures, record.job.spec.max_attempts)
            }
            Responsible::Model | Responsible::Crash | Responsible::Final => (&mut record.failures, 1),
        };
        *budget += 1;
        let used = *budget;
        if used >= most {
            return self.end_job(id, JobEvent::Fail, Some(error.clone()));
        }
        let due = now + backoff_ms(policy, used, jitter(id, &report.fence));
        record.bump_fence();
        record.job.run_after_ms = Some(due);
        record.job.progress = None;
        self.scheduled.put(id, due as f64);
        self.step(id, JobEvent::Retry);
    }

    /// Requeues a job that needs a larger GPU in the class of that GPU, at no cost to any retry budget. Returns its
    /// lane.
    fn reshelve(&mut self, id: JobId, class_gib: u32) -> String {
        let record = self.record(id);
        record.job.spec.vram_class_gib = class_gib;
        self.requeue(id, JobEvent::Reshelve)
    }

    /// Ends an attempt. Returns the answer, and the lane that the job was put into.
    pub(super) fn finish(&mut self, report: &FinishReport) -> (FinishAnswer, Option<String>) {
        let mut to_wake = None;
        let answer = self.end_attempt(report, &mut to_wake);
        (answer, to_wake)
    }

    fn end_attempt(&mut self, report: &FinishReport, to_wake: &mut Option<String>) -> FinishAnswer {
        let id = report.job_id;
        let Some(record) = self.jobs.get(&id) else { return FinishAnswer::NotFound };
        if record.fence.as_ref() != Some(&report.fence) {
            let won = record.won.as_ref() == Some(&report.fence);
            return if won { FinishAnswer::AlreadyEnded } else { FinishAnswer::StaleFence };
        }
        if record.job.state.is_terminal() {
            return FinishAnswer::AlreadyEnded;
        }
        if record.job.state != JobState::Running {
            return FinishAnswer::StaleFence;
        }
        let (spec, attempt) = (record.job.spec.clone(), record.attempt);
        let result = match &report.outcome {
            FinishOutcome::Succeeded { result } => Ok(JobResult::Inline(result.clone())),
            FinishOutcome::Stored { size_bytes } => {
                let key = format!("{}{OUTPUT_NAME}", Job::attempt_prefix(&spec.tenant, id, attempt, &report.fence));
                Ok(JobResult::Object { key, size_bytes: *size_bytes })
            }
            FinishOutcome::Failed { error } => Err(error),
        };
        let outcome = if result.is_ok() { AttemptOutcome::Succeeded } else { AttemptOutcome::Failed };
        self.close_attempt(id, outcome, report.timing, result.as_ref().err().map(|error| (*error).clone()));
        if let Some(attempt) = self.record(id).job.attempts.last_mut() {
            attempt.usage = report.tokens();
        }
        let took = self.took_ms(id, &report.timing);
        self.learn_cost(&spec.tenant, &spec.endpoint, took);
        self.count_run(&spec, report);
        self.count_spent(id, report);
        self.stop(id, &report.timing);
        if let Err(error) = &result {
            self.record(id).job.oom_events += u32::from(error.code.fault() == Responsible::Oom);
        }
        match (result, report.outgrown) {
            (Err(_), Some(Outgrown::To(class_gib))) if class_gib > spec.vram_class_gib => {
                *to_wake = Some(self.reshelve(id, class_gib));
            }
            (Err(error), _) => self.fail(report, error),
            (Ok(result), _) if spec.steps.iter().any(|step| step.stage == Stage::After) => {
                // The result is stored, but hidden until the steps after the job have allowed it.
                self.step(id, JobEvent::Hold);
                let now = self.now as f64;
                let record = self.record(id);
                record.result = Some(result);
                record.won = Some(report.fence.clone());
                record.waits = 0;
                record.bump_fence();
                record.job.progress = None;
                self.due.put((true, id), now);
                self.announce(Work::Settle);
            }
            (Ok(result), _) => {
                self.record(id).result = Some(result);
                self.end_job(id, JobEvent::Succeed, None);
            }
        }
        FinishAnswer::Ok
    }

    /// Counts a run on a GPU model.
    fn count_run(&mut self, spec: &JobSpec, report: &FinishReport) {
        for (field, by) in RunCount::of(report).fields(&spec.tenant, &spec.endpoint) {
            self.grow(field, by);
        }
    }

    /// Counts the use of an attempt, like `count_spent` of lib/spent.lua.
    fn count_spent(&mut self, id: JobId, report: &FinishReport) {
        let now = self.now;
        let (took, record) = (AttemptUse::of(report), self.record(id));
        let since = record.job.attempts.last().map_or(now, |attempt| attempt.leased_ms);
        let field = took.field(&record.job.spec);
        for (day, part) in took.by_day(since, now) {
            let there = self.spent.entry(day).or_default().entry(field.clone()).or_default();
            for (there, by) in there.iter_mut().zip(part) {
                *there += by;
            }
        }
    }

    /// Releases a lease. Returns the lane to wake.
    pub(super) fn release(&mut self, lease: &LeaseRef) -> Result<String, FinishAnswer> {
        let id = lease.job_id;
        match self.jobs.get(&id) {
            None => Err(FinishAnswer::NotFound),
            Some(record) if !record.holds(&lease.fence) => Err(FinishAnswer::StaleFence),
            Some(_) => {
                self.close_attempt(id, AttemptOutcome::Released, Timing::default(), None);
                // A released attempt counts as a wait for a slot, so nothing is charged for it.
                self.stop(id, &Timing { turn_ms: u64::MAX, ..Timing::default() });
                Ok(self.requeue(id, JobEvent::Release))
            }
        }
    }

    /// Ends a job in any state.
    fn end(&mut self, id: JobId, event: JobEvent, outcome: AttemptOutcome, error: Option<JobError>) {
        if self.record(id).job.state == JobState::Running {
            self.close_attempt(id, outcome, Timing::default(), None);
        }
        self.depart(id);
        self.record(id).bump_fence();
        self.end_job(id, event, error);
    }

    pub(super) fn cancel(&mut self, tenant: &str, id: JobId) -> CancelAnswer {
        let Some(record) = self.jobs.get(&id).filter(|record| record.job.spec.tenant == tenant) else {
            return CancelAnswer::NotFound;
        };
        if record.job.state.is_terminal() {
            return CancelAnswer::AlreadyEnded(record.job.state);
        }
        self.end(id, JobEvent::Cancel, AttemptOutcome::Cancelled, None);
        CancelAnswer::Cancelled
    }

    pub(super) fn expire(&mut self) -> Swept {
        let mut jobs = 0;
        for id in self.deadlines.due(self.now, SWEEP_MAX) {
            self.deadlines.remove(&id);
            let now = self.now;
            let record = self.record(id);
            if record.job.state.is_terminal() {
                continue;
            }
            let in_time = record.job.spec.deadline_ms.is_none_or(|deadline| deadline > now);
            let error = if in_time { JobError::queue_timeout() } else { JobError::deadline() };
            self.end(id, JobEvent::Expire, AttemptOutcome::Expired, Some(error));
            jobs += 1;
        }
        self.flush();
        Swept { jobs, next_due_ms: self.deadlines.next_due_ms() }
    }

    pub(super) fn reap(&mut self, most: usize) -> Swept {
        let ids = self.leases.due(self.now, most);
        let mut lanes = Lanes::default();
        for id in &ids {
            self.close_attempt(*id, AttemptOutcome::Lost, Timing::default(), Some(JobError::worker_lost()));
            self.stop(*id, &Timing::default());
            let record = self.record(*id);
            record.lost += 1;
            if record.lost >= MAX_INFRA_ATTEMPTS {
                record.bump_fence();
                self.end_job(*id, JobEvent::Fail, Some(JobError::worker_lost()));
            } else {
                lanes.extend([self.requeue(*id, JobEvent::Reap)]);
            }
        }
        self.flush();
        self.wake_all(lanes);
        Swept { jobs: super::count(&ids), next_due_ms: self.leases.next_due_ms() }
    }

    pub(super) fn promote(&mut self) -> Swept {
        let ids = self.scheduled.due(self.now, SWEEP_MAX);
        let mut lanes = Lanes::default();
        for id in &ids {
            self.scheduled.remove(id);
            let tried_before = self.record(*id).attempt > 0;
            self.step(*id, JobEvent::Promote);
            lanes.extend([self.enqueue(*id, tried_before)]);
        }
        for scope in self.holds.due(self.now, SWEEP_MAX) {
            self.holds.remove(&scope);
            self.resume(&scope);
        }
        self.wake_all(lanes);
        let next = [self.scheduled.next_due_ms(), self.holds.next_due_ms()];
        Swept { jobs: super::count(&ids), next_due_ms: next.into_iter().flatten().min() }
    }
}
