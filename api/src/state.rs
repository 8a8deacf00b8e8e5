//! The state that every handler shares: one per replica; clones are cheap.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;
use stokehold_metrics::Exposition;
use stokehold_objects::Objects;
use stokehold_queue::budgets::Running;
use stokehold_queue::gateway::{ForgottenNeeds, ModelRef};
use stokehold_queue::{Durability, Error as QueueError, RedisQueue, Registry, Shards, TokenRecord, WorkerRecord};
use stokehold_supervise::Supervisor;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::costs::Costs;
use crate::dashboard::live::Live;
use crate::endpoints::catalog::Catalog;
use crate::error::{Code, Problem};
use crate::history::History;
use crate::jobs::large_inputs;
use crate::jobs::watchers::JobWatchers;
use crate::queue_timeout::Patience;
use crate::tenants::Tenants;
use crate::tenants::auth;
use crate::tenants::shares::{Share, Shares};
use crate::tenants::storage::Stored;
use crate::tenants::token_last_used::TokenLastUsed;
use crate::tenants::turns::Turns;
use crate::wakeups::Wakeups;
use crate::workers::capacity::Offers;
use crate::workers::evicted::Evicted;
use crate::workers::fleet::{AllDemands, Drains, Fleet};
use crate::workers::gateway::advice::Ahead;
use crate::workers::lease_polls::LeasePolls;
use crate::workers::rented::Machines;

/// The pause before a repeat, times 0.5 to 1.5.
const REPEAT_PAUSE: Duration = Duration::from_millis(50);

/// Concurrent uploads of batch lines: each uses two parts of 8 MiB.
const BATCH_UPLOADS: usize = 4;

/// Concurrent changes of one tenant on a replica.
const CHANGES_OF_TENANT: usize = 64;

/// Cache time of the worker list.
const FLEET_FOR: Duration = Duration::from_secs(1);

/// How long after the advice a worker may still fetch a version ahead.
const ADVISED_FOR: Duration = Duration::from_secs(3600);

/// The parts of a running replica. Clones share them.
#[derive(Clone)]
pub struct App(Arc<Parts>);

/// A permit to hold a request open, until it is dropped.
pub(crate) struct Held(#[expect(dead_code, reason = "kept until it is dropped")] (OwnedSemaphorePermit, Share));

/// The parts behind [`App`].
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
    pub(crate) token_last_used: TokenLastUsed,
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
    /// The running jobs, at most one second old.
    pub(crate) running: Cache<(), Arc<Vec<Running>>>,
    pub(crate) costs: Costs,
    pub(crate) job_watchers: JobWatchers,
    pub(crate) lease_polls: LeasePolls,
    pub(crate) offers: Offers,
    pub(crate) live: Live,
    /// The metrics of the installation that this process serves.
    pub(crate) exposition: Exposition,
    pub(crate) wakeups: Wakeups,
    /// One notifier per shard: a schedule may tick sooner than its scheduler expects.
    pub(crate) rescheduled: Vec<Notify>,
    /// This replica's name, unique to this process.
    pub(crate) replica: String,
    held: Arc<Semaphore>,
    /// The tenants' shares of the held requests.
    held_shares: Shares,
    pub(crate) turns: Turns,
    /// Permits for workers that wait for jobs, separate from clients' held requests.
    held_polls: Arc<Semaphore>,
    /// Permits for uploads of batch lines.
    pub(crate) uploads: Semaphore,
    /// The tenants' shares of the uploads.
    pub(crate) upload_shares: Shares,
    /// The tenants' shares of concurrent changes.
    pub(crate) change_shares: Shares,
    /// The supervisor of the background duties.
    pub(crate) supervisor: Supervisor,
    pub(crate) ready: crate::server::health::Readiness,
    /// One notifier per shard: its Redis was restarted or replaced.
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
    /// The current time, Unix milliseconds, by the queue's clock; hourly and daily data use the same clock.
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
            token_last_used: TokenLastUsed::default(),
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
            job_watchers: JobWatchers::new(queue.clone(), replica.clone(), patience, shutdown.clone()),
            offers: Offers::default(),
            live: Live::default(),
            exposition,
            lease_polls: LeasePolls::new(queue.clone(), replica.clone(), patience, shutdown.clone()),
            wakeups: Wakeups::new(queue.all().len()),
            history: History::new(objects.clone()),
            rescheduled: queue.all().iter().map(|_| Notify::new()).collect(),
            redis_changed: queue.all().iter().map(|_| Notify::new()).collect(),
            replica,
            uploads: Semaphore::new(BATCH_UPLOADS),
            held: Arc::new(Semaphore::new(config.limits.held_requests)),
            held_shares: Shares::new(config.limits.held_requests / 2),
            turns: Turns::new(),
            held_polls: Arc::new(Semaphore::new(config.limits.held_requests)),
            upload_shares: Shares::new(BATCH_UPLOADS / 2),
            change_shares: Shares::new(CHANGES_OF_TENANT),
            supervisor,
            ready: crate::server::health::Readiness::default(),
            patience,
            config,
            queue,
            registry,
            objects,
            durability,
            shutdown,
        }))
    }

    /// Runs a call of the queue or the registry within the time that a client should wait.
    pub(crate) async fn ask<T>(
        &self,
        step: &'static str,
        question: impl Future<Output = Result<T, QueueError>>,
    ) -> Result<T, Problem> {
        self.patience.ask(step, question).await
    }

    /// The shard of a tenant.
    pub(crate) async fn home(&self, tenant: &str) -> Result<&RedisQueue, Problem> {
        self.ask("find a tenant's shard", self.queue.of(tenant)).await
    }

    /// Wakes the scheduler of a tenant's shard.
    pub(crate) async fn reschedule(&self, tenant: &str) -> Result<(), Problem> {
        self.rescheduled[usize::from(self.home(tenant).await?.number())].notify_one();
        Ok(())
    }

    /// Like [`App::ask`], for calls that are safe to repeat when their outcome is unknown: repeats up to twice within
    /// the same time.
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

    /// A permit to hold one request of a tenant open. One tenant gets at most half of all permits.
    pub(crate) fn hold(&self, tenant: &str) -> Result<Held, Problem> {
        let permit = self.held.clone().try_acquire_owned().ok();
        permit.zip(self.held_shares.take(tenant)).map(Held).ok_or_else(too_many_held)
    }

    /// A permit for a worker to wait for jobs.
    pub(crate) fn hold_poll(&self) -> Result<OwnedSemaphorePermit, Problem> {
        self.held_polls.clone().try_acquire_owned().map_err(|_| too_many_held())
    }
}

fn too_many_held() -> Problem {
    Problem::new(Code::RateLimited, "too many requests are waiting on this replica; repeat the request without waiting")
}
