//! Evaluation of the autoscaler: synthetic traces, other policies to compare with, and a proven lower bound of the cost.
//!
//! The simulation itself is `stokehold_planner::simulate`, which `stoke simulate` runs, too.

pub mod baselines;
pub mod bound;
pub mod cases;
pub mod compare;
pub mod generate;
pub mod table;
