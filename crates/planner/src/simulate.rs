//! Simulation of the decision code on a trace of jobs, in virtual time.

mod case;
mod machine;
pub mod offers;
mod outcome;
pub mod plot;
mod replay;
mod rules;
mod scaler;
pub mod table;
mod tally;
pub mod trace;
pub mod words;
mod world;

pub use case::{Case, Settings};
pub use outcome::{ByPriority, Outcome, Quantiles, Sample};
pub use replay::{Mismatch, replay};
pub use rules::Rules;
pub use scaler::{OWN, Reported, Scaler};

use offers::Kind;
use trace::Job;

/// Simulates a trace, whose jobs are in order of arrival, until its last job has ended. Returns the outcome, with the
/// lower bound of the cost if it is given, and samples over time.
pub fn run(
    jobs: &[Job],
    kinds: &[Kind],
    rules: &Rules,
    scaler: &mut dyn Scaler,
    bound_usd: Option<f64>,
) -> (Outcome, Vec<Sample>) {
    let (tally, samples) = world::World::new(jobs, kinds, rules).run(scaler);
    (tally.outcome(scaler.name(), jobs.len(), rules, bound_usd), samples)
}
