//! Knative's pod autoscaler, applied to the number of jobs that wait or run.

use stokehold_planner::plan::Baseline;
use stokehold_planner::simulate::Scaler;
use stokehold_planner::{Observation, Phase, Plan};

use super::fleet::Fleet;
use super::window::Window;
use super::{total, whole};

/// Target utilization of a machine.
const TARGET: f64 = 0.7;
/// Lengths of the stable window and of the panic window, seconds.
const STABLE_S: f64 = 60.0;
const PANIC_S: f64 = 6.0;
/// Panic threshold: the number of machines wanted by the panic window, as a multiple of those that are ready.
const PANIC_AT: f64 = 2.0;
/// Maximum factor by which the number of ready machines shrinks at once.
const DOWN_FACTOR: usize = 2;
/// Time without work after which the last machine is released, seconds.
const GRACE_S: f64 = 30.0;

/// `ceil(jobs / 0.7)` machines, over a minute, and in a panic the maximum of that and of the same over 6 s.
#[derive(Debug, Clone)]
pub struct Kpa {
    name: &'static str,
    fleet: Fleet,
    stable: Window,
    panic: Window,
    /// Numbers of machines wanted over the scale-down delay. The fleet shrinks to their maximum.
    wanted: Window,
    panics_until_s: f64,
    /// Maximum number of machines wanted in the current panic.
    panic_most: usize,
    worked_s: f64,
}

impl Kpa {
    /// The default settings.
    #[must_use]
    pub fn new(fleet: Fleet) -> Self {
        Self::with("kpa", 0.0, fleet)
    }

    /// A scale-down delay of 300 s.
    #[must_use]
    pub fn tuned(fleet: Fleet) -> Self {
        Self::with("kpa-tuned", 300.0, fleet)
    }

    fn with(name: &'static str, delay_s: f64, fleet: Fleet) -> Self {
        Self {
            name,
            fleet,
            stable: Window::of(STABLE_S),
            panic: Window::of(PANIC_S),
            wanted: Window::of(delay_s),
            panics_until_s: f64::NEG_INFINITY,
            panic_most: 0,
            worked_s: f64::NEG_INFINITY,
        }
    }

    fn wanted(&mut self, at_s: f64, total: f64, ready: usize) -> usize {
        self.stable.push(at_s, total);
        self.panic.push(at_s, total);
        let least = ready / DOWN_FACTOR;
        let [stable, panic] = [&self.stable, &self.panic].map(|window| whole(window.mean() / TARGET).max(least));
        if panic as f64 >= PANIC_AT * ready.max(1) as f64 {
            self.panics_until_s = at_s + STABLE_S;
        }
        let wanted = if at_s < self.panics_until_s {
            self.panic_most = self.panic_most.max(stable).max(panic);
            self.panic_most
        } else {
            self.panic_most = 0;
            stable
        };
        self.wanted.push(at_s, wanted as f64);
        let wanted = self.wanted.max() as usize;
        if wanted > 0 {
            self.worked_s = at_s;
        }
        wanted.max(usize::from(at_s - self.worked_s < GRACE_S))
    }
}

impl Scaler for Kpa {
    fn name(&self) -> &str {
        self.name
    }

    fn plan(&mut self, seen: &Observation) -> Plan {
        let ready = seen.machines.iter().filter(|machine| machine.phase == Phase::Ready).count();
        let wanted = self.wanted(seen.at_s, total(seen), ready);
        self.fleet.toward(seen, wanted, 0, Baseline::Jobs { jobs: self.stable.mean(), machines: wanted })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_wants_seven_tenths_of_each_machine_in_use() {
        let mut scaler = Kpa::new(Fleet::cheapest());
        let wanted: Vec<usize> = (0..30).map(|n| scaler.wanted(f64::from(n) * 5.0, 7.0, 8)).collect();
        assert!(wanted.iter().all(|wanted| *wanted == 10), "{wanted:?}");
    }

    #[test]
    fn it_panics_at_twice_and_does_not_shrink_for_a_minute() {
        let mut scaler = Kpa::new(Fleet::cheapest());
        (0..12).for_each(|n| assert_eq!(scaler.wanted(f64::from(n) * 5.0, 0.7, 1), 1));
        // 14 jobs and 0.7 within 6 s are 7.35 on average, which needs 11 machines, and then 20.
        assert_eq!(scaler.wanted(60.0, 14.0, 1), 11);
        assert_eq!(scaler.wanted(65.0, 14.0, 11), 20);
        assert_eq!(scaler.wanted(119.0, 0.0, 20), 20);
        assert!(scaler.wanted(121.0, 0.0, 20) < 20);
    }

    #[test]
    fn it_shrinks_by_half_and_keeps_the_last_for_half_a_minute() {
        let mut scaler = Kpa::new(Fleet::cheapest());
        let wanted = [(0.0, 8), (5.0, 4), (10.0, 2), (15.0, 1), (30.0, 1), (39.0, 1), (40.0, 1)];
        let told = wanted.map(|(at_s, ready)| scaler.wanted(at_s, 0.0, ready));
        assert_eq!(told, [4, 2, 1, 1, 1, 1, 0]);
    }

    #[test]
    fn tuned_it_waits_before_it_shrinks() {
        let mut scaler = Kpa::tuned(Fleet::cheapest());
        scaler.wanted(0.0, 7.0, 10);
        assert_eq!([100.0, 299.0].map(|at_s| scaler.wanted(at_s, 0.0, 10)), [10, 10]);
        assert!(scaler.wanted(301.0, 0.0, 10) < 10);
    }
}
