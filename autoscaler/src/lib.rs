//! How many machines of which kind, for how long, and why: observe, decide, apply.
//!
//! An [`Observation`] is what is seen at one moment. The observer folds observations into what can be learned from them and gives a
//! snapshot; `decide` makes a [`Plan`] of that, without clock, randomness or I/O, so that the live loop, `stoke autoscaler plan
//! --dry-run` and the simulator run the same code.

pub mod decide;
mod name;
pub mod observation;
pub mod observer;
pub mod plan;
pub mod policy;
pub mod simulate;

pub use name::Name;
pub use observation::{Endpoint, Machine, Observation, Offer, Phase};
pub use plan::{Action, Plan, Reason, Step};
