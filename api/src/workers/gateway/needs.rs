//! What models turn out to need of a card, as workers see it.

use stokehold_queue::gateway::{LearnedNeed, LeaseRef, Outgrown};
use stokehold_queue::vram::{ANY_KIND, class_of_mib, sold_gib, usable_mib};
use stokehold_queue::{Queue, WorkerRecord};

use crate::database::Database;
use crate::endpoints::catalog::Catalog;
use crate::error::Problem;
use crate::state::App;

/// Where a job goes on that needs more of a card than this worker's had. `None`: it may be tried again where it is.
pub(super) async fn outgrown(
    app: &App,
    worker: &WorkerRecord,
    lease: &LeaseRef,
    need_mib: u64,
) -> Result<Option<Outgrown>, Problem> {
    // A lost lease is for `finish` itself to refuse.
    let Some((spec, _)) = app.db.ask("check a lease", app.db.queue.held(lease)).await? else { return Ok(None) };
    // A worker knows no more than that the largest of its cards was too small.
    let largest =
        worker.gpus.iter().filter(|gpu| usable_mib(gpu.vram_mib) < need_mib).map(|gpu| sold_gib(gpu.vram_mib)).max();
    // Of several that are too small the largest decides; without one, the model was not to have the larger ones.
    let seen_gib = class_of_mib(need_mib.min(largest_mib(worker) + 1)).unwrap_or(0);
    let class_gib = largest.map_or(seen_gib, |gib| seen_gib.max(gib + 1));
    if class_gib <= spec.vram_class_gib {
        return Ok(None);
    }
    // What joined in the last second counts as well: this ends a job.
    app.fleets.forget();
    // One input that no card is large enough for must not keep the others from those there are.
    if !app.fleets.fleet().await?.has_card(class_gib, spec.demands) {
        return Ok(Some(Outgrown::All));
    }
    learn(&app.db, &app.catalog, &spec.tenant, &spec.endpoint, spec.version, ANY_KIND, u64::from(class_gib) * 1024)
        .await?;
    Ok(Some(Outgrown::To(class_gib)))
}

/// Takes note of what a worker has seen. What it cannot have seen, or what is not deployed, is left out: of models that it may not run, or
/// more than any card has.
pub(super) async fn learned(
    db: &Database,
    catalog: &Catalog,
    worker: &WorkerRecord,
    needs: Vec<LearnedNeed>,
) -> Result<(), Problem> {
    for LearnedNeed { tenant, endpoint, version, gpu, need_mib } in needs {
        let is_its_own = worker.gpus.iter().any(|card| card.name == gpu && need_mib <= card.vram_mib);
        let Some(deployed) = catalog.find(&tenant, &endpoint, Some(version)).await else { continue };
        if is_its_own && deployed.version.spec.demands.refusal(&worker.offer()).is_none() {
            learn(db, catalog, &tenant, &endpoint, version, &gpu, need_mib).await?;
        }
    }
    Ok(())
}

async fn learn(
    db: &Database,
    catalog: &Catalog,
    tenant: &str,
    name: &str,
    version: u32,
    gpu: &str,
    need_mib: u64,
) -> Result<(), Problem> {
    db.ask_again("store the GPU memory that a version needs", || {
        db.registry.learn(tenant, name, version, gpu, need_mib)
    })
    .await?;
    catalog.learned_now(tenant, name, version);
    Ok(())
}

fn largest_mib(worker: &WorkerRecord) -> u64 {
    worker.gpus.iter().map(|gpu| gpu.vram_mib).max().unwrap_or(0)
}
