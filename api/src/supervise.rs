//! The supervisor of background duties: one task each, rounds with a timeout, a restart with a backoff after a panic, and a record
//! of what fails again and again, which `/readyz` and the metrics show.
//!
//! A duty keeps its state over a panic. Every round may be cut short at any await by its timeout, so no duty relies on a round
//! that was begun being finished.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::metrics::{self, DutyFailure};
use crate::state::App;

/// Why a round failed.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The pause after a panic.
#[derive(Debug, Clone, Copy)]
struct Backoff {
    /// After a first one. It doubles with each that follows.
    first: Duration,
    most: Duration,
}

const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(60) };

/// How long a shutdown waits for a round that it does not cut short at once.
const GRACE: Duration = Duration::from_secs(10);

/// A duty fails again and again when so many rounds in a row have failed.
const AGAIN_AND_AGAIN: u32 = 5;

/// Work that is done in rounds until the replica shuts down.
pub(crate) trait Duty: Send {
    /// Its name in logs, in `/readyz` and as a label.
    const NAME: &'static str;

    /// The timeout of one round.
    const ROUND_MAX: Duration;

    /// The rest before the first round.
    const FIRST: Duration = Duration::ZERO;

    /// The rest after a round that failed or timed out.
    const RETRY: Duration = Duration::from_secs(1);

    /// Whether jobs stand still without it: then a replica where it panics again and again is not ready.
    const VITAL: bool = true;

    /// Whether a shutdown cuts a round short at once. Otherwise it waits for the round, for [`GRACE`].
    const IS_CUT: bool = false;

    /// One round. Answers how long to rest.
    fn round(&mut self) -> impl Future<Output = Result<Duration, Failure>> + Send;

    /// The rest between two rounds: as long as the round said, unless something wakes the duty before.
    fn rest(&mut self, pause: Duration) -> impl Future<Output = ()> + Send {
        sleep(pause)
    }

