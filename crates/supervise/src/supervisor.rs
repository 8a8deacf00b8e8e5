//! The supervisor.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::duty::{BoxError, Duty};
use crate::failpoint::Failpoints;
use crate::guard::guard;
use crate::metrics;
use crate::state::{DutyState, RoundFailure};

/// How long a shutdown waits for a round that it does not cancel.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);

/// A panic after a run of this length counts as the first one: the backoff starts over.
const LONG_RUN: Duration = Duration::from_secs(300);

/// The supervisor of the background duties of one program. Clones share it.
#[derive(Clone)]
pub struct Supervisor(Arc<Shared>);

struct Shared {
    backoff: Backoff,
    /// In the order of registration.
    states: watch::Sender<Vec<DutyState>>,
    failpoints: Failpoints,
}

impl Default for Supervisor {
    fn default() -> Self {
        Self::new(Backoff::default())
    }
}

impl Supervisor {
    /// A supervisor without duties.
    #[must_use]
    pub fn new(backoff: Backoff) -> Self {
        let states = watch::Sender::new(Vec::new());
        Self(Arc::new(Shared { backoff, states, failpoints: Failpoints::default() }))
    }

    /// Registers a duty and returns the future that runs its rounds until `shutdown`.
    pub fn run_until_shutdown<D: Duty>(
        &self,
        duty: D,
        shutdown: CancellationToken,
    ) -> impl Future<Output = ()> + Send + use<D> {
        run_until_shutdown(self.register(D::NAME, D::BLOCKS_READINESS, D::ROUND_TIMEOUT), duty, shutdown)
    }

    /// Registers a duty and returns a future that runs `start()` until it ends by itself, and starts it again after a
    /// panic. Each start counts as a round.
    pub fn restart_on_panic<S, F>(&self, duty: &'static str, start: S) -> impl Future<Output = F::Output> + use<S, F>
    where
        S: Fn() -> F,
        F: Future,
    {
        restart_on_panic(self.register(duty, false, Duration::MAX), start)
    }

    /// Registers a duty whose rounds are run by a loop of its own. It does not block readiness.
    #[must_use]
    pub fn rounds(&self, duty: &'static str, timeout: Duration) -> Rounds {
        self.register(duty, false, timeout)
    }

    /// The states of all duties, in the order of registration. A kind of duty with several instances is listed several
    /// times.
    #[must_use]
    pub fn states(&self) -> Vec<DutyState> {
        self.0.states.borrow().clone()
    }

    /// The states of all duties, and their changes.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Vec<DutyState>> {
        self.0.states.subscribe()
    }

    /// The names of the duties that fail repeatedly, sorted.
    #[must_use]
    pub fn failing(&self) -> Vec<&'static str> {
        let states = self.0.states.borrow();
        let names: BTreeSet<_> = states.iter().filter(|state| state.is_failing()).map(|state| state.name).collect();
        names.into_iter().collect()
    }

    /// Whether repeated panics of a duty make the program not ready.
    #[must_use]
    pub fn blocks_readiness(&self) -> bool {
        self.0.states.borrow().iter().any(DutyState::blocks_readiness_now)
    }

    /// Makes this number of next rounds of a duty panic: the failpoint `duty.<name>`, which is reached before each
    /// round. A wait for the next round ends at once; a backoff does not. Replaces the number that was set before; 0
    /// ends the injection.
    #[cfg(debug_assertions)]
    pub fn inject_panics(&self, duty: &str, rounds: u32) {
        self.0.failpoints.inject(duty, rounds);
    }

    fn register(&self, duty: &'static str, blocks_readiness: bool, timeout: Duration) -> Rounds {
        metrics::registered(duty);
        let mut index = 0;
        self.0.states.send_modify(|states| {
            index = states.len();
            states.push(DutyState::new(duty, blocks_readiness));
        });
        Rounds { supervisor: self.clone(), index, duty, timeout }
    }
}

/// The rounds of one duty.
pub struct Rounds {
    supervisor: Supervisor,
    /// Index among the states.
    index: usize,
    duty: &'static str,
    timeout: Duration,
}

