//! The leases of this worker, and the heartbeat that extends them.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use stokehold_protocol::gateway::{ExtendAnswer, ExtendReply, ExtendRequest, GpuCapability, LeaseRef, WorkerStatus};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::gateway::Gateway;

/// Shortest timeout of a heartbeat.
const EXTEND_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// Minimum time between a heartbeat and the next one that only reports a changed phase of a starting job.
const CHANGE_PAUSE: Duration = Duration::from_millis(500);

/// The leases of this worker.
pub(crate) struct Leases {
    heartbeat: HeartbeatConfig,
    leases: Mutex<HashMap<LeaseRef, LeaseState>>,
}

struct LeaseState {
    lost: CancellationToken,
    /// Whether its attempt is running; otherwise its result is being reported.
    is_running: bool,
    /// When the gateway last granted or extended it: the time of the request, because the response may be delayed.
    confirmed: watch::Sender<Instant>,
}

/// The lease of an attempt.
pub(crate) struct AttemptLease {
    /// Cancelled when the lease is lost.
    pub(crate) lost: CancellationToken,
    confirmed: watch::Receiver<Instant>,
    silence_max: Duration,
}

impl AttemptLease {
    /// Whether the attempt must not start: the lease is lost, or was not confirmed for almost its whole duration. After
    /// this process was stopped for a while, an attempt may continue before the lease is counted as lost.
    pub(crate) fn is_overdue(&self) -> bool {
        self.lost.is_cancelled() || self.confirmed.borrow().elapsed() >= self.silence_max
    }
}

impl Leases {
    /// `heartbeat`: as set by the gateway when the worker joined.
    pub(crate) fn new(heartbeat: HeartbeatConfig) -> Self {
        Self { heartbeat, leases: Mutex::default() }
    }

    /// Adds a lease that was just granted.
    pub(crate) fn add(&self, lease: LeaseRef) -> AttemptLease {
        let lost = CancellationToken::new();
        let (sender, confirmed) = watch::channel(Instant::now());
        self.leases.lock().insert(lease, LeaseState { lost: lost.clone(), is_running: true, confirmed: sender });
        AttemptLease { lost, confirmed, silence_max: self.heartbeat.silence_max() }
    }

    /// Marks the attempt as ended. The lease is kept until the gateway has its report.
    pub(crate) fn ended(&self, lease: &LeaseRef) {
        if let Some(state) = self.leases.lock().get_mut(lease) {
            state.is_running = false;
        }
    }

    /// Removes a lease whose end or release the gateway has accepted.
    pub(crate) fn forget(&self, lease: &LeaseRef) {
        self.leases.lock().remove(lease);
    }

    /// Whether the lease is still held.
    pub(crate) fn contains(&self, lease: &LeaseRef) -> bool {
        self.leases.lock().contains_key(lease)
    }

    /// Number of leases with a running attempt.
    pub(crate) fn running(&self) -> usize {
        self.leases.lock().values().filter(|state| state.is_running).count()
    }

    fn refs(&self) -> Vec<LeaseRef> {
        self.leases.lock().keys().cloned().collect()
    }

    fn lose(&self, lease: &LeaseRef, why: &str) {
        let Some(state) = self.leases.lock().remove(lease) else { return };
        // The lease of a reported result may be gone before the response arrives.
        if state.is_running {
            tracing::warn!(job.id = %lease.job_id, fence = %lease.fence, why, "lease lost; stopping its attempt");
            state.lost.cancel();
        }
    }

    /// Records that the gateway extended the lease in a request made at `asked`.
    fn confirm(&self, lease: &LeaseRef, asked: Instant) {
        if let Some(state) = self.leases.lock().get(lease) {
            state.confirmed.send_modify(|confirmed| *confirmed = asked.max(*confirmed));
        }
    }

    /// The earliest confirmation of all leases; `None` if there are none.
    fn oldest(&self) -> Option<Instant> {
        self.leases.lock().values().map(|state| *state.confirmed.borrow()).min()
    }

