//! What a metric is called, and means.

use metrics::{describe_counter, describe_gauge, describe_histogram};

/// A metric, before it has any value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metric {
    /// As Prometheus knows it: `stokehold_<noun>_<unit>`, of a counter with `_total`.
    pub name: &'static str,
    /// What its values are.
    pub kind: Kind,
    /// What it means, in a sentence.
    pub help: &'static str,
    /// The labels of its series. Each has a bound.
    pub labels: &'static [&'static str],
}

/// What the values of a metric are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// How often something happened; only grows.
    Counter,
    /// A value that can go up and down.
    Gauge,
    /// How often something took how long, by the upper ends of its buckets.
    Histogram(&'static [f64]),
}

impl Kind {
    /// The word for it.
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

/// Names metrics, each as a constant, and lists all of them: what has a name is in the list.
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
