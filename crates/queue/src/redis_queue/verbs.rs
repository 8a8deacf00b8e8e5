//! Each verb of the queue as one script.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use tokio::sync::mpsc;

use super::{RedisConfig, RedisQueue, bounded};
use crate::budgets::{self, Budget, Budgeted, Running, Stood};
use crate::capability::Capability;
use crate::clock::Clock;
use crate::costs::{self, Spent};
use crate::error::Error;
use crate::flow::{self, Flow};
use crate::gateway::{ExtendAnswer, FinishAnswer, FinishReport, JobEventReport, LeaseRef};
use crate::id::JobId;
use crate::job::{Job, JobSpec, NewJob};
use crate::limit_scope::LimitScope;
use crate::limits::{HeldBy, Limits, Usage};
use crate::queue::{
    BATCH_MAX, CancelAnswer, Due, HOLD_AFTER_MS, HOLD_MS, JobPage, KeptEvent, KeptOutputs, LaneDepth, Lease,
    LeaseQuery, ListFilter, OutputsPosition, Queue, Settlement, Signal, Submitted, Swept, WATCH_MS, Waiter,
};
use crate::{failpoint, record, scripts, signals};

impl Queue for RedisQueue {
    async fn submit(&self, jobs: Vec<NewJob>) -> Result<Vec<Submitted>, Error> {
        self.accept(None, &jobs).await
    }

    async fn lease(&self, query: LeaseQuery) -> Result<Vec<Lease>, Error> {
        bounded("leases wanted", query.want as usize, BATCH_MAX)?;
        let RedisConfig { lease_ms, age_after_ms, .. } = self.config;
        let leases =
            scripts::TakeLeases { keys: &self.keys, clock: &self.config.clock, lease_ms, age_after_ms, query: &query }
                .run(&self.connection)
                .await;
        if leases.as_ref().is_ok_and(|leases| !leases.is_empty()) {
            failpoint::reach("lease.after").await;
        }
        leases
    }

    async fn hold(&self, worker_id: &str, now: &Capability, could: &Capability) -> Result<Option<u32>, Error> {
        let mut call = scripts::HOLD.call(&[self.keys.root()]);
        call.arg(self.config.clock.script_arg()).arg(worker_id).arg(now.to_string()).arg(could.to_string());
        call.arg(HOLD_AFTER_MS).arg(HOLD_MS);
        let (class,): (String,) = self.connection.eval(&scripts::HOLD, &call).await?;
        Ok(class.parse().ok())
    }

    async fn unpark(&self, waiter: &Waiter, reach: &Capability) -> Result<bool, Error> {
        let listed = waiter.listed(reach);
        let mut pipe = redis::pipe();
        for (demands, _) in reach.iter() {
            pipe.atomic().zrem(self.keys.parked(demands), &listed);
        }
        if reach.iter().next().is_none() {
            return Ok(true);
        }
        // A wakeup removes the waiter from all lists in one step.
        let removed: Vec<u32> = pipe.query_async(&mut self.connection.redis()).await.map_err(Error::redis("unpark"))?;
        Ok(removed.contains(&1))
    }

    async fn wake_next(&self) -> Result<(), Error> {
        let _: Vec<String> = self.connection.eval(&scripts::WAKE, &scripts::WAKE.call(&[self.keys.root()])).await?;
        Ok(())
    }

    async fn extend(&self, leases: &[LeaseRef]) -> Result<Vec<ExtendAnswer>, Error> {
        let mut answers = Vec::with_capacity(leases.len());
        for leases in leases.chunks(BATCH_MAX) {
            let lease_ms = self.config.lease_ms;
            let call = scripts::Extend { keys: &self.keys, clock: &self.config.clock, lease_ms, leases };
            answers.extend(call.run(&self.connection).await?);
        }
        Ok(answers)
    }

