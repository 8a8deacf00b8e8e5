//! The decision code over a trace of jobs, in virtual time.

pub mod offers;
pub mod outcome;
pub mod trace;

pub use outcome::{Outcome, Sample};
