//! The verbs of the queue. Each is reported to the witness with its reply.

use stokehold_queue::capability::Capability;
use stokehold_queue::gateway::FinishAnswer;
use stokehold_queue::job::{Job, JobState};
use stokehold_queue::queue::{Lease, LeaseQuery, Waiter};
use stokehold_queue::{Error, JobId, Queue};

use crate::client;
use crate::network::{Answer, Call, Op, Party, heard, replica_name};
use crate::witness::{Broken, Verdict};
use crate::world::{World, now};

impl<Q: Queue> World<Q> {
    pub(crate) fn carry_out(&mut self, call: &Call) -> Result<Answer, Broken> {
        let now_ms = self.now_ms();
        let answer = match &call.op {
            Op::Ask(ask) => client::carry_out(self, ask)?,
            Op::Lease { want } => Answer::Leases(self.lease(call, *want)?),
            Op::Extend(leases) => {
                let answers = now(self.queue.extend(leases)).expect("memory extends");
                for (lease, answer) in leases.iter().zip(&answers) {
                    self.witness.extended(lease, *answer, now_ms)?;
                }
                Answer::Extended(answers)
            }
            // All replies first: two of them may be about the same job.
            Op::Finish(reports) => {
                let answers = now(self.queue.finish(reports)).expect("memory finishes");
                for (report, answer) in reports.iter().zip(&answers) {
                    self.witness.finished(report, *answer, now_ms)?;
                    self.report.stale += u64::from(*answer == FinishAnswer::StaleFence);
                }
                reports.iter().try_for_each(|report| self.look_at(report.job_id))?;
                Answer::Ended
            }
            Op::Release(leases) => {
                let answers = now(self.queue.release(leases)).expect("memory releases");
                for (lease, answer) in leases.iter().zip(&answers) {
                    self.witness.released(lease, *answer)?;
                }
                leases.iter().try_for_each(|lease| self.look_at(lease.job_id))?;
                Answer::Ended
            }
        };
        self.note(|| format!("   #{} at the queue: {}", call.number, heard(&answer)));
        Ok(answer)
    }

    fn lease(&mut self, call: &Call, want: u32) -> Result<Vec<Lease>, Broken> {
        let Party::Worker(n, life) = call.from else { return Ok(Vec::new()) };
        let (worker, reach_gib) = (self.workers[n].id(life), self.workers[n].reach_gib);
        let park = Some(Waiter { replica: replica_name(call.replica, call.life), waiter: call.number });
        let query = LeaseQuery { park, ..LeaseQuery::new(worker, want, Capability::usual(reach_gib)) };
        let leases = now(self.queue.lease(query)).expect("memory leases");
        let now_ms = self.now_ms();
        leases.iter().try_for_each(|lease| self.witness.leased(lease, now_ms))?;
        leases.iter().try_for_each(|lease| self.look_at(lease.job_id))?;
        if leases.iter().any(|lease| lease.spec.priority.digit() > 0) {
            let waiting = self.ungated();
            self.witness.in_order(&leases, &waiting, reach_gib, now_ms)?;
        }
        self.keys_hold(&leases)?;
        Ok(leases)
    }

    /// Queued jobs that nothing holds back: no key, no tenant with limits, no expired time.
    fn ungated(&self) -> Vec<Job> {
        let free = |job: &Job| {
            let limited = self.clients.iter().any(|client| client.limited && client.tenant == job.spec.tenant);
            let late =
                [job.spec.start_by_ms, job.spec.deadline_ms].into_iter().flatten().any(|due| due <= self.now_ms());
            job.state == JobState::Queued && job.spec.concurrency.is_none() && !limited && !late
        };
        let jobs = self.witness.jobs().into_iter().filter_map(|id| now(self.queue.get(id)).ok().flatten());
        jobs.filter(free).collect()
    }

    /// Checks that no more jobs with one key run at once than the key allows.
    fn keys_hold(&self, leases: &[Lease]) -> Verdict {
        for lease in leases {
            let Some(limit) = &lease.spec.concurrency else { continue };
            let shares = |job: &Job| {
                job.state == JobState::Running
                    && job.spec.tenant == lease.spec.tenant
                    && job.spec.concurrency.as_ref().is_some_and(|other| other.key == limit.key)
            };
            let running =
                self.witness.jobs().into_iter().filter_map(|id| now(self.queue.get(id)).ok().flatten()).filter(shares);
            let running = running.count();
            if running > client::KEY_MAX as usize {
                let what = format!("{running} with the key {:?} run at once", limit.key);
                return Err(Broken { invariant: "key", job: Some(lease.job_id), what });
            }
        }
        Ok(())
    }

    pub(crate) fn maintain(&mut self) -> Verdict {
        let answers: [Result<_, Error>; 3] =
            [now(self.queue.promote()), now(self.queue.reap()), now(self.queue.expire())];
        let [promoted, reaped, expired] = answers.map(|swept| swept.expect("memory sweeps").jobs);
        if promoted + reaped + expired > 0 {
            self.report.reaped += u64::from(reaped);
            self.note(|| format!("   {promoted} promoted, {reaped} reaped, {expired} expired"));
            self.look_at_all()?;
        }
        Ok(())
    }

    pub(crate) fn look_at(&mut self, id: JobId) -> Verdict {
        let now_ms = self.now_ms();
        match now(self.queue.get(id)).expect("memory reads") {
            Some(job) => self.witness.sees(&job, now_ms),
            None => Ok(()),
        }
    }

    pub(crate) fn look_at_all(&mut self) -> Verdict {
        self.witness.jobs().into_iter().try_for_each(|id| self.look_at(id))
    }
}