    async fn finish(&self, reports: &[FinishReport]) -> Result<Vec<FinishAnswer>, Error> {
        bounded("reports", reports.len(), BATCH_MAX)?;
        if reports.is_empty() {
            return Ok(Vec::new());
        }
        let retention_ms = self.config.retention_ms;
        failpoint::reach("finish.before").await;
        let answers = scripts::Finish { keys: &self.keys, clock: &self.config.clock, retention_ms, reports }
            .run(&self.connection)
            .await;
        failpoint::reach("finish.after").await;
        #[cfg(feature = "mutants")]
        if let (Ok(answers), true) = (&answers, crate::mutants::is("count-outside-script")) {
            self.count_later(reports, answers);
        }
        answers
    }

    async fn release(&self, leases: &[LeaseRef]) -> Result<Vec<FinishAnswer>, Error> {
        bounded("leases", leases.len(), BATCH_MAX)?;
        scripts::Release { keys: &self.keys, clock: &self.config.clock, leases }.run(&self.connection).await
    }

    async fn cancel(&self, tenant: &str, ids: &[JobId]) -> Result<Vec<CancelAnswer>, Error> {
        bounded("jobs", ids.len(), BATCH_MAX)?;
        let retention_ms = self.config.retention_ms;
        let answers = scripts::Cancel { keys: &self.keys, clock: &self.config.clock, retention_ms, tenant, ids }
            .run(&self.connection)
            .await;
        failpoint::reach("cancel.after").await;
        answers
    }

    async fn promote(&self) -> Result<Swept, Error> {
        scripts::Promote { keys: &self.keys, clock: &self.config.clock }.run(&self.connection).await
    }

    /// Does nothing in the first lease period after Redis started or failed over: every lease may have expired while it
    /// was unreachable, and the workers must get the chance to extend theirs first.
    async fn reap(&self) -> Result<Swept, Error> {
        #[cfg(feature = "mutants")]
        let hasty = crate::mutants::is("reaper-without-grace");
        #[cfg(not(feature = "mutants"))]
        let hasty = false;
        let lease = Duration::from_millis(self.config.lease_ms);
        // A Redis that restarts between the two calls must not execute the second one.
        let connection = self.connection.pinned();
        let is_new = self.pulse.changed_within(lease) || Self::uptime_ms(&connection).await? < self.config.lease_ms;
        if !hasty && matches!(self.config.clock, Clock::Own) && is_new {
            return Ok(Swept::default());
        }
        let retention_ms = self.config.retention_ms;
        let most = scripts::SWEEP_MAX;
        scripts::Reap { keys: &self.keys, clock: &self.config.clock, retention_ms, most }.run(&connection).await
    }

    async fn abandon(&self, worker_id: &str) -> Result<u32, Error> {
        let ended = scripts::Abandon { keys: &self.keys, worker_id }.run(&self.connection).await?;
        // `reap` would pause after a start of Redis, but this worker will not extend its leases.
        let (retention_ms, mut most) = (self.config.retention_ms, ended);
        while most > 0 {
            let reap = scripts::Reap { keys: &self.keys, clock: &self.config.clock, retention_ms, most };
            most = match reap.run(&self.connection).await?.jobs {
                0 => 0,
                jobs => most.saturating_sub(jobs),
            };
        }
        Ok(ended)
    }

    async fn expire(&self) -> Result<Swept, Error> {
        let retention_ms = self.config.retention_ms;
        scripts::Expire { keys: &self.keys, clock: &self.config.clock, retention_ms }.run(&self.connection).await
    }

    async fn due(&self, claim_ms: u64) -> Result<Vec<Due>, Error> {
        scripts::TakeDue { keys: &self.keys, clock: &self.config.clock, claim_ms, keep: &[] }
            .run(&self.connection)
            .await
    }

    async fn keep_due(&self, due: &[Due], claim_ms: u64) -> Result<(), Error> {
        if due.is_empty() {
            return Ok(());
        }
        scripts::TakeDue { keys: &self.keys, clock: &self.config.clock, claim_ms, keep: due }
            .run(&self.connection)
            .await
            .map(drop)
    }

