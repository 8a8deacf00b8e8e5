//! The life cycle of a worker: join, lease, run, report, drain.

mod beside;

use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stokehold_queue::gateway::{
    ExtendReply, FinishAnswer, FinishOutcome, FinishReport, FinishRequest, GpuHealth, HoldCard, JoinReply, JoinRequest,
    LeaseRef, LeaseReply, LeaseRequest, LeasedJob, ModelRef, Offer, PROTOCOL, ReleaseRequest, WorkerStatus,
};
use stokehold_supervise::{Supervisor, guard_beside};
use stokehold_vram::Claim;
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::attempt::{Attempts, End, STORES_MAX};
use crate::backoff::Policy;
use crate::config::Config;
use crate::disk::Disks;
use crate::environment::{Builds, Environments, EnvironmentsConfig, RunnerWheel};
use crate::gateway::{Error, Gateway};
use crate::gpus::Gpus;
use crate::host::Host;
use crate::leases::{HeartbeatConfig, Leases, keep};
use crate::load::Load;
use crate::machine;
use crate::metrics::{self, Outcome};
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

/// Maximum time that the gateway holds a lease call when there are no jobs.
const LEASE_WAIT: Duration = Duration::from_secs(20);

/// How long a report waits for others, while others are certain to follow.
const LINGER: Duration = Duration::from_millis(5);

/// At shutdown, how long to wait for a lease call that may already have been granted jobs.
const LAST_ANSWER: Duration = Duration::from_millis(200);

/// Interval of checks whether there is more room than the waiting lease call offers.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Pause after a call that failed.
const PAUSE: Policy = Policy { min: Duration::from_secs(1), max: Duration::from_secs(1), jitter: 0.5..2.0 };

/// Pause of a rented instance after the gateway has rejected its join.
const REFUSED_PAUSE: Policy = Policy { min: Duration::from_secs(20), max: Duration::from_secs(20), jitter: 0.5..1.5 };

/// Maximum number of reports, releases or leases in one call.
const BATCH: usize = 100;

/// Runs a worker until `shutdown`, then drains it. Its runners are stopped when this returns. A rented instance that
/// has been out of contact with the gateway for too long is destroyed instead.
///
/// # Errors
/// If it cannot start, e.g. without uv or a data directory, or if the gateway rejects its join.
pub async fn run(config: Config, shutdown: CancellationToken) -> anyhow::Result<()> {
    run_supervised(config, Supervisor::default(), shutdown).await
}

/// [`run`] with the supervisor of the worker's background duties.
///
/// # Errors
/// As [`run`].
pub async fn run_supervised(config: Config, supervisor: Supervisor, shutdown: CancellationToken) -> anyhow::Result<()> {
    let Some(rental) = config.rental.clone() else { return Box::pin(work(config, supervisor, None, shutdown)).await };
    let (reached, stop) = (Arc::new(Reached::new(&config.data_dir)), shutdown.child_token());
    let mut working = Box::pin(work(config, supervisor, Some(Arc::clone(&reached)), stop.clone()));
    tokio::select! {
        done = &mut working => return done,
        () = reached.overdue(rental.limit) => {}
    }
    tracing::error!(silent_s = rental.limit.as_secs(), "cannot reach the gateway; destroying this instance");
    // The running jobs lost their leases long ago. This cannot be undone: the provider may destroy the instance at any
    // time.
    stop.cancel();
    let left = async {
        if let Err(error) = working.await {
            tracing::error!(%error, "the worker failed while its instance is being destroyed");
        }
        shutdown.cancelled().await;
    };
    tokio::select! {
        never = rental.destroy() => match never {},
        () = left => Ok(()),
    }
}

