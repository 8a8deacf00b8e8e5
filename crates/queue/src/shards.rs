//! N shards as one queue. A tenant is on one shard, and a job's id contains its shard; calls about one job or one
//! tenant go to one shard, calls about all go to each. A shard that is unavailable stops only its own tenants.

mod tenant_shards;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use futures::future::{BoxFuture, join_all, try_join_all};
use tokio::sync::mpsc;

use crate::budgets::{Budget, Budgeted, Running, Stood};
use crate::connection::{Connection, Place};
use crate::costs::Spent;
use crate::error::Error;
use crate::feedback::FeedbackCounters;
use crate::flow::Flow;
use crate::gateway::{ExtendAnswer, FinishAnswer, FinishReport, JobEventReport, LeaseRef, ModelRef};
use crate::id::JobId;
use crate::job::{Job, JobSpec, NewJob};
use crate::keys::RegistryKeys;
use crate::queue::{
    CancelAnswer, Due, Gate, HeldBy, JobPage, KeptEvent, KeptOutputs, LaneDepth, Lease, LeaseQuery, Limits, ListFilter,
    OutputsPlace, Queue, Settlement, Signal, Submitted, Swept, Usage, Waiter,
};
use crate::reach::Reach;
use crate::redis::{Health, Holding, RedisConfig, RedisQueue};
use crate::redis_checks::{Durability, RedisChecks};
use crate::registry::Registry;
use tenant_shards::TenantShards;

/// Most shards there may be: a worker's pull asks them in turn, and parks on each.
pub const SHARDS_MAX: u8 = 64;

/// The most lanes that are returned.
const DEPTHS_MAX: usize = 1_000;

/// No shard has woken a waiter recently.
const NOBODY: usize = usize::MAX;

/// All shards. Clones share their connections.
#[derive(Clone)]
pub struct Shards(Arc<Parts>);

struct Parts {
    shards: Vec<RedisQueue>,
    registry: Connection,
    homes: TenantShards,
    /// Where the next pull begins, so that no shard is always first.
    turn: AtomicUsize,
    /// The shard that sent the last wake: who was woken begins there.
    woken: AtomicUsize,
}

impl Shards {
    /// Connects to every shard.
    ///
    /// # Errors
    /// [`Error::Unfit`] when the URL is none or there were more shards before, [`Error::Unavailable`] when nothing answers.
    pub async fn connect(config: RedisConfig) -> Result<Self, Error> {
        if !(1..=SHARDS_MAX).contains(&config.shards) {
            return Err(Error::Unfit(format!("shards must be 1 to {SHARDS_MAX}")));
        }
        let place = Place::parse(&config.url)?;
        let registry = Connection::open(&place, RegistryKeys::new(&config.prefix).root()).await?;
        let open = |shard| RedisQueue::shard(&place, &registry, config.clone(), shard);
        let shards = try_join_all((0..config.shards).map(open)).await?;
        let homes = TenantShards::open(Registry::new(registry.clone(), &config.prefix), config.shards).await?;
        let (turn, woken) = (AtomicUsize::new(rand::random_range(0..shards.len())), AtomicUsize::new(NOBODY));
        Ok(Self(Arc::new(Parts { shards, registry, homes, turn, woken })))
    }

    /// Every shard, in order.
    #[must_use]
    pub fn all(&self) -> &[RedisQueue] {
        &self.0.shards
    }

    /// The number of a tenant's shard. The first call for a tenant fixes it for good.
    ///
    /// # Errors
    /// [`Error::Unavailable`]; [`Error::Unfit`] if it is on a shard that this process is not configured for.
    pub async fn home(&self, tenant: &str) -> Result<u8, Error> {
        self.0.homes.of(tenant).await
    }

    /// A tenant's shard.
    ///
    /// # Errors
    /// As [`Shards::home`].
    pub async fn of(&self, tenant: &str) -> Result<&RedisQueue, Error> {
        Ok(&self.0.shards[usize::from(self.home(tenant).await?)])
    }

