//! Advice in the reply to a heartbeat: a GPU to reserve, models to keep loaded, and models to fetch ahead.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use moka::sync::Cache;
use stokehold_queue::capability::{Capability, class_of, parts_of};
use stokehold_queue::gateway::{Gpu, GpuCapability, GpuHealth, ModelRef, ReserveGpus, WorkerStatus};
use stokehold_queue::vram::sold_gib;
use stokehold_queue::{Queue, WorkerRecord};
use tokio::time::timeout;

use crate::database::{Database, Error};
use crate::endpoints::catalog::Catalog;
use crate::jobs::lanes::parts_of_lane;
use crate::workers::fleet;
use crate::workers::fleet::{Fleets, RequirementSets};
use crate::workers::warm_placement::{Floor, keepers};

/// Maximum number of lanes whose models are fetched ahead, the longest first.
const LANES_MAX: usize = 64;

/// Maximum number of models that one worker is advised to fetch.
const NEXT_MAX: usize = 8;

/// Timeout for computing advice. A worker waits only some seconds for the reply to its heartbeat.
const ADVICE_MAX: Duration = Duration::from_millis(500);

/// Versions that are looked up concurrently.
const LOOKUPS: usize = 32;

/// Cache time of the models that the fleet should have ready.
const AHEAD_FOR: Duration = Duration::from_secs(1);

/// Time after the advice for which a worker may still fetch a version ahead.
const ADVISED_FOR: Duration = Duration::from_secs(3600);

/// The advice to a worker.
#[derive(Default)]
pub(super) struct Advice {
    pub(super) hold: Option<ReserveGpus>,
    /// Models to keep loaded. `None` when they are not known now.
    pub(super) keep: Option<Vec<ModelRef>>,
    pub(super) next: Vec<ModelRef>,
}

/// Models that the whole fleet should have ready before there is a job for them, at most one second old.
struct Ahead {
    /// Models that each worker should keep loaded, by worker ID.
    keep: BTreeMap<String, Vec<ModelRef>>,
    /// Models whose jobs wait, by job class.
    waiting: Vec<(u32, ModelRef)>,
}

/// Models whose jobs wait, that a worker could take and has not loaded.
fn next<'a>(ahead: &'a Ahead, status: &WorkerStatus, could: &Capability) -> impl Iterator<Item = &'a ModelRef> {
    let is_loaded = |model: &ModelRef| {
        let name = format!("{}@{}", model.endpoint, model.version);
        status.models.iter().any(|loaded| loaded.tenant == model.tenant && loaded.name == name)
    };
    let waiting = ahead.waiting.iter().filter(move |(class, model)| could.has(*class) && !is_loaded(model));
    waiting.take(NEXT_MAX).map(|(_, model)| model)
}

/// GPUs of a worker that accept work.
fn well<'a>(worker: &'a WorkerRecord, status: &WorkerStatus) -> impl Iterator<Item = &'a Gpu> {
    let is_healthy = |index| status.gpus.iter().any(|gpu| gpu.index == index && gpu.health == GpuHealth::Healthy);
    worker.gpus.iter().filter(move |gpu| is_healthy(gpu.index))
}

/// Capability of a worker as if its GPUs were empty.
fn could_take(worker: &WorkerRecord, status: &WorkerStatus, demands: &RequirementSets) -> Capability {
    let whole = |gpu: &Gpu| {
        let gib = sold_gib(gpu.vram_mib);
        GpuCapability { index: gpu.index, reach_gib: gib, whole_gib: gib }
    };
    reach(worker, demands, &well(worker, status).map(whole).collect::<Vec<_>>())
}

fn reach(worker: &WorkerRecord, demands: &RequirementSets, cards: &[GpuCapability]) -> Capability {
    fleet::reach(demands, worker, cards.iter().map(|card| card.reach_gib).max().unwrap_or(0), cards)
}

/// Computes the advice.
pub(crate) struct Advisor {
    db: Arc<Database>,
    catalog: Arc<Catalog>,
    fleets: Arc<Fleets>,
    ahead: Cache<(), Arc<Ahead>>,
    /// Models that heartbeats advised workers to load or fetch, by worker ID.
    advised: Cache<(String, ModelRef), ()>,
}

impl Advisor {
    pub(crate) fn new(db: Arc<Database>, catalog: Arc<Catalog>, fleets: Arc<Fleets>) -> Self {
        Self {
            db,
            catalog,
            fleets,
            ahead: Cache::builder().max_capacity(1).time_to_live(AHEAD_FOR).build(),
            advised: Cache::builder().max_capacity(100_000).time_to_live(ADVISED_FOR).build(),
        }
    }