async fn work(
    config: Config,
    supervisor: Supervisor,
    reached: Option<Arc<Reached>>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let scratch = Scratch::open(&config.data_dir)?;
    let stoke = config.confines.clone().map_or_else(std::env::current_exe, Ok)?;
    let folders = [scratch.path(), config.cache_dir.clone()];
    let folders = folders.each_ref().map(PathBuf::as_path);
    let sandbox = Sandbox::probe(config.sandbox, &config.bwrap, &stoke, &folders).await.map_err(anyhow::Error::msg)?;
    let sandbox = Arc::new(sandbox);
    let uv = ensure_uv(config.uv.as_deref(), &config.cache_dir).await?;
    let environments = Environments::open(EnvironmentsConfig {
        dir: config.cache_dir.clone(),
        uv: uv.clone(),
        runner_wheel: RunnerWheel::find(config.runner_wheel.as_deref()),
        builds: Builds::of_tenants(Arc::clone(&sandbox), config.allow_source_builds, config.package_indexes.clone()),
        cap_bytes: config.environments_bytes,
    })?;
    let ahead = environments.clone();
    tokio::spawn(async move { ahead.look_at_python().await });
    let gpus = Gpus::find(config.fake_gpus.as_deref(), config.nvml_library.as_deref());
    // The driver's library is already open, so opening it again is cheap.
    machine::say(&config, &uv).await;
    let (driver, cuda) = gpus.versions();
    let join = JoinRequest {
        protocol: PROTOCOL,
        release: env!("CARGO_PKG_VERSION").to_owned(),
        name: config.name.clone(),
        slots: config.slots,
        gpus: gpus.list().to_vec(),
        driver,
        cuda,
        price_usd_micros_per_hour: config.price_usd_micros_per_hour,
        sandbox: Some(sandbox.level()),
        resume: None,
    };
    let tokens = (config.join_token.clone(), Rejoin::open(&config.data_dir));
    let gateway = Arc::new(Gateway::new(&config.gateway_url, tokens, join, reached)?);
    let joined = tokio::select! {
        joined = join_gateway(&gateway, &config) => joined?,
        () = shutdown.cancelled() => return Ok(()),
    };
    let slots = config.slots;
    tracing::info!(worker.id = %joined.worker_id, slots, gpus = gpus.list().len(), sandbox = %sandbox.level(), "joined");

    gpus.watch()?;
    gpus.look_again().await;
    let weights = Weights::open(&WeightsConfig { dir: config.cache_dir.clone(), cap_bytes: config.weights_bytes })?;
    let packages = PackagesConfig {
        dir: config.cache_dir.clone(),
        package_bytes: config.package_bytes,
        cap_bytes: config.packages_bytes,
    };
    let host = Host::new(&config.data_dir, environments.clone(), weights.clone());
    let pool = PoolConfig {
        environments,
        packages: Packages::open(&packages)?,
        weights: weights.clone(),
        scratch: scratch.path(),
        scratch_bytes: config.scratch_bytes,
        sandbox,
        load_timeout: config.load_timeout,
        max_loaded: config.max_loaded,
        gpus: gpus.clone(),
        slots: Slots::new(config.slots),
    };
    let attempts = Attempts {
        gateway: Arc::clone(&gateway),
        transfer: Transfer::new()?,
        pool: Arc::new(Pool::new(Arc::clone(&gateway), pool)),
        stores: Semaphore::new(STORES_MAX),
        load: Arc::new(Load::new(config.slots)),
        next_run: AtomicU64::new(1),
        draining: shutdown.clone(),
        leaving: CancellationToken::new(),
    };
    let (holds, held) = mpsc::channel(1);
    let worker = Arc::new(Worker {
        config,
        gateway,
        gpus,
        host,
        leases: Leases::default(),
        attempts,
        holds,
        kept: watch::Sender::default(),
        next: watch::Sender::default(),
        asked: Mutex::default(),
        ask_again: Notify::new(),
    });
    let heartbeat = CancellationToken::new();
    let mut aside = JoinSet::new();
    let beside = Arc::clone(&worker);
    aside.spawn(supervisor.restart_on_panic("join", move || Arc::clone(&beside).stay_joined()));
    let beside = Arc::clone(&worker);
    aside.spawn(supervisor.restart_on_panic("relieve", move || Arc::clone(&beside).relieve()));
    let beside = Arc::clone(&worker);
    aside.spawn(supervisor.restart_on_panic("keep_warm", move || Arc::clone(&beside).keep_warm()));
    let beside = Arc::clone(&worker);
    aside.spawn(supervisor.restart_on_panic("fetch_ahead", move || Arc::clone(&beside).fetch_ahead()));
    let (beats, stop) = (Arc::clone(&worker), heartbeat.clone());
    let beat = move || Arc::clone(&beats).send_heartbeats(joined.clone(), stop.clone());
    let beating = tokio::spawn(supervisor.restart_on_panic("heartbeat", beat));
    worker.serve(held, shutdown).await;
    aside.shutdown().await;
    worker.attempts.pool.stop().await;
    worker.gpus.stop();
    heartbeat.cancel();
    beating.await?;
    Ok(())
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

async fn pause() {
    sleep(PAUSE.first()).await;
}

/// The data is consistent at every unlock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lease_of(report: &FinishReport) -> LeaseRef {
    LeaseRef { job_id: report.job_id, fence: report.fence.clone() }
}

