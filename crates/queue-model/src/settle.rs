//! Creation of jobs, and the handling of jobs that wait for others, like `lua/submit.lua`, `lua/lib/create.lua`,
//! `lua/unblock.lua` and `lua/settle.lua`.

use std::collections::HashMap;

use stokehold_protocol::id::JobId;
use stokehold_protocol::job::{DependencyOn, Idempotency, JobResult, JobState, NewJob};
use stokehold_protocol::state::JobEvent;
use stokehold_queue::Error;
use stokehold_queue::queue::{Due, Settlement, Submitted, Verdict, Work};

use super::limit_scopes::scopes_of;
use super::{Inner, Lanes, Record, SWEEP_MAX};

impl Inner {
    pub(super) fn submit(&mut self, jobs: Vec<NewJob>) -> Result<Vec<Submitted>, Error> {
        let known = self.look_at(&jobs)?;
        let (mut answers, mut lanes) = (Vec::with_capacity(jobs.len()), Lanes::default());
        for (job, known) in jobs.into_iter().zip(known) {
            let id = job.id;
            if let Some(Idempotency { key, request_hash, part }) = &job.idempotency {
                let kept = || (request_hash.clone(), Vec::new());
                let (_, ids) = self.idempotency.entry((job.spec.tenant.clone(), key.clone())).or_insert_with(kept);
                if ids.len() == *part as usize {
                    ids.push(known.unwrap_or(id));
                }
            }
            if let Some(first) = known {
                answers.push(if first == id { Submitted::New(id) } else { Submitted::Repeat(first) });
                continue;
            }
            answers.push(Submitted::New(id));
            let blocked = job.waits();
            lanes.extend(self.create(job, blocked));
        }
        self.wake_all(lanes);
        Ok(answers)
    }

    /// Checks all jobs before any is written, so that a refused submit changes nothing. Returns the ids of those that
    /// exist already.
    fn look_at(&self, jobs: &[NewJob]) -> Result<Vec<Option<JobId>>, Error> {
        let mut here: HashMap<JobId, &str> = HashMap::new();
        let mut submits: HashMap<(&str, &str), (&str, Vec<JobId>)> = HashMap::new();
        let mut wanted: Vec<(String, u64)> = Vec::new();
        let mut all = Vec::with_capacity(jobs.len());
        for (number, job) in jobs.iter().enumerate() {
            let tenant = job.spec.tenant.as_str();
            let mut known = None;
            let mut submit = None;
            if let Some(Idempotency { key, request_hash, part }) = &job.idempotency {
                let (hash, ids) = submits.entry((tenant, key.as_str())).or_insert_with(|| {
                    let kept = self.idempotency.get(&(tenant.to_owned(), key.clone()));
                    kept.map_or((request_hash.as_str(), vec![]), |(hash, ids)| (hash.as_str(), ids.clone()))
                });
                let part = *part as usize;
                if *hash != request_hash || part > ids.len() {
                    return Err(Error::IdempotencyConflict { key: key.clone() });
                }
                known = ids.get(part).copied();
                submit = Some(ids);
            }
            if known.is_none() {
                known = (here.contains_key(&job.id) || self.jobs.contains_key(&job.id)).then_some(job.id);
                if let Some(ids) = submit {
                    ids.push(known.unwrap_or(job.id));
                }
            }
            all.push(known);
            if known.is_some() {
                continue;
            }
            for dependency in &job.spec.depends_on {
                let owned = self.jobs.get(&dependency.job).is_some_and(|record| record.job.spec.tenant == tenant);
                // A dependency in the same call must come earlier, so that no job waits for itself.
                if !owned && here.get(&dependency.job) != Some(&tenant) && !job.archived.contains(&dependency.job) {
                    return Err(Error::NoDependency { number, job: dependency.job.to_string() });
                }
            }
            here.insert(job.id, tenant);
            for scope in scopes_of(&job.spec) {
                match wanted.iter_mut().find(|(other, _)| *other == scope) {
                    Some((_, number)) => *number += 1,
                    None => wanted.push((scope, 1)),
                }
            }
        }
        for (scope, more) in wanted {
            if let Some(most) = self.limits_of(&scope).max_open
                && self.open.of(&scope) + more > most
            {
                return Err(Error::Quota { open: self.open.of(&scope), scope, most });
            }
        }
        Ok(all)
    }

