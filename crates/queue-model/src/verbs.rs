//! The verbs of the queue: each takes the lock and does all of its work.

use std::ops::RangeInclusive;

use stokehold_protocol::capability::Capability;
use stokehold_protocol::gateway::{ExtendAnswer, FinishAnswer, FinishReport, JobEventReport, JobMessage, LeaseRef};
use stokehold_protocol::id::JobId;
use stokehold_protocol::job::{Job, JobSpec, NewJob, Progress};
use stokehold_queue::Error;
use stokehold_queue::budgets::{Budget, Budgeted, RUNNING_MAX, Running, Stood};
use stokehold_queue::costs::Spent;
use stokehold_queue::flow::Flow;
use stokehold_queue::implementation::{self, Seen, Waiting};
use stokehold_queue::queue::{
    CancelAnswer, Due, HeldBy, JobPage, KeptEvent, KeptOutputs, LaneDepth, Lease, LeaseQuery, LimitScope, Limits,
    ListFilter, OutputsPosition, Queue, Settlement, Signal, Submitted, Swept, Usage, Waiter,
};
use tokio::sync::mpsc;

use super::record::Record;
use super::{Lanes, MemoryQueue, SIGNAL_BACKLOG, SWEEP_MAX, count};

impl Queue for MemoryQueue {
    async fn submit(&self, jobs: Vec<NewJob>) -> Result<Vec<Submitted>, Error> {
        self.lock().submit(jobs)
    }

    async fn lease(&self, query: LeaseQuery) -> Result<Vec<Lease>, Error> {
        self.lock().lease(&query, self.lease_ms)
    }

    async fn hold(&self, _: &str, now: &Capability, could: &Capability) -> Result<Option<u32>, Error> {
        Ok(self.lock().hold_gpu(now, could))
    }

    async fn unpark(&self, waiter: &Waiter, reach: &Capability) -> Result<bool, Error> {
        Ok(self.lock().parked.remove(&waiter.listed(reach)).is_some())
    }

    async fn wake_next(&self) -> Result<(), Error> {
        let mut inner = self.lock();
        let classes: Vec<u32> = inner.tags.iter().flat_map(|tags| tags.iter().map(|(class, _)| *class)).collect();
        for class in classes {
            if inner.wake(class, None) {
                break;
            }
        }
        Ok(())
    }

    async fn extend(&self, leases: &[LeaseRef]) -> Result<Vec<ExtendAnswer>, Error> {
        let mut inner = self.lock();
        let ends = (inner.now + self.lease_ms) as f64;
        let mut answers = Vec::with_capacity(leases.len());
        for lease in leases {
            let held = inner.jobs.get(&lease.job_id).is_some_and(|record| record.holds(&lease.fence));
            if held {
                inner.leases.put(lease.job_id, ends);
            }
            answers.push(if held { ExtendAnswer::Held } else { ExtendAnswer::Lost });
        }
        Ok(answers)
    }

    async fn finish(&self, reports: &[FinishReport]) -> Result<Vec<FinishAnswer>, Error> {
        let mut inner = self.lock();
        let (answers, came): (Vec<FinishAnswer>, Vec<Option<String>>) =
            reports.iter().map(|report| inner.finish(report)).unzip();
        inner.flush();
        let mut lanes = Lanes::default();
        lanes.extend(came.into_iter().flatten());
        inner.wake_all(lanes);
        Ok(answers)
    }

    async fn release(&self, leases: &[LeaseRef]) -> Result<Vec<FinishAnswer>, Error> {
        let mut inner = self.lock();
        let (mut answers, mut lanes) = (Vec::with_capacity(leases.len()), Lanes::default());
        for lease in leases {
            answers.push(match inner.release(lease) {
                Ok(lane) => {
                    lanes.extend([lane]);
                    FinishAnswer::Ok
                }
                Err(answer) => answer,
            });
        }
        inner.wake_all(lanes);
        inner.flush();
        Ok(answers)
    }

    async fn cancel(&self, tenant: &str, ids: &[JobId]) -> Result<Vec<CancelAnswer>, Error> {
        let mut inner = self.lock();
        let answers = ids.iter().map(|id| inner.cancel(tenant, *id)).collect();
        inner.flush();
        Ok(answers)
    }

    async fn promote(&self) -> Result<Swept, Error> {
        Ok(self.lock().promote())
    }

