//! Leases jobs, starts their attempts, and drains the worker.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use stokehold_protocol::gateway::{FinishReport, LeaseRef, LeaseReply, LeaseRequest, LeasedJob, ReserveGpus};
use stokehold_supervise::guard_beside;
use stokehold_vram::Claim;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, Interval, MissedTickBehavior, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::report::Outbox;
use super::{BATCH, PAUSE, Worker};
use crate::attempt::End;
use crate::disk::Disks;
use crate::gateway::Error;

/// Maximum time that the gateway holds a lease call when there are no jobs.
const LEASE_WAIT: Duration = Duration::from_secs(20);

/// Maximum time that a report waits for others, while others are certain to follow.
const LINGER: Duration = Duration::from_millis(5);

/// Timeout, at shutdown, of a lease call that may already have been granted jobs.
const LAST_ANSWER: Duration = Duration::from_millis(200);

/// Interval of checks whether there is more room than the waiting lease call offers.
const ROOM_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The running calls to the gateway, and the ended attempts that the next call reports.
struct Service {
    worker: Arc<Worker>,
    /// GPUs to reserve for large jobs.
    to_reserve: mpsc::Receiver<ReserveGpus>,
    ends: mpsc::UnboundedSender<End>,
    ended: mpsc::UnboundedReceiver<End>,
    outbox: Outbox,
    /// When the oldest end in the outbox was added.
    ended_at: Instant,
    /// The lease call, if one is running, and the earliest time of the next one.
    leasing: JoinSet<Result<LeaseReply, Error>>,
    lease_from: Instant,
    /// The call that reports, if one is running.
    flushing: JoinSet<()>,
    /// The reservation of GPUs for a large job, if one is running.
    reserving: JoinSet<Option<(Vec<LeasedJob>, Claim)>>,
    /// Checks for more room.
    room_checks: Interval,
    disks: Disks,
}

impl Worker {
    /// Leases and reports until `shutdown`, then until all attempts have ended.
    pub(super) async fn serve(self: &Arc<Self>, to_reserve: mpsc::Receiver<ReserveGpus>, shutdown: CancellationToken) {
        let mut service = Service::new(self, to_reserve);
        while service.round(&shutdown).await.is_continue() {}
        service.start_last_jobs().await;
        service.drain().await;
    }

