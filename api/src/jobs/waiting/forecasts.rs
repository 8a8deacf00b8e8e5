//! What estimates are computed from: instances, lanes, and how long models take to start. Read at most once a second
//! for all requests of a replica, so that a job's page that is polled costs the queue little.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use moka::sync::Cache;
use stokehold_queue::registry::{AutoscalerStatus, MachineRecord};
use stokehold_queue::{Queue, RedisQueue};

use super::estimate::UsualStart;
use super::line::Lanes;
use crate::database::{Database, Error};

/// Cache time of instances and lanes.
const CACHE_TTL: Duration = Duration::from_secs(1);

/// Cache time of usual starts, which change slowly, and the maximum number of cached ones.
const USUAL_TTL: Duration = Duration::from_secs(15);
const USUAL_MAX: u64 = 1_000;

/// Number of hours whose attempts count.
const HOURS: u64 = 24;

/// The instances, and the status of the autoscaler that rents them.
pub(crate) struct ComingFacts {
    pub(crate) machines: BTreeMap<String, MachineRecord>,
    pub(crate) status: Option<AutoscalerStatus>,
}

/// An endpoint's version: tenant, name and number.
type VersionKey = (String, String, u32);

/// Facts for estimates, cached.
pub(crate) struct Forecasts {
    db: Arc<Database>,
    instances: Cache<(), Arc<ComingFacts>>,
    lanes: Cache<(), Arc<Lanes>>,
    usual: Cache<VersionKey, UsualStart>,
    /// Versions that no attempt has loaded recently. The next attempt may change that, so they are cached for less long.
    unknown: Cache<VersionKey, ()>,
}

impl Forecasts {
    pub(crate) fn new(db: Arc<Database>) -> Self {
        Self {
            db,
            instances: Cache::builder().max_capacity(1).time_to_live(CACHE_TTL).build(),
            lanes: Cache::builder().max_capacity(1).time_to_live(CACHE_TTL).build(),
            usual: Cache::builder().max_capacity(USUAL_MAX).time_to_live(USUAL_TTL).build(),
            unknown: Cache::builder().max_capacity(USUAL_MAX).time_to_live(CACHE_TTL).build(),
        }
    }

    /// The instances and the autoscaler's status.
    pub(crate) async fn instances(&self) -> Result<Arc<ComingFacts>, Error> {
        if let Some(facts) = self.instances.get(&()) {
            return Ok(facts);
        }
        let (machines, status) = tokio::try_join!(
            self.db.ask("list the instances", self.db.registry.machines()),
            self.db.ask("read the autoscaler's status", self.db.registry.autoscaler()),
        )?;
        let facts = Arc::new(ComingFacts { machines, status });
        self.instances.insert((), facts.clone());
        Ok(facts)
    }

    /// The lanes with ready jobs, and what runs are expected to take.
    pub(crate) async fn lanes(&self) -> Result<Arc<Lanes>, Error> {
        if let Some(lanes) = self.lanes.get(&()) {
            return Ok(lanes);
        }
        let queue = &self.db.queue;
        let runs = try_join_all(queue.all().iter().map(RedisQueue::expected_runs));
        let (depths, runs) = tokio::try_join!(
            self.db.ask("read the lanes", queue.depth()),
            self.db.ask("read what runs are expected to take", runs),
        )?;
        let lanes = Arc::new(Lanes { depths, runs_ms: runs.into_iter().flatten().collect() });
        self.lanes.insert((), lanes.clone());
        Ok(lanes)
    }

    /// The usual start of a version; `None` if no attempt has loaded it recently.
    pub(crate) async fn usual_start(
        &self,
        tenant: &str,
        endpoint: &str,
        version: u32,
    ) -> Result<Option<UsualStart>, Error> {
        let key = (tenant.to_owned(), endpoint.to_owned(), version);
        if let Some(usual) = self.usual.get(&key) {
            return Ok(Some(usual));
        }
        if self.unknown.contains_key(&key) {
            return Ok(None);
        }
        let timings = self.db.home(tenant).await?.timings(tenant, endpoint, HOURS, self.db.now_ms());
        let usual = UsualStart::of(&self.db.ask("read how long attempts took", timings).await?, version);
        match usual {
            Some(usual) => self.usual.insert(key, usual),
            None => self.unknown.insert(key, ()),
        }
        Ok(usual)
    }
}
