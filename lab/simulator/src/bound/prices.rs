//! Prices of work and of being on, and the bound that they prove.

use super::cuts::Cut;
use super::demand::{Demand, ROUNDING};
use super::grid::Grid;
use super::work::Work;

/// Maximum number of steps for placing jobs as a whole at their cheapest start: some seconds of work.
const STEPS: f64 = 2e8;

/// Number of slots from which a job's start is not examined one by one when there are too many steps. The work of such
/// a job is valued at the lowest price of its interval, which makes the bound slightly lower.
const MANY_SLOTS: f64 = 16.0;

/// Dual variables. Any non-negative values give a bound after [`Prices::repair`].
#[derive(Debug, Clone)]
pub(super) struct Prices {
    /// Dollars per second of a whole GPU of speed 1.0 that works for jobs of a class or above, by class and slot.
    pub(super) work: Vec<Vec<f64>>,
    /// Dollars per machine that a cut counts, times the machine's weight in the cut; by cut.
    pub(super) cuts: Vec<f64>,
}

impl Prices {
    /// Dollars per second that a machine of this level and of speed 1.0 earns in a slot.
    fn earned(&self, level: usize, slot: usize) -> f64 {
        self.work[..=level].iter().map(|of_class| of_class[slot]).sum()
    }

    /// Lowers prices until no machine can earn more than it costs, whenever it is switched on and off. It works slot by
    /// slot, so that one excessive price lowers as little else as possible.
    pub(super) fn repair(&mut self, demand: &Demand, grid: &Grid, cuts: &[Cut]) {
        let each = self.work.iter_mut().flatten().chain(&mut self.cuts);
        each.for_each(|price| *price = if price.is_finite() { price.max(0.0) } else { 0.0 });
        let mut starting: Vec<Vec<usize>> = vec![Vec::new(); grid.slots()];
        let mut ending: Vec<Vec<usize>> = vec![Vec::new(); grid.slots()];
        for (index, cut) in cuts.iter().enumerate() {
            starting[cut.first].push(index);
            ending[cut.last].push(index);
        }
        // By machine: the maximum profit of one that is on through the previous slot, and the current payment for being
        // on.
        let mut best = vec![f64::NEG_INFINITY; demand.machines.len()];
        let mut seen = vec![0.0; demand.machines.len()];
        for slot in 0..grid.slots() {
            for (machine, (best, seen)) in demand.machines.iter().zip(best.iter().zip(&seen)) {
                let boot_usd = machine.boot_s * machine.usd_per_s;
                let length_s = grid.length_s(slot);
                let new: f64 = starting[slot].iter().map(|cut| self.cuts[*cut] * cuts[*cut].weight(machine)).sum();
                let gain = (self.earned(machine.level, slot) * machine.speed - machine.usd_per_s) * length_s;
                let excess = |gain: f64, new: f64| (best + new + gain).max(seen + new + gain.max(0.0)) - boot_usd;
                let too_much = excess(gain, new).min(gain);
                if too_much > 0.0 {
                    let earned = gain + machine.usd_per_s * length_s;
                    let factor = (1.0 - too_much / earned).max(0.0);
                    self.work[..=machine.level].iter_mut().for_each(|of_class| of_class[slot] *= factor);
                }
                let gain = (self.earned(machine.level, slot) * machine.speed - machine.usd_per_s) * length_s;
                let too_much = excess(gain, new);
                if too_much > 0.0 && new > 0.0 {
                    let factor = (1.0 - too_much / new).max(0.0);
                    let lowered = starting[slot].iter().filter(|cut| cuts[**cut].weight(machine) > 0.0);
                    lowered.for_each(|cut| self.cuts[*cut] *= factor);
                }
            }
            for (machine, (best, seen)) in demand.machines.iter().zip(best.iter_mut().zip(&mut seen)) {
                let of = |cut: &usize| self.cuts[*cut] * cuts[*cut].weight(machine);
                let new: f64 = starting[slot].iter().map(of).sum();
                let gain = (self.earned(machine.level, slot) * machine.speed - machine.usd_per_s) * grid.length_s(slot);
                *best = (*best + new).max(*seen + new) + gain;
                *seen = (*seen + new - ending[slot].iter().map(of).sum::<f64>()).max(0.0);
            }
        }
    }