impl Rounds {
    /// Runs one round, with the timeout of the duty. A failure is counted; of many in a row, only some are logged.
    ///
    /// # Errors
    /// How it failed.
    pub async fn run<T>(&self, round: impl Future<Output = Result<T, BoxError>>) -> Result<T, RoundFailure> {
        self.start();
        let (duty, before) = (self.duty, self.state());
        let in_a_row = before.failed_in_a_row.saturating_add(1);
        let guarded = guard(duty, async {
            self.shared().failpoints.reach(duty);
            timeout(self.timeout, round).await
        });
        let done = match guarded.await {
            Ok(Ok(Ok(done))) => {
                if before.is_failing() {
                    tracing::info!(duty, failed_rounds = before.failed_in_a_row, "a background duty works again");
                }
                Ok(done)
            }
            Ok(Ok(Err(error))) => {
                if before.logs_failure() {
                    let error = &*error as &dyn std::error::Error;
                    tracing::warn!(duty, error, in_a_row, "a round of a background duty failed, trying again");
                }
                Err(RoundFailure::Error)
            }
            Ok(Err(_)) => {
                if before.logs_failure() {
                    let after_ms = self.timeout.as_millis();
                    tracing::warn!(duty, after_ms, in_a_row, "a round of a background duty timed out, trying again");
                }
                Err(RoundFailure::Timeout)
            }
            Err(_) => Err(RoundFailure::Panic),
        };
        self.finish(done.as_ref().err().copied());
        done
    }

    /// Runs a task that ends by itself as one round without a timeout. After a panic, which is logged and counted,
    /// waits for the backoff and returns `None`: call it again.
    pub async fn run_task<T>(&self, task: impl Future<Output = T>) -> Option<T> {
        let started = Instant::now();
        self.start();
        let guarded = guard(self.duty, async {
            tokio::select! {
                biased;
                never = self.shared().failpoints.panic_when_armed(self.duty) => match never {},
                done = task => done,
            }
        });
        if let Ok(done) = guarded.await {
            self.finish(None);
            return Some(done);
        }
        if started.elapsed() > LONG_RUN {
            self.update(|state| state.finish(None));
        }
        self.finish(Some(RoundFailure::Panic));
        sleep(self.backoff()).await;
        None
    }

    /// Waits for the next round: for `pause`, or after a panic for the backoff if that is shorter.
    pub async fn pause(&self, pause: Duration) {
        let backoff = self.backoff();
        if !backoff.is_zero() {
            return sleep(backoff.min(pause)).await;
        }
        tokio::select! {
            () = sleep(pause) => {}
            () = self.shared().failpoints.armed(self.duty) => {}
        }
    }

    /// The backoff after the panics so far in a row, zero after none.
    fn backoff(&self) -> Duration {
        self.shared().backoff.delay(self.panicked_in_a_row())
    }

    fn shared(&self) -> &Shared {
        &self.supervisor.0
    }

    fn state(&self) -> DutyState {
        let state = self.shared().states.borrow().get(self.index).copied();
        state.unwrap_or_else(|| DutyState::new(self.duty, false))
    }

    fn panicked_in_a_row(&self) -> u32 {
        self.state().panicked_in_a_row
    }

    fn start(&self) {
        if self.panicked_in_a_row() > 0 {
            metrics::restarted(self.duty);
        }
        self.update(|state| state.started += 1);
    }

    fn finish(&self, failure: Option<RoundFailure>) {
        metrics::finished(self.duty, failure);
        self.update(|state| state.finish(failure));
    }

    fn update(&self, change: impl FnOnce(&mut DutyState)) {
        self.shared().states.send_modify(|states| {
            if let Some(state) = states.get_mut(self.index) {
                change(state);
            }
        });
    }

    /// Waits for the next round. After a panic nothing but the backoff ends the wait.
    async fn wait<D: Duty>(&self, duty: &mut D, pause: Duration) -> Result<(), RoundFailure> {
        let backoff = self.backoff();
        if !backoff.is_zero() {
            sleep(backoff).await;
            return Ok(());
        }
        let waited = guard(self.duty, async {
            tokio::select! {
                () = duty.wait(pause) => {}
                () = self.shared().failpoints.armed(self.duty) => {}
            }
        });
        waited.await.map_err(|_| {
            self.finish(Some(RoundFailure::Panic));
            RoundFailure::Panic
        })
    }
}

async fn run_until_shutdown<D: Duty>(rounds: Rounds, mut duty: D, shutdown: CancellationToken) {
    let mut pause = D::INITIAL_DELAY;
    loop {
        let waited = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            waited = rounds.wait(&mut duty, pause) => waited,
        };
        let round = async {
            waited?;
            rounds.run(duty.round()).await
        };
        let cancelled = async {
            shutdown.cancelled().await;
            if !D::CANCEL_ON_SHUTDOWN {
                sleep(SHUTDOWN_GRACE).await;
            }
        };
        let done = tokio::select! {
            done = round => done,
            () = cancelled => break,
        };
        pause = done.unwrap_or(D::RETRY_DELAY);
    }
    // A panic has been logged, and nothing follows.
    let _ = guard(D::NAME, duty.shut_down()).await;
}

async fn restart_on_panic<S, F>(rounds: Rounds, start: S) -> F::Output
where
    S: Fn() -> F,
    F: Future,
{
    loop {
        if let Some(done) = rounds.run_task(async { start().await }).await {
            return done;
        }
    }
}

#[cfg(test)]
mod tests;
