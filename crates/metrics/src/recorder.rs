//! The recorder of a process, which counts events.

use std::sync::OnceLock;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::{Kind, Metric};

/// `None`: another recorder was installed before, so this one records nothing.
static RECORDER: OnceLock<Option<PrometheusHandle>> = OnceLock::new();

/// Installs the recorder for these metrics, unless that has happened before. If a process has several parts, the first
/// call must name the metrics of all of them. Call it before anything is counted.
pub fn install(catalogues: &[&[Metric]]) {
    RECORDER.get_or_init(|| {
        let mut builder = PrometheusBuilder::new();
        for metric in catalogues.iter().copied().flatten() {
            if let Kind::Histogram(buckets) = metric.kind {
                #[expect(clippy::expect_used, reason = "the buckets are a constant and not empty")]
                let with =
                    builder.set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), buckets).expect("buckets");
                builder = with;
            }
        }
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("another metrics recorder is installed; metrics are not counted here");
            return None;
        }
        catalogues.iter().copied().flatten().for_each(Metric::describe);
        Some(handle)
    });
}

/// Folds recorded samples; call it every few seconds, because there may be no scrapes.
pub fn upkeep() {
    if let Some(Some(recorder)) = RECORDER.get() {
        recorder.run_upkeep();
    }
}

/// The recorded events, in the text format of Prometheus.
pub(crate) fn render() -> String {
    RECORDER.get().and_then(Option::as_ref).map(PrometheusHandle::render).unwrap_or_default()
}