    /// Creates a job. Returns the lane that it was put into, if any.
    fn create(&mut self, new: NewJob, blocked: bool) -> Option<String> {
        let (id, now, run_after_ms) = (new.id, self.now, new.run_after_ms);
        let mut waits = 0;
        for dependency in &new.spec.depends_on {
            // If the dependency has ended with another outcome than required, `settle` handles it.
            if self.jobs.get(&dependency.job).is_some_and(|record| !record.job.state.is_terminal()) {
                self.dependents.entry(dependency.job).or_default().push_back((id, dependency.on));
                waits += 1;
            }
        }
        let spec = &new.spec;
        let due = spec.deadline_ms.into_iter().chain(spec.start_by_ms).min();
        for scope in scopes_of(spec) {
            self.open.add(&scope, 1);
        }
        self.index.entry(spec.tenant.clone()).or_default().push(id);
        let mut record = Record::new(new);
        record.waits = waits;
        self.arrived += 1;
        record.arrival = self.arrived as f64;
        if let Some(due) = due {
            self.deadlines.put(id, due as f64);
        }
        let later = run_after_ms > now;
        if later {
            record.job.run_after_ms = Some(run_after_ms);
        }
        if blocked {
            record.job.state = JobState::Blocked;
            self.jobs.insert(id, record);
            if waits == 0 {
                self.due.put((true, id), now as f64);
                self.announce(Work::Settle);
            }
            None
        } else if later {
            record.job.state = JobState::Scheduled;
            self.jobs.insert(id, record);
            self.scheduled.put(id, run_after_ms as f64);
            None
        } else {
            self.jobs.insert(id, record);
            Some(self.enqueue(id, false))
        }
    }

    pub(super) fn due(&mut self, claim_ms: u64) -> Vec<Due> {
        let (found, until) = (self.due.due(self.now, SWEEP_MAX), (self.now + claim_ms) as f64);
        for member in &found {
            self.due.put(*member, until);
        }
        found.into_iter().map(|(ready, id)| if ready { Due::Ready(id) } else { Due::Ended(id) }).collect()
    }

    pub(super) fn keep_due(&mut self, due: &[Due], claim_ms: u64) {
        let until = (self.now + claim_ms) as f64;
        for due in due {
            let member = (matches!(due, Due::Ready(_)), due.id());
            if self.due.score(&member).is_some() {
                self.due.put(member, until);
            }
        }
    }

    pub(super) fn unblock(&mut self, id: JobId) -> bool {
        let succeeded = self.jobs.get(&id).is_some_and(|record| record.job.state == JobState::Succeeded);
        for _ in 0..SWEEP_MAX {
            let Some((waiting, on)) = self.dependents.get_mut(&id).and_then(|dependents| dependents.pop_front()) else {
                self.dependents.remove(&id);
                self.due.remove(&(false, id));
                return true;
            };
            let now = self.now as f64;
            let Some(record) = self.jobs.get_mut(&waiting).filter(|record| record.job.state == JobState::Blocked)
            else {
                continue;
            };
            record.waits -= 1;
            if record.waits <= 0 || (on == DependencyOn::Success && !succeeded) {
                self.due.put((true, waiting), now);
            }
        }
        false
    }

    pub(super) fn settle(&mut self, settlement: &Settlement) -> bool {
        let id = settlement.id;
        let blocked = self.jobs.get(&id).filter(|record| record.job.state == JobState::Blocked);
        if blocked.is_some_and(|record| record.revision() != settlement.revision) {
            return false;
        }
        let waits = blocked.is_some();
        self.due.remove(&(true, id));
        if !waits {
            return false;
        }
        let now = self.now;
        let record = self.record(id);
        record.settled += 1;
        if !settlement.steps.is_empty() {
            record.job.steps.clone_from(&settlement.steps);
        }
        match &settlement.verdict {
            Verdict::Queue { input } => {
                if let Some(input) = input {
                    record.job.input.clone_from(input);
                }
                match record.job.run_after_ms.filter(|due| *due > now) {
                    Some(due) => {
                        self.step(id, JobEvent::Defer);
                        self.scheduled.put(id, due as f64);
                    }
                    None => {
                        self.step(id, JobEvent::Unblock);
                        let mut lanes = Lanes::default();
                        lanes.extend([self.enqueue(id, false)]);
                        self.wake_all(lanes);
                    }
                }
            }
            Verdict::Step { input, job } => {
                if let Some(input) = input {
                    record.job.input.clone_from(input);
                }
                record.waits = 1;
                let mut job = (**job).clone();
                // A step starts at once and has no idempotency key, regardless of the given job.
                (job.run_after_ms, job.idempotency) = (0, None);
                self.dependents.entry(job.id).or_default().push_back((id, DependencyOn::Completion));
                let depends_on = std::mem::take(&mut job.spec.depends_on);
                let step = job.id;
                let mut lanes = Lanes::default();
                lanes.extend(self.create(job, false));
                self.record(step).job.spec.depends_on = depends_on;
                self.wake_all(lanes);
                self.tell_watchers(id);
            }
            Verdict::Succeed { result } => {
                if let Some(result) = result {
                    record.result = Some(JobResult::Inline(result.clone()));
                }
                self.end_job(id, JobEvent::Allow, None);
            }
            Verdict::Fail { error } => {
                record.result = None;
                self.end_job(id, JobEvent::Fail, Some(error.clone()));
            }
        }
        true
    }
}
