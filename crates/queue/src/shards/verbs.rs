//! The verbs of the queue over all shards.

use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;

use futures::FutureExt;
use futures::future::try_join_all;
use tokio::sync::mpsc;

use super::Shards;
use crate::budgets::{Budget, Budgeted, Running, Stood};
use crate::capability::Capability;
use crate::costs::Spent;
use crate::error::Error;
use crate::flow::Flow;
use crate::gateway::{ExtendAnswer, FinishAnswer, FinishReport, JobEventReport, LeaseRef};
use crate::id::JobId;
use crate::job::{Job, JobSpec, NewJob};
use crate::limit_scope::LimitScope;
use crate::limits::{HeldBy, Limits, Usage};
use crate::queue::{
    CancelAnswer, Due, JobPage, KeptEvent, KeptOutputs, LaneDepth, Lease, LeaseQuery, ListFilter, OutputsPosition,
    Queue, Settlement, Signal, Submitted, Swept, Waiter,
};
use crate::redis_queue::RedisQueue;

/// Maximum number of lanes that are returned.
const DEPTHS_MAX: usize = 1_000;

impl Queue for Shards {
    async fn submit(&self, jobs: Vec<NewJob>) -> Result<Vec<Submitted>, Error> {
        let Some(first) = jobs.first() else { return Ok(Vec::new()) };
        let shard = first.id.shard();
        if jobs.iter().any(|job| job.id.shard() != shard) {
            return Err(Error::TooLarge("the jobs of one call belong to more than one shard".to_owned()));
        }
        let queue = self.all().get(usize::from(shard)).ok_or_else(|| Error::no_shard(shard))?;
        queue.submit(jobs).await
    }

    async fn lease(&self, query: LeaseQuery) -> Result<Vec<Lease>, Error> {
        match self.only() {
            Some(only) => only.lease(query).await,
            None => self.pull(&query).await,
        }
    }

    /// Returns the class of the first shard that has one.
    async fn hold(&self, worker_id: &str, now: &Capability, could: &Capability) -> Result<Option<u32>, Error> {
        for shard in self.all().iter().filter(|shard| shard.is_up()) {
            if let Some(class) = shard.hold(worker_id, now, could).await? {
                return Ok(Some(class));
            }
        }
        Ok(None)
    }

    /// Returns `false` if any shard has removed the waiter, or was unreachable when it was parked.
    async fn unpark(&self, waiter: &Waiter, reach: &Capability) -> Result<bool, Error> {
        let unparked = self.everywhere("unpark", |shard| shard.unpark(waiter, reach).boxed()).await?;
        Ok(unparked.into_iter().all(|unparked| unparked))
    }

    async fn wake_next(&self) -> Result<(), Error> {
        self.everywhere("pass on a wakeup", |shard| shard.wake_next().boxed()).await.map(drop)
    }

    async fn extend(&self, leases: &[LeaseRef]) -> Result<Vec<ExtendAnswer>, Error> {
        if let Some(only) = self.only() {
            return only.extend(leases).await;
        }
        let ask = |shard, part: Vec<LeaseRef>| async move { RedisQueue::extend(shard, &part).await }.boxed();
        self.each(leases, |lease| lease.job_id, ExtendAnswer::Lost, ask).await
    }

    async fn finish(&self, reports: &[FinishReport]) -> Result<Vec<FinishAnswer>, Error> {
        if let Some(only) = self.only() {
            return only.finish(reports).await;
        }
        let ask = |shard, part: Vec<FinishReport>| async move { RedisQueue::finish(shard, &part).await }.boxed();
        self.each(reports, |report| report.job_id, FinishAnswer::NotFound, ask).await
    }

    async fn release(&self, leases: &[LeaseRef]) -> Result<Vec<FinishAnswer>, Error> {
        if let Some(only) = self.only() {
            return only.release(leases).await;
        }
        let ask = |shard, part: Vec<LeaseRef>| async move { RedisQueue::release(shard, &part).await }.boxed();
        self.each(leases, |lease| lease.job_id, FinishAnswer::NotFound, ask).await
    }

    async fn cancel(&self, tenant: &str, ids: &[JobId]) -> Result<Vec<CancelAnswer>, Error> {
        if let Some(only) = self.only() {
            return only.cancel(tenant, ids).await;
        }
        let ask = |shard, part: Vec<JobId>| {
            let tenant = tenant.to_owned();
            async move { RedisQueue::cancel(shard, &tenant, &part).await }.boxed()
        };
        self.each(ids, |id| *id, CancelAnswer::NotFound, ask).await
    }

    async fn promote(&self) -> Result<Swept, Error> {
        self.sweep("promote", |shard| shard.promote().boxed()).await
    }

    async fn reap(&self) -> Result<Swept, Error> {
        self.sweep("reap", |shard| shard.reap().boxed()).await
    }

    async fn abandon(&self, worker_id: &str) -> Result<u32, Error> {
        let ended = self.everywhere("release the leases of a worker", |shard| shard.abandon(worker_id).boxed()).await?;
        Ok(ended.iter().sum())
    }

    async fn expire(&self) -> Result<Swept, Error> {
        self.sweep("expire", |shard| shard.expire().boxed()).await
    }

    async fn due(&self, claim_ms: u64) -> Result<Vec<Due>, Error> {
        Ok(self.everywhere("read the due jobs", |shard| shard.due(claim_ms).boxed()).await?.concat())
    }

    async fn keep_due(&self, due: &[Due], claim_ms: u64) -> Result<(), Error> {
        try_join_all(self.all().iter().map(|shard| async move {
            let its: Vec<Due> = due.iter().copied().filter(|due| due.id().shard() == shard.number()).collect();
            shard.keep_due(&its, claim_ms).await
        }))
        .await
        .map(drop)
    }

