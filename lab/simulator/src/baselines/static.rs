//! A constant number of machines.

use stokehold_planner::plan::Baseline;
use stokehold_planner::simulate::Scaler;
use stokehold_planner::{Observation, Plan};

use super::fleet::Fleet;

/// A constant number of machines.
#[derive(Debug, Clone)]
pub struct Static {
    name: String,
    machines: usize,
    fleet: Fleet,
}

impl Static {
    /// A fleet of `machines` machines.
    #[must_use]
    pub fn new(machines: usize, fleet: Fleet) -> Self {
        Self { name: format!("static-{machines}"), machines, fleet }
    }
}

impl Scaler for Static {
    fn name(&self) -> &str {
        &self.name
    }

    fn plan(&mut self, seen: &Observation) -> Plan {
        self.fleet.toward(seen, self.machines, 0, Baseline::Fixed { machines: self.machines })
    }
}

#[cfg(test)]
mod tests {
    use super::super::made_up::*;
    use super::*;

    #[test]
    fn it_keeps_its_number() {
        let mut scaler = Static::new(2, Fleet::cheapest());
        assert_eq!(change(&scaler.plan(&seen(0.0, 0, 0, vec![]))), 2);
        assert_eq!(change(&scaler.plan(&seen(5.0, 99, 2, busy(2)))), 0);
        assert_eq!(change(&scaler.plan(&seen(10.0, 0, 0, vec![idle("a"), idle("b"), idle("c")]))), -1);
    }
}
