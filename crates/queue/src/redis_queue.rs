//! The queue in Redis: each verb is one script, which enforces all guarantees of the verb.

mod config;
mod events;
mod health;
mod holdings;
mod limits;
mod lists;
mod open_jobs;
#[cfg(feature = "mutants")]
mod planted;
mod relay;
mod verbs;

use std::collections::HashMap;

use redis::AsyncCommands;

use crate::batches::Batches;
use crate::clock::Clock;
use crate::connection::{Connection, Location};
use crate::error::Error;
use crate::feedback::FeedbackCounters;
use crate::history::History;
use crate::id::JobId;
use crate::job::{Job, NewJob};
use crate::keys::{Keys, RegistryKeys};
use crate::lane_place::{self, LanePlace};
use crate::outbox::Outbox;
use crate::quarantine::Quarantine;
use crate::queue::{BatchGuard, SUBMIT_MAX, Submitted};
use crate::redis_health::Pulse;
use crate::registry::Registry;
use crate::scripts::{self, Cursor, Recovered};
use crate::timings::{self, VersionTimings};
use crate::traces::Traces;
use crate::{failpoint, record};
pub use config::RedisConfig;
pub use health::Health;
pub use holdings::Holding;
pub(crate) use lists::index_entry;
pub use open_jobs::{OpenJobs, OpenJobsStart};
pub use relay::WatchedAttempt;

/// The queue in Redis. Clones share one connection.
#[derive(Clone)]
pub struct RedisQueue {
    connection: Connection,
    /// The connection to the registry; in a cluster it can be on another node.
    registry: Connection,
    keys: Keys,
    pulse: Pulse,
    config: RedisConfig,
    shard: u8,
}

impl RedisQueue {
    /// Connects to the first shard only, for callers with one shard.
    ///
    /// # Errors
    /// [`Error::Unfit`] if the URL is invalid, [`Error::Unavailable`] if no server answers.
    pub async fn connect(config: RedisConfig) -> Result<Self, Error> {
        let place = Location::parse(&config.url)?;
        let registry = Connection::open(&place, RegistryKeys::new(&config.prefix).root(), config.long_calls).await?;
        Self::shard(&place, &registry, config, 0).await
    }

    /// Connects to one shard. If all roots have one primary, it shares the registry's connection.
    pub(crate) async fn shard(
        place: &Location,
        registry: &Connection,
        config: RedisConfig,
        shard: u8,
    ) -> Result<Self, Error> {
        let keys = Keys::new(&config.prefix, shard);
        let connection = match place.is_one() {
            true => registry.clone(),
            false => Connection::open(place, keys.root(), config.long_calls).await?,
        };
        if let Some(replicas) = config.replicas_to_wait {
            connection.commits().wait_for(replicas);
        }
        Ok(Self { connection, registry: registry.clone(), keys, pulse: Pulse::default(), config, shard })
    }

    /// The shard's number, which is part of its jobs' ids.
    #[must_use]
    pub fn number(&self) -> u8 {
        self.shard
    }

    /// The address of its current primary.
    #[must_use]
    pub fn primary(&self) -> String {
        self.connection.primary().info().addr().to_string()
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.config.clock
    }

    pub(crate) fn is_up(&self) -> bool {
        self.connection.is_up()
    }

    /// The registry: endpoints, tokens, workers.
    #[must_use]
    pub fn registry(&self) -> Registry {
        Registry::new(self.registry.clone(), &self.config.prefix)
    }

    /// The webhook deliveries.
    #[must_use]
    pub fn outbox(&self) -> Outbox {
        Outbox::new(self.connection.clone(), self.keys.clone(), self.config.clock.clone())
    }

    /// The traces to export.
    #[must_use]
    pub fn traces(&self) -> Traces {
        Traces::new(self.connection.clone(), self.keys.clone(), self.config.clock.clone())
    }

    /// The batches.
    #[must_use]
    pub fn batches(&self) -> Batches {
        Batches::new(self.connection.clone(), self.keys.clone(), self.config.clock.clone())
    }

    /// The ended jobs to archive.
    #[must_use]
    pub fn history(&self) -> History {
        History::new(self.connection.long(), self.keys.clone(), self.config.clock.clone())
    }

    /// The feedback counters.
    #[must_use]
    pub fn feedback(&self) -> FeedbackCounters {
        FeedbackCounters::new(self.registry.clone(), &self.config.prefix)
    }

    /// Retention of ended jobs that set none, milliseconds.
    #[must_use]
    pub fn retention_ms(&self) -> u64 {
        self.config.retention_ms
    }