    async fn unblock(&self, id: JobId) -> Result<bool, Error> {
        self.holds(id).ok_or_else(|| Error::no_shard(id.shard()))?.unblock(id).await
    }

    async fn settle(&self, settlement: &Settlement) -> Result<bool, Error> {
        self.holds(settlement.id).ok_or_else(|| Error::no_shard(settlement.id.shard()))?.settle(settlement).await
    }

    async fn limit(&self, scope: &LimitScope, limits: Option<&Limits>) -> Result<(), Error> {
        self.of(scope.tenant()).await?.limit(scope, limits).await
    }

    async fn usage(&self, scope: &LimitScope) -> Result<(Limits, Usage), Error> {
        self.of(scope.tenant()).await?.usage(scope).await
    }

    async fn held_by(&self, spec: &JobSpec) -> Result<Option<HeldBy>, Error> {
        self.of(&spec.tenant).await?.held_by(spec).await
    }

    async fn budgets(&self, day: u32) -> Result<Vec<Budgeted>, Error> {
        Ok(self.everywhere("read the budgets", |shard| shard.budgets(day).boxed()).await?.concat())
    }

    async fn pause(&self, scope: &LimitScope, budget: &Budget, stood: &Stood) -> Result<Option<Option<Stood>>, Error> {
        self.of(scope.tenant()).await?.pause(scope, budget, stood).await
    }

    async fn disable(&self, tenant: &str, disabled: bool) -> Result<(), Error> {
        self.of(tenant).await?.disable(tenant, disabled).await
    }

    async fn running(&self) -> Result<Vec<Running>, Error> {
        Ok(self.everywhere("read the running jobs", |shard| shard.running().boxed()).await?.concat())
    }

    async fn get(&self, id: JobId) -> Result<Option<Job>, Error> {
        match self.holds(id) {
            Some(shard) => shard.get(id).await,
            None => Ok(None),
        }
    }

    async fn watch(&self, id: JobId, replica: &str) -> Result<Option<Job>, Error> {
        match self.holds(id) {
            Some(shard) => shard.watch(id, replica).await,
            None => Ok(None),
        }
    }

    async fn list(
        &self,
        tenant: &str,
        filter: &ListFilter,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<JobPage, Error> {
        self.of(tenant).await?.list(tenant, filter, cursor, limit).await
    }

    async fn append_events(&self, events: &[JobEventReport]) -> Result<(), Error> {
        self.store_events(events, false).await
    }

    async fn append_relayed(&self, events: &[JobEventReport]) -> Result<(), Error> {
        self.store_events(events, true).await
    }

    async fn read_events(&self, id: JobId, after: &str, limit: u32) -> Result<Vec<KeptEvent>, Error> {
        match self.holds(id) {
            Some(shard) => shard.read_events(id, after, limit).await,
            None => Ok(Vec::new()),
        }
    }

    async fn read_outputs(&self, id: JobId, after: OutputsPosition, limit: u32) -> Result<Vec<KeptOutputs>, Error> {
        match self.holds(id) {
            Some(shard) => shard.read_outputs(id, after, limit).await,
            None => Ok(Vec::new()),
        }
    }

    async fn depth(&self) -> Result<Vec<LaneDepth>, Error> {
        if let Some(only) = self.only() {
            return only.depth().await;
        }
        // A lane belongs to one tenant, so no two shards have the same.
        let mut depths = self.everywhere("read the queue's depth", |shard| shard.depth().boxed()).await?.concat();
        depths.sort_by(|a, b| (b.jobs, &a.lane).cmp(&(a.jobs, &b.lane)));
        depths.truncate(DEPTHS_MAX);
        Ok(depths)
    }

    /// A tenant's endpoints are on one shard. An error of one shard fails the call: work that cannot be read must not
    /// count as no work.
    async fn flow(&self) -> Result<Vec<Flow>, Error> {
        let mut flows = try_join_all(self.all().iter().map(Queue::flow)).await?.concat();
        flows.sort_by(|a, b| (&a.tenant, &a.endpoint).cmp(&(&b.tenant, &b.endpoint)));
        Ok(flows)
    }

    /// Like [`Queue::flow`]: a part of the spending is never returned as the whole.
    async fn spent(&self, days: RangeInclusive<u32>, tenant: Option<&str>) -> Result<Vec<Spent>, Error> {
        if let Some(tenant) = tenant {
            return self.of(tenant).await?.spent(days, Some(tenant)).await;
        }
        let mut spent = try_join_all(self.all().iter().map(|shard| shard.spent(days.clone(), None))).await?.concat();
        spent.sort();
        Ok(spent)
    }

    async fn held(&self, lease: &LeaseRef) -> Result<Option<(JobSpec, u32)>, Error> {
        match self.holds(lease.job_id) {
            Some(shard) => shard.held(lease).await,
            None => Ok(None),
        }
    }

    /// Returns one receiver for all shards. The signals of each shard come from its own primary.
    async fn listen(&self, replica: &str) -> Result<mpsc::Receiver<Signal>, Error> {
        if let Some(only) = self.only() {
            return only.listen(replica).await;
        }
        let heard = try_join_all(self.all().iter().map(|shard| shard.listen(replica))).await?;
        let (sender, receiver) = mpsc::channel(10_000);
        for (shard, mut heard) in heard.into_iter().enumerate() {
            let (sender, parts) = (sender.clone(), self.0.clone());
            tokio::spawn(async move {
                while let Some(signal) = heard.recv().await {
                    if matches!(signal, Signal::Wake(_)) {
                        parts.woken.store(shard, Ordering::Relaxed);
                    }
                    if sender.send(signal).await.is_err() {
                        return;
                    }
                }
            });
        }
        Ok(receiver)
    }
}
