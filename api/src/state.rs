//! The parts of a running replica, which its handlers and duties share.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRef;
use stokehold_metrics::Metrics;
use stokehold_objects::Objects;
use stokehold_queue::{Durability, Shards};
use stokehold_supervise::Supervisor;
use tokio_util::sync::CancellationToken;

use crate::batches::uploads::Uploads;
use crate::config::Config;
use crate::costs::Costs;
use crate::dashboard::subjects::Live;
use crate::database::{Database, QueueTimeout};
use crate::endpoints::catalog::Catalog;
use crate::files::relays::Relays;
use crate::history::{History, Jobs};
use crate::jobs::large_inputs::LargeInputs;
use crate::jobs::waiting::forecasts::Forecasts;
use crate::jobs::watchers::JobWatchers;
use crate::openai::models::Models;
use crate::server::readiness::Readiness;
use crate::server::wait_permits::WaitPermits;
use crate::tenants::shares::Shares;
use crate::tenants::storage::Storage;
use crate::tenants::token_last_used::TokenLastUsed;
use crate::tenants::turns::Turns;
use crate::tenants::{Tenants, TokenCache, token_cache};
use crate::wakeups::Wakeups;
use crate::workers::capacity::Capacity;
use crate::workers::evicted::Evictions;
use crate::workers::fleet::Fleets;
use crate::workers::gateway::advice::Advisor;
use crate::workers::gateway::output_relay::OutputRelay;
use crate::workers::gateway::own::Ownership;
use crate::workers::lease_polls::LeasePolls;
use crate::workers::rented::Instances;

/// Concurrent changes of one tenant on a replica.
const CHANGES_OF_TENANT: usize = 64;

/// A running replica. Clones share its parts: axum clones its state several times for each request. A handler takes
/// the parts that it uses as `State<Part>`.
#[derive(Clone)]
pub struct App(Arc<AppParts>);

impl Deref for App {
    type Target = AppParts;

    fn deref(&self) -> &AppParts {
        &self.0
    }
}

/// Defines the parts, each of which can be taken from the state.
macro_rules! parts {
    ($($(#[$doc:meta])* $name:ident: $part:ty,)*) => {
        /// The parts of a running replica.
        pub struct AppParts {
            $($(#[$doc])* pub(crate) $name: $part,)*
        }

        $(impl FromRef<App> for $part {
            fn from_ref(app: &App) -> Self {
                app.$name.clone()
            }
        })*
    };
}

parts! {
    config: Arc<Config>,
    db: Arc<Database>,
    objects: Arc<Objects>,
    history: Arc<History>,
    jobs: Arc<Jobs>,
    large_inputs: Arc<LargeInputs>,
    catalog: Arc<Catalog>,
    durability: Durability,
    tokens: TokenCache,
    tenants: Arc<Tenants>,
    token_last_used: Arc<TokenLastUsed>,
    storage: Arc<Storage>,
    fleets: Arc<Fleets>,
    instances: Arc<Instances>,
    forecasts: Arc<Forecasts>,
    evictions: Arc<Evictions>,
    advisor: Arc<Advisor>,
    ownership: Arc<Ownership>,
    costs: Arc<Costs>,
    job_watchers: Arc<JobWatchers>,
    models: Arc<Models>,
    lease_polls: LeasePolls,
    capacity: Capacity,
    live: Arc<Live>,
    /// The metrics of the installation that this process serves.
    exposition: Metrics,
    wakeups: Arc<Wakeups>,
    /// Name of this replica, unique to this process.
    replica: Arc<str>,
    wait_permits: Arc<WaitPermits>,
    turns: Arc<Turns>,
    uploads: Arc<Uploads>,
    relays: Arc<Relays>,
    output_relay: Arc<OutputRelay>,
    /// The tenants' shares of concurrent changes.
    change_shares: Shares,
    /// The supervisor of the background duties.
    supervisor: Supervisor,
    readiness: Arc<Readiness>,
    shutdown: CancellationToken,
}

impl App {
    /// Creates the parts of the replica named `replica`. `shutdown` ends every request that is held open.
    pub(crate) fn new(
        config: Config,
        replica: String,
        queue: Shards,
        objects: Objects,
        durability: Durability,
        (exposition, supervisor): (Metrics, Supervisor),
        shutdown: CancellationToken,
    ) -> Self {
        let timeout = QueueTimeout(Duration::from_millis(config.limits.queue_timeout_ms));
        let db = Arc::new(Database::new(queue.clone(), timeout, config.redis.clock.clone()));
        let history = Arc::new(History::new(objects.clone()));
        let objects = Arc::new(objects);
        let catalog = Arc::new(Catalog::new(queue.registry(), timeout));
        let tenants = Arc::new(Tenants::new(db.clone()));
        let storage = Arc::new(Storage::new(db.clone(), objects.clone(), tenants.clone()));
        let lease_polls = LeasePolls::new(queue.clone(), replica.clone(), timeout, shutdown.clone());
        let fleets = Fleets::new(db.clone(), catalog.clone(), lease_polls.clone(), config.extend_every_ms);
        let fleets = Arc::new(fleets);
        let advisor = Arc::new(Advisor::new(db.clone(), catalog.clone(), fleets.clone()));
        let job_watchers = JobWatchers::new(queue.clone(), replica.clone(), timeout, shutdown.clone());
        let (job_watchers, replica) = (Arc::new(job_watchers), Arc::<str>::from(replica));
        Self(Arc::new(AppParts {
            output_relay: Arc::new(OutputRelay::new(db.clone(), job_watchers.clone(), replica.clone())),
            jobs: Arc::new(Jobs::new(db.clone(), history.clone())),
            large_inputs: Arc::new(LargeInputs::new(db.clone(), objects.clone(), storage.clone())),
            durability,
            tokens: token_cache(),
            token_last_used: Arc::default(),
            instances: Arc::new(Instances::new(db.clone())),
            forecasts: Arc::new(Forecasts::new(db.clone())),
            evictions: Arc::new(Evictions::new(db.clone(), fleets.clone())),
            ownership: Arc::new(Ownership::new(db.clone(), advisor.clone())),
            costs: Arc::new(Costs::new(db.clone())),
            job_watchers,
            models: Arc::new(Models::new(db.clone())),
            capacity: Capacity::default(),
            live: Arc::default(),
            wakeups: Arc::new(Wakeups::new(queue.all().len())),
            wait_permits: Arc::new(WaitPermits::new(config.limits.held_requests)),
            turns: Arc::new(Turns::new()),
            uploads: Arc::default(),
            relays: Arc::new(Relays::new()),
            change_shares: Shares::new(CHANGES_OF_TENANT),
            readiness: Arc::new(Readiness::new(db.clone(), objects.clone())),
            replica,
            config: Arc::new(config),
            db,
            history,
            objects,
            catalog,
            tenants,
            storage,
            fleets,
            advisor,
            lease_polls,
            exposition,
            supervisor,
            shutdown,
        }))
    }
}
