//! Learned memory: the GPU memory that models need, as workers measure it.

use stokehold_queue::gateway::{LearnedNeed, LeaseRef, Outgrown};
use stokehold_queue::vram::{ANY_KIND, class_of_mib, sold_gib, usable_mib};
use stokehold_queue::{Queue, WorkerRecord};

use crate::database::Database;
use crate::endpoints::catalog::Catalog;
use crate::error::Problem;
use crate::state::App;

/// Decides where a job continues that needs more memory than this worker's GPU has. `None`: it may be retried in its
/// class.
pub(super) async fn outgrown(
    app: &App,
    worker: &WorkerRecord,
    lease: &LeaseRef,
    need_mib: u64,
) -> Result<Option<Outgrown>, Problem> {
    // `finish` itself refuses a lost lease.
    let Some((spec, _)) = app.db.ask("check a lease", app.db.queue.held(lease)).await? else { return Ok(None) };
    // A worker only finds that the largest of its GPUs was too small.
    let largest =
        worker.gpus.iter().filter(|gpu| usable_mib(gpu.vram_mib) < need_mib).map(|gpu| sold_gib(gpu.vram_mib)).max();
    // Among several GPUs that are too small, the largest decides. If none is too small, the model was not allowed on
    // the larger ones.
    let seen_gib = class_of_mib(need_mib.min(largest_mib(worker) + 1)).unwrap_or(0);
    let class_gib = largest.map_or(seen_gib, |gib| seen_gib.max(gib + 1));
    if class_gib <= spec.vram_class_gib {
        return Ok(None);
    }
    // Workers that joined in the last second count as well, because this decision can end a job.
    app.fleets.forget();
    // One input that is too large for every GPU must not keep the other jobs from the existing GPUs.
    if !app.fleets.fleet().await?.has_gpu(class_gib, spec.demands) {
        return Ok(Some(Outgrown::All));
    }
    learn(&app.db, &app.catalog, &spec.tenant, &spec.endpoint, spec.version, ANY_KIND, u64::from(class_gib) * 1024)
        .await?;
    Ok(Some(Outgrown::To(class_gib)))
}

/// Stores the memory that a worker has measured. Ignores values that cannot be right: of versions that are not deployed
/// or that the worker may not run, or more than any GPU has.
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
