//! The autoscaler: decides how many machines of which kind run, for how long and why.
//!
//! An [`Observation`] is the state at one moment. The [`Observer`] learns statistics from successive observations. Both
//! together are a [`Snapshot`], from which [`decide`](decide()) makes a [`Plan`] without clock, randomness or I/O. The
//! live loop, `stoke autoscaler plan` and the simulator run the same code.

mod apply;
pub mod config;
mod cost_ledger;
mod decide;
mod durations;
pub mod history;
mod learned;
pub mod live;
pub mod metrics;
mod name;
pub mod observation;
pub mod observe;
pub mod plan;
mod planner;
mod policy;
pub mod provider;
pub mod providers;
mod rank;
mod rental_ledger;
pub mod secret;
pub mod simulate;
pub mod snapshot;
mod sync;

pub use decide::decide;
pub use learned::{Level, Observer};
pub use name::Name;
pub use observation::{Endpoint, Machine, Observation, Offer, Phase};
pub use plan::{Action, Plan, Reason, Step};
pub use planner::Planner;
pub use policy::{AtBudget, NoSetting, Policy};
pub use snapshot::{Learned, Snapshot};