    async fn unblock(&self, id: JobId) -> Result<bool, Error> {
        scripts::Unblock { keys: &self.keys, clock: &self.config.clock, id }.run(&self.connection).await
    }

    async fn settle(&self, settlement: &Settlement) -> Result<bool, Error> {
        let retention_ms = self.config.retention_ms;
        scripts::Settle { keys: &self.keys, clock: &self.config.clock, retention_ms, settlement }
            .run(&self.connection)
            .await
    }

    async fn limit(&self, scope: &LimitScope, limits: Option<&Limits>) -> Result<(), Error> {
        self.set_limits(scope, limits).await
    }

    async fn usage(&self, scope: &LimitScope) -> Result<(Limits, Usage), Error> {
        self.read_usage(scope).await
    }

    async fn held_by(&self, spec: &JobSpec) -> Result<Option<HeldBy>, Error> {
        self.read_held_by(spec).await
    }

    async fn budgets(&self, day: u32) -> Result<Vec<Budgeted>, Error> {
        budgets::read_budgets(&self.connection, &self.keys, day).await
    }

    async fn pause(&self, scope: &LimitScope, budget: &Budget, stood: &Stood) -> Result<Option<Option<Stood>>, Error> {
        self.set_pause(scope, budget, stood).await
    }

    async fn disable(&self, tenant: &str, disabled: bool) -> Result<(), Error> {
        self.set_disabled(tenant, disabled).await
    }

    async fn running(&self) -> Result<Vec<Running>, Error> {
        budgets::read_running(&self.connection.long(), &self.keys).await
    }

    async fn get(&self, id: JobId) -> Result<Option<Job>, Error> {
        self.record(&self.connection, id).await
    }

    async fn watch(&self, id: JobId, replica: &str) -> Result<Option<Job>, Error> {
        let mut call = scripts::WATCH.call(&[self.keys.root()]);
        call.arg(self.config.clock.script_arg()).arg(WATCH_MS).arg(id.to_string()).arg(replica);
        let fields: HashMap<String, String> = self.connection.eval(&scripts::WATCH, &call).await?;
        record::decode(id, &fields)
    }

    async fn list(
        &self,
        tenant: &str,
        filter: &ListFilter,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<JobPage, Error> {
        self.list_jobs(tenant, filter, cursor, limit).await
    }

    async fn append_events(&self, events: &[JobEventReport]) -> Result<(), Error> {
        self.store_events(events, false).await
    }

    async fn append_relayed(&self, events: &[JobEventReport]) -> Result<(), Error> {
        self.store_events(events, true).await
    }

    async fn read_events(&self, id: JobId, after: &str, limit: u32) -> Result<Vec<KeptEvent>, Error> {
        self.stored_events(id, after, limit).await
    }

    async fn read_outputs(&self, id: JobId, after: OutputsPosition, limit: u32) -> Result<Vec<KeptOutputs>, Error> {
        self.stored_outputs(id, after, limit).await
    }

    async fn depth(&self) -> Result<Vec<LaneDepth>, Error> {
        self.lane_depths().await
    }

    async fn flow(&self) -> Result<Vec<Flow>, Error> {
        Ok(flow::assemble(flow::read(&self.connection.long(), &self.keys, &self.config.clock).await?))
    }

    async fn spent(&self, days: RangeInclusive<u32>, tenant: Option<&str>) -> Result<Vec<Spent>, Error> {
        costs::read_spent(&self.connection.long(), &self.keys, days, tenant).await
    }

    async fn held(&self, lease: &LeaseRef) -> Result<Option<(JobSpec, u32)>, Error> {
        self.leased_spec(lease).await
    }

    async fn listen(&self, replica: &str) -> Result<mpsc::Receiver<Signal>, Error> {
        let channels = [self.keys.signal(replica), self.keys.signal("all")];
        signals::listen(self.connection.primary(), channels).await
    }
}
