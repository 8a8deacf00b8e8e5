//! Assigns every micro-dollar of the bills to a job's owner or to overhead.

use std::collections::BTreeMap;
use std::ops::{AddAssign, RangeInclusive};

use serde::Serialize;

use super::split::{split, weights};
use super::{DayBill, MachineBill, Spent};
use crate::job::TokenUsage;

/// Costs by category, micro-dollars.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Cost {
    /// GPUs while jobs ran.
    pub run: u64,
    /// GPUs while models were loaded for jobs.
    pub load: u64,
    /// GPUs while instances booted.
    pub boot: u64,
    /// GPUs while instances were idle.
    pub idle: u64,
    /// Disks of stopped instances.
    pub stopped: u64,
    /// Disks of other instances.
    pub disk: u64,
    /// Traffic, in both directions.
    pub traffic: u64,
}

impl Cost {
    /// The sum of all categories.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.run + self.load + self.overhead()
    }

    /// The part of the cost in which no job ran or loaded.
    #[must_use]
    pub fn overhead(&self) -> u64 {
        self.boot + self.idle + self.stopped + self.disk + self.traffic
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.run += other.run;
        self.load += other.load;
        self.boot += other.boot;
        self.idle += other.idle;
        self.stopped += other.stopped;
        self.disk += other.disk;
        self.traffic += other.traffic;
    }
}

/// The owner of a cost.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Who {
    /// The tenant whose jobs ran.
    pub tenant: String,
    /// The endpoint; `*` means several.
    pub endpoint: String,
    /// The batch of the jobs.
    pub batch: Option<String>,
}

/// The cost of one instance on one day for jobs of one endpoint and batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Day, in days since 1970, UTC.
    pub day: u32,
    /// Id of the instance.
    pub machine: String,
    /// GPU model of the instance; empty if unknown.
    pub kind: String,
    /// The owner; `None` if the instance served nothing and the cost is unassigned.
    pub who: Option<Who>,
    /// The cost.
    pub cost: Cost,
    /// On-demand cost of the same use.
    pub on_demand: u64,
    /// Number of attempts that ended.
    pub jobs: u64,
    /// Time that slots ran them, milliseconds.
    pub run_ms: u64,
    /// Tokens of the jobs that ended with a result.
    pub usage: TokenUsage,
    /// Costs of running and of loading as counted when the attempts ended, at the price of the instance.
    pub counted: (u64, u64),
    /// Whether the instance's provider has not billed the final amount yet.
    pub is_estimate: bool,
}

/// The instances of one provider on one day.
#[derive(Default)]
struct OfProvider {
    /// Indices of the lines of instances that served jobs.
    served: Vec<usize>,
    /// Costs of instances that served nothing.
    idle: Vec<Line>,
}

/// Computes what each instance cost on these days, and for which work. With `apart`, an instance that served nothing on
/// a day keeps the cost of that day, unassigned; otherwise the cost is spread over the instances that did serve.
#[must_use]
pub fn reckon(
    spent: &[Spent],
    bills: &[MachineBill],
    days: RangeInclusive<u32>,
    now_ms: u64,
    apart: bool,
) -> Vec<Line> {
    let mut served: BTreeMap<(u32, &str), Vec<&Spent>> = BTreeMap::new();
    for it in spent.iter().filter(|it| days.contains(&it.day)) {
        served.entry((it.day, &it.machine)).or_default().push(it);
    }
    let known: BTreeMap<&str, &MachineBill> = bills.iter().map(|bill| (bill.machine.as_str(), bill)).collect();
    let mut lines: Vec<Line> = Vec::new();
    let mut groups: BTreeMap<(u32, &str), OfProvider> = BTreeMap::new();
    for bill in known.values() {
        for (day, of_day) in bill.by_day(now_ms).into_iter().filter(|(day, _)| days.contains(day)) {
            let group = groups.entry((day, &*bill.provider)).or_default();
            match served.remove(&(day, bill.machine.as_str())) {
                Some(cells) => {
                    group.served.extend(lines.len()..lines.len() + cells.len());
                    lines.extend(of_machine(bill, &of_day, &cells));
                }
                None if of_day.total() > 0 => group.idle.push(unserved(bill, day, &of_day)),
                None => {}
            }
        }
    }
    for ((_, machine), cells) in served {
        lines.extend(cells.into_iter().map(|it| unbilled(it, known.get(machine).copied())));
    }
    for OfProvider { served, idle } in groups.into_values() {
        if apart || served.is_empty() {
            lines.extend(idle);
        } else {
            spread(&mut lines, &served, &idle);
        }
    }
    lines
}

