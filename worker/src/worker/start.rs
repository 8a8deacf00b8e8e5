//! Starts a worker: opens what it uses of this machine, and joins the gateway.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::Mutex;
use stokehold_protocol::gateway::{JoinReply, JoinRequest, PROTOCOL, ReserveGpus};
use stokehold_supervise::Supervisor;
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{Worker, pause};
use crate::attempt::{Attempts, STORES_MAX};
use crate::backoff::Policy;
use crate::config::Config;
use crate::environment::{Builds, Environments, EnvironmentsConfig, RunnerWheel};
use crate::gateway::{Error, Gateway};
use crate::gpus::Gpus;
use crate::host::Host;
use crate::leases::{HeartbeatConfig, Leases};
use crate::load::Load;
use crate::machine;
use crate::package::{Packages, PackagesConfig};
use crate::pool::{Pool, PoolConfig};
use crate::rejoin::Rejoin;
use crate::rental::Reached;
use crate::sandbox::Sandbox;
use crate::scratch::Scratch;
use crate::transfer::Transfer;
use crate::turns::Slots;
use crate::uv::ensure_uv;
use crate::weights::{Weights, WeightsConfig};

/// Pause of a rented instance after the gateway has rejected its join.
const REFUSED_PAUSE: Policy = Policy { min: Duration::from_secs(20), max: Duration::from_secs(20), jitter: 0.5..1.5 };

/// The resources of this machine that the worker uses. The scratch space is locked while this value exists.
struct Resources {
    scratch: Scratch,
    sandbox: Arc<Sandbox>,
    environments: Environments,
    gpus: Gpus,
}

/// Runs a worker that is not destroyed with its instance, until `shutdown`.
pub(super) async fn work(
    config: Config,
    supervisor: Supervisor,
    reached: Option<Arc<Reached>>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let resources = Resources::open(&config).await?;
    let tokens = (config.join_token.clone(), Rejoin::open(&config.data_dir));
    let gateway = Arc::new(Gateway::new(&config.gateway_url, tokens, resources.join_request(&config), reached)?);
    let joined = tokio::select! {
        joined = join_gateway(&gateway, &config) => joined?,
        () = shutdown.cancelled() => return Ok(()),
    };
    tracing::info!(
        worker.id = %joined.worker_id,
        slots = config.slots,
        gpus = resources.gpus.list().len(),
        sandbox = %resources.sandbox.level(),
        "joined"
    );
    resources.gpus.watch()?;
    resources.gpus.read_now().await;
    let leases = Leases::new(HeartbeatConfig {
        every: Duration::from_millis(joined.extend_every_ms),
        lease: Duration::from_millis(joined.lease_ms),
    });
    let (worker, to_reserve) = resources.worker(config, gateway, leases, &shutdown)?;
    let heartbeat = CancellationToken::new();
    let mut duties = worker.start_duties(&supervisor);
    let (beats, stop) = (Arc::clone(&worker), heartbeat.clone());
    let beat = move || Arc::clone(&beats).send_heartbeats(stop.clone());
    let beating = tokio::spawn(supervisor.restart_on_panic("heartbeat", beat));
    worker.serve(to_reserve, shutdown).await;
    duties.shutdown().await;
    worker.attempts.pool.stop().await;
    worker.gpus.stop();
    heartbeat.cancel();
    beating.await?;
    Ok(())
}

impl Resources {
    async fn open(config: &Config) -> anyhow::Result<Self> {
        let scratch = Scratch::open(&config.data_dir)?;
        let stoke = config.confines.clone().map_or_else(std::env::current_exe, Ok)?;
        let folders = [scratch.path(), config.cache_dir.clone()];
        let folders = folders.each_ref().map(PathBuf::as_path);
        let sandbox = Sandbox::probe(config.sandbox, &config.bwrap, &stoke, &folders).await;
        let sandbox = Arc::new(sandbox.map_err(anyhow::Error::msg)?);
        let uv = ensure_uv(config.uv.as_deref(), &config.cache_dir).await?;
        let environments = Environments::open(EnvironmentsConfig {
            dir: config.cache_dir.clone(),
            uv: uv.clone(),
            runner_wheel: RunnerWheel::find(config.runner_wheel.as_deref()),
            builds: Builds::of_tenants(
                Arc::clone(&sandbox),
                config.allow_source_builds,
                config.package_indexes.clone(),
            ),
            cap_bytes: config.environments_bytes,
        })?;
        let ahead = environments.clone();
        tokio::spawn(async move { ahead.prepare_python().await });
        let gpus = Gpus::find(config.fake_gpus.as_deref(), config.nvml_library.as_deref());
        // The driver's library is already open, so opening it again is cheap.
        machine::log_findings(config, &uv).await;
        Ok(Self { scratch, sandbox, environments, gpus })
    }

