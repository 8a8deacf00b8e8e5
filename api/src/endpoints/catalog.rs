//! Endpoint versions as submits need them, ready to validate inputs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use moka::sync::Cache;
use rand::Rng as _;
use stokehold_queue::Registry;
use stokehold_queue::endpoint::{EndpointVersion, Traffic};
use stokehold_queue::registry::{REQUIREMENT_SETS_OF_TENANT_MAX, RequirementNumber};
use stokehold_queue::requirements::Requirements;
use stokehold_queue::vram::VramNeed;

use crate::database;
use crate::database::QueueTimeout;
use crate::endpoints::schema::Schema;

/// Longest time until a deploy on another replica takes effect here. A deploy on this replica takes effect at once.
const CURRENT_FOR: Duration = Duration::from_secs(1);

/// Maximum total weight of compiled versions: about one per kilobyte. It fits thousands of typical versions.
const DEPLOYED_WEIGHT_MAX: u64 = 100_000;
const DEPLOYED_IDLE: Duration = Duration::from_secs(600);

/// Time after which the learned memory of a version is looked up again.
const NEED_FOR: Duration = Duration::from_secs(5);

/// Time after which a cached version is read again. Another replica may have deleted it, and the number of its
/// requirement set is freed unless it is requested from time to time (requirements.rs).
const VERSION_FOR: Duration = Duration::from_secs(60);

/// The members of a requirement set.
const SET_MEMBERS: &str = "gpus, gpu_models, min_compute_capability, min_cuda, regions, min_trust, min_sandbox";

/// Reasons for which an endpoint's version, or the number of a requirement set, cannot be resolved.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The registry failed.
    #[error(transparent)]
    Database(#[from] database::Error),
    /// No endpoint has this name.
    #[error("there is no endpoint {name:?}; deploy it with `stoke deploy`, or see GET /v1/endpoints")]
    UnknownEndpoint {
        /// The name.
        name: String,
    },
    /// The endpoint has no such version.
    #[error("endpoint {name:?} has no version {version}; the current one is {current}")]
    UnknownVersion {
        /// The endpoint's name.
        name: String,
        /// The missing version.
        version: u32,
        /// The current version.
        current: u32,
    },
    /// A deployed version is invalid: it has to be deployed again.
    #[error("version {version} of endpoint {name:?} cannot be used: {why}")]
    Unusable {
        /// The endpoint's name.
        name: String,
        /// The version.
        version: u32,
        /// The reason.
        why: String,
    },
    /// The tenant already has the maximum number of requirement sets.
    #[error(
        "would be requirement set {} of this tenant ({SET_MEMBERS}), over the limit of \
            {REQUIREMENT_SETS_OF_TENANT_MAX}; reuse the requirements of another endpoint. A set is freed one hour \
            after the last version with traffic and the last open job stopped using it",
        .0 + 1
    )]
    SetsOfTenant(u32),
    /// The installation already has the maximum number of requirement sets.
    #[error(
        "would be a new requirement set ({SET_MEMBERS}), but this installation already has {0}, the most it may have; \
            reuse the requirements of another endpoint, or ask the operator which tenants have many"
    )]
    Sets(u32),
}

/// One version with its compiled schema.
pub(crate) struct Deployed {
    pub(crate) version: EndpointVersion,
    /// VRAM class, GiB, of jobs that are submitted now.
    pub(crate) vram_class_gib: u32,
    /// GPU memory that it needs on each GPU.
    pub(crate) need: VramNeed,
    /// Number of its requirement set.
    pub(crate) demands: u32,
    pub(crate) input: Schema,
    /// Time at which this cache entry expires.
    pub(crate) fresh_until: Instant,
}

/// Bounded cache of resolved versions.
pub(crate) struct Catalog {
    registry: Registry,
    timeout: QueueTimeout,
    traffic: Cache<(String, String), Traffic>,
    deployed: Cache<(String, String, u32), Arc<Deployed>>,
}

impl Catalog {
    pub(crate) fn new(registry: Registry, timeout: QueueTimeout) -> Self {
        Self {
            registry,
            timeout,
            traffic: Cache::builder().max_capacity(100_000).time_to_live(CURRENT_FOR).build(),
            deployed: Cache::builder()
                .weigher(|_, deployed: &Arc<Deployed>| deployed.input.weight().saturating_add(10))
                .max_capacity(DEPLOYED_WEIGHT_MAX)
                .time_to_idle(DEPLOYED_IDLE)
                .support_invalidation_closures()
                .build(),
        }
    }

