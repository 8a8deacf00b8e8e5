//! Queues with one broken rule each: the simulation must find every one of them.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Mutex;

use stokehold_queue::budgets::{Budget, Budgeted, Running, Stood};
use stokehold_queue::capability::Capability;
use stokehold_queue::costs::Spent;
use stokehold_queue::flow::Flow;
use stokehold_queue::gateway::{ExtendAnswer, FinishAnswer, FinishReport, JobEventReport, LeaseRef};
use stokehold_queue::job::{Job, JobSpec, NewJob, Priority};
use stokehold_queue::queue::{
    CancelAnswer, Due, HeldBy, JobPage, KeptEvent, KeptOutputs, LaneDepth, Lease, LeaseQuery, LimitScope, Limits,
    ListFilter, OutputsPosition, Settlement, Signal, Submitted, Swept, Usage, Waiter,
};
use stokehold_queue::{Error, JobId, ManualClock, Queue};
use stokehold_queue_model::MemoryQueue;
use tokio::sync::mpsc::Receiver;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A report ends the attempt, whether or not its sender holds the lease.
    NoFence,
    /// A report is acknowledged and lost.
    AckBeforeCommit,
    /// Leases are reaped a second before they end.
    ReapedEarly,
    /// Expired leases are never reaped.
    NeverReaped,
    /// An extend confirms a lease that is not held.
    AlwaysHeld,
    /// A lease is given to the next worker as well.
    LeasedTwice,
    /// A cancel is acknowledged without effect.
    CancelIgnored,
    /// A tenant can cancel another tenant's job.
    CancelForAll,
    /// An idempotency key is forgotten.
    KeyForgotten,
    /// Concurrency keys hold nothing back.
    KeyOpen,
    /// Urgent jobs wait behind the others.
    PriorityReversed,
    /// The number of attempts is unlimited.
    Unbounded,
    /// Scheduled jobs are never promoted.
    NeverPromoted,
    /// Dependent jobs are not notified.
    NeverUnblocked,
    /// An accepted job is not stored.
    SubmitLost,
}

impl Bug {
    pub(crate) const ALL: [Self; 15] = [
        Self::NoFence,
        Self::AckBeforeCommit,
        Self::ReapedEarly,
        Self::NeverReaped,
        Self::AlwaysHeld,
        Self::LeasedTwice,
        Self::CancelIgnored,
        Self::CancelForAll,
        Self::KeyForgotten,
        Self::KeyOpen,
        Self::PriorityReversed,
        Self::Unbounded,
        Self::NeverPromoted,
        Self::NeverUnblocked,
        Self::SubmitLost,
    ];
}

pub(crate) struct Buggy {
    pub(crate) inner: MemoryQueue,
    pub(crate) bug: Bug,
    /// Clock of the queue, which may be ahead of the world's.
    pub(crate) clock: ManualClock,
    pub(crate) last: Mutex<Option<Lease>>,
    pub(crate) calls: Mutex<HashMap<&'static str, u64>>,
}

impl Buggy {
    /// True once in `times` calls.
    fn every(&self, verb: &'static str, times: u64) -> bool {
        let mut calls = self.calls.lock().expect("nobody panics here");
        let calls = calls.entry(verb).or_default();
        *calls += 1;
        calls.is_multiple_of(times)
    }
}

impl Queue for Buggy {
    async fn submit(&self, mut jobs: Vec<NewJob>) -> Result<Vec<Submitted>, Error> {
        for job in &mut jobs {
            match self.bug {
                Bug::KeyForgotten => job.idempotency = None,
                Bug::KeyOpen => job.spec.concurrency.iter_mut().for_each(|it| it.max = 100),
                Bug::Unbounded => job.spec.max_attempts = 100,
                Bug::PriorityReversed => {
                    job.spec.priority = Priority::ALL[2 - usize::from(job.spec.priority.digit())];
                }
                Bug::SubmitLost if self.every("submit", 20) => return Ok(vec![Submitted::New(job.id)]),
                _ => {}
            }
        }
        self.inner.submit(jobs).await
    }

    async fn lease(&self, query: LeaseQuery) -> Result<Vec<Lease>, Error> {
        let mut leases = self.inner.lease(query).await?;
        if self.bug == Bug::LeasedTwice {
            let mut last = self.last.lock().expect("nobody panics here");
            let again = last.take().filter(|_| !leases.is_empty() && self.every("lease", 5));
            *last = leases.last().cloned();
            leases.extend(again);
        }
        if self.bug == Bug::PriorityReversed {
            for lease in &mut leases {
                lease.spec.priority = Priority::ALL[2 - usize::from(lease.spec.priority.digit())];
            }
        }
        Ok(leases)
    }

    async fn hold(&self, worker_id: &str, now: &Capability, could: &Capability) -> Result<Option<u32>, Error> {
        self.inner.hold(worker_id, now, could).await
    }

    async fn unpark(&self, waiter: &Waiter, reach: &Capability) -> Result<bool, Error> {
        self.inner.unpark(waiter, reach).await
    }

    async fn wake_next(&self) -> Result<(), Error> {
        self.inner.wake_next().await
    }

    async fn extend(&self, leases: &[LeaseRef]) -> Result<Vec<ExtendAnswer>, Error> {
        let answers = self.inner.extend(leases).await?;
        Ok(if self.bug == Bug::AlwaysHeld { vec![ExtendAnswer::Held; answers.len()] } else { answers })
    }