fn line(it: &Spent, kind: &str, cost: Cost, on_demand: u64, is_estimate: bool) -> Line {
    Line {
        day: it.day,
        machine: it.machine.clone(),
        kind: kind.to_owned(),
        who: Some(Who { tenant: it.tenant.clone(), endpoint: it.endpoint.clone(), batch: it.batch.clone() }),
        cost,
        on_demand,
        jobs: it.jobs,
        run_ms: it.run_ms,
        usage: it.usage,
        counted: (it.run_usd_micros, it.load_usd_micros),
        is_estimate,
    }
}

/// Splits one day of an instance over what it served.
fn of_machine(bill: &MachineBill, of_day: &DayBill, cells: &[&Spent]) -> Vec<Line> {
    // The counted times can exceed the billed time slightly if clocks differ. In that case the whole bill counts as
    // running and loading.
    let counted: Vec<u64> = cells.iter().flat_map(|it| [it.run_usd_micros, it.load_usd_micros]).collect();
    let busy: u64 = counted.iter().sum();
    let idle = of_day.capacity.saturating_sub(busy);
    let parts = split(of_day.running, &[&counted[..], &[idle]].concat());
    // If the worker has no price, the running part is unknown and the whole bill is overhead.
    let part = |n: usize| parts.get(n).copied().unwrap_or(0);
    let idle = if parts.is_empty() { of_day.running } else { part(counted.len()) };
    let by = weights(cells.len(), [&|n| cells[n].run_usd_micros, &|n| cells[n].run_ms, &|n| cells[n].jobs]);
    let [boot, idle, stopped, disk, traffic, on_demand] =
        [of_day.boot, idle, of_day.stopped, of_day.disk, of_day.traffic, of_day.on_demand]
            .map(|whole| split(whole, &by));
    let one = |n: usize| {
        let cost = Cost {
            run: part(2 * n),
            load: part(2 * n + 1),
            boot: boot[n],
            idle: idle[n],
            stopped: stopped[n],
            disk: disk[n],
            traffic: traffic[n],
        };
        line(cells[n], &bill.kind, cost, on_demand[n], bill.is_estimate())
    };
    (0..cells.len()).map(one).collect()
}

/// A day on which the instance served nothing.
fn unserved(bill: &MachineBill, day: u32, of_day: &DayBill) -> Line {
    let DayBill { boot, running, stopped, disk, traffic, on_demand, capacity: _ } = *of_day;
    Line {
        day,
        machine: bill.machine.clone(),
        kind: bill.kind.clone(),
        who: None,
        cost: Cost { boot, idle: running, stopped, disk, traffic, ..Cost::default() },
        on_demand,
        jobs: 0,
        run_ms: 0,
        usage: TokenUsage::default(),
        counted: (0, 0),
        is_estimate: bill.is_estimate(),
    }
}

/// The cost of work on an instance without a bill, at the price that its worker reports, if any. If a bill exists but
/// does not cover this day, the bill already contains the whole cost.
fn unbilled(it: &Spent, bill: Option<&MachineBill>) -> Line {
    let (run, load) = if bill.is_some() { (0, 0) } else { (it.run_usd_micros, it.load_usd_micros) };
    let kind = bill.map_or("", |bill| &bill.kind);
    line(it, kind, Cost { run, load, ..Cost::default() }, run + load, run + load > 0)
}

/// Spreads the cost of idle instances over the lines of instances that served jobs.
fn spread(lines: &mut [Line], targets: &[usize], idle: &[Line]) {
    let (mut all, mut on_demand) = (Cost::default(), 0);
    for it in idle {
        all += it.cost;
        on_demand += it.on_demand;
    }
    let by = {
        let of = |n: usize| &lines[targets[n]];
        weights(targets.len(), [&|n| of(n).counted.0, &|n| of(n).run_ms, &|n| of(n).jobs])
    };
    let [boot, idled, stopped, disk, traffic, on_demand] =
        [all.boot, all.idle, all.stopped, all.disk, all.traffic, on_demand].map(|whole| split(whole, &by));
    let is_estimate = idle.iter().any(|it| it.is_estimate);
    for (n, target) in targets.iter().enumerate() {
        let line = &mut lines[*target];
        line.cost += Cost {
            boot: boot[n],
            idle: idled[n],
            stopped: stopped[n],
            disk: disk[n],
            traffic: traffic[n],
            ..Cost::default()
        };
        line.on_demand += on_demand[n];
        line.is_estimate |= is_estimate;
    }
}
