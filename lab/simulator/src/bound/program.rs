//! The linear program, solved for its prices.

use clarabel::algebra::CscMatrix;
use clarabel::solver::{DefaultSettings, DefaultSolver, IPSolver, SupportedConeT};

use super::cuts::Cut;
use super::demand::Demand;
use super::grid::Grid;
use super::prices::Prices;
use super::work::Machine;

/// Rows `a x <= b` under construction, with columns identified by number.
#[derive(Debug, Default)]
struct Rows {
    entries: Vec<(usize, usize, f64)>,
    limits: Vec<f64>,
}

impl Rows {
    fn add(&mut self, entries: impl IntoIterator<Item = (Option<usize>, f64)>, limit: f64) -> usize {
        let row = self.limits.len();
        let known = entries.into_iter().filter_map(|(column, value)| Some((row, column?, value)));
        self.entries.extend(known);
        self.limits.push(limit);
        row
    }
}

/// Work that must be done between two curves: not before it has arrived, and not after it is due.
struct Group {
    class: usize,
    /// Work that can be done in advance, by edge, seconds at speed 1.0: the work that has arrived and is not due yet.
    room_s: Vec<f64>,
    /// Work that becomes due in each slot, seconds at speed 1.0.
    due_s: Vec<f64>,
}

/// Number of columns per slot.
pub(super) fn columns_per_slot(demand: &Demand) -> usize {
    let mut kinds_of_work: Vec<(usize, u64)> =
        demand.works.iter().map(|work| (work.class, work.target_s.to_bits())).collect();
    kinds_of_work.sort_unstable();
    kinds_of_work.dedup();
    2 * useful(demand).len() + kinds_of_work.len()
}

/// Solves the program. The prices are near the optimum, or those that the solver reached, and must be repaired.
pub(super) fn solve(demand: &Demand, grid: &Grid, cuts: &[Cut]) -> Option<Prices> {
    let slots = grid.slots();
    let unit_s = grid.width_s;
    let machines = useful(demand);
    let groups = groups(demand, grid);
    let unit_usd_s = machines.iter().map(|machine| machine.usd_per_s).fold(0.0, f64::max);
    if unit_usd_s <= 0.0 {
        return None;
    }
    let per_slot = 2 * machines.len() + groups.len();
    let on = |machine: usize, slot: usize| Some(slot * per_slot + 2 * machine);
    // Column of the machines that were switched on from the beginning up to a slot.
    let switched = |machine: usize, slot: Option<usize>| slot.map(|slot| slot * per_slot + 2 * machine + 1);
    let ahead = |group: usize, slot: Option<usize>| {
        let slot = slot.filter(|slot| groups[group].room_s[slot + 1] > 0.0)?;
        Some(slot * per_slot + 2 * machines.len() + group)
    };
    let mut costs = vec![0.0; slots * per_slot];
    let mut rows = Rows::default();
    let mut capacity = vec![Vec::new(); demand.classes];
    for slot in 0..slots {
        let before = slot.checked_sub(1);
        let length = grid.length_s(slot) / unit_s;
        for (class, rows_of_class) in capacity.iter_mut().enumerate() {
            let holding = machines.iter().enumerate().filter(|(_, machine)| machine.level >= class);
            let supply = holding.map(|(index, machine)| (on(index, slot), -machine.speed * length));
            let in_class = groups.iter().enumerate().filter(|(_, group)| group.class >= class);
            let work =
                in_class.clone().flat_map(|(group, _)| [(ahead(group, Some(slot)), 1.0), (ahead(group, before), -1.0)]);
            let due: f64 = in_class.map(|(_, group)| group.due_s[slot] / unit_s).sum();
            rows_of_class.push(rows.add(supply.chain(work), -due));
        }
        for (index, machine) in machines.iter().enumerate() {
            let price = machine.usd_per_s / unit_usd_s;
            costs[slot * per_slot + 2 * index] = price * length;
            if slot + 1 == slots {
                costs[slot * per_slot + 2 * index + 1] = price * machine.boot_s / unit_s;
            }
            let (now, then) = (switched(index, Some(slot)), switched(index, before));
            let was_on = before.and_then(|slot| on(index, slot));
            rows.add([(on(index, slot), 1.0), (was_on, -1.0), (now, -1.0), (then, 1.0)], 0.0);
            rows.add([(then, 1.0), (now, -1.0)], 0.0);
            rows.add([(on(index, slot), -1.0)], 0.0);
        }
        for (index, group) in groups.iter().enumerate() {
            let (now, then) = (ahead(index, Some(slot)), ahead(index, before));
            if now.is_some() {
                rows.add([(now, 1.0)], group.room_s[slot + 1] / unit_s);
                rows.add([(now, -1.0)], 0.0);
            } else {
                // An unused column.
                rows.add([(Some(slot * per_slot + 2 * machines.len() + index), 1.0)], 0.0);
            }
            if now.is_some() || then.is_some() {
                rows.add([(now, -1.0), (then, 1.0)], group.due_s[slot] / unit_s);
            }
        }
    }
    let mut seen = Vec::new();
    for cut in cuts {
        let each = machines.iter().enumerate().flat_map(|(index, machine)| {
            let weight = cut.weight(machine);
            let later = if cut.last > cut.first { weight } else { 0.0 };
            [
                (on(index, cut.first), -weight),
                (switched(index, Some(cut.last)), -later),
                (switched(index, Some(cut.first)), later),
            ]
        });
        let each: Vec<_> = each.filter(|(_, value)| *value != 0.0).collect();
        seen.push(rows.add(each, -cut.need));
    }
    let duals = dual_values(costs, rows)?;
    let price = |row: &usize| duals[*row] * unit_usd_s;
    let work = capacity.iter().map(|rows| rows.iter().map(price).collect()).collect();
    Some(Prices { work, cuts: seen.iter().map(|row| price(row) * unit_s).collect() })
}

