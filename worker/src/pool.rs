//! The models of this worker: their specifications, their turns, and their loaded runners.
//!
//! Lock order: a task that holds one of these locks takes only locks below it.
//!
//! ```text
//! Model::loaded      asynchronous; held while a model is loaded or evicted
//! Pool::endpoints
//! Endpoint::models
//! Model::on
//! the ledger         a leaf: it calls nothing of this module
//! ```
//!
//! A task that holds another lock, or the `loaded` of another model, only tries to lock `loaded`; a model that is being
//! loaded holds its lock and counts as loaded. Each of the other locks guards one value: under it, a task takes no lock
//! except the ledger's.

mod ahead;
mod crowded;
mod endpoint;
mod fetch;
mod load;
mod model;
mod ready;
mod room;
mod starting;
mod status;
mod warmup;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use stokehold_protocol::gateway::{Gpu, LeaseRef, ModelRef};
use stokehold_protocol::job::{ErrorCode, JobError};
use stokehold_protocol::requirements::Requirements;
use tokio::sync::{Notify, OnceCell};
use tokio::task::{AbortHandle, JoinSet};
use tracing::Instrument as _;

use crate::environment::Environments;
use crate::failure::{failed, infra};
use crate::gateway::{self, Gateway};
use crate::gpus::Gpus;
use crate::package::Packages;
use crate::sandbox::Sandbox;
use crate::scratch::EndpointFolder;
use crate::turns::Slots;
use crate::weights::Weights;
use crowded::Crowded;
use endpoint::Endpoint;
pub(crate) use model::ModelGuard;
use model::{Growing, Model};
pub(crate) use ready::{NotReady, Ready};

/// All models of this worker.
pub(crate) struct Pool {
    gateway: Arc<Gateway>,
    environments: Environments,
    packages: Packages,
    weights: Weights,
    scratch: PathBuf,
    scratch_bytes: u64,
    sandbox: Arc<Sandbox>,
    load_timeout: Duration,
    max_loaded: usize,
    gpus: Gpus,
    slots: Arc<Slots>,
    endpoints: Mutex<HashMap<ModelRef, Arc<OnceCell<Arc<Endpoint>>>>>,
    /// Models for which there was no room recently.
    crowded: Mutex<Crowded>,
    /// Notified when a run or a claim of a GPU has ended.
    ended: Arc<Notify>,
    /// Jobs that wait for a model.
    starting: starting::Starting,
    /// Tasks that load models.
    loads: Mutex<JoinSet<()>>,
}

/// The parts of a pool.
pub(crate) struct PoolConfig {
    pub(crate) environments: Environments,
    pub(crate) packages: Packages,
    pub(crate) weights: Weights,
    pub(crate) scratch: PathBuf,
    /// Maximum scratch space of one endpoint's runners.
    pub(crate) scratch_bytes: u64,
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) load_timeout: Duration,
    pub(crate) max_loaded: usize,
    pub(crate) gpus: Gpus,
    pub(crate) slots: Arc<Slots>,
}

/// Beyond this number of known endpoints, those without a model are forgotten.
const ENDPOINTS_KNOWN: usize = 1_000;

impl Pool {
    pub(crate) fn new(gateway: Arc<Gateway>, config: PoolConfig) -> Self {
        Self {
            gateway,
            environments: config.environments,
            packages: config.packages,
            weights: config.weights,
            scratch: config.scratch,
            scratch_bytes: config.scratch_bytes,
            sandbox: config.sandbox,
            load_timeout: config.load_timeout,
            max_loaded: config.max_loaded,
            gpus: config.gpus,
            slots: config.slots,
            endpoints: Mutex::default(),
            crowded: Mutex::default(),
            ended: Arc::default(),
            starting: starting::Starting::default(),
            loads: Mutex::default(),
        }
    }

    /// A model for one more job of this endpoint version. `behind`: the number of jobs queued behind it, if known.
    pub(crate) async fn model(&self, which: &ModelRef, behind: Option<u64>) -> Result<ModelGuard, JobError> {
        let endpoint = self.endpoint(which).await?;
        if let Some(behind) = behind {
            endpoint.has_behind(behind);
        }
        Ok(endpoint.model())
    }

