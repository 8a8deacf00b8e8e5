//! The state of the installation that the metrics describe.

use std::collections::BTreeMap;

use stokehold_queue::batches::Batch;
use stokehold_queue::budgets::Budgeted;
use stokehold_queue::costs::{Cost, day_of};
use stokehold_queue::flow::Flow;
use stokehold_queue::registry::{AutoscalerStatus, MachineRecord};
use stokehold_queue::{Queue, WorkerRecord};

use crate::database::{Database, Error};
use crate::state::App;
use crate::workers::fleet::MISSED_MAX;

/// Maximum number of open batches of a shard whose lines are counted, the oldest first.
const BATCHES_MAX: usize = 200;

/// The collected state of the installation.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    pub(super) now_ms: u64,
    /// Time without a heartbeat after which a worker counts as lost, milliseconds.
    pub(super) silent_ms: u64,
    pub(super) flows: Vec<Flow>,
    pub(super) workers: Vec<WorkerRecord>,
    pub(super) machines: Vec<MachineRecord>,
    pub(super) autoscaler: Option<AutoscalerStatus>,
    pub(super) budgets: Vec<Budgeted>,
    pub(super) cost_today: Cost,
    pub(super) batches: Vec<Batch>,
    /// Number of open batches beyond these.
    pub(super) more_batches: usize,
    pub(super) jobs_ended: u64,
    /// Number of jobs whose records cannot be read, by shard.
    pub(super) quarantined: Vec<u64>,
    /// Number of failures of parts of scripts, by name.
    pub(super) script_faults: BTreeMap<String, u64>,
}

impl Snapshot {
    pub(super) async fn at(app: &App, now_ms: u64) -> Result<Self, Error> {
        let (today, registry) = (day_of(now_ms), &app.db.registry);
        let kept = app.costs.lines_now(today..=today);
        let asked = async {
            let asked = tokio::try_join!(
                app.db.queue.flow(),
                registry.workers(),
                registry.machines(),
                registry.autoscaler(),
                app.db.queue.budgets(today),
                registry.drains(),
            );
            asked.map_err(Error::Queue)
        };
        let ((flows, mut workers, machines, autoscaler, budgets, drains), lines, kept_by_shards) =
            tokio::try_join!(asked, kept, of_shards(&app.db))?;
        for worker in &mut workers {
            worker.status.draining |= drains.contains_key(&worker.name);
        }
        let mut cost_today = Cost::default();
        lines.iter().for_each(|line| cost_today += line.cost);
        let OfShards { jobs_ended, batches, more_batches, quarantined, script_faults } = kept_by_shards;
        Ok(Self {
            now_ms,
            silent_ms: app.config.extend_every_ms.saturating_mul(MISSED_MAX),
            flows,
            workers,
            machines: machines.into_values().collect(),
            autoscaler,
            budgets,
            cost_today,
            batches,
            more_batches,
            jobs_ended,
            quarantined,
            script_faults,
        })
    }

    /// The workers that are alive.
    pub(super) fn alive(&self) -> impl Iterator<Item = &WorkerRecord> {
        self.workers.iter().filter(|worker| self.now_ms.saturating_sub(worker.seen_ms) <= self.silent_ms)
    }
}

/// Data of all shards together.
#[derive(Default)]
struct OfShards {
    jobs_ended: u64,
    batches: Vec<Batch>,
    more_batches: usize,
    quarantined: Vec<u64>,
    script_faults: BTreeMap<String, u64>,
}

async fn of_shards(db: &Database) -> Result<OfShards, Error> {
    let mut all = OfShards::default();
    for shard in db.queue.all() {
        all.jobs_ended += shard.history().waiting().await?;
        let open = shard.batches().open().await?;
        all.more_batches += open.len().saturating_sub(BATCHES_MAX);
        for id in open.iter().take(BATCHES_MAX) {
            // The batch may have been deleted since it was listed.
            all.batches.extend(shard.batches().get(id).await?);
        }
        let quarantine = shard.quarantine();
        all.quarantined.push(quarantine.count().await?);
        for (part, times) in quarantine.faults().await? {
            *all.script_faults.entry(part).or_default() += times;
        }
    }
    Ok(all)
}
