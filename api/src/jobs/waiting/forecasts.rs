//! What estimates are computed from: instances, lanes, and how long models take to start. Read at most once a second
//! for all requests of a replica, so that a job's page that is polled costs the queue little.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use moka::Expiry;
use moka::future::Cache;
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
#[derive(Default)]
pub(crate) struct ComingFacts {
    pub(crate) machines: BTreeMap<String, MachineRecord>,
    pub(crate) status: Option<AutoscalerStatus>,
}

/// An endpoint's version: tenant, name and number.
type VersionKey = (String, String, u32);

/// Facts for estimates, cached. Requests that miss the cache at once cause one read; an error of it is theirs together.
pub(crate) struct Forecasts {
    db: Arc<Database>,
    instances: Cache<(), Arc<ComingFacts>>,
    lanes: Cache<(), Arc<Lanes>>,
    usual: Cache<VersionKey, Option<UsualStart>>,
}

/// Cache time of a usual start. That no attempt has loaded the version recently may change with the next one, so it is
/// cached for less long.
struct UsualExpiry;

impl Expiry<VersionKey, Option<UsualStart>> for UsualExpiry {
    fn expire_after_create(&self, _: &VersionKey, usual: &Option<UsualStart>, _: Instant) -> Option<Duration> {
        Some(if usual.is_some() { USUAL_TTL } else { CACHE_TTL })
    }
}

impl Forecasts {
    pub(crate) fn new(db: Arc<Database>) -> Self {
        Self {
            db,
            instances: Cache::builder().max_capacity(1).time_to_live(CACHE_TTL).build(),
            lanes: Cache::builder().max_capacity(1).time_to_live(CACHE_TTL).build(),
            usual: Cache::builder().max_capacity(USUAL_MAX).expire_after(UsualExpiry).build(),
        }
    }

    /// The instances and the autoscaler's status.
    pub(crate) async fn instances(&self) -> Result<Arc<ComingFacts>, Arc<Error>> {
        let read = async {
            let (machines, status) = tokio::try_join!(
                self.db.ask("list the instances", self.db.registry.machines()),
                self.db.ask("read the autoscaler's status", self.db.registry.autoscaler()),
            )?;
            Ok(Arc::new(ComingFacts { machines, status }))
        };
        self.instances.try_get_with((), Box::pin(read)).await
    }

    /// The lanes with ready jobs, and what runs are expected to take.
    pub(crate) async fn lanes(&self) -> Result<Arc<Lanes>, Arc<Error>> {
        let read = async {
            let queue = &self.db.queue;
            let runs = try_join_all(queue.all().iter().map(RedisQueue::expected_runs));
            let (depths, runs) = tokio::try_join!(
                self.db.ask("read the lanes", queue.depth()),
                self.db.ask("read what runs are expected to take", runs),
            )?;
            Ok(Arc::new(Lanes { depths, runs_ms: runs.into_iter().flatten().collect() }))
        };
        self.lanes.try_get_with((), Box::pin(read)).await
    }

    /// The usual start of a version; `None` if no attempt has loaded it recently.
    pub(crate) async fn usual_start(
        &self,
        tenant: &str,
        endpoint: &str,
        version: u32,
    ) -> Result<Option<UsualStart>, Arc<Error>> {
        let read = async {
            let timings = self.db.home(tenant).await?.timings(tenant, endpoint, HOURS, self.db.now_ms());
            Ok(UsualStart::of(&self.db.ask("read how long attempts took", timings).await?, version))
        };
        self.usual.try_get_with((tenant.to_owned(), endpoint.to_owned(), version), Box::pin(read)).await
    }
}
