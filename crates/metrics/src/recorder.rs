//! The one recorder of a process: what has happened in it.

use std::sync::OnceLock;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::{Kind, Metric};

/// `None`: another part had set one, and this one's numbers stay empty.
static RECORDER: OnceLock<Option<PrometheusHandle>> = OnceLock::new();

/// Sets the recorder up for these metrics, if that has not happened yet: where a process has several parts, the first who asks for it names
/// the metrics of all. Call it before anything is counted.
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

/// What has happened, in Prometheus' text form.
pub(crate) fn render() -> String {
    RECORDER.get().and_then(Option::as_ref).map(PrometheusHandle::render).unwrap_or_default()
}
