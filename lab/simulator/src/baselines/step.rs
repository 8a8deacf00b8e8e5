//! Step scaling: one machine more when the queue is long, one less when it is short.

use stokehold_planner::plan::Baseline;
use stokehold_planner::simulate::Scaler;
use stokehold_planner::{Observation, Plan};

use super::fleet::Fleet;
use super::{total, waiting};

/// Interval of decisions, seconds.
const EVERY_S: f64 = 30.0;
/// Number of waiting jobs above which a machine is added.
const LONG: f64 = 4.0;
/// Number of waiting jobs below which a machine is removed.
const SHORT: f64 = 1.0;

/// Adds a machine when the queue is long, removes one when it is short, and removes all without jobs.
#[derive(Debug, Clone)]
pub struct Step {
    fleet: Fleet,
    machines: usize,
    next_s: f64,
}

impl Step {
    /// Decides every 30 s: adds a machine above 4 waiting jobs, and removes one below 1.
    #[must_use]
    pub fn new(fleet: Fleet) -> Self {
        Self { fleet, machines: 0, next_s: f64::NEG_INFINITY }
    }

    fn look(&mut self, seen: &Observation) {
        let (waiting, total) = (waiting(seen), total(seen));
        self.machines = if total == 0.0 {
            0
        } else if waiting > LONG {
            self.machines + 1
        } else if waiting < SHORT {
            self.machines.saturating_sub(1)
        } else {
            self.machines
        };
        // At least one machine while there is work.
        self.machines = self.machines.max(usize::from(total > 0.0));
    }
}

impl Scaler for Step {
    fn name(&self) -> &str {
        "step"
    }

    fn plan(&mut self, seen: &Observation) -> Plan {
        if seen.at_s >= self.next_s {
            self.look(seen);
            self.next_s = seen.at_s + EVERY_S;
        }
        self.fleet.toward(seen, self.machines, 0, Baseline::QueueSteps { machines: self.machines })
    }
}

#[cfg(test)]
mod tests {
    use super::super::made_up::*;
    use super::*;

    #[test]
    fn it_goes_one_by_one_and_to_none_at_once() {
        let mut scaler = Step::new(Fleet::cheapest());
        let mut at = |at_s, waiting, running| {
            scaler.plan(&seen(at_s, waiting, running, vec![]));
            scaler.machines
        };
        let told = [at(0.0, 1, 0), at(30.0, 5, 1), at(31.0, 5, 1), at(60.0, 5, 2), at(90.0, 4, 3), at(120.0, 0, 3)];
        assert_eq!(told, [1, 2, 2, 3, 3, 2]);
        assert_eq!([at(150.0, 0, 1), at(180.0, 0, 1), at(210.0, 0, 0)], [1, 1, 0]);
    }
}
