//! Machines for the arriving work, with stopped ones in reserve: the rule of a marketplace's own serverless product.

use std::collections::BTreeMap;

use stokehold_planner::plan::Baseline;
use stokehold_planner::simulate::Scaler;
use stokehold_planner::{Endpoint, Name, Observation, Plan};

use super::fleet::Fleet;
use super::window::Window;
use super::{total, whole};

/// Window over which arriving work is measured, seconds.
const RATE_S: f64 = 60.0;
/// Time in which waiting work has to be done, seconds.
const QUEUE_S: f64 = 30.0;
/// Number of stopped machines for each one that the load keeps busy, and their minimum number.
const COLD_FACTOR: f64 = 3.0;
const COLD_LEAST: usize = 5;
/// Assumed duration of a job until one has ended, seconds.
const SERVICE_S: f64 = 10.0;

/// `ceil(load / target)` machines. Excess machines are stopped, up to a multiple of the load; none is rented in order
/// to be stopped.
///
/// One rule is added: the number of machines is at most the number of concurrent jobs in that minute. The arrival of a
/// half-hour job is a load of 30 for a minute, and without this rule 29,000 machines were rented for a week of 1,100
/// long jobs.
#[derive(Debug, Clone)]
pub struct LoadTarget {
    name: &'static str,
    fleet: Fleet,
    /// Target utilization of a machine.
    target: f64,
    /// Minimum of the load, in machines.
    least: f64,
    arriving: Window,
    jobs: Window,
    wanted: Window,
    arrived: BTreeMap<Name, u64>,
}

impl LoadTarget {
    /// The default settings: 90 % utilization.
    #[must_use]
    pub fn new(fleet: Fleet) -> Self {
        Self::with("load-target", 0.9, 0.0, 0.0, fleet)
    }

    /// 70 % utilization, a load of at least 2, and a scale-down delay of 300 s.
    #[must_use]
    pub fn tuned(fleet: Fleet) -> Self {
        Self::with("load-target-tuned", 0.7, 2.0, 300.0, fleet)
    }

    fn with(name: &'static str, target: f64, least: f64, hold_s: f64, fleet: Fleet) -> Self {
        let (arriving, jobs, wanted) = (Window::of(RATE_S), Window::of(RATE_S), Window::of(hold_s));
        Self { name, fleet, target, least, arriving, jobs, wanted, arrived: BTreeMap::new() }
    }

    /// The load in machines: the work that arrives each second, and the waiting work.
    fn load(&mut self, seen: &Observation) -> f64 {
        let (mut arrived_s, mut waiting_s) = (0.0, 0.0);
        for endpoint in &seen.endpoints {
            let arrived: u64 = endpoint.work.iter().map(|work| work.arrived).sum();
            let waiting: u64 = endpoint.work.iter().map(|work| work.waiting).sum();
            let before = self.arrived.insert(endpoint.name.clone(), arrived).unwrap_or_default();
            let each_s = service_s(endpoint);
            arrived_s += arrived.saturating_sub(before) as f64 * each_s;
            waiting_s += waiting as f64 * each_s;
        }
        self.arriving.push(seen.at_s, arrived_s);
        (self.arriving.sum() / RATE_S + waiting_s / QUEUE_S).max(self.least)
    }
}

/// Mean duration of an endpoint's jobs, seconds.
fn service_s(endpoint: &Endpoint) -> f64 {
    let ended: u64 = endpoint.runs.iter().map(|runs| runs.ended).sum();
    let run_s: f64 = endpoint.runs.iter().map(|runs| runs.run_s).sum();
    if ended == 0 { SERVICE_S } else { run_s / ended as f64 }
}

impl Scaler for LoadTarget {
    fn name(&self) -> &str {
        self.name
    }

    fn plan(&mut self, seen: &Observation) -> Plan {
        let load = self.load(seen);
        self.jobs.push(seen.at_s, total(seen));
        let most = self.jobs.max().max(self.least / self.target);
        self.wanted.push(seen.at_s, whole((load / self.target).min(most)) as f64);
        let wanted = self.wanted.max() as usize;
        let stopped = whole(load * COLD_FACTOR).max(COLD_LEAST);
        self.fleet.toward(seen, wanted, stopped, Baseline::Load { load, machines: wanted })
    }
}

#[cfg(test)]
mod tests {
    use super::super::made_up::*;
    use super::*;
    use stokehold_planner::Phase;
    use stokehold_planner::observation::Work;

    fn at(at_s: f64, arrived: u64, waiting: u64) -> Observation {
        with_work(at_s, Work { arrived, waiting, ..Work::default() }, vec![])
    }

    #[test]
    fn its_load_is_what_arrives_and_what_waits() {
        let mut scaler = LoadTarget::new(Fleet::cheapest());
        // Jobs of 10 s: 12 in a minute need 2 machines, and 3 waiting jobs need one more.
        let load = [at(0.0, 6, 3), at(30.0, 12, 3), at(60.0, 12, 0), at(200.0, 12, 0)].map(|seen| scaler.load(&seen));
        assert_eq!(load, [2.0, 3.0, 1.0, 0.0]);
    }

    #[test]
    fn it_wants_nine_tenths_in_use_and_tuned_seven() {
        assert_eq!(change(&LoadTarget::new(Fleet::cheapest()).plan(&at(0.0, 6, 3))), 3);
        assert_eq!(change(&LoadTarget::tuned(Fleet::cheapest()).plan(&at(0.0, 6, 6))), 5);
        assert_eq!(change(&LoadTarget::tuned(Fleet::cheapest()).plan(&at(0.0, 0, 0))), 3);
    }

    #[test]
    fn a_long_job_is_not_a_fleet() {
        let mut long = at(0.0, 1, 1);
        long.endpoints[0].runs[0].run_s = 18_000.0;
        assert_eq!(change(&LoadTarget::new(Fleet::cheapest()).plan(&long)), 1);
    }

    #[test]
    fn what_is_too_much_is_stopped() {
        let mut scaler = LoadTarget::new(Fleet::cheapest());
        let mut machines: Vec<_> = (0..4).map(|n| with(&format!("s{n}"), Phase::Stopped, 0)).collect();
        machines.extend([idle("a"), idle("b")]);
        let plan = scaler.plan(&seen(0.0, 0, 0, machines));
        assert_eq!(said(&plan), "stop a, release b");
    }

    #[test]
    fn tuned_it_holds_for_five_minutes() {
        let mut scaler = LoadTarget::tuned(Fleet::cheapest());
        let mut first = at(0.0, 42, 0);
        first.endpoints[0].running = 10;
        scaler.plan(&first);
        let mut later = |at_s| {
            let machines = busy(10);
            let mut seen = seen(at_s, 0, 10, machines);
            seen.endpoints[0].work[0].arrived = 42;
            change(&scaler.plan(&seen))
        };
        assert_eq!((later(299.0), later(301.0)), (0, -7));
    }

    #[test]
    fn a_job_takes_what_it_took() {
        let mut seen = at(0.0, 1, 0);
        assert_eq!(service_s(&seen.endpoints[0]), 10.0);
        seen.endpoints[0].runs[0].run_s = 25.0;
        assert_eq!(service_s(&seen.endpoints[0]), 2.5);
        seen.endpoints[0].runs.clear();
        assert_eq!(service_s(&seen.endpoints[0]), SERVICE_S);
    }
}
