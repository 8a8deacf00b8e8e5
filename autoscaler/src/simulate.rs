//! Simulation of the decision code on a trace of jobs, in virtual time.

pub mod baselines;
pub mod bound;
pub mod cases;
pub mod compare;
pub mod generate;
mod machine;
pub mod offers;
pub mod outcome;
pub mod plot;
mod replay;
pub mod rules;
pub mod scaler;
pub mod table;
mod tally;
pub mod trace;
mod words;
mod world;

pub use outcome::{Outcome, Sample};
pub use replay::{Mismatch, replay};
pub use rules::Rules;
pub use scaler::Scaler;

use offers::Kind;
use trace::Job;

/// Simulates a trace, whose jobs are in order of arrival, until its last job has ended. Returns the outcome, which
/// includes the lower bound of the cost, and samples of the course.
pub fn run(
    jobs: &[Job],
    kinds: &[Kind],
    rules: &Rules,
    scaler: &mut dyn Scaler,
    bound_usd: f64,
) -> (Outcome, Vec<Sample>) {
    let (tally, samples) = world::World::new(jobs, kinds, rules).run(scaler);
    (tally.outcome(scaler.name(), jobs.len(), rules, bound_usd), samples)
}