    /// The requested version, or the current one.
    pub(crate) async fn resolve(&self, tenant: &str, name: &str, version: Option<u32>) -> Result<Arc<Deployed>, Error> {
        let number = match version {
            Some(version) => version,
            None => match self.traffic(tenant, name).await? {
                Some(traffic) => traffic.pick(rand::rng().random_range(0..100)),
                None => return Err(Error::UnknownEndpoint { name: name.to_owned() }),
            },
        };
        let key = (tenant.to_owned(), name.to_owned(), number);
        if let Some(deployed) = self.deployed.get(&key)
            && Instant::now() < deployed.fresh_until
        {
            return Ok(deployed);
        }
        let found = self.timeout.ask("read an endpoint", self.registry.endpoint(tenant, name, Some(number))).await?;
        let Some(found) = found else { return Err(self.unknown_version(tenant, name, number).await?) };
        let needs_card = found.spec.vram_gib > 0.0;
        let learned = if needs_card { self.learned(tenant, name, number).await? } else { BTreeMap::new() };
        let demands = self.number(tenant, &found.spec.demands, false).await?;
        let fresh_until = Instant::now() + if needs_card { NEED_FOR } else { VERSION_FOR };
        let deployed = Arc::new(compile(found, learned, demands, fresh_until)?);
        self.deployed.insert(key, deployed.clone());
        Ok(deployed)
    }

    /// Like [`Catalog::resolve`], for callers that can do without a version. Also returns `None` if the version cannot
    /// be read now, which is logged.
    pub(crate) async fn find(&self, tenant: &str, name: &str, version: Option<u32>) -> Option<Arc<Deployed>> {
        match self.resolve(tenant, name, version).await {
            Ok(deployed) => Some(deployed),
            Err(Error::UnknownEndpoint { .. } | Error::UnknownVersion { .. }) => None,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, tenant, endpoint = name, "an endpoint cannot be looked up");
                None
            }
        }
    }

    /// Traffic split of new jobs among an endpoint's versions.
    async fn traffic(&self, tenant: &str, name: &str) -> Result<Option<Traffic>, database::Error> {
        let key = (tenant.to_owned(), name.to_owned());
        if let Some(traffic) = self.traffic.get(&key) {
            return Ok(Some(traffic));
        }
        let found = self.timeout.ask("read an endpoint", self.registry.traffic(tenant, name)).await?;
        // Insert only if absent: a deploy that crossed this read has stored newer traffic.
        Ok(found.map(|found| self.traffic.entry(key).or_insert(found).into_value()))
    }

    /// Learned memory of a version, MiB, by GPU model.
    async fn learned(&self, tenant: &str, name: &str, version: u32) -> Result<BTreeMap<String, u64>, database::Error> {
        self.timeout.ask("read the GPU memory that a version needs", self.registry.needs(tenant, name, version)).await
    }

    /// Number of a tenant's requirement set. The tenant uses the set from now on. `deploys` is set when a version with
    /// it is about to be added.
    pub(crate) async fn number(&self, tenant: &str, demands: &Requirements, deploys: bool) -> Result<u32, Error> {
        let numbered = self.registry.number_requirements(tenant, demands, deploys);
        match self.timeout.ask("assign a number to a requirement set", numbered).await? {
            RequirementNumber::Number(number) => Ok(number),
            RequirementNumber::TenantFull(sets) => Err(Error::SetsOfTenant(sets)),
            RequirementNumber::Full(sets) => Err(Error::Sets(sets)),
        }
    }

    /// Discards a cached version after its learned memory has grown: the next submit looks it up.
    pub(crate) fn learned_now(&self, tenant: &str, name: &str, version: u32) {
        self.deployed.invalidate(&(tenant.to_owned(), name.to_owned(), version));
    }

    /// Discards the cached versions of an endpoint after their learned memory was reset: the next submits look it up.
    pub(crate) fn forgotten_now(&self, tenant: &str, name: &str) {
        let (tenant, name) = (tenant.to_owned(), name.to_owned());
        // This fails only if the cache was built without support for it.
        let _ = self.deployed.invalidate_entries_if(move |(of, endpoint, _), _| *of == tenant && *endpoint == name);
    }

    /// Discards versions of an endpoint that were deleted on this replica: no job is submitted to them from here on.
    pub(crate) fn undeployed_now(&self, tenant: &str, name: &str) {
        self.traffic.invalidate(&(tenant.to_owned(), name.to_owned()));
        self.forgotten_now(tenant, name);
    }

    /// Stores the traffic after a deploy or a change of traffic on this replica. It applies from here on.
    pub(crate) fn routed_now(&self, tenant: &str, name: &str, traffic: Traffic) {
        self.traffic.insert((tenant.to_owned(), name.to_owned()), traffic);
    }

    /// Returns which is missing: the endpoint, or only this version of it.
    async fn unknown_version(&self, tenant: &str, name: &str, version: u32) -> Result<Error, Error> {
        let name = name.to_owned();
        Ok(match self.traffic(tenant, &name).await? {
            Some(traffic) => Error::UnknownVersion { name, version, current: traffic.current },
            None => Error::UnknownEndpoint { name },
        })
    }
}

fn compile(
    version: EndpointVersion,
    learned_mib: BTreeMap<String, u64>,
    demands: u32,
    fresh_until: Instant,
) -> Result<Deployed, Error> {
    let unusable = |why: String| Error::Unusable { name: version.name.clone(), version: version.version, why };
    let input = Schema::compile(&version.spec.input_schema).map_err(|why| unusable(why.to_string()))?;
    let need = version.spec.vram_need(learned_mib);
    let vram_class_gib = need.class_gib().ok_or_else(|| unusable("it needs more VRAM than any GPU has".to_owned()))?;
    Ok(Deployed { version, need, vram_class_gib, demands, input, fresh_until })
}
