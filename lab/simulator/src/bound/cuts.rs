//! Cuts: constraints that hold because machines are whole, although the work of a period needs only a part of one.

use std::collections::BTreeMap;

use super::demand::Demand;
use super::grid::Grid;
use super::work::{Machine, Work};

/// Maximum length of an examined burst, seconds.
const BURST_S: f64 = 240.0;

/// Maximum number of examined ends per beginning of a burst.
const BURST_ENDS: f64 = 32.0;

/// Maximum number of examined beginnings of bursts per slot.
const STARTS_PER_SLOT: f64 = 4.0;

/// Maximum number of examined pairs of a job and an end of a burst: about two seconds of work. If jobs are too dense
/// for it, fewer beginnings are examined.
const LOOKS: f64 = 1e9;

/// Excess over a whole number of machines that counts as a rounding error.
const ROUNDING: f64 = 1e-6;

/// Parts into which the work of a burst is divided.
const STEPS: f64 = 60.0;

/// Maximum number of jobs of a burst that are examined individually. Beyond it, rounding to whole machines adds little.
const WHOLE_JOBS: usize = 32;

/// The quantity that a cut bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Measure {
    /// Machines.
    Count,
    /// Dollars per hour of machines.
    Price,
}

/// A constraint: the machines that are on for a whole slot, in some of these slots, sum to at least `need`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cut {
    pub(super) first: usize,
    pub(super) last: usize,
    pub(super) class: usize,
    pub(super) measure: Measure,
    pub(super) need: f64,
}

impl Cut {
    /// The contribution of one machine to the constraint.
    pub(super) fn weight(&self, machine: &Machine) -> f64 {
        match self.measure {
            _ if machine.level < self.class => 0.0,
            Measure::Count => 1.0,
            Measure::Price => machine.usd_per_s * 3_600.0,
        }
    }
}

/// Finds all cuts that no other cut implies.
pub(super) fn find(demand: &Demand, grid: &Grid) -> Vec<Cut> {
    let mut cuts = Vec::new();
    for class in 0..demand.classes {
        let speeds = demand.speeds(class);
        let mut running = vec![0.0; grid.slots() + 1];
        for work in demand.works.iter().filter(|work| work.class >= class) {
            let duration_s = work.service_s / speeds.1;
            if let Some((first, last)) = surely_on(work, duration_s, grid) {
                running[first] += work.share;
                running[last + 1] -= work.share;
            } else if work.class == class {
                let (first, last) = on_once(work, duration_s, grid);
                cuts.push(Cut { first, last, class, measure: Measure::Count, need: 1.0 });
            }
        }
        let mut sum = 0.0;
        for (slot, change) in running.iter().enumerate().take(grid.slots()) {
            sum += change;
            let need = (sum - ROUNDING).ceil();
            if need >= 1.0 {
                cuts.push(Cut { first: slot, last: slot, class, measure: Measure::Count, need });
            }
        }
        bursts(demand, class, grid, &mut cuts);
    }
    minimal(cuts)
}

/// The slots throughout which a job runs, whatever its start; `None` if there are none.
fn surely_on(work: &Work, duration_s: f64, grid: &Grid) -> Option<(usize, usize)> {
    let first = grid.slot_before(work.latest_start_s()) + 1;
    let last = grid.slot_at(work.arrival_s + duration_s).checked_sub(1)?;
    (duration_s >= 2.0 * grid.width_s && first <= last).then_some((first, last))
}

/// The fewest slots of which every run of a job occupies a whole one with its machine. A run that is too short for that
/// touches one of these slots or a neighbour. The neighbours are included, because a machine may be on for no time at
/// all.
fn on_once(work: &Work, duration_s: f64, grid: &Grid) -> (usize, usize) {
    let earliest_end_s = work.arrival_s + duration_s;
    let latest_start_s = work.latest_start_s();
    let top = grid.slots() - 1;
    if duration_s >= 2.0 * grid.width_s {
        return (grid.slot_at(earliest_end_s).saturating_sub(1), (grid.slot_before(latest_start_s) + 1).min(top));
    }
    if duration_s >= grid.width_s {
        // The run contains one of the edges from the last one before its earliest end to the first one after its latest
        // start.
        let first_edge = grid.slot_at(earliest_end_s);
        let last_edge = (grid.slot_before(latest_start_s) + 1).max(first_edge);
        return (first_edge.saturating_sub(1), last_edge.min(top));
    }
    let first = grid.slot_before(earliest_end_s);
    let last = grid.slot_at(latest_start_s).max(first);
    (first.saturating_sub(1), (last + 1).min(top))
}