struct Worker {
    config: Config,
    gateway: Arc<Gateway>,
    gpus: Gpus,
    host: Host,
    leases: Leases,
    attempts: Attempts,
    /// GPUs to reserve for large jobs.
    holds: mpsc::Sender<HoldCard>,
    /// Models that should stay loaded even without jobs, and models with waiting jobs.
    kept: watch::Sender<Vec<ModelRef>>,
    next: watch::Sender<Vec<ModelRef>>,
    /// The offer of the waiting lease call; `None` if no call is waiting.
    asked: Mutex<Option<Offer>>,
    /// Requests that this call is made again.
    ask_again: Notify,
}

/// Ended attempts to report to the gateway.
#[derive(Default)]
struct Outbox {
    reports: Vec<FinishReport>,
    releases: Vec<LeaseRef>,
}

impl Outbox {
    fn is_empty(&self) -> bool {
        self.reports.is_empty() && self.releases.is_empty()
    }
}

impl Worker {
    async fn send_heartbeats(self: Arc<Self>, joined: JoinReply, stop: CancellationToken) {
        let heartbeat = HeartbeatConfig {
            every: Duration::from_millis(joined.extend_every_ms),
            lease: Duration::from_millis(joined.lease_ms),
        };
        let status = || {
            let running = u32::try_from(self.leases.running()).unwrap_or(u32::MAX);
            metrics::running(running);
            WorkerStatus {
                draining: self.attempts.draining.is_cancelled(),
                loaded: self.attempts.pool.loaded_names(),
                running,
                gpus: self.gpus.readings(),
                models: self.attempts.pool.models(),
                host: self.host.status(),
                learned: self.attempts.pool.learn(),
            }
        };
        let on_reply = |status: &WorkerStatus, reply: &ExtendReply| {
            self.attempts.pool.mark_reported(&status.learned);
            self.attempts.pool.forget(&reply.forgotten);
            if let Some(hold) = &reply.hold {
                // One at a time; the gateway repeats the others.
                let _ = self.holds.try_send(hold.clone());
            }
            if let Some(keep) = &reply.keep {
                self.kept.send_replace(keep.clone());
            }
            self.next.send_replace(reply.next.clone());
        };
        keep(&self.leases, &self.gateway, heartbeat, status, || self.attempts.pool.reach(), on_reply, stop).await;
    }

    /// The current offer, if it exceeds that of the waiting lease call. `None` without GPUs, whose room is what
    /// changes.
    fn offers_more(&self) -> Option<Offer> {
        if self.gpus.list().is_empty() {
            return None;
        }
        let mut asked = lock(&self.asked);
        let before = asked.as_mut()?;
        let offer = self.attempts.pool.offer();
        if !offer.exceeds(before) {
            return None;
        }
        before.clone_from(&offer);
        Some(offer)
    }

    /// Whether the waiting lease call offers room on a GPU that is now hot or faulty. Smaller changes do not justify
    /// cancelling the call: a response in transit would be lost with its leases.
    fn offers_closed(&self) -> bool {
        let asked = lock(&self.asked);
        let Some(before) = asked.as_ref() else { return false };
        let closed: Vec<u32> = {
            let readings = self.gpus.readings();
            readings.iter().filter(|gpu| gpu.health != GpuHealth::Well).map(|gpu| gpu.index).collect()
        };
        before.cards.iter().any(|gpu| gpu.reach_gib > 0 && closed.contains(&gpu.index))
    }

