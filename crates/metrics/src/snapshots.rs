//! Snapshots of state, by collector.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::time::Instant;

use crate::{Metric, recorder};

/// An older snapshot is not exposed: its collector has failed since.
pub const SHOWN_FOR: Duration = Duration::from_secs(60);

/// All metrics that a process exposes. Clones share them.
#[derive(Clone, Default)]
pub struct Metrics(Arc<Mutex<BTreeMap<&'static str, Snapshot>>>);

/// A snapshot.
struct Snapshot {
    at: Instant,
    text: String,
}

impl Metrics {
    /// Replaces the snapshot of `collector` by what `set` sets with the usual macros; what it does not set is not
    /// exposed. A metric belongs to one teller only.
    pub fn show(&self, collector: &'static str, catalogue: &[Metric], set: impl FnOnce()) {
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || {
            catalogue.iter().for_each(Metric::describe);
            set();
        });
        self.snapshots().insert(collector, Snapshot { at: Instant::now(), text: recorder.handle().render() });
    }

    /// Removes the snapshot of `collector`, because another process exposes it now.
    pub fn hide(&self, collector: &'static str) {
        self.snapshots().remove(collector);
    }

    /// The events of this process, in the text format of Prometheus.
    #[must_use]
    pub fn events(&self) -> String {
        recorder::render()
    }

    /// All snapshots in the same format.
    #[must_use]
    pub fn snapshots_text(&self) -> String {
        self.snapshots()
            .values()
            .filter(|snapshot| snapshot.at.elapsed() < SHOWN_FOR)
            .map(|snapshot| &*snapshot.text)
            .collect()
    }

    fn snapshots(&self) -> MutexGuard<'_, BTreeMap<&'static str, Snapshot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use metrics::gauge;

    use super::*;

    catalogue! {
        /// The metrics of these tests.
        const METRICS;
        gauge CARDS = "stokehold_cards" by ["worker"], "Cards.";
    }

    fn shows(exposition: &Metrics, workers: &[&str]) {
        exposition.show("fleet", METRICS, || {
            for worker in workers {
                gauge!(CARDS, "worker" => (*worker).to_owned()).set(2);
            }
        });
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_gone_is_gone_from_the_next_picture() {
        let exposition = Metrics::default();
        shows(&exposition, &["desk", "attic"]);
        let text = exposition.snapshots_text();
        assert!(
            text.contains("# HELP stokehold_cards Cards.") && text.contains("# TYPE stokehold_cards gauge"),
            "{text}"
        );
        assert!(text.contains("stokehold_cards{worker=\"attic\"} 2"), "{text}");
        shows(&exposition, &["desk"]);
        let text = exposition.snapshots_text();
        assert!(text.contains("desk") && !text.contains("attic"), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_told_what_was_long_ago() {
        let exposition = Metrics::default();
        shows(&exposition, &["desk"]);
        tokio::time::advance(SHOWN_FOR).await;
        assert_eq!(exposition.snapshots_text(), "");
        shows(&exposition, &["desk"]);
        exposition.hide("fleet");
        assert_eq!(exposition.snapshots_text(), "");
    }

    #[tokio::test(start_paused = true)]
    async fn a_label_cannot_break_out_of_its_quotes() {
        let exposition = Metrics::default();
        shows(&exposition, &["a\"} 9\nb\\"]);
        assert!(
            exposition.snapshots_text().contains(r#"stokehold_cards{worker="a\"} 9\nb\\"} 2"#),
            "{}",
            exposition.snapshots_text()
        );
    }
}