    async fn reap(&self) -> Result<Swept, Error> {
        Ok(self.lock().reap(SWEEP_MAX))
    }

    async fn abandon(&self, worker_id: &str) -> Result<u32, Error> {
        let mut inner = self.lock();
        let runs = inner.jobs.values().filter_map(Record::running);
        let ids: Vec<JobId> = runs.filter(|run| run.worker_id == worker_id).map(|run| run.id).collect();
        ids.iter().for_each(|id| inner.leases.put(*id, 0.0));
        inner.reap(ids.len());
        Ok(count(&ids))
    }

    async fn expire(&self) -> Result<Swept, Error> {
        Ok(self.lock().expire())
    }

    async fn due(&self, claim_ms: u64) -> Result<Vec<Due>, Error> {
        Ok(self.lock().due(claim_ms))
    }

    async fn keep_due(&self, due: &[Due], claim_ms: u64) -> Result<(), Error> {
        self.lock().keep_due(due, claim_ms);
        Ok(())
    }

    async fn unblock(&self, id: JobId) -> Result<bool, Error> {
        Ok(self.lock().unblock(id))
    }

    async fn settle(&self, settlement: &Settlement) -> Result<bool, Error> {
        Ok(self.lock().settle(settlement))
    }

    async fn limit(&self, scope: &LimitScope, limits: Option<&Limits>) -> Result<(), Error> {
        self.lock().limit(&scope.to_string(), limits);
        Ok(())
    }

    async fn usage(&self, scope: &LimitScope) -> Result<(Limits, Usage), Error> {
        let (inner, scope) = (self.lock(), scope.to_string());
        Ok((inner.limits_of(&scope), Usage { open: inner.open.of(&scope), running: inner.running.of(&scope) }))
    }

    async fn held_by(&self, spec: &JobSpec) -> Result<Option<HeldBy>, Error> {
        Ok(self.lock().held_by(spec))
    }

    async fn budgets(&self, day: u32) -> Result<Vec<Budgeted>, Error> {
        Ok(self.lock().budgets(day))
    }

    async fn pause(&self, scope: &LimitScope, budget: &Budget, stood: &Stood) -> Result<Option<Option<Stood>>, Error> {
        Ok(self.lock().pause(&scope.to_string(), budget, stood))
    }

    async fn disable(&self, tenant: &str, disabled: bool) -> Result<(), Error> {
        self.lock().disable(tenant, disabled);
        Ok(())
    }

    async fn running(&self) -> Result<Vec<Running>, Error> {
        let inner = self.lock();
        Ok(inner.leases.iter().filter_map(|(id, _)| inner.jobs.get(id)?.running()).take(RUNNING_MAX).collect())
    }

    async fn get(&self, id: JobId) -> Result<Option<Job>, Error> {
        Ok(self.lock().jobs.get(&id).map(Record::shown))
    }

    async fn watch(&self, id: JobId, replica: &str) -> Result<Option<Job>, Error> {
        let mut inner = self.lock();
        Ok(inner.jobs.get_mut(&id).map(|record| {
            record.watchers.insert(replica.to_owned());
            record.shown()
        }))
    }

