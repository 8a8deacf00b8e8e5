//! The metrics of the installation for Prometheus: waiting jobs and their age, workers, GPUs, models, instances, money.
//!
//! The values are the same on every replica, and collecting them reads all lanes, so one replica at a time collects
//! them every ten seconds and serves them at its `/metrics`; the others serve none of them. If that replica fails,
//! another one takes over within half a minute. Rules and boards take the `max` without the label `instance`: it is
//! correct while two replicas serve the metrics, and stays one series when the role moves.

mod catalogue;
mod fleet;
mod money;
mod queue;
mod snapshot;
#[cfg(test)]
mod tests;

use std::time::Duration;

use metrics::gauge;
use stokehold_queue::now_ms;

use crate::database::Error;
use crate::state::App;
pub use catalogue::METRICS;
use snapshot::Snapshot;
use stokehold_supervise::{BoxError, Duty};

/// Between two looks: more often than Prometheus asks, as it usually does.
const EVERY: Duration = Duration::from_secs(10);

/// How long one look may take.
const LOOK_MAX: Duration = Duration::from_secs(8);

/// How long a replica keeps the role without renewing it: a little more than two collections.
const ROLE_MS: u64 = 25_000;

/// Whose picture it is.
const TELLER: &str = "figures";

/// The loop.
pub(crate) struct ClusterMetrics {
    app: App,
}

impl ClusterMetrics {
    /// For all tenants of `app`.
    pub(crate) fn new(app: App) -> Self {
        Self { app }
    }

    /// One look, if it is this replica's turn.
    async fn run_once(&self) -> Result<(), Error> {
        let app = &self.app;
        let Some(first) = app.db.queue.all().first() else { return Ok(()) };
        if !first.claim_role("figures", &app.replica, ROLE_MS).await? {
            app.exposition.hide(TELLER);
            return Ok(());
        }
        let snapshot = Snapshot::at(app, now_ms()).await?;
        app.exposition.show(TELLER, METRICS, || tell(&snapshot));
        Ok(())
    }
}

impl Duty for ClusterMetrics {
    const NAME: &'static str = "figures";
    const ROUND_TIMEOUT: Duration = LOOK_MAX;
    const RETRY_DELAY: Duration = EVERY;
    const BLOCKS_READINESS: bool = false;

    async fn round(&mut self) -> Result<Duration, BoxError> {
        self.run_once().await?;
        Ok(EVERY.mul_f64(0.9 + 0.2 * rand::random::<f64>()))
    }

    async fn shut_down(&mut self) {
        self.app.exposition.hide(TELLER);
    }
}

/// Sets every figure. Pure but for the recorder that is in place.
fn tell(snapshot: &Snapshot) {
    let mut left_out = LeftOut::default();
    queue::tell(snapshot, &mut left_out);
    fleet::tell(snapshot, &mut left_out);
    money::tell(snapshot, &mut left_out);
    gauge!(catalogue::LOOKED).set(seconds(snapshot.now_ms));
    for (of, number) in left_out.0 {
        gauge!(catalogue::LEFT_OUT, "of" => of).set(float(number as u64));
    }
}

/// How many items there are beyond those reported individually.
#[derive(Default)]
struct LeftOut(Vec<(&'static str, usize)>);

impl LeftOut {
    /// The first `most` of these, which are in order of what is most worth telling.
    fn cut<'a, T>(&mut self, of: &'static str, all: &'a [T], most: usize) -> &'a [T] {
        self.0.push((of, all.len().saturating_sub(most)));
        &all[..all.len().min(most)]
    }
}

#[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
fn float(number: u64) -> f64 {
    number as f64
}

fn seconds(ms: u64) -> f64 {
    float(ms) / 1e3
}

fn bytes(mib: u64) -> f64 {
    float(mib) * 1_048_576.0
}

fn usd(micros: u64) -> f64 {
    float(micros) / 1e6
}
