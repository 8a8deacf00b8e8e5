//! The interface of a policy in a simulation.

use crate::observation::Observation;
use crate::plan::{Plan, Step};
use crate::planner::Planner;

/// Name of the product's policy.
pub const OWN: &str = "stokehold";

/// A policy, with its state between decisions.
pub trait Scaler {
    /// Name of the policy.
    fn name(&self) -> &str;

    /// The plan for an observation.
    fn plan(&mut self, seen: &Observation) -> Plan;
}

impl Scaler for Planner {
    fn name(&self) -> &str {
        OWN
    }

    fn plan(&mut self, seen: &Observation) -> Plan {
        Self::plan(self, seen)
    }
}

/// A policy whose steps are passed to a function, with the seconds since the first decision.
pub struct Reported<F> {
    scaler: Box<dyn Scaler>,
    report: F,
    start_s: Option<f64>,
}

impl<F: FnMut(f64, &Step)> Reported<F> {
    /// Wraps a policy.
    pub fn new(scaler: Box<dyn Scaler>, report: F) -> Self {
        Self { scaler, report, start_s: None }
    }
}

impl<F: FnMut(f64, &Step)> Scaler for Reported<F> {
    fn name(&self) -> &str {
        self.scaler.name()
    }

    fn plan(&mut self, seen: &Observation) -> Plan {
        let plan = self.scaler.plan(seen);
        let start_s = *self.start_s.get_or_insert(seen.at_s);
        plan.steps.iter().for_each(|step| (self.report)(seen.at_s - start_s, step));
        plan
    }
}