    /// Leases up to `want` jobs in a call that carries reports. If the call fails or is cancelled, the reports are sent
    /// separately.
    pub(super) fn ask(
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
            *worker.asked.lock() = Some(request.offer.clone());
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
            *worker.asked.lock() = None;
            match &reply {
                Some(Ok(reply)) => worker.on_reported(&request.finish, &reply.finished),
                Some(Err(_)) | None => worker.report(request.finish).await,
            }
            reply.unwrap_or_else(|| Ok(LeaseReply::default()))
        }
    }

    pub(super) fn begin(
        self: &Arc<Self>,
        jobs: Vec<LeasedJob>,
        mut claim: Option<Claim>,
        ends: &mpsc::UnboundedSender<End>,
    ) {
        for job in jobs {
            let claim = claim.take();
            let lease = LeaseRef { job_id: job.job_id, fence: job.fence.clone() };
            let held = self.leases.add(lease.clone());
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
                let run = Box::pin(worker.attempts.run(job, slot, &held, claim));
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
}

impl Service {
    fn new(worker: &Arc<Worker>, to_reserve: mpsc::Receiver<ReserveGpus>) -> Self {
        let (ends, ended) = mpsc::unbounded_channel();
        let now = Instant::now();
        let mut room_checks = tokio::time::interval(ROOM_CHECK_INTERVAL);
        room_checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            to_reserve,
            ends,
            ended,
            outbox: Outbox::default(),
            ended_at: now,
            leasing: JoinSet::new(),
            lease_from: now,
            flushing: JoinSet::new(),
            reserving: JoinSet::new(),
            room_checks,
            disks: Disks::new(&worker.config.data_dir, &worker.config.cache_dir),
            worker: Arc::clone(worker),
        }
    }

    /// Starts the calls that are due, then waits for the next event and handles it. Breaks on `shutdown`.
    async fn round(&mut self, shutdown: &CancellationToken) -> ControlFlow<()> {
        let load = Arc::clone(&self.worker.attempts.load);
        let want = load.want().min(BATCH as u32);
        self.lease_if_due(want).await;
        let flush_at = if load.is_more_to_come() { self.ended_at + LINGER } else { self.ended_at };
        let must_flush = self.flushing.is_empty() && !self.outbox.is_empty();
        // A timer, even an expired one, waits for the next millisecond.
        if must_flush && flush_at <= Instant::now() {
            self.flush();
            return ControlFlow::Continue(());
        }
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return ControlFlow::Break(()),
            Some(end) = self.ended.recv() => self.record(end),
            Some(wanted) = self.to_reserve.recv(), if self.reserving.is_empty() => {
                self.reserving.spawn(Arc::clone(&self.worker).reserve(wanted));
            }
            Some(reserved) = self.reserving.join_next() => self.on_reserved(reserved),
            Some(reply) = self.leasing.join_next() => self.on_leased(reply),
            Some(_) = self.flushing.join_next() => {}
            () = load.freed() => {}
            () = sleep_until(flush_at), if must_flush => self.flush(),
            // Room also increases over time and when other processes free memory.
            _ = self.room_checks.tick(), if !self.leasing.is_empty() => self.offer_more(),
            () = sleep_until(self.lease_from), if self.leasing.is_empty() && want > 0 => {}
        }
        ControlFlow::Continue(())
    }

    /// Starts a lease call if none is running, jobs are wanted, and the disks have room.
    async fn lease_if_due(&mut self, want: u32) {
        if !self.leasing.is_empty() || want == 0 || self.lease_from > Instant::now() {
            return;
        }
        if !self.disks.have_room().await {
            self.lease_from = Instant::now() + PAUSE.first();
            return;
        }
        let count = self.outbox.reports.len().min(BATCH);
        let reports: Vec<FinishReport> = self.outbox.reports.drain(..count).collect();
        self.leasing.spawn(self.worker.ask(want, reports));
    }

    fn flush(&mut self) {
        let outbox = std::mem::take(&mut self.outbox);
        self.flushing.spawn(Arc::clone(&self.worker).flush(outbox));
    }

    fn offer_more(&mut self) {
        if self.flushing.is_empty()
            && let Some(offer) = self.worker.offers_more()
        {
            self.flushing.spawn(Arc::clone(&self.worker).offer(offer));
        }
    }

    /// Records an ended attempt, and all others that have ended by now.
    fn record(&mut self, end: End) {
        if self.outbox.is_empty() {
            self.ended_at = Instant::now();
        }
        self.outbox.record(end);
        while let Ok(end) = self.ended.try_recv() {
            self.outbox.record(end);
        }
    }

    fn on_leased(&mut self, reply: Result<Result<LeaseReply, Error>, JoinError>) {
        match reply {
            Ok(Ok(reply)) => self.worker.begin(reply.leases, None, &self.ends),
            Ok(Err(error)) => {
                tracing::warn!(%error, "cannot lease jobs; retrying");
                self.lease_from = Instant::now() + PAUSE.first();
            }
            Err(error) => tracing::error!(%error, "a lease call panicked"),
        }
    }

    fn on_reserved(&self, reserved: Result<Option<(Vec<LeasedJob>, Claim)>, JoinError>) {
        if let Ok(Some((leases, claim))) = reserved {
            self.worker.begin(leases, Some(claim), &self.ends);
        }
    }

    /// Starts the jobs of the calls that are still running.
    async fn start_last_jobs(&mut self) {
        while let Some(reply) = self.leasing.join_next().await {
            if let Ok(Ok(reply)) = reply {
                self.worker.begin(reply.leases, None, &self.ends);
            }
        }
        while let Some(reserved) = self.reserving.join_next().await {
            self.on_reserved(reserved);
        }
    }

    /// Waits until all attempts have ended, and reports them. Running ones are released after the grace period.
    async fn drain(self) {
        let Self { worker, ends, mut ended, mut outbox, mut flushing, .. } = self;
        tracing::info!(running = worker.leases.running(), "draining");
        let grace_over = Instant::now() + worker.config.drain_grace;
        drop(ends);
        let leaving = &worker.attempts.leaving;
        // Each attempt holds a sender until it has sent its end.
        loop {
            tokio::select! {
                end = ended.recv() => match end {
                    Some(end) => outbox.record(end),
                    None => break,
                },
                () = sleep_until(grace_over), if !leaving.is_cancelled() => leaving.cancel(),
            }
        }
        while flushing.join_next().await.is_some() {}
        Arc::clone(&worker).flush(outbox).await;
    }
}