    /// What is left to do at shutdown.
    fn end(&mut self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// How the duties of a replica are doing.
#[derive(Debug, Default)]
pub(crate) struct Duties(Mutex<BTreeMap<u64, Standing>>);

/// How one is doing.
#[derive(Debug, Clone, Copy)]
struct Standing {
    name: &'static str,
    is_vital: bool,
    /// Rounds in a row that failed, in whatever way.
    failed: u32,
    /// Rounds in a row that panicked.
    panicked: u32,
}

impl Duties {
    /// The names of those that fail again and again.
    pub(crate) fn failing(&self) -> Vec<&'static str> {
        let failing = |standing: &&Standing| standing.failed >= AGAIN_AND_AGAIN;
        let names: BTreeSet<_> = self.lock().values().filter(failing).map(|standing| standing.name).collect();
        names.into_iter().collect()
    }

    /// Whether one without which jobs stand still panics again and again. Errors and timeouts do not count: Redis and S3 cause
    /// those, and other replicas have the same.
    pub(crate) fn is_broken(&self) -> bool {
        self.lock().values().any(|standing| standing.is_vital && standing.panicked >= AGAIN_AND_AGAIN)
    }

    fn enter<D: Duty>(&self) -> u64 {
        let mut duties = self.lock();
        let id = duties.len() as u64;
        duties.insert(id, Standing { name: D::NAME, is_vital: D::VITAL, failed: 0, panicked: 0 });
        id
    }

    /// Notes a round. Answers how many in a row have panicked.
    fn note(&self, id: u64, failure: Option<DutyFailure>) -> u32 {
        let mut duties = self.lock();
        let Some(standing) = duties.get_mut(&id) else { return 0 };
        let count = |before: u32, again: bool| if again { before.saturating_add(1) } else { 0 };
        standing.failed = count(standing.failed, failure.is_some());
        standing.panicked = count(standing.panicked, failure == Some(DutyFailure::Panic));
        standing.panicked
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Standing>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Does rounds of a duty of `app` until `shutdown`.
pub(crate) async fn supervise<D: Duty>(app: App, duty: D, shutdown: CancellationToken) {
    keep(&app.duties, duty, BACKOFF, shutdown).await;
}

async fn keep<D: Duty>(duties: &Duties, mut duty: D, backoff: Backoff, shutdown: CancellationToken) {
    let (id, mut pause) = (duties.enter::<D>(), Pause::Rest(D::FIRST));
    loop {
        let rested = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            rested = guarded(D::NAME, async { match pause {
                Pause::Rest(pause) => duty.rest(pause).await,
                Pause::Backoff(pause) => sleep(pause).await,
            } }) => rested,
        };
        let round = async {
            rested?;
            guarded(D::NAME, async { timeout(D::ROUND_MAX, duty.round()).await }).await
        };
        let cut = async {
            shutdown.cancelled().await;
            if !D::IS_CUT {
                sleep(GRACE).await;
            }
        };
        let done = tokio::select! {
            done = round => done,
            () = cut => break,
        };
        let (failure, rest) = match done {
            Ok(Ok(Ok(pause))) => (None, pause),
            Ok(Ok(Err(error))) => {
                tracing::warn!(
                    duty = D::NAME,
                    error = &*error as &dyn std::error::Error,
                    "a round of a background duty failed, trying again"
                );
                (Some(DutyFailure::Error), D::RETRY)
            }
            Ok(Err(_)) => {
                tracing::warn!(
                    duty = D::NAME,
                    after_ms = D::ROUND_MAX.as_millis(),
                    "a round of a background duty timed out, trying again"
                );
                (Some(DutyFailure::Timeout), D::RETRY)
            }
            Err(Panicked) => (Some(DutyFailure::Panic), D::RETRY),
        };
        #[cfg(feature = "mutants")]
        if failure == Some(DutyFailure::Panic) && stokehold_queue::mutants::is("duty-not-restarted") {
            return;
        }
        metrics::duty_round(D::NAME, failure);
        pause = match duties.note(id, failure) {
            0 => Pause::Rest(rest),
            panics => Pause::Backoff(backoff.first.saturating_mul(1 << (panics - 1).min(10)).min(backoff.most)),
        };
    }
    let _ = guarded(D::NAME, duty.end()).await;
}

enum Pause {
    /// The duty's own.
    Rest(Duration),
    /// Nothing wakes a duty that panicked before this is over.
    Backoff(Duration),
}

/// A future panicked. The log has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Panicked;

/// Runs what belongs to a duty. A panic is logged and goes no further.
pub(crate) async fn guarded<T>(duty: &'static str, work: impl Future<Output = T> + Send) -> Result<T, Panicked> {
    AssertUnwindSafe(work).catch_unwind().await.map_err(|panic| {
        tracing::error!(duty, panic = text(&*panic), "a background duty panicked");
        Panicked
    })
}

/// As [`guarded`], for what a duty has started beside its rounds; a panic is counted as one of a round.
pub(crate) async fn guarded_apart<T>(duty: &'static str, work: impl Future<Output = T> + Send) -> Result<T, Panicked> {
    let done = guarded(duty, work).await;
    if done.is_err() {
        metrics::duty_failed(duty, DutyFailure::Panic);
    }
    done
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("of no text")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::time::Instant;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Panics, hangs and fails as its script says, and then works.
    struct Scripted {
        rounds: Arc<AtomicU32>,
        script: fn(u32) -> Act,
    }

    enum Act {
        Work,
        Panic,
        Fail,
        Hang,
    }

    impl Duty for Scripted {
        const NAME: &'static str = "scripted";
        const ROUND_MAX: Duration = MS;
        const RETRY: Duration = MS;

        async fn round(&mut self) -> Result<Duration, Failure> {
            let round = self.rounds.fetch_add(1, Ordering::Relaxed);
            match (self.script)(round) {
                Act::Work => Ok(MS),
                Act::Panic => panic!("round {round}"),
                Act::Fail => Err("no".into()),
                Act::Hang => std::future::pending().await,
            }
        }
    }

    /// Runs a script until so many rounds have begun: how long that took, and how the duty is doing.
    async fn ran(script: fn(u32) -> Act, most: u32) -> (Duration, Duties) {
        let (rounds, duties, shutdown) = (Arc::<AtomicU32>::default(), Duties::default(), CancellationToken::new());
        let begun = Instant::now();
        let backoff = Backoff { first: 10 * MS, most: 40 * MS };
        let kept = keep(&duties, Scripted { rounds: rounds.clone(), script }, backoff, shutdown.clone());
        let over = async {
            while rounds.load(Ordering::Relaxed) < most {
                sleep(MS).await;
            }
            let took = begun.elapsed();
            shutdown.cancel();
            took
        };
        let ((), took) = tokio::join!(kept, over);
        (took, duties)
    }

    #[tokio::test]
    async fn a_duty_that_panics_is_restarted_with_a_backoff() {
        let (took, duties) = ran(|round| if round < 3 { Act::Panic } else { Act::Work }, 6).await;
        assert!(took >= 70 * MS, "10, 20 and 40 ms pass before the fourth round: {took:?}");
        assert!(duties.failing().is_empty() && !duties.is_broken());
    }

    #[tokio::test]
    async fn a_duty_that_panics_again_and_again_is_known_until_it_works() {
        let (took, duties) = ran(|_| Act::Panic, 8).await;
        assert!(took >= (10 + 20 + 5 * 40) * MS && took < 2_000 * MS, "the backoff has a bound: {took:?}");
        assert_eq!((duties.failing(), duties.is_broken()), (vec!["scripted"], true));
        let (_, duties) = ran(|round| if round < 8 { Act::Panic } else { Act::Work }, 11).await;
        assert_eq!((duties.failing(), duties.is_broken()), (vec![], false), "it works again");
    }

    #[tokio::test]
    async fn a_duty_that_hangs_or_fails_is_tried_again_and_known_and_breaks_nothing() {
        for script in [(|_| Act::Hang) as fn(u32) -> Act, |_| Act::Fail] {
            let (_, duties) = ran(script, 8).await;
            assert_eq!((duties.failing(), duties.is_broken()), (vec!["scripted"], false));
        }
    }

    #[tokio::test]
    async fn a_panic_has_its_text() {
        assert_eq!(guarded("a", async { panic!("plain") }).await, Err::<(), _>(Panicked));
        assert_eq!(text(&"plain" as &(dyn Any + Send)), "plain");
        assert_eq!(text(&"owned".to_owned() as &(dyn Any + Send)), "owned");
        assert_eq!(text(&7_u8 as &(dyn Any + Send)), "of no text");
    }
}
