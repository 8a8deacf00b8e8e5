//! Names and meanings of metrics.

use metrics::{describe_counter, describe_gauge, describe_histogram};

/// The description of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metric {
    /// Its name in Prometheus: `stokehold_<noun>_<unit>`, with `_total` for a counter.
    pub name: &'static str,
    /// The kind of its values.
    pub kind: Kind,
    /// Its help text, one sentence.
    pub help: &'static str,
    /// The labels of its series. The number of values of each label is bounded.
    pub labels: &'static [&'static str],
}

/// The kind of a metric's values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// A count of events, which only grows.
    Counter,
    /// A value that can go up and down.
    Gauge,
    /// A distribution of measurements, with the upper bounds of its buckets.
    Histogram(&'static [f64]),
}

impl Kind {
    /// Its name in Prometheus.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

impl Metric {
    /// Registers the metric's help text with the installed recorder.
    pub(crate) fn describe(&self) {
        match self.kind {
            Kind::Counter => describe_counter!(self.name, self.help),
            Kind::Gauge => describe_gauge!(self.name, self.help),
            Kind::Histogram(_) => describe_histogram!(self.name, self.help),
        }
    }
}

/// Declares metrics as constants of their names, and a list of all of them.
///
/// ```
/// stokehold_metrics::catalogue! {
///     /// Every metric of this example.
///     pub const METRICS;
///     counter BOILERS_FED = "stokehold_boilers_fed_total" by ["side"], "Boilers fed, by side.";
///     histogram FEED_SECONDS = "stokehold_feed_seconds" in [0.5, 1.0, 5.0], "Seconds that it took.";
/// }
/// assert_eq!(METRICS.len(), 2);
/// metrics::counter!(BOILERS_FED, "side" => "port").increment(1);
/// ```
#[macro_export]
macro_rules! catalogue {
    (
        $(#[$about:meta])* $seen:vis const $all:ident;
        $($kind:ident $constant:ident = $name:literal $(in $buckets:tt)? $(by $by:tt)?, $help:literal;)+
    ) => {
        $(pub(crate) const $constant: &str = $name;)+
        $(#[$about])*
        $seen const $all: &[$crate::Metric] = &[$($crate::Metric {
            name: $name,
            kind: $crate::catalogue!(@kind $kind $($buckets)?),
            help: $help,
            labels: $crate::catalogue!(@labels $($by)?),
        }),+];
    };
    (@kind counter) => { $crate::Kind::Counter };
    (@kind gauge) => { $crate::Kind::Gauge };
    (@kind histogram $buckets:tt) => { $crate::Kind::Histogram(&$buckets) };
    (@labels) => { &[] };
    (@labels $labels:tt) => { &$labels };
}