    /// Loses the leases that were last confirmed at least `age` ago.
    fn lose_older_than(&self, age: Duration) {
        let silent: Vec<LeaseRef> = {
            let leases = self.leases.lock();
            leases
                .iter()
                .filter(|(_, state)| state.confirmed.borrow().elapsed() >= age)
                .map(|(lease, _)| lease.clone())
                .collect()
        };
        if !silent.is_empty() {
            tracing::error!(
                held = silent.len(),
                "no response from the gateway for almost one lease period; stopping these attempts before other workers start the jobs"
            );
        }
        for lease in silent {
            self.lose(&lease, "no response from the gateway");
        }
    }
}

/// Heartbeat interval and lease duration, as set by the gateway.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeartbeatConfig {
    pub(crate) every: Duration,
    pub(crate) lease: Duration,
}

impl HeartbeatConfig {
    /// Time without a confirmation after which another worker may soon get the job.
    fn silence_max(self) -> Duration {
        self.lease.saturating_sub(self.every)
    }
}

/// Extends all leases together until `shutdown`, and passes each accepted status with its response to `on_reply`. A
/// heartbeat is sent early when `changed` completes. Stops an attempt whose lease was not confirmed for almost its whole
/// duration, because another worker may get its job; this happens on time even while a heartbeat call is waiting.
pub(crate) async fn keep<Changed: Future<Output = ()>>(
    leases: &Leases,
    gateway: &Gateway,
    report: impl Fn() -> (WorkerStatus, Vec<GpuCapability>),
    changed: impl Fn() -> Changed,
    on_reply: impl Fn(&WorkerStatus, &ExtendReply),
    shutdown: CancellationToken,
) {
    tokio::select! {
        () = send_heartbeats(leases, gateway, report, changed, on_reply) => {}
        () = stop_silent(leases) => {}
        () = shutdown.cancelled() => {}
    }
}

async fn send_heartbeats<Changed: Future<Output = ()>>(
    leases: &Leases,
    gateway: &Gateway,
    report: impl Fn() -> (WorkerStatus, Vec<GpuCapability>),
    changed: impl Fn() -> Changed,
    on_reply: impl Fn(&WorkerStatus, &ExtendReply),
) {
    let every = leases.heartbeat.every;
    let mut sent = Instant::now();
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut token = gateway.token_number();
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            // After a new join, the leases may be about to expire.
            () = gateway.token_replaced(token) => {}
            // Users see the phase of a job that starts, so it is reported before the next tick.
            () = async { changed().await; sleep_until(sent + CHANGE_PAUSE.min(every)).await } => {}
        }
        let asked = Instant::now();
        sent = asked;
        token = gateway.token_number();
        let (status, cards) = report();
        let request = ExtendRequest { leases: leases.refs(), cards, status };
        match gateway.extend(&request, every.max(EXTEND_TIMEOUT_MIN)).await {
            Ok(reply) => {
                on_reply(&request.status, &reply);
                for (lease, answer) in request.leases.iter().zip(reply.leases) {
                    match answer {
                        ExtendAnswer::Held => leases.confirm(lease, asked),
                        ExtendAnswer::Lost => leases.lose(lease, "stale_fence"),
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "heartbeat failed"),
        }
    }
}

async fn stop_silent(leases: &Leases) {
    let age = leases.heartbeat.silence_max();
    loop {
        // Leases that are added in the meantime expire later.
        sleep_until(leases.oldest().unwrap_or_else(Instant::now) + age).await;
        leases.lose_older_than(age);
    }
}

#[cfg(test)]
mod tests {
    use stokehold_protocol::{Fence, JobId};
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_was_not_confirmed_for_long_is_overdue_until_it_is_confirmed() {
        let heartbeat = HeartbeatConfig { every: Duration::from_secs(5), lease: Duration::from_secs(30) };
        let leases = Leases::new(heartbeat);
        let job = LeaseRef { job_id: JobId::new(0), fence: Fence("1.x".to_owned()) };
        let lease = leases.add(job.clone());
        advance(Duration::from_secs(24)).await;
        assert!(!lease.is_overdue());
        let asked = Instant::now();
        advance(Duration::from_secs(1)).await;
        assert!(lease.is_overdue(), "it was granted 25 s ago");
        leases.confirm(&job, asked);
        assert!(!lease.is_overdue(), "it was extended a second ago");
        leases.confirm(&job, asked - Duration::from_secs(20));
        assert!(!lease.is_overdue(), "a late response to an earlier request changes nothing");
        leases.lose(&job, "stale_fence");
        assert!(lease.is_overdue());
    }
}
