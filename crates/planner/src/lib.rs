//! Plans how many machines of which kind run, for how long and why.
//!
//! An [`Observation`] is the state at one moment. The [`Observer`] learns statistics from successive observations. Both
//! together are a [`Snapshot`], from which [`decide`](decide()) makes a [`Plan`] without clock, randomness or I/O. The
//! autoscaler, `stoke autoscaler plan` and [`simulate`] run the same code.

mod decide;
mod durations;
mod learned;
mod name;
pub mod observation;
pub mod plan;
mod planner;
mod policy;
mod rank;
pub mod simulate;
pub mod snapshot;

pub use decide::decide;
pub use durations::{millis, seconds};
pub use learned::{Level, Observer};
pub use name::Name;
pub use observation::{Endpoint, Machine, Observation, Offer, Phase};
pub use plan::{Action, Plan, Reason, Step};
pub use planner::Planner;
pub use policy::{AtBudget, NoSetting, Policy, RETIRED};
pub use snapshot::{Learned, Snapshot};