    /// Leases and reports until `shutdown`, then until all attempts have ended.
    async fn serve(self: &Arc<Self>, mut holds: mpsc::Receiver<HoldCard>, shutdown: CancellationToken) {
        let (ends, mut ended) = mpsc::unbounded_channel::<End>();
        let mut outbox = Outbox::default();
        let mut asking: JoinSet<Result<LeaseReply, Error>> = JoinSet::new();
        let mut flushing: JoinSet<()> = JoinSet::new();
        let mut holding: JoinSet<Option<(Vec<LeasedJob>, Claim)>> = JoinSet::new();
        let mut ask_from = Instant::now();
        let mut ended_at = ask_from;
        let mut looks = tokio::time::interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut disks = Disks::new(&self.config.data_dir, &self.config.cache_dir);
        loop {
            let want = self.attempts.load.want().min(BATCH as u32);
            let may_ask = asking.is_empty() && want > 0 && ask_from <= Instant::now();
            if may_ask && !disks.have_room().await {
                ask_from = Instant::now() + PAUSE.first();
            } else if may_ask {
                let reports: Vec<FinishReport> = outbox.reports.drain(..outbox.reports.len().min(BATCH)).collect();
                asking.spawn(self.ask(want, reports));
            }
            let flush_at = if self.attempts.load.is_more_to_come() { ended_at + LINGER } else { ended_at };
            let must_flush = flushing.is_empty() && !outbox.is_empty();
            // A timer, even an expired one, waits for the next millisecond.
            if must_flush && flush_at <= Instant::now() {
                flushing.spawn(Arc::clone(self).flush(std::mem::take(&mut outbox)));
                continue;
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Some(end) = ended.recv() => {
                    if outbox.is_empty() {
                        ended_at = Instant::now();
                    }
                    Self::record(end, &mut outbox);
                    while let Ok(end) = ended.try_recv() {
                        Self::record(end, &mut outbox);
                    }
                }
                Some(hold) = holds.recv(), if holding.is_empty() => {
                    holding.spawn(Arc::clone(self).hold(hold));
                }
                Some(held) = holding.join_next() => {
                    if let Ok(Some((leases, claim))) = held {
                        self.begin(leases, Some(claim), &ends);
                    }
                }
                Some(answer) = asking.join_next() => match answer {
                    Ok(Ok(reply)) => self.begin(reply.leases, None, &ends),
                    Ok(Err(error)) => {
                        tracing::warn!(%error, "cannot lease jobs; retrying");
                        ask_from = Instant::now() + PAUSE.first();
                    }
                    Err(error) => tracing::error!(%error, "a lease call panicked"),
                },
                Some(_) = flushing.join_next() => {}
                () = self.attempts.load.freed() => {}
                () = sleep_until(flush_at), if must_flush => {
                    flushing.spawn(Arc::clone(self).flush(std::mem::take(&mut outbox)));
                }
                // Room also increases over time and when other processes free memory.
                _ = looks.tick(), if !asking.is_empty() => {
                    if flushing.is_empty() && let Some(offer) = self.offers_more() {
                        flushing.spawn(Arc::clone(self).offer(offer));
                    }
                }
                () = sleep_until(ask_from), if asking.is_empty() && want > 0 => {}
            }
        }
        while let Some(answer) = asking.join_next().await {
            if let Ok(Ok(reply)) = answer {
                self.begin(reply.leases, None, &ends);
            }
        }
        while let Some(held) = holding.join_next().await {
            if let Ok(Some((leases, claim))) = held {
                self.begin(leases, Some(claim), &ends);
            }
        }
        tracing::info!(running = self.leases.running(), "draining");
        let grace_over = Instant::now() + self.config.drain_grace;
        drop(ends);
        // Each attempt holds a sender until it has sent its end.
        loop {
            tokio::select! {
                end = ended.recv() => match end {
                    Some(end) => Self::record(end, &mut outbox),
                    None => break,
                },
                () = sleep_until(grace_over), if !self.attempts.leaving.is_cancelled() => self.attempts.leaving.cancel(),
            }
        }
        while flushing.join_next().await.is_some() {}
        Arc::clone(self).flush(outbox).await;
    }

    /// A lease call that carries reports. If the call fails or is cancelled, the reports are sent separately.
    fn ask(
        self: &Arc<Self>,
        want: u32,
        finish: Vec<FinishReport>,
    ) -> impl Future<Output = Result<LeaseReply, Error>> + use<> {
        let worker = Arc::clone(self);
        async move {
            let wait_ms = u64::try_from(LEASE_WAIT.as_millis()).unwrap_or(0);
            let request = LeaseRequest {
                want,
                offer: worker.attempts.pool.offer(),
                only: None,
                wait_ms,
                fetches_inputs: true,
                finish,
            };
            *lock(&worker.asked) = Some(request.offer.clone());
            let leaving = async {
                worker.attempts.draining.cancelled().await;
                sleep(LAST_ANSWER).await;
            };
            let reply = tokio::select! {
                reply = worker.gateway.lease(&request) => Some(reply),
                // The gateway detects the closed connection and grants nothing to it.
                () = leaving => Some(Err(Error::Unavailable("abandoned because the worker is draining".to_owned()))),
                () = worker.ask_again.notified() => None,
            };
            *lock(&worker.asked) = None;
            match &reply {
                Some(Ok(reply)) => worker.on_reported(&request.finish, &reply.finished),
                Some(Err(_)) | None => worker.report(request.finish).await,
            }
            reply.unwrap_or_else(|| Ok(LeaseReply::default()))
        }
    }

    /// Offers more room than the waiting lease call does.
    async fn offer(self: Arc<Self>, offer: Offer) {
        let request = FinishRequest { finish: Vec::new(), offer: Some(offer) };
        match self.gateway.finish(&request).await {
            Ok(reply) => self.on_offer_reply(&request, reply.offer_taken),
            Err(error) => {
                tracing::debug!(%error, "cannot offer more room; the next lease call offers it");
                self.ask_again.notify_one();
            }
        }
    }

