//! KEDA over the Kubernetes horizontal pod autoscaler, on the number of jobs.

use stokehold_planner::plan::Baseline;
use stokehold_planner::simulate::Scaler;
use stokehold_planner::{Observation, Plan};

use super::fleet::Fleet;
use super::window::Window;
use super::{total, whole};

/// Period of the horizontal pod autoscaler, seconds.
const EVERY_S: f64 = 15.0;
/// Number of autoscaler periods between two polls of KEDA for work: 30 s.
const POLL_LOOKS: u32 = 2;
/// Relative deviation from the target within which the number of machines does not change.
const TOLERANCE: f64 = 0.1;
/// Limits of growth per period: a factor, and a number of added machines. The larger result applies.
const UP_FACTOR: usize = 2;
const UP_COUNT: usize = 4;

/// `ceil(jobs / target)` machines. It grows at once and shrinks to the maximum over a window.
#[derive(Debug, Clone)]
pub struct Keda {
    name: &'static str,
    fleet: Fleet,
    /// Target number of jobs per machine.
    target: f64,
    /// Time without work after which the fleet shrinks to its minimum, seconds.
    cooldown_s: f64,
    least: usize,
    wanted: Window,
    machines: usize,
    looks: u32,
    next_s: f64,
    worked_s: f64,
}

impl Keda {
    /// The default settings: 5 jobs per machine, windows of 300 s, scale to zero.
    #[must_use]
    pub fn new(fleet: Fleet) -> Self {
        Self::with("keda", 5.0, 300.0, 0, fleet)
    }

    /// One job per machine, windows of 900 s, at least one machine.
    #[must_use]
    pub fn tuned(fleet: Fleet) -> Self {
        Self::with("keda-tuned", 1.0, 900.0, 1, fleet)
    }

    fn with(name: &'static str, target: f64, window_s: f64, least: usize, fleet: Fleet) -> Self {
        Self {
            name,
            fleet,
            target,
            cooldown_s: window_s,
            least,
            wanted: Window::of(window_s),
            machines: least,
            looks: 0,
            next_s: f64::NEG_INFINITY,
            worked_s: f64::NEG_INFINITY,
        }
    }

    fn look(&mut self, at_s: f64, total: f64) {
        if total > 0.0 {
            self.worked_s = at_s;
        }
        let is_poll = self.looks.is_multiple_of(POLL_LOOKS);
        self.looks += 1;
        self.machines = match self.machines {
            0 => usize::from(is_poll && total > 0.0),
            _ if at_s - self.worked_s >= self.cooldown_s => self.least,
            now => self.level(at_s, total, now),
        };
    }

    /// The number of machines while there is at least one: KEDA leaves it to the autoscaler, which never goes below
    /// one.
    fn level(&mut self, at_s: f64, total: f64, now: usize) -> usize {
        let is_close = (total / self.target / now as f64 - 1.0).abs() <= TOLERANCE;
        let wanted = if is_close { now } else { whole(total / self.target) };
        self.wanted.push(at_s, wanted as f64);
        let most = self.wanted.max() as usize;
        // The fleet grows to the wanted number, and shrinks to the maximum wanted in the window.
        let to = if wanted > now { wanted } else { most.min(now) };
        to.min((now * UP_FACTOR).max(now + UP_COUNT)).max(self.least.max(1))
    }
}

impl Scaler for Keda {
    fn name(&self) -> &str {
        self.name
    }

    fn plan(&mut self, seen: &Observation) -> Plan {
        let total = total(seen);
        if seen.at_s >= self.next_s {
            self.look(seen.at_s, total);
            self.next_s = seen.at_s + EVERY_S;
        }
        self.fleet.toward(seen, self.machines, 0, Baseline::Jobs { jobs: total, machines: self.machines })
    }
}

#[cfg(test)]
mod tests {
    use super::super::made_up::*;
    use super::*;

    /// The numbers of machines after polls 15 s apart with these numbers of jobs.
    fn after(scaler: &mut Keda, from_s: f64, jobs: &[u64]) -> Vec<usize> {
        let at = |(n, jobs): (usize, &u64)| {
            scaler.plan(&seen(from_s + n as f64 * EVERY_S, *jobs, 0, vec![]));
            scaler.machines
        };
        jobs.iter().enumerate().map(at).collect()
    }

    #[test]
    fn it_begins_at_a_poll_and_grows_by_four_or_twice() {
        let mut scaler = Keda::new(Fleet::cheapest());
        assert_eq!(after(&mut scaler, 0.0, &[0, 100, 100, 100, 100, 100, 100]), [0, 0, 1, 5, 10, 20, 20]);
    }

    #[test]
    fn it_stays_within_a_tenth() {
        let mut scaler = Keda::new(Fleet::cheapest());
        after(&mut scaler, 0.0, &[50, 50, 50, 50]);
        assert_eq!(scaler.machines, 10);
        assert_eq!(after(&mut scaler, 60.0, &[54, 56]), [10, 12]);
    }

    #[test]
    fn it_shrinks_to_the_most_of_its_window_and_then_to_none() {
        let mut scaler = Keda::new(Fleet::cheapest());
        after(&mut scaler, 0.0, &[25, 25, 25]);
        assert_eq!(scaler.machines, 5);
        // The last poll that wanted 5 was at 30 s.
        assert_eq!(after(&mut scaler, 45.0, &[10; 20])[18..], [5, 2]);
        // The last of the 20 polls was at 330 s. There is no work from then on, for 300 s.
        assert_eq!(after(&mut scaler, 345.0, &[0; 20])[17..], [2, 2, 0]);
    }

    #[test]
    fn tuned_it_keeps_one() {
        let mut scaler = Keda::tuned(Fleet::cheapest());
        assert_eq!(after(&mut scaler, 0.0, &[0, 3]), [1, 3]);
        assert_eq!(after(&mut scaler, 2_000.0, &[0, 0]), [1, 1]);
    }
}