/// The machines without those that others can replace at no additional cost.
fn useful(demand: &Demand) -> Vec<Machine> {
    let replaces = |index: usize, one: &Machine, of: usize, other: &Machine| {
        let count = (other.speed / one.speed).ceil();
        let is_as_able = one.level >= other.level && one.boot_s <= other.boot_s;
        let is_cheaper = one.usd_per_s * count <= other.usd_per_s;
        let is_same = one.level == other.level
            && one.boot_s == other.boot_s
            && one.usd_per_s == other.usd_per_s
            && one.speed == other.speed;
        index != of && is_as_able && is_cheaper && (!is_same || index < of)
    };
    let all = || demand.machines.iter().enumerate();
    let kept = all().filter(|(of, other)| !all().any(|(index, one)| replaces(index, one, *of, other)));
    kept.map(|(_, machine)| *machine).collect()
}

fn groups(demand: &Demand, grid: &Grid) -> Vec<Group> {
    let mut groups = Vec::new();
    for class in 0..demand.classes {
        let (slowest, fastest) = useful(demand)
            .iter()
            .filter(|machine| machine.level >= class)
            .fold((f64::INFINITY, 0.0_f64), |(low, high), machine| (machine.speed.min(low), machine.speed.max(high)));
        let mut targets: Vec<f64> =
            demand.works.iter().filter(|work| work.class == class).map(|work| work.target_s).collect();
        targets.sort_by(f64::total_cmp);
        targets.dedup();
        for target_s in targets {
            let mut arrived = Ramp::new(grid);
            let mut due = Ramp::new(grid);
            for work in demand.works.iter().filter(|work| work.class == class && work.target_s == target_s) {
                arrived.add(work.arrival_s, work.service_s, fastest, work.share);
                due.add(work.latest_start_s(), work.service_s, slowest, work.share);
            }
            let (arrived, due) = (arrived.sums(), due.sums());
            let room = |(arrived, due): (&f64, &f64)| if arrived - due > 1e-6 { arrived - due } else { 0.0 };
            groups.push(Group {
                class,
                room_s: arrived.iter().zip(&due).map(room).collect(),
                due_s: due.windows(2).map(|pair| (pair[1] - pair[0]).max(0.0)).collect(),
            });
        }
    }
    groups
}

/// The sum of many jobs' work, each of which grows steadily for some time.
struct Ramp<'a> {
    grid: &'a Grid,
    /// The increase from the previous edge, by edge.
    more: Vec<f64>,
}

impl<'a> Ramp<'a> {
    fn new(grid: &'a Grid) -> Self {
        Self { grid, more: vec![0.0; grid.slots() + 1] }
    }

    fn add(&mut self, from_s: f64, service_s: f64, speed: f64, share: f64) {
        let mut done_s = 0.0;
        let mut slot = self.grid.slot_at(from_s);
        while done_s < service_s && slot < self.grid.slots() {
            let by_then_s = (speed * (self.grid.edges_s[slot + 1] - from_s)).clamp(0.0, service_s);
            self.more[slot + 1] += (by_then_s - done_s) * share;
            done_s = by_then_s;
            slot += 1;
        }
    }

    fn sums(&self) -> Vec<f64> {
        let mut sum = 0.0;
        let add = |more: &f64| {
            sum += more;
            sum
        };
        self.more.iter().map(add).collect()
    }
}

/// Solves `min costs x, a x <= b` and returns the dual values of the rows.
fn dual_values(costs: Vec<f64>, rows: Rows) -> Option<Vec<f64>> {
    let (height, width) = (rows.limits.len(), costs.len());
    let (at_rows, (at_columns, values)): (Vec<usize>, (Vec<usize>, Vec<f64>)) =
        rows.entries.into_iter().map(|(row, column, value)| (row, (column, value))).unzip();
    let matrix = CscMatrix::new_from_triplets(height, width, at_rows, at_columns, values);
    let settings = DefaultSettings {
        verbose: false,
        max_iter: 60,
        tol_gap_abs: 1e-4,
        tol_gap_rel: 1e-4,
        tol_feas: 1e-5,
        max_threads: 1,
        ..DefaultSettings::default()
    };
    let cones = [SupportedConeT::NonnegativeConeT(height)];
    let quadratic = CscMatrix::zeros((width, width));
    let mut solver = DefaultSolver::new(&quadratic, &costs, &matrix, &rows.limits, &cones, settings).ok()?;
    solver.solve();
    Some(std::mem::take(&mut solver.solution.z))
}
