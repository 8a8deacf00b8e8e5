//! Whoever decides in a simulation.

use crate::observation::Observation;
use crate::plan::Plan;
use crate::planner::Planner;

/// A policy, with what it remembers between its decisions.
pub trait Scaler {
    /// What it is called.
    fn name(&self) -> &str;

    /// What is to be done now.
    fn plan(&mut self, seen: &Observation) -> Plan;
}

impl Scaler for Planner {
    fn name(&self) -> &str {
        super::compare::OWN
    }

    fn plan(&mut self, seen: &Observation) -> Plan {
        Self::plan(self, seen)
    }
}