    fn join_request(&self, config: &Config) -> JoinRequest {
        let (driver, cuda) = self.gpus.versions();
        JoinRequest {
            protocol: PROTOCOL,
            release: env!("CARGO_PKG_VERSION").to_owned(),
            name: config.name.clone(),
            slots: config.slots,
            gpus: self.gpus.list().to_vec(),
            driver,
            cuda,
            price_usd_micros_per_hour: config.price_usd_micros_per_hour,
            sandbox: Some(self.sandbox.level()),
            resume: None,
        }
    }

    /// The worker, and the receiver of the GPUs to reserve for large jobs.
    fn worker(
        &self,
        config: Config,
        gateway: Arc<Gateway>,
        leases: Leases,
        shutdown: &CancellationToken,
    ) -> anyhow::Result<(Arc<Worker>, mpsc::Receiver<ReserveGpus>)> {
        let weights = Weights::open(&WeightsConfig { dir: config.cache_dir.clone(), cap_bytes: config.weights_bytes })?;
        let host = Host::new(&config.data_dir, self.environments.clone(), weights.clone());
        let pool = self.pool(&config, Arc::clone(&gateway), weights)?;
        let attempts = Attempts {
            gateway: Arc::clone(&gateway),
            transfer: Transfer::new()?,
            pool: Arc::new(pool),
            stores: Semaphore::new(STORES_MAX),
            load: Arc::new(Load::new(config.slots)),
            next_run: AtomicU64::new(1),
            draining: shutdown.clone(),
            leaving: CancellationToken::new(),
        };
        let (reservations, to_reserve) = mpsc::channel(1);
        let worker = Worker {
            config,
            gateway,
            gpus: self.gpus.clone(),
            host,
            leases,
            attempts,
            reservations,
            kept: watch::Sender::default(),
            next: watch::Sender::default(),
            asked: Mutex::default(),
            ask_again: Notify::new(),
        };
        Ok((Arc::new(worker), to_reserve))
    }

    fn pool(&self, config: &Config, gateway: Arc<Gateway>, weights: Weights) -> anyhow::Result<Pool> {
        let packages = PackagesConfig {
            dir: config.cache_dir.clone(),
            package_bytes: config.package_bytes,
            cap_bytes: config.packages_bytes,
        };
        let pool = PoolConfig {
            environments: self.environments.clone(),
            packages: Packages::open(&packages)?,
            weights,
            scratch: self.scratch.path(),
            scratch_bytes: config.scratch_bytes,
            sandbox: Arc::clone(&self.sandbox),
            load_timeout: config.load_timeout,
            max_loaded: config.max_loaded,
            gpus: self.gpus.clone(),
            slots: Slots::new(config.slots),
        };
        Ok(Pool::new(gateway, pool))
    }
}

async fn join_gateway(gateway: &Gateway, config: &Config) -> anyhow::Result<JoinReply> {
    let url = &config.gateway_url;
    loop {
        match gateway.join().await {
            Ok(joined) => return Ok(joined),
            // Wait for a gateway that is restarting or not started yet.
            Err(Error::Unavailable(why)) => {
                tracing::warn!(%why, gateway = %url, "cannot join yet; retrying");
                pause().await;
            }
            // An unwanted rented instance continues until it destroys itself: if the worker exited, the instance would
            // only cost money.
            Err(error) if config.rental.is_some() => {
                tracing::error!(%error, gateway = %url, "cannot join; retrying");
                sleep(REFUSED_PAUSE.first()).await;
            }
            Err(error) => anyhow::bail!("cannot join {url}: {error}"),
        }
    }
}
