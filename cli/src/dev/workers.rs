//! The workers of a stack. The autoscaler starts and stops them within the configured range.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use stokehold_autoscaler::history::Recorder;
use stokehold_autoscaler::live::{Autoscaler, Settings};
use stokehold_autoscaler::provider::Provider;
use stokehold_autoscaler::providers::local::Local;
use stokehold_autoscaler::providers::vast;
use stokehold_client::models::WorkerList;
use stokehold_metrics::Metrics;
use stokehold_planner::Policy;
use stokehold_queue::{RedisConfig, Registry, Shards};
use stokehold_worker::uv::ensure_uv;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::WorkerRange;
use super::fake_vast::{self, FakeVast};
use super::secrets::Secrets;
use super::stack::{ChildLog, StackOptions};
use crate::autoscaler::invites::Invitations;
use crate::autoscaler::local::{LocalOptions, provider};
use crate::client::{Client, decode};
use crate::paths;

/// Join timeout; the first worker on a machine installs its tools first.
const JOIN_LIMIT: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(20);

/// Interval of the autoscaler: short, because local workers start within a second.
const TICK: Duration = Duration::from_millis(500);

/// Lease of the autoscaler's leadership while old instances are removed, ms.
const LEAD_MS: u64 = 15_000;

/// The workers of a stack.
pub(super) struct Workers {
    /// The autoscaler loop. It is polled on the main thread, because the processes that it starts are tied to that
    /// thread. `None` without workers.
    scaling: Option<LocalBoxFuture<'static, Result<()>>>,
    shutdown: CancellationToken,
    local: Arc<Local>,
    /// The simulated Vast.ai; dropping it stops its instances.
    market: Option<FakeVast>,
}

/// The parts of the stack that already run.
pub(super) struct Begun<'a> {
    pub(super) url: &'a str,
    pub(super) secrets: &'a Secrets,
    pub(super) data: &'a Path,
    pub(super) client: &'a Client,
    pub(super) queue: RedisConfig,
    /// The metrics endpoint of the API.
    pub(super) exposition: Metrics,
}

impl Workers {
    /// Starts the minimum number of workers and waits until they have joined.
    pub(super) async fn start(options: StackOptions, begun: Begun<'_>) -> Result<Self> {
        let range = options.workers;
        let local = Arc::new(provider(LocalOptions {
            gateway_url: begun.url.to_owned(),
            join_token: begun.secrets.join.token.clone(),
            data_dir: begun.data.to_owned(),
            max: range.most,
            slots: options.slots,
            log: match options.child_log {
                ChildLog::Stderr => None,
                ChildLog::File(file) => Some(file),
            },
        })?);
        let shutdown = CancellationToken::new();
        let mut workers = Self { scaling: None, shutdown, local, market: None };
        if range.most == 0 {
            return Ok(workers);
        }
        // Done once here, so that the log shows the download before the workers start.
        ensure_uv(None, &paths::cache_dir()?).await?;
        let before = worker_ids(begun.client).await?;
        let queue = Shards::connect(begun.queue.clone()).await.context("cannot reach Redis")?;
        // Unique: the data directory is locked.
        let holder = format!("stoke dev {}", begun.data.display());
        forget_rented(&queue.registry(), &holder).await?;
        let (provider, policy) = match options.fake_vast {
            Some(seed) => {
                let market = FakeVast::start(seed, begun.data, options.slots).await?;
                let policy = fake_vast::policy(range);
                let vast: Arc<dyn Provider> = Arc::new(market.provider(&policy, begun.url).await?);
                workers.market = Some(market);
                (vast, policy)
            }
            None => (workers.local.clone() as Arc<dyn Provider>, policy(range)),
        };
        let providers = std::iter::once(provider).collect();
        let settings = Settings { tick: TICK, policy, holder: Some(holder) };
        let record = begun.data.join("autoscaler.jsonl");
        let recorder = Recorder::open(&record, &settings.policy)
            .with_context(|| format!("cannot record into {}", record.display()))?;
        let invites = Invitations::new(queue.registry(), begun.secrets.token_key()?);
        let mut autoscaler = Autoscaler::new(queue, providers, settings, Some(recorder))
            .with_invites(Arc::new(invites))
            .with_exposition(begun.exposition);
        let stopped = workers.shutdown.clone();
        let mut scaling = async move { Box::pin(autoscaler.run(stopped)).await }.boxed_local();
        tokio::select! {
            here = until_here(begun.client, &before, range.least as usize) => here?,
            done = &mut scaling => return Err(why(done)),
        }
        workers.scaling = Some(scaling);
        Ok(workers)
    }

    /// URL of the simulated Vast.ai, if used.
    pub(super) fn fake_vast(&self) -> Option<&str> {
        self.market.as_ref().map(FakeVast::url)
    }

    /// Runs the autoscaler. Completes with an error when it ends.
    pub(super) async fn ended(&mut self) -> anyhow::Error {
        match &mut self.scaling {
            Some(scaling) => {
                let done = scaling.await;
                self.scaling = None;
                why(done)
            }
            None => std::future::pending().await,
        }
    }

    /// Stops the workers. Running jobs may finish until `hurry` is cancelled.
    pub(super) async fn stop(&mut self, hurry: &CancellationToken) {
        self.shutdown.cancel();
        let Some(scaling) = self.scaling.take() else { return };
        tokio::pin!(scaling);
        let done = tokio::select! {
            done = &mut scaling => done,
            () = hurry.cancelled() => {
                self.local.hurry();
                scaling.await
            }
        };
        if let Err(error) = done {
            tracing::warn!("the autoscaler failed: {error:#}");
        }
    }
}

/// Removes the instances of an earlier simulated Vast.ai, which ended with its process.
async fn forget_rented(registry: &Registry, holder: &str) -> Result<()> {
    let Some(term) = registry.lead(holder, LEAD_MS).await? else { return Ok(()) };
    for machine in registry.machines().await?.into_values().filter(|machine| machine.provider == vast::NAME) {
        registry.drop_machine(term, &machine.id).await?;
    }
    Ok(())
}

/// A policy without delays: local workers cost nothing.
fn policy(WorkerRange { least, most }: WorkerRange) -> Policy {
    let usual = Policy::default();
    Policy {
        min_machines: least,
        max_machines: most,
        standard_target_s: usual.interactive_target_s,
        batch_target_s: usual.interactive_target_s,
        ..usual
    }
}

fn why(done: Result<()>) -> anyhow::Error {
    match done {
        Ok(()) => anyhow!("the autoscaler stopped unexpectedly"),
        Err(error) => error.context("the autoscaler failed"),
    }
}

/// Waits until `least` workers besides those in `before` have joined.
async fn until_here(client: &Client, before: &[String], least: usize) -> Result<()> {
    let deadline = Instant::now() + JOIN_LIMIT;
    loop {
        let joined = worker_ids(client).await?.iter().filter(|id| !before.contains(id)).count();
        if joined >= least {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "the workers did not join within {} s; see their log lines above",
            JOIN_LIMIT.as_secs()
        );
        sleep(PAUSE).await;
    }
}

async fn worker_ids(client: &Client) -> Result<Vec<String>> {
    let WorkerList { workers } = decode(&client.get("/v1/workers").await?)?;
    Ok(workers.into_iter().map(|worker| worker.id).collect())
}