/// Adds cuts for bursts: the number of machines that the work of a period needs at some time in it. A period begins
/// with an arrival and ends with a latest end.
fn bursts(demand: &Demand, class: usize, grid: &Grid, cuts: &mut Vec<Cut>) {
    let speeds = demand.speeds(class);
    let cover = Cover::new(demand, class);
    let works: Vec<&Work> = demand.works.iter().filter(|work| work.class >= class && work.target_s < BURST_S).collect();
    let end_s = |work: &Work, speed: f64| work.latest_start_s() + work.service_s / speed;
    let span_s = grid.edges_s[grid.slots()] - grid.edges_s[0];
    let mut next_s = f64::NEG_INFINITY;
    for (index, first) in works.iter().enumerate() {
        let from_s = first.arrival_s;
        if from_s < next_s {
            continue;
        }
        let close = works[index..].iter().take_while(|work| work.latest_start_s() < from_s + BURST_S);
        let close: Vec<&Work> = close.copied().collect();
        let mut ends_s: Vec<f64> =
            close.iter().flat_map(|work| [end_s(work, speeds.0), end_s(work, speeds.1)]).collect();
        ends_s.retain(|end_s| *end_s <= from_s + BURST_S);
        ends_s.sort_by(f64::total_cmp);
        let step_s = BURST_S / BURST_ENDS;
        ends_s.dedup_by(|next, kept| (*next / step_s).floor() == (*kept / step_s).floor());
        let looks = (ends_s.len() * close.len()) as f64;
        next_s = from_s + (grid.width_s / STARTS_PER_SLOT).max(looks / LOOKS * span_s);
        whole(demand, class, from_s, &close, grid, cuts);
        for to_s in ends_s {
            let (mut work_s, mut machine_s) = (0.0, 0.0);
            for work in close.iter().take_while(|work| work.latest_start_s() < to_s) {
                let left_s = to_s - work.latest_start_s();
                work_s += work.share * work.service_s.min(speeds.0 * left_s);
                machine_s += work.share * (work.service_s / speeds.1).min(left_s);
            }
            let length_s = to_s - from_s;
            let count = (machine_s / length_s).max(work_s / length_s / speeds.1);
            let (count, price) = ((count - ROUNDING).ceil(), cover.price(work_s / length_s));
            let first = grid.slot_at(from_s).saturating_sub(1);
            let last = (grid.slot_before(to_s) + 1).min(grid.slots() - 1);
            if count >= 2.0 {
                cuts.push(Cut { first, last, class, measure: Measure::Count, need: count });
            }
            if price > count * cover.cheapest * (1.0 + ROUNDING) {
                cuts.push(Cut { first, last, class, measure: Measure::Price, need: price });
            }
        }
    }
}

/// Like [`bursts`], for jobs that run between the first arrival and the latest end that each kind allows. Fast kinds
/// have less time.
fn whole(demand: &Demand, class: usize, from_s: f64, close: &[&Work], grid: &Grid, cuts: &mut Vec<Cut>) {
    let machines: Vec<&Machine> = demand.holding(class).collect();
    let mut ends_s = vec![f64::NEG_INFINITY; machines.len()];
    let mut work_s = 0.0;
    let mut last_price = 0.0;
    for work in close.iter().take(WHOLE_JOBS) {
        work_s += work.share * work.service_s;
        for (end_s, machine) in ends_s.iter_mut().zip(&machines) {
            *end_s = end_s.max(work.latest_start_s() + work.service_s / machine.speed);
        }
        let to_s = ends_s.iter().copied().fold(0.0, f64::max);
        let does = machines.iter().zip(&ends_s).map(|(machine, end_s)| {
            let part = machine.speed * (end_s - from_s) / work_s;
            (((part * STEPS - ROUNDING).ceil() as usize).max(1), machine.usd_per_s * 3_600.0)
        });
        let does: Vec<(usize, f64)> = does.collect();
        let mut usd_h = [0.0; STEPS as usize + 1];
        for steps in 1..usd_h.len() {
            let with = |(more, price): &(usize, f64)| price + usd_h[steps.saturating_sub(*more)];
            usd_h[steps] = does.iter().map(with).fold(f64::INFINITY, f64::min);
        }
        let need = usd_h[STEPS as usize];
        if need > usd_h[1] && need > last_price {
            last_price = need;
            let first = grid.slot_at(from_s).saturating_sub(1);
            let last = (grid.slot_before(to_s) + 1).min(grid.slots() - 1);
            cuts.push(Cut { first, last, class, measure: Measure::Price, need });
        }
    }
}

/// The minimum cost of machines with a given total speed.
struct Cover {
    /// Dollars per hour, by steps of speed.
    usd_h: Vec<f64>,
    cheapest: f64,
}

impl Cover {
    /// Granularity of speed. Speeds are rounded in favour of the machines.
    const STEP: f64 = 0.05;

    fn new(demand: &Demand, class: usize) -> Self {
        let machines: Vec<(usize, f64)> = demand
            .holding(class)
            .map(|machine| {
                (((machine.speed / Self::STEP - ROUNDING).ceil() as usize).max(1), machine.usd_per_s * 3_600.0)
            })
            .collect();
        let mut usd_h: Vec<f64> = vec![0.0];
        for steps in 1..=1_000_usize {
            let with = |(more, price): &(usize, f64)| price + usd_h[steps.saturating_sub(*more)];
            usd_h.push(machines.iter().map(with).fold(f64::INFINITY, f64::min));
        }
        Self { cheapest: usd_h[1], usd_h }
    }

    fn price(&self, speed: f64) -> f64 {
        // More than `floor` steps are needed, so the number is rounded up.
        let steps = ((speed / Self::STEP - 2.0 * ROUNDING).ceil().max(0.0) as usize).min(self.usd_h.len() - 1);
        self.usd_h[steps]
    }
}

/// Removes cuts whose slots contain all slots of another cut with at least the same need.
fn minimal(mut cuts: Vec<Cut>) -> Vec<Cut> {
    let key = |cut: &Cut| (cut.class, cut.measure);
    cuts.sort_by(|a, b| {
        let by_place = b.first.cmp(&a.first).then(a.last.cmp(&b.last));
        key(a).cmp(&key(b)).then(by_place).then(b.need.total_cmp(&a.need))
    });
    let mut kept: Vec<Cut> = Vec::new();
    // The earliest last slot so far, by need in millionths.
    let mut ends: BTreeMap<u64, usize> = BTreeMap::new();
    for cut in cuts {
        if kept.last().is_some_and(|last| key(last) != key(&cut)) {
            ends.clear();
        }
        let need = (cut.need * 1e6) as u64;
        if ends.range(need..).any(|(_, last)| *last <= cut.last) {
            continue;
        }
        ends.insert(need, cut.last);
        kept.push(cut);
    }
    kept
}
