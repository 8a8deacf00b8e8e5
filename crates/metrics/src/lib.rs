//! The metrics that a process exposes to Prometheus.
//!
//! A crate lists its metrics in a [`catalogue!`]: name, kind, labels and help text in one place, from which
//! `docs/reference/metrics.md` is generated too. The usual macros of the `metrics` crate count events in the one recorder
//! that [`install`] sets up. State that comes and goes, such as machines, GPUs and endpoints, is a
//! [picture](Exposition::show) that is rebuilt at each collection: what no longer exists disappears from it, while a
//! gauge of the recorder would keep its last value forever.

#[macro_use]
mod catalogue;
mod recorder;
#[cfg(feature = "serve")]
mod serve;
mod snapshots;

pub use catalogue::{Kind, Metric};
pub use recorder::{install, upkeep};
#[cfg(feature = "serve")]
pub use serve::serve;
pub use snapshots::{Metrics, SHOWN_FOR};
