//! One run: start, load and faults in parallel, repair, drain, dump, judge.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::json;
use stokehold_tests::temp_links::TempLinks;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::checker::{Measures, Outcome, Verdict, check, measure};
use crate::clients::{Load, TRIES};
use crate::cluster::{Cluster, Size};
use crate::finale;
use crate::history::{Event, Journal, Kind, read};
use crate::nemesis::Nemesis;
use crate::pace;
use crate::plan::Plan;
use crate::sink::Sink;

/// Short, so that many leases expire during a run; heartbeats are five times as frequent.
pub(crate) const LEASE_MS: u64 = 2_500;
const QUEUE_TIMEOUT_MS: u64 = 800;

/// Time limits of replies (I21): a 202 may wait for Redis, and be retried within the replica; a refusal is due within a
/// second of the moment at which a replica gives up.
const ACCEPT_IN_MS: u64 = 5_000;
const REFUSE_IN_MS: u64 = QUEUE_TIMEOUT_MS + 1_000;

/// Attempts of a call by the SDKs: a call and its five retries.
const SDK_TRIES: u32 = 6;

/// Maximum number of attempts, from P5.
const MAX_ATTEMPTS: u32 = 5;
const MAX_INFRA_ATTEMPTS: u32 = 10;
const POISON_CRASHES: u32 = 3;

/// Number of replicas.
pub const APIS: u32 = 2;
/// Number of workers.
pub const WORKERS: u32 = 3;

const SCRAPE_EVERY: Duration = Duration::from_millis(500);

/// Result of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The measurements.
    pub measures: Measures,
    /// The verdicts by invariant.
    pub verdicts: Vec<Verdict>,
    /// Directory of its history, if it was kept.
    pub kept: Option<PathBuf>,
}

impl Report {
    /// Whether no invariant is broken.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.verdicts.iter().all(|verdict| verdict.outcome != Outcome::Broken)
    }

    /// Invariants that no event of a run with faults could have broken: such a run proves less than it should.
    #[must_use]
    pub fn unexercised(&self) -> Vec<&'static str> {
        let idle = self.verdicts.iter().filter(|verdict| verdict.outcome == Outcome::Unexercised);
        if self.measures.faults.is_empty() { Vec::new() } else { idle.map(|verdict| verdict.id).collect() }
    }

    /// Broken invariants.
    #[must_use]
    pub fn broken(&self) -> Vec<&'static str> {
        self.verdicts.iter().filter(|verdict| verdict.outcome == Outcome::Broken).map(|verdict| verdict.id).collect()
    }
}

/// Runs a plan in `dir`, and judges it.
///
/// # Errors
/// If the system does not come up, or a witness cannot write.
pub async fn run(plan: &Plan, dir: &Path) -> Result<Report> {
    let history = dir.join("history");
    std::fs::create_dir_all(history.join("runs"))?;
    let _links = TempLinks(dir.canonicalize()?);
    let size = Size {
        apis: APIS as usize,
        workers: WORKERS as usize,
        slots: 8,
        lease_ms: LEASE_MS,
        max_attempts: MAX_ATTEMPTS,
        queue_timeout_ms: QUEUE_TIMEOUT_MS,
    };
    let journal = Arc::new(Journal::create(&history.join("nemesis.jsonl"))?);
    let sink = Sink::start(Journal::create(&history.join("hooks.jsonl"))?).await?;
    let cluster = Cluster::start(dir, size, plan.before.as_deref(), sink.port, Arc::clone(&journal))
        .await
        .context("the system does not come up")?;
    for tenant in &cluster.tenants {
        sink.expect(tenant.name, &tenant.hook_secret)?;
    }
    let baseline = finale::baseline(&cluster).await?;
    let clients = Arc::new(Journal::create(&history.join("clients.jsonl"))?);
    let mut plan = plan.clone();
    if plan.is_paced {
        plan.duration = pace::duration(&plan, &cluster, &clients).await?;
    }
    journal.write(planned(&plan, &cluster.size));
    let load = Load::new(&plan, &cluster, &sink, Arc::clone(&clients))?;
    let ports: Vec<u16> = cluster.apis.iter().map(|api| api.port).collect();
    let names: Vec<String> = cluster.apis.iter().map(|api| api.name.clone()).collect();
    let scraping = scrape(names.into_iter().zip(ports).collect(), Arc::clone(&journal));
    let (until_faults_end, faults) = oneshot::channel();
    let loading = tokio::spawn(load.run(faults));
    let cluster = Nemesis::new(cluster, &plan).run().await?;
    drop(until_faults_end);
    let lookers = loading.await.context("a client panicked")?;
    scraping.abort();
    finale::finish(&cluster, &history, (clients, lookers), baseline).await?;
    drop(cluster);
    judge(dir)
}

/// Runs a plan in a directory that is kept if it was named or if something is broken.
///
/// # Errors
/// Those of [`run`].
pub async fn in_dir(plan: &Plan, dir: Option<PathBuf>) -> Result<Report> {
    let (dir, is_named) = match dir {
        Some(dir) => (dir, true),
        None => (tempfile::Builder::new().prefix("chaos-").tempdir()?.keep(), false),
    };
    let mut report = run(plan, &dir).await.with_context(|| format!("seed {}, in {}", plan.seed, dir.display()))?;
    if !is_named && report.holds() {
        std::fs::remove_dir_all(&dir)?;
        report.kept = None;
    }
    Ok(report)
}

/// Judges the history of a run.
///
/// # Errors
/// If it cannot be read.
pub fn judge(dir: &Path) -> Result<Report> {
    let events = read(&dir.join("history"))?;
    Ok(Report { measures: measure(&events), verdicts: check(&events), kept: Some(dir.to_owned()) })
}

fn planned(plan: &Plan, size: &Size) -> Event {
    let faults: serde_json::Map<_, _> =
        plan.faults.iter().map(|(fault, times)| (fault.word().to_owned(), (*times).into())).collect();
    Event::new("nemesis", Kind::Ok, "plan").v(json!({
        "seed": plan.seed, "jobs": plan.jobs, "duration_ms": plan.duration.as_millis(), "faults": faults,
        "apis": size.apis, "workers": size.workers, "slots": size.slots, "lease_ms": size.lease_ms,
        "max_attempts": MAX_ATTEMPTS, "max_infra_attempts": MAX_INFRA_ATTEMPTS, "poison_crashes": POISON_CRASHES,
        "accept_in_ms": ACCEPT_IN_MS, "refuse_in_ms": REFUSE_IN_MS, "in_time_percent": plan.in_time_percent,
        "tries_max": if plan.only_rolls() { SDK_TRIES } else { TRIES },
    }))
}

/// Scrapes the replicas' counters throughout the run: a counter is lost with its process. A count that is lower than
/// the last belongs to another incarnation.
fn scrape(apis: Vec<(String, u16)>, journal: Arc<Journal>) -> JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            for (name, port) in &apis {
                finale::scrape(name, *port, &journal).await;
            }
            sleep(SCRAPE_EVERY).await;
        }
    })
}