    /// The bound, dollars: the value of jobs and cuts at these prices.
    pub(super) fn value_usd(&self, demand: &Demand, grid: &Grid, cuts: &[Cut]) -> f64 {
        self.value_within(demand, grid, cuts, STEPS)
    }

    /// Like [`Prices::value_usd`], with about `most_steps` steps for placing jobs.
    pub(super) fn value_within(&self, demand: &Demand, grid: &Grid, cuts: &[Cut], most_steps: f64) -> f64 {
        let curves: Vec<Curve<'_>> = (0..demand.classes).map(|class| self.curve(class, grid)).collect();
        let steps = |work: &Work| work.target_s / grid.width_s * demand.machines.len() as f64;
        let are_many = demand.works.iter().map(steps).sum::<f64>() > most_steps;
        let worth = |work: &Work| {
            let slowest_s = work.service_s / demand.speeds(work.class).0;
            let curve = &curves[work.class];
            if are_many && work.target_s > MANY_SLOTS * grid.width_s {
                return curve.lowest(work.arrival_s, work.latest_start_s() + slowest_s) * work.service_s * work.share;
            }
            let on = |speed: f64| speed * curve.least(work, work.service_s / speed);
            let cheapest = demand.holding(work.class).map(|machine| on(machine.speed)).fold(f64::INFINITY, f64::min);
            cheapest.max(0.0) * work.share
        };
        let works: f64 = demand.works.iter().map(worth).sum();
        let cuts: f64 = cuts.iter().zip(&self.cuts).map(|(cut, price)| cut.need * price).sum();
        (works + cuts) * (1.0 - ROUNDING)
    }

    fn curve<'a>(&self, class: usize, grid: &'a Grid) -> Curve<'a> {
        let rate: Vec<f64> = (0..grid.slots()).map(|slot| self.earned(class, slot)).collect();
        let mut sum = vec![0.0];
        let mut so_far = 0.0;
        for (slot, rate) in rate.iter().enumerate() {
            so_far += rate * grid.length_s(slot);
            sum.push(so_far);
        }
        let mut lowest = vec![rate.clone()];
        while let Some(half) = lowest.last().filter(|half| half.len() > 1 << (lowest.len() - 1)) {
            let apart = 1 << (lowest.len() - 1);
            lowest.push(half.iter().zip(&half[apart..]).map(|(one, other)| one.min(*other)).collect());
        }
        Curve { grid, rate, sum, lowest }
    }
}

/// The price of work over time.
struct Curve<'a> {
    grid: &'a Grid,
    rate: Vec<f64>,
    /// Cumulative price of continuous work at each edge.
    sum: Vec<f64>,
    /// The lowest rate of 1, 2, 4, 8... slots from each one on.
    lowest: Vec<Vec<f64>>,
}

impl Curve<'_> {
    /// The lowest rate between two moments.
    fn lowest(&self, from_s: f64, to_s: f64) -> f64 {
        let (from, to) = (self.grid.slot_before(from_s), self.grid.slot_at(to_s));
        let power = (to + 1 - from).ilog2() as usize;
        let of = &self.lowest[power];
        of[from].min(of[to + 1 - (1 << power)])
    }

    /// The minimum cost of `for_s` seconds of uninterrupted work at speed 1.0 that is started in time.
    fn least(&self, work: &Work, for_s: f64) -> f64 {
        // The cost is linear in the start between the moments at which the start or the end passes an edge.
        let last = self.grid.slots() - 1;
        let (mut start_s, last_s) = (work.arrival_s, work.latest_start_s());
        let mut from = self.grid.slot_at(start_s);
        let mut to = self.grid.slot_at(start_s + for_s);
        let mut least = f64::INFINITY;
        loop {
            let at = |slot: usize, at_s: f64| self.sum[slot] + (at_s - self.grid.edges_s[slot]) * self.rate[slot];
            least = least.min(at(to, start_s + for_s) - at(from, start_s));
            if start_s >= last_s {
                return least;
            }
            let edge = |slot: usize| if slot < last { self.grid.edges_s[slot + 1] } else { f64::INFINITY };
            let (step_from, step_to) = (edge(from) - start_s, edge(to) - for_s - start_s);
            let step = step_from.min(step_to).max(0.0);
            if start_s + step >= last_s {
                start_s = last_s;
                continue;
            }
            from += usize::from(step_from <= step);
            to += usize::from(step_to <= step);
            start_s += step;
        }
    }
}