    /// Loads as many additional models as the waiting jobs justify. `lease` belongs to the job: the holder of a lease
    /// may get the endpoint's secrets. Does nothing while models lack room: additional models must not take more of it.
    pub(crate) fn grow(self: &Arc<Self>, beside: &ModelGuard, lease: &LeaseRef) {
        if self.crowded.lock().is_any() {
            return;
        }
        for growing in beside.endpoint.grow() {
            let (pool, lease) = (Arc::clone(self), lease.clone());
            self.spawn(async move { pool.load_beside(growing, &lease).await });
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let mut tasks = self.loads.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task.in_current_span())
    }

    async fn load_beside(&self, growing: Growing, lease: &LeaseRef) {
        let version = &growing.0.endpoint.spec.version;
        let (code, message) = match self.ready(&growing.0, Some(lease), None).await {
            Ok(_) => return,
            Err(NotReady::Job(error) | NotReady::Outgrown(error, _)) => (Some(error.code), error.message),
            Err(NotReady::NoRoom | NotReady::Closed) => (None, "not enough room".to_owned()),
        };
        growing.0.endpoint.cannot_grow();
        tracing::info!(endpoint.id = %version.name, version = version.version, ?code, why = ?message, "cannot load another model of this endpoint");
    }

    /// The endpoint version; fetches its specification the first time.
    async fn endpoint(&self, which: &ModelRef) -> Result<Arc<Endpoint>, JobError> {
        let cell = {
            let mut endpoints = self.endpoints.lock();
            if endpoints.len() >= ENDPOINTS_KNOWN && !endpoints.contains_key(which) {
                endpoints.retain(|_, cell| cell.get().is_none_or(|endpoint| !is_forgotten(endpoint)));
            }
            Arc::clone(endpoints.entry(which.clone()).or_default())
        };
        let fetch = async || {
            let ModelRef { tenant, endpoint, version } = which;
            let spec = self.gateway.runner_spec(tenant, endpoint, *version).await?;
            let gpus = self.gpus_for(&spec.version.spec.demands);
            let folder = EndpointFolder::new(&self.scratch, self.sandbox.next_uid())?;
            Ok::<_, anyhow::Error>(Endpoint::new(
                tenant.clone(),
                spec,
                folder,
                (gpus, self.gpus.clone()),
                Arc::clone(&self.slots),
            ))
        };
        let endpoint = cell.get_or_try_init(fetch).await;
        endpoint.cloned().map_err(|error| match error.downcast_ref::<gateway::Error>() {
            Some(gateway::Error::Refused { code, detail }) if code == "unknown_version" => {
                failed(ErrorCode::EnvironmentFailed, detail.clone())
            }
            _ => infra(format!("cannot fetch the endpoint's specification: {error}")),
        })
    }

    /// The GPUs that meet an endpoint's requirements.
    fn gpus_for(&self, demands: &Requirements) -> Vec<u32> {
        self.gpus.list().iter().filter(|gpu| demands.is_met_by(gpu)).map(|gpu| gpu.index).collect()
    }

    /// The first of these GPUs, if any.
    fn gpu_of(&self, gpus: &[u32]) -> Option<&Gpu> {
        let first = gpus.first()?;
        self.gpus.list().iter().find(|gpu| gpu.index == *first)
    }

    fn known(&self) -> Vec<Arc<Model>> {
        self.known_endpoints().iter().flat_map(|endpoint| endpoint.models()).collect()
    }

    fn known_endpoints(&self) -> Vec<Arc<Endpoint>> {
        self.endpoints.lock().values().filter_map(|cell| cell.get().cloned()).collect()
    }

    /// Stops every runner.
    pub(crate) async fn stop(&self) {
        let mut loads = std::mem::take(&mut *self.loads.lock());
        loads.shutdown().await;
        let stops = self.known().into_iter().map(|model| async move {
            if let Some(loaded) = model.loaded.lock().await.take() {
                loaded.runner.stop().await;
            }
        });
        futures::future::join_all(stops).await;
    }
}

/// Whether the endpoint has no loaded or needed model; if so, removes its models.
fn is_forgotten(endpoint: &Endpoint) -> bool {
    let is_idle = endpoint.models().iter().all(|model| model.users() == 0 && !model.is_loaded());
    if is_idle {
        endpoint.forget();
    }
    is_idle
}
