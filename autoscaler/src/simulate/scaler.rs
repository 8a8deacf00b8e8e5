//! The interface of a policy in a simulation.

use crate::observation::Observation;
use crate::plan::Plan;
use crate::planner::Planner;

/// A policy, with what it remembers between its decisions.
pub trait Scaler {
    /// Name of the policy.
    fn name(&self) -> &str;

    /// The plan for an observation.
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
