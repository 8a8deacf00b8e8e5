//! What a process tells Prometheus.
//!
//! A crate names its metrics in a [`catalogue!`]: name, kind, labels, meaning, all in one place, from which `docs/metrics.md` is written too.
//! What *happens* is counted by the usual macros of the `metrics` crate, in the one recorder that [`install`] sets up. How things *stand* -
//! machines, cards, endpoints that come and go - is a [picture](Exposition::show), made anew at each look: what is gone is gone from it,
//! where a gauge of the recorder would stand at its last value for ever.

#[macro_use]
mod catalogue;
mod pictures;
mod recorder;
#[cfg(feature = "serve")]
mod serve;

pub use catalogue::{Kind, Metric};
pub use pictures::{Exposition, SHOWN_FOR};
pub use recorder::{install, upkeep};
#[cfg(feature = "serve")]
pub use serve::serve;
