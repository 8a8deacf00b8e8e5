//! What every handler may use. One per replica; clones share it.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;
use stokehold_exposition::Exposition;
use stokehold_objects::Objects;
use stokehold_queue::budgets::Running;
use stokehold_queue::gateway::{ForgottenNeeds, ModelRef};
use stokehold_queue::{Durability, Error as QueueError, RedisQueue, Registry, Shards, TokenRecord, WorkerRecord};
use stokehold_supervise::Supervisor;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::catalog::Catalog;
use crate::config::Config;
use crate::costs::Costs;
use crate::error::{Code, Problem};
use crate::evicted::Evicted;
use crate::fleet::{AllDemands, Drains, Fleet};
use crate::gateway::advice::Ahead;
use crate::history::History;
use crate::live::Live;
use crate::offers::Offers;
use crate::patience::Patience;
use crate::pulls::Pulls;
use crate::rented::Machines;
use crate::shares::{Share, Shares};
use crate::storage::Stored;
use crate::tenants::Tenants;
use crate::turns::Turns;
use crate::uses::Uses;
use crate::waits::Waits;
use crate::work::Bells;
use crate::{auth, large_inputs};

/// The pause before a repeat, times 0.5 to 1.5.
const REPEAT_PAUSE: Duration = Duration::from_millis(50);

/// Batches whose lines come in at the same time: each holds two parts of 8 MiB.
const BATCH_UPLOADS: usize = 4;

/// Changes of a tenant that one replica has under way at the same time.
const CHANGES_OF_TENANT: usize = 64;

/// How long the list of workers is believed.
const FLEET_FOR: Duration = Duration::from_secs(1);

/// How long after the advice a worker may still fetch a version ahead.
const ADVISED_FOR: Duration = Duration::from_secs(3600);

/// The parts of a running replica. Clones share them.
#[derive(Clone)]
pub struct App(Arc<Parts>);