    /// The jobs whose records cannot be read.
    #[must_use]
    pub fn quarantine(&self) -> Quarantine {
        let RedisConfig { clock, retention_ms, .. } = &self.config;
        Quarantine::new(self.connection.clone(), self.keys.clone(), clock.clone(), *retention_ms)
    }

    /// Duration of a lease unless it is extended, milliseconds.
    #[must_use]
    pub fn lease_ms(&self) -> u64 {
        self.config.lease_ms
    }

    /// One step of the recovery sweep: checks up to 50 records from `cursor` on, restores missing entries, and returns
    /// where to continue.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: retry; entries that were restored stay.
    pub async fn recover(&self, cursor: Option<&Cursor>) -> Result<Recovered, Error> {
        let RedisConfig { lease_ms, retention_ms, .. } = self.config;
        scripts::Recover { keys: &self.keys, clock: &self.config.clock, lease_ms, retention_ms, cursor }
            .run(&self.connection.long())
            .await
    }

    /// Claims `role` for `replica` for the next `ttl_ms`, and returns whether it has the role: for sweeps that one
    /// replica performs. Correctness never depends on it, because two replicas may have the role at once.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; retry.
    pub async fn claim_role(&self, role: &str, replica: &str, ttl_ms: u64) -> Result<bool, Error> {
        let mut call = scripts::ROLE.call(&[self.keys.root()]);
        call.arg(role).arg(replica).arg(ttl_ms);
        let reply: Vec<String> = self.connection.eval(&scripts::ROLE, &call).await?;
        match reply.first().map(String::as_str) {
            Some("yes") => Ok(true),
            Some("no") => Ok(false),
            _ => Err(scripts::unexpected(&scripts::ROLE, &reply)),
        }
    }

    /// The place of a queued job in its lane; `None` if it is in none.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn lane_place(&self, id: JobId) -> Result<Option<LanePlace>, Error> {
        lane_place::read(&self.connection, &self.keys, id).await
    }

    /// Expected slot time of a run by `<tenant>:<endpoint>`, milliseconds: the moving average of the runs that ended.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn expected_runs(&self) -> Result<HashMap<String, f64>, Error> {
        let read = self.connection.long().hgetall(self.keys.costs()).await;
        read.map_err(Error::redis("read what runs are expected to take"))
    }

    /// Durations of the parts of an endpoint's attempts that ended in the last `hours`, at most [`timings::HOURS_MAX`],
    /// newest version first.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn timings(
        &self,
        tenant: &str,
        endpoint: &str,
        hours: u64,
        now_ms: u64,
    ) -> Result<Vec<VersionTimings>, Error> {
        timings::read(&self.connection.long(), &self.keys, (tenant, endpoint), hours, now_ms).await
    }

    /// Submits the next lines of a batch unless another replica has. After an unknown outcome, the same jobs may be
    /// submitted again.
    ///
    /// # Errors
    /// [`Error::StaleGuard`] if these lines were already fed; otherwise those of
    /// [`Queue::submit`](crate::Queue::submit).
    pub async fn feed(&self, guard: &BatchGuard, jobs: &[NewJob]) -> Result<Vec<Submitted>, Error> {
        self.accept(Some(guard), jobs).await
    }

    async fn accept(&self, guard: Option<&BatchGuard>, jobs: &[NewJob]) -> Result<Vec<Submitted>, Error> {
        bounded("jobs", jobs.len(), SUBMIT_MAX)?;
        self.admits()?;
        #[cfg(feature = "mutants")]
        if guard.is_none() && crate::mutants::is("submit-before-script") {
            return Ok(self.submit_later(jobs.to_vec()));
        }
        failpoint::reach("submit.before").await;
        let share_bytes = self.share_bytes();
        let submitted = scripts::Submit { keys: &self.keys, clock: &self.config.clock, guard, share_bytes, jobs }
            .run(&self.connection)
            .await;
        failpoint::reach("submit.after").await;
        submitted
    }

    async fn record(&self, connection: &Connection, id: JobId) -> Result<Option<Job>, Error> {
        let fields: HashMap<String, String> =
            connection.redis().hgetall(self.keys.job(id)).await.map_err(Error::redis("read a job"))?;
        record::decode(id, &fields)
    }
}

fn bounded(what: &str, len: usize, max: usize) -> Result<(), Error> {
    if len > max {
        return Err(Error::TooLarge(format!("{len} {what} in one call, over the limit of {max}")));
    }
    Ok(())
}