    fn begin(self: &Arc<Self>, jobs: Vec<LeasedJob>, mut claim: Option<Claim>, ends: &mpsc::UnboundedSender<End>) {
        for job in jobs {
            let claim = claim.take();
            let lease = LeaseRef { job_id: job.job_id, fence: job.fence.clone() };
            let lost = self.leases.hold(lease.clone());
            let slot = self.attempts.load.open();
            let (worker, ends) = (Arc::clone(self), ends.clone());
            let span = tracing::info_span!(
                "worker.attempt",
                job.id = %job.job_id,
                job.attempt = job.attempt,
                endpoint.id = job.endpoint,
                endpoint.version = job.version,
                trace.id = job.trace_id()
            );
            let attempt = async move {
                let run = Box::pin(worker.attempts.run(job, slot, lost, claim));
                let end =
                    guard_beside("attempt", run).await.unwrap_or_else(|panic| End::panicked(&lease, panic.message()));
                match end {
                    End::Report(_) | End::Release(_) => worker.leases.ended(&lease),
                    End::Lost => worker.leases.forget(&lease),
                }
                let _ = ends.send(end);
            };
            tokio::spawn(attempt.instrument(span));
        }
    }

    fn record(end: End, outbox: &mut Outbox) {
        match end {
            End::Report(report) => {
                metrics::ended(match report.outcome {
                    FinishOutcome::Succeeded { .. } | FinishOutcome::Stored { .. } => Outcome::Succeeded,
                    FinishOutcome::Failed { .. } => Outcome::Failed,
                });
                outbox.reports.push(*report);
            }
            End::Release(lease) => {
                metrics::ended(Outcome::Released);
                outbox.releases.push(lease);
            }
            End::Lost => metrics::ended(Outcome::Lost),
        }
    }

    async fn flush(self: Arc<Self>, outbox: Outbox) {
        self.report(outbox.reports).await;
        for leases in outbox.releases.chunks(BATCH) {
            let request = ReleaseRequest { leases: leases.to_vec() };
            if let Err(error) = self.gateway.release(&request).await {
                tracing::warn!(%error, "cannot release leases; they will expire");
            }
            leases.iter().for_each(|lease| self.leases.forget(lease));
        }
    }

    /// Reports results until they are accepted or their leases are lost. A result is retried for longer than a single
    /// call.
    async fn report(&self, mut reports: Vec<FinishReport>) {
        let mut most = BATCH;
        while !reports.is_empty() {
            let rest = reports.split_off(reports.len().min(most));
            let request = FinishRequest { finish: reports, offer: self.offers_more() };
            match self.gateway.finish(&request).await {
                Ok(reply) => {
                    self.on_offer_reply(&request, reply.offer_taken);
                    self.on_reported(&request.finish, &reply.finished);
                    reports = rest;
                }
                // The heartbeat detects which leases are lost meanwhile.
                Err(error @ (Error::Unavailable(_) | Error::Unauthorized)) => {
                    tracing::warn!(%error, jobs = request.finish.len(), "cannot report job results; retrying");
                    pause().await;
                    reports = request.finish.into_iter().chain(rest).collect();
                    reports.retain(|report| self.leases.holds(&lease_of(report)));
                }
                // A rejected report must not affect the others.
                Err(Error::Refused { .. }) if request.finish.len() > 1 => {
                    most = 1;
                    reports = request.finish.into_iter().chain(rest).collect();
                }
                Err(error @ Error::Refused { .. }) => {
                    tracing::error!(%error, "the gateway rejected a job result; the job runs again");
                    self.on_reported(&request.finish, &[]);
                    reports = rest;
                }
            }
        }
    }

    /// Repeats the waiting lease call if the gateway did not apply the new offer to it.
    fn on_offer_reply(&self, request: &FinishRequest, offer_taken: bool) {
        if request.offer.is_some() && !offer_taken && lock(&self.asked).is_some() {
            self.ask_again.notify_one();
        }
    }

    fn on_reported(&self, reports: &[FinishReport], answers: &[FinishAnswer]) {
        for report in reports {
            self.leases.forget(&lease_of(report));
        }
        for (report, answer) in reports.iter().zip(answers) {
            match answer {
                FinishAnswer::Ok | FinishAnswer::AlreadyEnded => {}
                FinishAnswer::StaleFence | FinishAnswer::NotFound => {
                    tracing::warn!(job.id = %report.job_id, fence = %report.fence, ?answer, "stale_fence: a job result was rejected because the job has continued elsewhere");
                }
            }
        }
    }
}