/// The right to hold a request open, until it is dropped.
pub(crate) struct Held(#[expect(dead_code, reason = "kept until it is dropped")] (OwnedSemaphorePermit, Share));

/// What [`App`] shares.
pub struct Parts {
    pub(crate) config: Config,
    pub(crate) queue: Shards,
    pub(crate) registry: Registry,
    pub(crate) objects: Objects,
    pub(crate) history: History,
    pub(crate) patience: Patience,
    pub(crate) durability: Durability,
    pub(crate) catalog: Catalog,
    pub(crate) tokens: Cache<String, Arc<TokenRecord>>,
    pub(crate) tenants: Tenants,
    pub(crate) uses: Uses,
    pub(crate) stored: Stored,
    pub(crate) older_replicas: Cache<(), bool>,
    pub(crate) workers: Cache<String, Arc<WorkerRecord>>,
    pub(crate) fleets: Cache<(), Fleet>,
    pub(crate) demands: Cache<(), Arc<AllDemands>>,
    pub(crate) drains: Cache<(), Arc<Drains>>,
    pub(crate) forgotten: Cache<(), Arc<Vec<ForgottenNeeds>>>,
    pub(crate) machines: Cache<(), Arc<Machines>>,
    pub(crate) ahead: Cache<(), Arc<Ahead>>,
    /// Models that heartbeats advised workers to load or fetch, by worker id.
    pub(crate) advised: Cache<(String, ModelRef), ()>,
    pub(crate) evicted: Cache<(), Arc<Evicted>>,
    /// What runs, as of a second ago at most.
    pub(crate) running: Cache<(), Arc<Vec<Running>>>,
    pub(crate) costs: Costs,
    pub(crate) waits: Waits,
    pub(crate) pulls: Pulls,
    pub(crate) offers: Offers,
    pub(crate) live: Live,
    /// What this process shows of how things stand.
    pub(crate) exposition: Exposition,
    pub(crate) work: Bells,
    /// Rung here when a schedule of this shard may tick sooner than its scheduler knows.
    pub(crate) rescheduled: Vec<Notify>,
    /// This replica's name for as long as it lives.
    pub(crate) replica: String,
    held: Arc<Semaphore>,
    /// Of those, a tenant's.
    held_shares: Shares,
    pub(crate) turns: Turns,
    /// Workers that wait for jobs: whatever clients hold open, these go on.
    held_pulls: Arc<Semaphore>,
    /// The right to send the lines of a batch.
    pub(crate) uploads: Semaphore,
    /// Of those, a tenant's.
    pub(crate) upload_shares: Shares,
    /// Changes of a tenant that are under way.
    pub(crate) change_shares: Shares,
    /// The supervisor of the background duties.
    pub(crate) supervisor: Supervisor,
    pub(crate) ready: crate::routes::health::Readiness,
    /// Rung when a shard's Redis is another than before, or has been restarted; one for each shard.
    pub(crate) redis_changed: Vec<Notify>,
    pub(crate) shutdown: CancellationToken,
}

impl Deref for App {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl App {
    /// Now, unix milliseconds, by the clock that the queue counts by: what is kept by the hour or the day is read by it too.
    pub(crate) fn now_ms(&self) -> u64 {
        self.config.redis.clock.now_ms()
    }

    /// The parts of the replica named `replica`. `shutdown` ends every request that is held open.
    pub(crate) fn new(
        config: Config,
        replica: String,
        queue: Shards,
        objects: Objects,
        durability: Durability,
        (exposition, supervisor): (Exposition, Supervisor),
        shutdown: CancellationToken,
    ) -> Self {
        let registry = queue.registry();
        let patience = Patience(Duration::from_millis(config.limits.queue_timeout_ms));
        Self(Arc::new(Parts {
            catalog: Catalog::new(registry.clone(), patience),
            tokens: auth::cache(),
            tenants: Tenants::new(),
            uses: Uses::default(),
            stored: Stored::new(),
            older_replicas: large_inputs::older_cache(),
            workers: Cache::builder().max_capacity(10_000).time_to_idle(Duration::from_secs(60)).build(),
            fleets: Cache::builder().max_capacity(1).time_to_live(FLEET_FOR).build(),
            demands: Cache::builder().max_capacity(1).time_to_live(FLEET_FOR).build(),
            drains: Cache::builder().max_capacity(1).time_to_live(FLEET_FOR).build(),
            forgotten: Cache::builder().max_capacity(1).time_to_live(FLEET_FOR).build(),
            machines: Cache::builder().max_capacity(1).time_to_live(FLEET_FOR).build(),
            ahead: Cache::builder().max_capacity(1).time_to_live(FLEET_FOR).build(),
            advised: Cache::builder().max_capacity(100_000).time_to_live(ADVISED_FOR).build(),
            running: Cache::builder().max_capacity(1).time_to_live(FLEET_FOR).build(),
            evicted: Cache::builder().max_capacity(1).time_to_live(FLEET_FOR).build(),
            costs: Costs::default(),
            waits: Waits::new(queue.clone(), replica.clone(), patience, shutdown.clone()),
            offers: Offers::default(),
            live: Live::default(),
            exposition,
            pulls: Pulls::new(queue.clone(), replica.clone(), patience, shutdown.clone()),
            work: Bells::new(queue.all().len()),
            history: History::new(objects.clone()),
            rescheduled: queue.all().iter().map(|_| Notify::new()).collect(),
            redis_changed: queue.all().iter().map(|_| Notify::new()).collect(),
            replica,
            uploads: Semaphore::new(BATCH_UPLOADS),
            held: Arc::new(Semaphore::new(config.limits.held_requests)),
            held_shares: Shares::new(config.limits.held_requests / 2),
            turns: Turns::new(),
            held_pulls: Arc::new(Semaphore::new(config.limits.held_requests)),
            upload_shares: Shares::new(BATCH_UPLOADS / 2),
            change_shares: Shares::new(CHANGES_OF_TENANT),
            supervisor,
            ready: crate::routes::health::Readiness::default(),
            patience,
            config,
            queue,
            registry,
            objects,
            durability,
            shutdown,
        }))
    }

    /// Asks the queue or the registry, for as long as a client should wait for it.
    pub(crate) async fn ask<T>(
        &self,
        step: &'static str,
        question: impl Future<Output = Result<T, QueueError>>,
    ) -> Result<T, Problem> {
        self.patience.ask(step, question).await
    }

    /// The shard on which a tenant lives.
    pub(crate) async fn home(&self, tenant: &str) -> Result<&RedisQueue, Problem> {
        self.ask("find a tenant's shard", self.queue.of(tenant)).await
    }

    /// Has the scheduler of a tenant's shard look now.
    pub(crate) async fn reschedule(&self, tenant: &str) -> Result<(), Problem> {
        self.rescheduled[usize::from(self.home(tenant).await?.number())].notify_one();
        Ok(())
    }

    /// As [`App::ask`], for what may be repeated when its outcome is unknown: twice more, within the same time.
    pub(crate) async fn ask_again<T, F>(&self, step: &'static str, question: impl Fn() -> F) -> Result<T, Problem>
    where
        F: Future<Output = Result<T, QueueError>>,
    {
        let repeated = async {
            for _ in 0..2 {
                match question().await {
                    Err(QueueError::Unavailable { source, .. }) => {
                        tracing::warn!(step, %source, "the queue is unavailable, trying again");
                        tokio::time::sleep(REPEAT_PAUSE.mul_f64(0.5 + rand::random::<f64>())).await;
                    }
                    answer => return answer,
                }
            }
            question().await
        };
        self.ask(step, repeated).await
    }

    /// The right to hold one request of a tenant open. Half of all that may be is the most for one tenant.
    pub(crate) fn hold(&self, tenant: &str) -> Result<Held, Problem> {
        let permit = self.held.clone().try_acquire_owned().ok();
        permit.zip(self.held_shares.take(tenant)).map(Held).ok_or_else(too_many_held)
    }

    /// The right of a worker to wait for jobs.
    pub(crate) fn hold_pull(&self) -> Result<OwnedSemaphorePermit, Problem> {
        self.held_pulls.clone().try_acquire_owned().map_err(|_| too_many_held())
    }
}

fn too_many_held() -> Problem {
    Problem::new(Code::RateLimited, "too many requests are held open here; ask again without waiting")
}
