//! What a worker is told with the answer to its heartbeat: a card to hold, models to keep loaded, and what to fetch ahead.

use std::collections::BTreeMap;
use std::sync::Arc;

use stokehold_queue::gateway::{CardReach, Gpu, GpuHealth, HoldCard, ModelRef, WorkerStatus};
use stokehold_queue::reach::{Reach, class_of, parts_of};
use stokehold_queue::vram::class_of_card_gib;
use stokehold_queue::{Queue, WorkerRecord};

use crate::error::Problem;
use crate::fleet::{self, AllDemands};
use crate::keepers::{Floor, keepers};
use crate::routes::queue::parts_of_lane;
use crate::state::App;

/// Lanes whose models are worth fetching ahead, the longest first.
const LANES_MAX: usize = 64;

/// Models that one worker is told of.
const NEXT_MAX: usize = 8;

/// What a worker is told.
#[derive(Default)]
pub(super) struct Advice {
    pub(super) hold: Option<HoldCard>,
    pub(super) keep: Vec<ModelRef>,
    pub(super) next: Vec<ModelRef>,
}

/// What the whole fleet is to have ready before there is a job for it, as of a second ago at most.
pub(crate) struct Ahead {
    /// The models that each worker is to keep loaded, by its id.
    keep: BTreeMap<String, Vec<ModelRef>>,
    /// Models whose jobs wait, by class of job.
    waiting: Vec<(u32, ModelRef)>,
}

/// What this worker is told. A heartbeat that is otherwise answered must not fail for it; the next one asks again.
pub(super) async fn advice(app: &App, worker: &WorkerRecord, cards: &[CardReach], status: &WorkerStatus) -> Advice {
    if status.draining {
        return Advice::default();
    }
    let advised = async {
        let (demands, ahead) = tokio::try_join!(app.demands(), app.ahead())?;
        let could = could_take(worker, status, &demands);
        let hold = hold(app, worker, cards, status, &demands, &could).await?;
        let is_loaded = |model: &ModelRef| {
            let name = format!("{}@{}", model.endpoint, model.version);
            status.models.iter().any(|loaded| loaded.tenant == model.tenant && loaded.name == name)
        };
        let next = ahead.waiting.iter().filter(|(class, model)| could.has(*class) && !is_loaded(model));
        Ok::<_, Problem>(Advice {
            hold,
            keep: ahead.keep.get(&worker.worker_id).cloned().unwrap_or_default(),
            next: next.take(NEXT_MAX).map(|(_, model)| model.clone()).collect(),
        })
    };
    advised.await.unwrap_or_default()
}

/// The cards of a worker that take work.
fn well<'a>(worker: &'a WorkerRecord, status: &WorkerStatus) -> impl Iterator<Item = &'a Gpu> {
    let is_well = |index| status.gpus.iter().any(|gpu| gpu.index == index && gpu.health == GpuHealth::Well);
    worker.gpus.iter().filter(move |gpu| is_well(gpu.index))
}

/// What it could take if nothing were on its cards.
fn could_take(worker: &WorkerRecord, status: &WorkerStatus, demands: &AllDemands) -> Reach {
    let whole = |gpu: &Gpu| {
        let gib = class_of_card_gib(gpu.vram_mib);
        CardReach { index: gpu.index, reach_gib: gib, whole_gib: gib }
    };
    reach(worker, demands, &well(worker, status).map(whole).collect::<Vec<_>>())
}

fn reach(worker: &WorkerRecord, demands: &AllDemands, cards: &[CardReach]) -> Reach {
    fleet::reach(demands, worker, cards.iter().map(|card| card.reach_gib).max().unwrap_or(0), cards)
}

/// What a worker whose cards are taken should make room for, if anything has waited too long for it.
async fn hold(
    app: &App,
    worker: &WorkerRecord,
    cards: &[CardReach],
    status: &WorkerStatus,
    demands: &AllDemands,
    could: &Reach,
) -> Result<Option<HoldCard>, Problem> {
    let now = reach(worker, demands, cards);
    if cards.is_empty() || now == *could {
        return Ok(None);
    }
    let asked = app.ask("look for what waits for a card", app.queue.hold(&worker.worker_id, &now, could)).await?;
    Ok(asked.and_then(|class| {
        let (number, gib) = parts_of(class);
        let demands = demands.get(&number)?;
        let able = well(worker, status).filter(|gpu| demands.is_met_by(gpu) && class_of_card_gib(gpu.vram_mib) >= gib);
        Some(HoldCard { class, gib, gpus: demands.gpus, cards: able.map(|gpu| gpu.index).collect() })
    }))
}

impl App {
    /// What the fleet is to have ready, as of a second ago at most.
    async fn ahead(&self) -> Result<Arc<Ahead>, Problem> {
        if let Some(ahead) = self.ahead.get(&()) {
            return Ok(ahead);
        }
        let (floors, lanes, fleet) = tokio::try_join!(
            self.ask("read which models stay loaded", self.registry.floors()),
            self.ask("read the lanes", self.queue.depth()),
            self.fleet(),
        )?;
        let mut wanted = Vec::new();
        for (model, workers) in floors {
            // One that cannot be looked up is left out.
            if let Ok(deployed) = self.catalog.resolve(&model.tenant, &model.endpoint, Some(model.version)).await {
                let (vram_class_gib, demands) = (deployed.vram_class_gib, deployed.demands);
                wanted.push(Floor { model, vram_class_gib, demands, workers });
            }
        }
        let mut waiting = Vec::new();
        for lane in lanes.iter().take(LANES_MAX).filter_map(|depth| parts_of_lane(&depth.lane)) {
            if let Ok(deployed) = self.catalog.resolve(lane.tenant, lane.endpoint, None).await {
                let (tenant, endpoint) = (lane.tenant.to_owned(), lane.endpoint.to_owned());
                let model = ModelRef { tenant, endpoint, version: deployed.version.version };
                let class = class_of(deployed.demands, deployed.vram_class_gib);
                if !waiting.contains(&(class, model.clone())) {
                    waiting.push((class, model));
                }
            }
        }
        let ahead = Arc::new(Ahead { keep: keepers(wanted, fleet.workers(), fleet.all_demands()), waiting });
        self.ahead.insert((), ahead.clone());
        Ok(ahead)
    }
}
