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
pub struct Exposition(Arc<Mutex<BTreeMap<&'static str, Picture>>>);

/// A snapshot.
struct Picture {
    at: Instant,
    text: String,
}

impl Exposition {
    /// Replaces the snapshot of `teller` by what `look` sets with the usual macros; what it does not set is not
    /// exposed. A metric belongs to one teller only.
    pub fn show(&self, teller: &'static str, catalogue: &[Metric], look: impl FnOnce()) {
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || {
            catalogue.iter().for_each(Metric::describe);
            look();
        });
        self.pictures().insert(teller, Picture { at: Instant::now(), text: recorder.handle().render() });
    }

    /// Removes the snapshot of `teller`, because another process exposes it now.
    pub fn hide(&self, teller: &'static str) {
        self.pictures().remove(teller);
    }

    /// The events of this process, in the text format of Prometheus.
    #[must_use]
    pub fn happened(&self) -> String {
        recorder::render()
    }

    /// All snapshots in the same format.
    #[must_use]
    pub fn stands(&self) -> String {
        self.pictures()
            .values()
            .filter(|picture| picture.at.elapsed() < SHOWN_FOR)
            .map(|picture| &*picture.text)
            .collect()
    }

    fn pictures(&self) -> MutexGuard<'_, BTreeMap<&'static str, Picture>> {
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

    fn shows(exposition: &Exposition, workers: &[&str]) {
        exposition.show("fleet", METRICS, || {
            for worker in workers {
                gauge!(CARDS, "worker" => (*worker).to_owned()).set(2);
            }
        });
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_gone_is_gone_from_the_next_picture() {
        let exposition = Exposition::default();
        shows(&exposition, &["desk", "attic"]);
        let text = exposition.stands();
        assert!(
            text.contains("# HELP stokehold_cards Cards.") && text.contains("# TYPE stokehold_cards gauge"),
            "{text}"
        );
        assert!(text.contains("stokehold_cards{worker=\"attic\"} 2"), "{text}");
        shows(&exposition, &["desk"]);
        let text = exposition.stands();
        assert!(text.contains("desk") && !text.contains("attic"), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_told_what_was_long_ago() {
        let exposition = Exposition::default();
        shows(&exposition, &["desk"]);
        tokio::time::advance(SHOWN_FOR).await;
        assert_eq!(exposition.stands(), "");
        shows(&exposition, &["desk"]);
        exposition.hide("fleet");
        assert_eq!(exposition.stands(), "");
    }

    #[tokio::test(start_paused = true)]
    async fn a_label_cannot_break_out_of_its_quotes() {
        let exposition = Exposition::default();
        shows(&exposition, &["a\"} 9\nb\\"]);
        assert!(exposition.stands().contains(r#"stokehold_cards{worker="a\"} 9\nb\\"} 2"#), "{}", exposition.stands());
    }
}