    async fn list(
        &self,
        tenant: &str,
        filter: &ListFilter,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<JobPage, Error> {
        let inner = self.lock();
        let ids = inner.index.get(tenant).map_or(&[][..], Vec::as_slice);
        let end = cursor.and_then(|cursor| cursor.parse().ok()).unwrap_or(ids.len()).min(ids.len());
        let matches = |job: &Job| filter.matches(job.state, &job.spec, job.error.as_ref().map(|error| error.code));
        let mut jobs = Vec::new();
        for (place, id) in ids[..end].iter().enumerate().rev() {
            let Some(record) = inner.jobs.get(id).filter(|record| matches(&record.job)) else { continue };
            jobs.push(record.shown());
            if jobs.len() == limit as usize {
                return Ok(JobPage { jobs, next_cursor: Some(place.to_string()) });
            }
        }
        Ok(JobPage { jobs, next_cursor: None })
    }

    async fn append_events(&self, events: &[JobEventReport]) -> Result<(), Error> {
        self.store_events(events, true);
        Ok(())
    }

    async fn append_relayed(&self, events: &[JobEventReport]) -> Result<(), Error> {
        self.store_events(events, false);
        Ok(())
    }

    async fn read_events(&self, id: JobId, after: &str, limit: u32) -> Result<Vec<KeptEvent>, Error> {
        let inner = self.lock();
        let Some(record) = inner.jobs.get(&id) else { return Ok(Vec::new()) };
        Ok(record.events.iter().filter(|event| event.id.as_str() > after).take(limit as usize).cloned().collect())
    }

    async fn read_outputs(&self, id: JobId, after: OutputsPosition, limit: u32) -> Result<Vec<KeptOutputs>, Error> {
        let inner = self.lock();
        let Some(record) = inner.jobs.get(&id) else { return Ok(Vec::new()) };
        let end = |kept: &&KeptOutputs| (kept.attempt, kept.index + (kept.values.len() as u64).max(1));
        let later = record.outputs.iter().filter(|kept| end(kept) > (after.attempt, after.next));
        Ok(later.take(limit as usize).cloned().collect())
    }

    async fn depth(&self) -> Result<Vec<LaneDepth>, Error> {
        let inner = self.lock();
        let depth = |(name, jobs): (&String, u64)| LaneDepth {
            lane: name.clone(),
            jobs,
            since_ms: inner.lanes.get(name).and_then(|lane| inner.since_ms(lane)),
        };
        let mut depths: Vec<LaneDepth> = inner.ready.iter().map(depth).collect();
        depths.sort_by(|a, b| (b.jobs, &a.lane).cmp(&(a.jobs, &b.lane)));
        Ok(depths)
    }

    async fn flow(&self) -> Result<Vec<Flow>, Error> {
        let inner = self.lock();
        let mut seen = Seen {
            counters: inner.flow.iter().map(|(field, by)| (field.clone(), *by)).collect(),
            running: inner.running.iter().map(|(scope, jobs)| (scope.clone(), jobs)).collect(),
            limits: inner.limits.clone(),
            paused: inner
                .paused
                .iter()
                .filter(|(_, until)| **until > inner.now)
                .map(|(scope, _)| scope.clone())
                .chain(inner.disabled.iter().cloned())
                .collect(),
            ..Seen::default()
        };
        for (name, lane) in &inner.lanes {
            let jobs = (lane.front.len() + lane.queue.len()) as u64;
            if let Some(since_ms) = inner.since_ms(lane) {
                seen.waiting.push((name.clone(), Waiting { jobs, oldest_ms: inner.now.saturating_sub(since_ms) }));
            }
        }
        Ok(implementation::assemble(seen))
    }

    async fn spent(&self, days: RangeInclusive<u32>, tenant: Option<&str>) -> Result<Vec<Spent>, Error> {
        let inner = self.lock();
        let named = inner.spent.iter().filter(|(day, _)| days.contains(day));
        Ok(implementation::spent_of(
            named.flat_map(|(day, of)| of.iter().map(|(field, took)| (*day, field, *took))),
            tenant,
        ))
    }

    async fn held(&self, lease: &LeaseRef) -> Result<Option<(JobSpec, u32)>, Error> {
        let inner = self.lock();
        let record = inner.jobs.get(&lease.job_id).filter(|record| record.holds(&lease.fence));
        Ok(record.map(|record| (record.job.spec.clone(), record.attempt)))
    }

    async fn listen(&self, replica: &str) -> Result<mpsc::Receiver<Signal>, Error> {
        let (sender, receiver) = mpsc::channel(SIGNAL_BACKLOG);
        self.lock().listeners.insert(replica.to_owned(), sender);
        Ok(receiver)
    }
}

impl MemoryQueue {
    fn store_events(&self, events: &[JobEventReport], signals: bool) {
        let mut inner = self.lock();
        let now = inner.now;
        for report in events {
            let Some(record) = inner.jobs.get_mut(&report.job_id).filter(|record| record.holds(&report.fence)) else {
                continue;
            };
            if let JobMessage::Progress { fraction, message } = &report.event {
                record.job.progress = Some(Progress { fraction: *fraction, message: message.clone() });
            }
            match &report.event {
                JobMessage::Output { index, value } => record.keep_outputs(*index, vec![value.clone()], now),
                JobMessage::Outputs { index, values } => record.keep_outputs(*index, values.clone(), now),
                JobMessage::Progress { .. } | JobMessage::Log { .. } => record.keep_event(report.event.clone()),
            }
            if signals || !matches!(report.event, JobMessage::Output { .. } | JobMessage::Outputs { .. }) {
                inner.tell_watchers(report.job_id);
            }
        }
    }
}
