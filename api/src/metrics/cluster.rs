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

/// Interval of collections, which is shorter than the usual scrape interval of Prometheus.
const EVERY: Duration = Duration::from_secs(10);

/// Timeout of one collection.
const LOOK_MAX: Duration = Duration::from_secs(8);

/// Time for which a replica keeps the role without renewing it, milliseconds: a little more than two collections.
const ROLE_MS: u64 = 25_000;

/// Name of the role.
const TELLER: &str = "figures";

/// The collection loop.
pub(crate) struct ClusterMetrics {
    app: App,
}

impl ClusterMetrics {
    /// Creates the loop for all tenants of `app`.
    pub(crate) fn new(app: App) -> Self {
        Self { app }
    }

    /// Collects once, if this replica has the role.
    async fn run_once(&self) -> Result<(), Error> {
        let app = &self.app;
        let Some(first) = app.db.queue.all().first() else { return Ok(()) };
        if !first.claim_role("figures", &app.replica, ROLE_MS).await? {
            app.exposition.hide(TELLER);
            return Ok(());
        }
        let snapshot = Snapshot::at(app, now_ms()).await?;
        app.exposition.show(TELLER, METRICS, || set_metrics(&snapshot));
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

/// Sets all metrics. Pure except for the installed recorder.
fn set_metrics(snapshot: &Snapshot) {
    let mut left_out = LeftOut::default();
    queue::set_metrics(snapshot, &mut left_out);
    fleet::set_metrics(snapshot, &mut left_out);
    money::set_metrics(snapshot, &mut left_out);
    gauge!(catalogue::LOOKED).set(seconds(snapshot.now_ms));
    for (of, number) in left_out.0 {
        gauge!(catalogue::LEFT_OUT, "of" => of).set(float(number as u64));
    }
}

/// Numbers of items beyond those that are reported individually.
#[derive(Default)]
struct LeftOut(Vec<(&'static str, usize)>);

impl LeftOut {
    /// Returns the first `most` items, which are sorted by importance, and records the number of the others.
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