    async fn finish(&self, reports: &[FinishReport]) -> Result<Vec<FinishAnswer>, Error> {
        let mut reports = reports.to_vec();
        if self.bug == Bug::NoFence {
            for report in &mut reports {
                let job = self.inner.get(report.job_id).await?;
                if let Some(last) = job.and_then(|job| job.attempts.last().map(|last| last.fence.clone())) {
                    report.fence = last;
                }
            }
        }
        if self.bug == Bug::AckBeforeCommit && self.every("finish", 10) {
            return Ok(vec![FinishAnswer::Ok; reports.len()]);
        }
        self.inner.finish(&reports).await
    }

    async fn release(&self, leases: &[LeaseRef]) -> Result<Vec<FinishAnswer>, Error> {
        self.inner.release(leases).await
    }

    async fn cancel(&self, tenant: &str, ids: &[JobId]) -> Result<Vec<CancelAnswer>, Error> {
        match self.bug {
            Bug::CancelIgnored => Ok(vec![CancelAnswer::Cancelled; ids.len()]),
            Bug::CancelForAll => {
                let mut answers = Vec::new();
                for id in ids {
                    let owner = self.inner.get(*id).await?.map_or_else(|| tenant.to_owned(), |job| job.spec.tenant);
                    answers.extend(self.inner.cancel(&owner, &[*id]).await?);
                }
                Ok(answers)
            }
            _ => self.inner.cancel(tenant, ids).await,
        }
    }

    async fn promote(&self) -> Result<Swept, Error> {
        if self.bug == Bug::NeverPromoted { Ok(Swept::default()) } else { self.inner.promote().await }
    }

    async fn reap(&self) -> Result<Swept, Error> {
        match self.bug {
            Bug::NeverReaped => Ok(Swept::default()),
            Bug::ReapedEarly => {
                self.clock.advance_ms(1_000);
                let swept = self.inner.reap().await;
                // Back to the previous time: the addition wraps around.
                self.clock.advance_ms(1_000_u64.wrapping_neg());
                swept
            }
            _ => self.inner.reap().await,
        }
    }

    async fn abandon(&self, worker_id: &str) -> Result<u32, Error> {
        self.inner.abandon(worker_id).await
    }

    async fn expire(&self) -> Result<Swept, Error> {
        self.inner.expire().await
    }

    async fn due(&self, claim_ms: u64) -> Result<Vec<Due>, Error> {
        self.inner.due(claim_ms).await
    }

    async fn keep_due(&self, due: &[Due], claim_ms: u64) -> Result<(), Error> {
        self.inner.keep_due(due, claim_ms).await
    }

    async fn unblock(&self, id: JobId) -> Result<bool, Error> {
        if self.bug == Bug::NeverUnblocked { Ok(true) } else { self.inner.unblock(id).await }
    }

    async fn settle(&self, settlement: &Settlement) -> Result<bool, Error> {
        self.inner.settle(settlement).await
    }

    async fn limit(&self, scope: &LimitScope, limits: Option<&Limits>) -> Result<(), Error> {
        self.inner.limit(scope, limits).await
    }

    async fn usage(&self, scope: &LimitScope) -> Result<(Limits, Usage), Error> {
        self.inner.usage(scope).await
    }

    async fn held_by(&self, spec: &JobSpec) -> Result<Option<HeldBy>, Error> {
        self.inner.held_by(spec).await
    }

    async fn budgets(&self, day: u32) -> Result<Vec<Budgeted>, Error> {
        self.inner.budgets(day).await
    }

    async fn pause(&self, scope: &LimitScope, budget: &Budget, stood: &Stood) -> Result<Option<Option<Stood>>, Error> {
        self.inner.pause(scope, budget, stood).await
    }

    async fn disable(&self, tenant: &str, disabled: bool) -> Result<(), Error> {
        self.inner.disable(tenant, disabled).await
    }

    async fn running(&self) -> Result<Vec<Running>, Error> {
        self.inner.running().await
    }

    async fn get(&self, id: JobId) -> Result<Option<Job>, Error> {
        let mut job = self.inner.get(id).await?;
        if let (Bug::PriorityReversed, Some(job)) = (self.bug, &mut job) {
            job.spec.priority = Priority::ALL[2 - usize::from(job.spec.priority.digit())];
        }
        Ok(job)
    }

    async fn watch(&self, id: JobId, replica: &str) -> Result<Option<Job>, Error> {
        self.inner.watch(id, replica).await
    }

    async fn list(
        &self,
        tenant: &str,
        filter: &ListFilter,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<JobPage, Error> {
        self.inner.list(tenant, filter, cursor, limit).await
    }

    async fn append_events(&self, events: &[JobEventReport]) -> Result<(), Error> {
        self.inner.append_events(events).await
    }

    async fn append_relayed(&self, events: &[JobEventReport]) -> Result<(), Error> {
        self.inner.append_relayed(events).await
    }

    async fn read_events(&self, id: JobId, after: &str, limit: u32) -> Result<Vec<KeptEvent>, Error> {
        self.inner.read_events(id, after, limit).await
    }

    async fn read_outputs(&self, id: JobId, after: OutputsPosition, limit: u32) -> Result<Vec<KeptOutputs>, Error> {
        self.inner.read_outputs(id, after, limit).await
    }

    async fn depth(&self) -> Result<Vec<LaneDepth>, Error> {
        self.inner.depth().await
    }

    async fn flow(&self) -> Result<Vec<Flow>, Error> {
        self.inner.flow().await
    }

    async fn spent(&self, days: RangeInclusive<u32>, tenant: Option<&str>) -> Result<Vec<Spent>, Error> {
        self.inner.spent(days, tenant).await
    }

    async fn held(&self, lease: &LeaseRef) -> Result<Option<(JobSpec, u32)>, Error> {
        self.inner.held(lease).await
    }

    async fn listen(&self, replica: &str) -> Result<Receiver<Signal>, Error> {
        self.inner.listen(replica).await
    }
}