    /// Advice to this worker. It must neither fail nor delay the reply to a heartbeat; the next heartbeat asks again.
    pub(super) async fn advise(
        self: &Arc<Self>,
        worker: &WorkerRecord,
        cards: &[GpuCapability],
        status: &WorkerStatus,
    ) -> Advice {
        if status.draining {
            return Advice { keep: Some(Vec::new()), ..Advice::default() };
        }
        let advised = async {
            let (demands, ahead) = tokio::try_join!(self.fleets.demands(), self.ahead())?;
            let could = could_take(worker, status, &demands);
            let hold = self.hold(worker, cards, status, &demands, &could).await?;
            Ok::<_, Error>(Advice {
                hold,
                keep: Some(ahead.keep.get(&worker.worker_id).cloned().unwrap_or_default()),
                next: next(&ahead, status, &could).cloned().collect(),
            })
        };
        let advice = match timeout(ADVICE_MAX, advised).await {
            Ok(Ok(advice)) => advice,
            Ok(Err(error)) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "a heartbeat is answered without advice");
                Advice::default()
            }
            Err(_) => {
                tracing::debug!("a heartbeat is answered without advice, which took too long");
                Advice::default()
            }
        };
        for model in advice.keep.iter().flatten().chain(&advice.next) {
            self.advised.insert((worker.worker_id.clone(), model.clone()), ());
        }
        advice
    }

    /// Returns whether a recent heartbeat advised this worker to load or fetch a model.
    pub(super) fn has_advised(&self, worker_id: &str, model: &ModelRef) -> bool {
        self.advised.contains_key(&(worker_id.to_owned(), model.clone()))
    }

    /// Returns whether a version is among those that this worker should fetch ahead. Includes advice that another
    /// replica gave.
    pub(super) async fn is_next(self: &Arc<Self>, worker: &WorkerRecord, model: &ModelRef) -> Result<bool, Error> {
        let (demands, ahead, fleet) = tokio::try_join!(self.fleets.demands(), self.ahead(), self.fleets.fleet())?;
        // Its most recently reported state.
        let worker = fleet.workers().iter().find(|known| known.worker_id == worker.worker_id).unwrap_or(worker);
        if worker.status.draining {
            return Ok(false);
        }
        let could = could_take(worker, &worker.status, &demands);
        Ok(next(&ahead, &worker.status, &could).any(|next| next == model))
    }

    /// GPU that a fully occupied worker should reserve, if a job has waited too long for it.
    async fn hold(
        &self,
        worker: &WorkerRecord,
        cards: &[GpuCapability],
        status: &WorkerStatus,
        demands: &RequirementSets,
        could: &Capability,
    ) -> Result<Option<ReserveGpus>, Error> {
        let now = reach(worker, demands, cards);
        if cards.is_empty() || now == *could {
            return Ok(None);
        }
        let asked = self
            .db
            .ask("look for jobs that wait for a GPU", self.db.queue.hold(&worker.worker_id, &now, could))
            .await?;
        Ok(asked.and_then(|class| {
            let (number, gib) = parts_of(class);
            let demands = demands.get(&number)?;
            let able = well(worker, status).filter(|gpu| demands.is_met_by(gpu) && sold_gib(gpu.vram_mib) >= gib);
            Some(ReserveGpus { class, gib, gpus: demands.gpus, cards: able.map(|gpu| gpu.index).collect() })
        }))
    }

    /// Models that the fleet should have ready, at most one second old.
    async fn ahead(self: &Arc<Self>) -> Result<Arc<Ahead>, Error> {
        if let Some(ahead) = self.ahead.get(&()) {
            return Ok(ahead);
        }
        // Runs in a task of its own: a result that is too late for this heartbeat is ready for the next.
        let advisor = self.clone();
        let looked = tokio::spawn(async move { advisor.look_ahead().await }).await;
        looked.map_err(|_| Error::Timeout { step: "look ahead" })?
    }

    /// Returns whether a worker should keep a model loaded even without jobs.
    pub(super) async fn is_to_keep(self: &Arc<Self>, worker_id: &str, model: &ModelRef) -> Result<bool, Error> {
        Ok(self.ahead().await?.keep.get(worker_id).is_some_and(|kept| kept.contains(model)))
    }

    async fn look_ahead(&self) -> Result<Arc<Ahead>, Error> {
        let (floors, lanes, fleet) = tokio::try_join!(
            self.db.ask("read which models must stay loaded", self.db.registry.floors()),
            self.db.ask("read the lanes", self.db.queue.depth()),
            self.fleets.fleet(),
        )?;
        // A version that cannot be looked up is left out.
        let floor = async |(model, workers): (ModelRef, u32)| {
            let deployed = self.catalog.find(&model.tenant, &model.endpoint, Some(model.version)).await?;
            let (vram_class_gib, demands) = (deployed.vram_class_gib, deployed.demands);
            Some(Floor { model, vram_class_gib, need: deployed.need.clone(), demands, workers })
        };
        let current = async |(tenant, endpoint): (String, String)| {
            let deployed = self.catalog.find(&tenant, &endpoint, None).await?;
            let class = class_of(deployed.demands, deployed.vram_class_gib);
            Some((class, ModelRef { tenant, endpoint, version: deployed.version.version }))
        };
        let mut named: Vec<(String, String)> = Vec::new();
        for lane in lanes.iter().take(LANES_MAX).filter_map(|depth| parts_of_lane(&depth.lane)) {
            let name = (lane.tenant.to_owned(), lane.endpoint.to_owned());
            if !named.contains(&name) {
                named.push(name);
            }
        }
        let wanted = stream::iter(floors).map(floor).buffered(LOOKUPS).filter_map(ready).collect().await;
        let waiting = stream::iter(named).map(current).buffered(LOOKUPS).filter_map(ready).collect().await;
        let ahead = Arc::new(Ahead { keep: keepers(wanted, fleet.workers(), fleet.all_demands()), waiting });
        self.ahead.insert((), ahead.clone());
        Ok(ahead)
    }
}