    /// Whether a replica of the release before serves the same Redis. Such a replica does not know inputs that are kept as files.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn has_older_replicas(&self) -> Result<bool, Error> {
        match self.0.shards.first() {
            Some(shard) => shard.has_older_replicas().await,
            None => Ok(false),
        }
    }

    /// What is deployed, who may call, which workers are here.
    #[must_use]
    pub fn registry(&self) -> Registry {
        self.0.shards[0].registry()
    }

    /// Whether a version of this size may be deployed: the same rules as for a submit, because versions use the same
    /// memory.
    ///
    /// # Errors
    /// [`Error::Closed`] while no new work is accepted, [`Error::Memory`] for a tenant over its limit; nothing is
    /// deployed then.
    pub async fn admits_version(&self, tenant: &str, bytes: u64) -> Result<(), Error> {
        let (home, first) = (self.of(tenant).await?, &self.0.shards[0]);
        home.admits()?;
        first.admits()?;
        let (limits, _) = home.usage(&Gate::Tenant(tenant.to_owned())).await?;
        let Some(most_bytes) = limits.max_memory_bytes.or_else(|| first.share_bytes()) else { return Ok(()) };
        let held_bytes = home.memory_of(tenant).await? + self.registry().version_bytes(tenant).await?;
        if held_bytes.saturating_add(bytes) <= most_bytes {
            return Ok(());
        }
        Err(Error::Memory { tenant: tenant.to_owned(), most_bytes, held_bytes })
    }

    /// What people thought of results.
    #[must_use]
    pub fn feedback(&self) -> FeedbackCounters {
        self.0.shards[0].feedback()
    }

    /// How long an ended job stays unless it sets it, milliseconds.
    #[must_use]
    pub fn retention_ms(&self) -> u64 {
        self.0.shards[0].retention_ms()
    }

    /// How long a lease lasts unless extended, milliseconds.
    #[must_use]
    pub fn lease_ms(&self) -> u64 {
        self.0.shards[0].lease_ms()
    }

    /// The boot checks, on every primary: the weakest decides what a 202 promises. Afterwards every shard has been looked at.
    ///
    /// # Errors
    /// [`Error::Unfit`] with what to change.
    pub async fn check_fitness(&self, allow_ephemeral: bool) -> Result<RedisChecks, Error> {
        let mut asked: Vec<&RedisQueue> = Vec::new();
        for shard in self.all() {
            if !asked.iter().any(|other| other.primary() == shard.primary()) {
                asked.push(shard);
            }
        }
        let found = try_join_all(asked.into_iter().map(|shard| shard.check_fitness(allow_ephemeral))).await?;
        try_join_all(self.all().iter().map(RedisQueue::look)).await?;
        let rank = |fitness: &RedisChecks| match fitness.durability {
            Durability::Strict => 2,
            Durability::Standard => 1,
            Durability::Ephemeral => 0,
        };
        let replicas_to_wait = found.iter().map(|fitness| fitness.replicas_to_wait).min().unwrap_or(0);
        let durability = found.iter().min_by_key(|fitness| rank(fitness)).map(|fitness| fitness.durability);
        let mut notes: Vec<String> = found.into_iter().flat_map(|fitness| fitness.notes).collect();
        notes.dedup();
        Ok(RedisChecks { durability: durability.unwrap_or(Durability::Ephemeral), replicas_to_wait, notes })
    }

    /// Asks whether the registry answers, and at least one shard: a tenant's jobs need no shard but its own.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn ping(&self) -> Result<(), Error> {
        let _: String =
            redis::cmd("PING").query_async(&mut self.0.registry.redis()).await.map_err(Error::redis("ping"))?;
        let answers = join_all(self.all().iter().map(RedisQueue::ping)).await;
        answers.into_iter().reduce(Result::or).unwrap_or(Ok(()))
    }

    /// How each shard was when it was last looked at, in order.
    #[must_use]
    pub fn health(&self) -> Vec<Health> {
        self.all().iter().map(RedisQueue::health).collect()
    }

    fn only(&self) -> Option<&RedisQueue> {
        match self.all() {
            [only] => Some(only),
            _ => None,
        }
    }

    fn holds(&self, id: JobId) -> Option<&RedisQueue> {
        self.all().get(usize::from(id.shard()))
    }

    /// As [`RedisQueue::holdings`].
    ///
    /// # Errors
    /// As [`RedisQueue::holdings`].
    pub async fn holdings(&self, leases: &[LeaseRef]) -> Result<Vec<Option<Holding>>, Error> {
        self.each(
            leases,
            |lease| lease.job_id,
            None,
            |shard, leases| Box::pin(async move { shard.holdings(&leases).await }),
        )
        .await
    }

    /// As [`RedisQueue::runs`]: a tenant's jobs are on its own shard.
    ///
    /// # Errors
    /// As [`RedisQueue::runs`].
    pub async fn runs(&self, worker_id: &str, model: &ModelRef) -> Result<bool, Error> {
        self.of(&model.tenant).await?.runs(worker_id, model).await
    }

    /// As [`RedisQueue::evict`], on every shard.
    ///
    /// # Errors
    /// As [`RedisQueue::evict`].
    pub async fn evict(&self, worker_id: &str) -> Result<u32, Error> {
        let evicted = try_join_all(self.all().iter().map(|shard| shard.evict(worker_id))).await?;
        Ok(evicted.into_iter().sum())
    }

    /// Asks each shard for its own part of `items`, all at once, and puts the answers in order. What names a shard that there is
    /// not is answered `unknown`.
    async fn each<'a, T, A>(
        &'a self,
        items: &'a [T],
        id: impl Fn(&T) -> JobId,
        unknown: A,
        ask: impl Fn(&'a RedisQueue, Vec<T>) -> BoxFuture<'a, Result<Vec<A>, Error>>,
    ) -> Result<Vec<A>, Error>
    where
        T: Clone,
        A: Clone,
    {
        let mut parts: Vec<(Vec<usize>, Vec<T>)> = vec![Default::default(); self.all().len()];
        for (number, item) in items.iter().enumerate() {
            if let Some((numbers, part)) = parts.get_mut(usize::from(id(item).shard())) {
                numbers.push(number);
                part.push(item.clone());
            }
        }
        let mut answers = vec![unknown; items.len()];
        let asked = self.all().iter().zip(parts).filter(|(_, (numbers, _))| !numbers.is_empty());
        let asked = asked.map(|(shard, (numbers, part))| ask(shard, part).map(|said| said.map(|said| (numbers, said))));
        for (numbers, said) in try_join_all(asked).await? {
            for (number, answer) in numbers.into_iter().zip(said) {
                answers[number] = answer;
            }
        }
        Ok(answers)
    }

    /// Has every shard do its part. One that cannot keeps no other from it, and is tried again with the next round.
    async fn everywhere<'a, A>(
        &'a self,
        what: &'static str,
        ask: impl Fn(&'a RedisQueue) -> BoxFuture<'a, Result<A, Error>>,
    ) -> Result<Vec<A>, Error> {
        let mut failure = None;
        let mut done = Vec::with_capacity(self.all().len());
        for (shard, outcome) in join_all(self.all().iter().map(ask)).await.into_iter().enumerate() {
            match outcome {
                Ok(answer) => done.push(answer),
                Err(error) => {
                    tracing::warn!(shard, error = &error as &dyn std::error::Error, "a shard failed to {what}");
                    failure = Some(error);
                }
            }
        }
        match failure {
            Some(error) if done.is_empty() => Err(error),
            _ => Ok(done),
        }
    }

    async fn sweep<'a>(
        &'a self,
        what: &'static str,
        ask: impl Fn(&'a RedisQueue) -> BoxFuture<'a, Result<Swept, Error>>,
    ) -> Result<Swept, Error> {
        let swept = self.everywhere(what, ask).await?;
        let next_due_ms = swept.iter().filter_map(|swept| swept.next_due_ms).min();
        Ok(Swept { jobs: swept.iter().map(|swept| swept.jobs).sum(), next_due_ms })
    }

    /// The shards in the order in which this pull asks them.
    fn in_turn(&self) -> impl Iterator<Item = &RedisQueue> {
        let shards = self.all();
        let first = match self.0.woken.swap(NOBODY, Ordering::Relaxed) {
            NOBODY => self.0.turn.fetch_add(1, Ordering::Relaxed),
            woken => woken,
        };
        (0..shards.len()).map(move |step| &shards[(first + step) % shards.len()])
    }

    /// Asks one shard after the other until there is enough. The waiter is parked on every shard that had nothing, unless one had
    /// something.
    async fn pull(&self, query: &LeaseQuery) -> Result<Vec<Lease>, Error> {
        let (mut leases, mut parked, mut is_full) = (Vec::new(), Vec::new(), false);
        let mut outcome = Err(Error::away());
        let taken = self.taken(query).await?;
        for shard in self.in_turn().filter(|shard| shard.is_up()) {
            let want = query.want.saturating_sub(u32::try_from(leases.len()).unwrap_or(u32::MAX));
            let park = query.park.clone().filter(|_| leases.is_empty());
            let parks = park.is_some();
            let bytes: usize = leases.iter().map(|lease: &Lease| lease.input.get().len()).sum();
            let max_bytes = query.max_bytes.saturating_sub(bytes);
            let elsewhere = taken.iter().filter(|(number, _)| *number != shard.number()).map(|(_, parts)| parts);
            let granted: u64 = leases.iter().map(|lease| lease.spec.part()).sum();
            let taken_elsewhere = query.taken_elsewhere + elsewhere.sum::<u64>() + granted;
            match shard.lease(LeaseQuery { want, park, max_bytes, taken_elsewhere, ..query.clone() }).await {
                Ok(more) => {
                    if more.is_empty() && parks {
                        parked.push(shard);
                    }
                    leases.extend(more);
                    outcome = Ok(());
                }
                Err(Error::Full) => is_full = true,
                // What the others have granted must reach the worker.
                Err(error) => outcome = outcome.or(Err(error)),
            }
            let bytes: usize = leases.iter().map(|lease| lease.input.get().len()).sum();
            if leases.len() >= query.want as usize || (!leases.is_empty() && bytes >= query.max_bytes) {
                break;
            }
        }
        if let Some(waiter) = query.park.as_ref().filter(|_| is_full || !leases.is_empty()) {
            self.leave(waiter, &query.reach, parked.into_iter()).await;
        }
        if is_full && leases.is_empty() {
            return Err(Error::Full);
        }
        outcome.map(|()| leases)
    }

    /// What the worker's leases take on each shard that can be asked; nothing where it may hold as many as it likes.
    async fn taken(&self, query: &LeaseQuery) -> Result<Vec<(u8, u64)>, Error> {
        if query.slots.is_none() {
            return Ok(Vec::new());
        }
        let asked = self.all().iter().filter(|shard| shard.is_up());
        let ask = |shard: &'_ RedisQueue| {
            let (shard, worker_id) = (shard.clone(), query.worker_id.clone());
            async move { Ok((shard.number(), shard.taken(&worker_id).await?)) }
        };
        try_join_all(asked.map(ask)).await
    }

    /// Removes a waiter from the lists of these shards. A wakeup that crosses this finds no waiter and is passed on.
    async fn leave(&self, waiter: &Waiter, reach: &Reach, shards: impl Iterator<Item = &RedisQueue>) {
        for outcome in join_all(shards.map(|shard| shard.unpark(waiter, reach))).await {
            if let Err(error) = outcome {
                tracing::debug!(%error, "a lease poll stays parked on a shard; its wakeup will be passed on");
            }
        }
    }
}

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

    /// The first shard that has such a class.
    async fn hold(&self, worker_id: &str, now: &Reach, could: &Reach) -> Result<Option<u32>, Error> {
        for shard in self.all().iter().filter(|shard| shard.is_up()) {
            if let Some(class) = shard.hold(worker_id, now, could).await? {
                return Ok(Some(class));
            }
        }
        Ok(None)
    }

    /// `false` when any shard has chosen it, or was away when it was to be parked there.
    async fn unpark(&self, waiter: &Waiter, reach: &Reach) -> Result<bool, Error> {
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

    async fn limit(&self, gate: &Gate, limits: Option<&Limits>) -> Result<(), Error> {
        self.of(gate.tenant()).await?.limit(gate, limits).await
    }

    async fn usage(&self, gate: &Gate) -> Result<(Limits, Usage), Error> {
        self.of(gate.tenant()).await?.usage(gate).await
    }

    async fn held_by(&self, spec: &JobSpec) -> Result<Option<HeldBy>, Error> {
        self.of(&spec.tenant).await?.held_by(spec).await
    }

    async fn budgets(&self, day: u32) -> Result<Vec<Budgeted>, Error> {
        Ok(self.everywhere("read the budgets", |shard| shard.budgets(day).boxed()).await?.concat())
    }

    async fn pause(&self, gate: &Gate, budget: &Budget, stood: &Stood) -> Result<Option<Option<Stood>>, Error> {
        self.of(gate.tenant()).await?.pause(gate, budget, stood).await
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
        if let Some(only) = self.only() {
            return only.append_events(events).await;
        }
        let ask = |shard, part: Vec<JobEventReport>| {
            async move { RedisQueue::append_events(shard, &part).await.map(|()| Vec::new()) }.boxed()
        };
        self.each(events, |event| event.job_id, (), ask).await.map(drop)
    }

    async fn read_events(&self, id: JobId, after: &str, limit: u32) -> Result<Vec<KeptEvent>, Error> {
        match self.holds(id) {
            Some(shard) => shard.read_events(id, after, limit).await,
            None => Ok(Vec::new()),
        }
    }

    async fn read_outputs(&self, id: JobId, after: OutputsPlace, limit: u32) -> Result<Vec<KeptOutputs>, Error> {
        match self.holds(id) {
            Some(shard) => shard.read_outputs(id, after, limit).await,
            None => Ok(Vec::new()),
        }
    }

    async fn depth(&self) -> Result<Vec<LaneDepth>, Error> {
        if let Some(only) = self.only() {
            return only.depth().await;
        }
        // A lane is a tenant's, so no two shards have the same.
        let mut depths = self.everywhere("read the queue's depth", |shard| shard.depth().boxed()).await?.concat();
        depths.sort_by(|a, b| (b.jobs, &a.lane).cmp(&(a.jobs, &b.lane)));
        depths.truncate(DEPTHS_MAX);
        Ok(depths)
    }

    /// A tenant's endpoints are on one shard. What is not known of one shard is not known: work that cannot be seen is not no work.
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

    /// One receiver for all: each shard's signals come from its own primary.
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
