//! The supervisor of a program's background duties.
//!
//! A [`Duty`] is work that a program does in rounds until it shuts down. The [`Supervisor`] gives each round a timeout,
//! restarts a duty with a [`Backoff`] after a panic, counts rounds and failures in [`METRICS`](metrics::METRICS), and
//! keeps the [`DutyState`] of every duty, which readiness probes read. Work that does not fit the trait uses
//! [`Supervisor::restart_on_panic`] (a task that runs until it ends by itself) or [`Supervisor::rounds`] (a loop of its
//! own, and tasks that keep their state over a restart). [`guard`] and [`guard_beside`] only catch panics.
//!
//! In builds with debug assertions a test can inject panics with [`Supervisor::inject_panics`].

mod backoff;
mod duty;
mod failpoint;
mod guard;
pub mod metrics;
mod state;
mod supervisor;

pub use backoff::Backoff;
pub use duty::{BoxError, Duty};
pub use guard::{Panic, guard, guard_beside, guard_blocking};
pub use state::{DutyState, FAILING_AFTER, RoundFailure};
pub use supervisor::{Rounds, Supervisor};
