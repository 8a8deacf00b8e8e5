//! Costs, by whatever is asked for.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Cost, Line};

const HOUR_MS: u128 = 3_600_000;

/// What to group costs by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// A tenant's endpoint.
    Endpoint,
    /// Whose the jobs are.
    Tenant,
    /// A batch; what is in none comes together, by tenant.
    Batch,
    /// A machine.
    Machine,
    /// A day, UTC.
    Day,
}

/// The group of a row; members that it is not grouped by are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    /// Days since 1970, UTC.
    pub day: Option<u32>,
    /// Its name.
    pub machine: Option<String>,
    /// Whose.
    pub tenant: Option<String>,
    /// Its name.
    pub endpoint: Option<String>,
    /// Its id.
    pub batch: Option<String>,
    /// What machines cost on days on which nothing was served.
    pub is_nobodys: bool,
}

/// A row of a report, or all of it together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row {
    /// Of what.
    pub group: Group,
    /// Where the money went.
    pub cost: Cost,
    /// Attempts that ended.
    pub jobs: u64,
    /// How long slots ran them, milliseconds.
    pub run_ms: u64,
    /// What it would have cost on demand.
    pub on_demand_usd_micros: u64,
    /// Whether a provider has not billed the final amount yet.
    pub is_estimate: bool,
}

impl Row {
    /// What a thousand of its jobs cost, micro-dollars; `None` when it had none.
    #[must_use]
    pub fn per_1000_jobs(&self) -> Option<u64> {
        let all = u128::from(self.cost.total()) * 1_000;
        (self.jobs > 0).then(|| u64::try_from(all / u128::from(self.jobs)).unwrap_or(u64::MAX))
    }

    fn add(&mut self, line: &Line) {
        self.cost += line.cost;
        self.jobs += line.jobs;
        self.run_ms += line.run_ms;
        self.on_demand_usd_micros += line.on_demand;
        self.is_estimate |= line.is_estimate;
    }
}

/// What a service that hosts models asks for an hour of running on a kind of card.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hosted {
    /// What it is called.
    pub service: String,
    /// The kind of card, as machines have it.
    pub kind: String,
    /// Its price, dollars.
    pub usd_per_hour: f64,
}

/// What the same would have cost elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instead {
    /// Where.
    pub service: String,
    /// What it would have cost there.
    pub usd_micros: u64,
    /// What it did cost, as far as there is a price for it there.
    pub ours_usd_micros: u64,
}

/// What was paid, and for what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The dearest first; days in order.
    pub rows: Vec<Row>,
    /// All together.
    pub total: Row,
    /// What it would have cost elsewhere, by service.
    pub hosted: Vec<Instead>,
}

impl Report {
    /// Of what was paid, the share that was for nothing to do, 0 to 1.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    pub fn idle_share(&self) -> f64 {
        let total = self.total.cost.total();
        if total == 0 { 0.0 } else { self.total.cost.idle as f64 / total as f64 }
    }
}

/// Puts lines together; only one tenant's where one is named.
#[must_use]
pub fn report(lines: &[Line], by: By, tenant: Option<&str>, prices: &[Hosted]) -> Report {
    let (mut rows, mut all): (BTreeMap<Group, Row>, Row) = (BTreeMap::new(), Row::default());
    let mut hosted: BTreeMap<&str, (u128, u64)> = BTreeMap::new();
    let is_asked_for = |line: &&Line| match (tenant, &line.who) {
        (Some(tenant), Some(who)) => who.tenant == tenant,
        (Some(_), None) => false,
        (None, _) => true,
    };
    for line in lines.iter().filter(is_asked_for) {
        let group = group(line, by);
        rows.entry(group.clone()).or_insert_with(|| Row { group, ..Row::default() }).add(line);
        all.add(line);
        for price in prices.iter().filter(|price| price.kind == line.kind) {
            let there = hosted.entry(&price.service).or_default();
            there.0 += u128::from(micros(price.usd_per_hour)) * u128::from(line.run_ms);
            there.1 += line.cost.total();
        }
    }
    let mut rows: Vec<Row> = rows.into_values().collect();
    if by != By::Day {
        rows.sort_by(|a, b| (b.cost.total(), b.jobs, &a.group).cmp(&(a.cost.total(), a.jobs, &b.group)));
    }
    let instead = |(service, (micros_ms, ours)): (&str, (u128, u64))| Instead {
        service: service.to_owned(),
        usd_micros: u64::try_from(micros_ms / HOUR_MS).unwrap_or(u64::MAX),
        ours_usd_micros: ours,
    };
    Report { rows, total: all, hosted: hosted.into_iter().map(instead).collect() }
}

fn group(line: &Line, by: By) -> Group {
    let none = Group::default();
    match (by, &line.who) {
        (By::Day, _) => Group { day: Some(line.day), ..none },
        (By::Machine, _) => Group { machine: Some(line.machine.clone()), ..none },
        (_, None) => Group { is_nobodys: true, ..none },
        (By::Tenant, Some(who)) => Group { tenant: Some(who.tenant.clone()), ..none },
        (By::Endpoint, Some(who)) => {
            Group { tenant: Some(who.tenant.clone()), endpoint: Some(who.endpoint.clone()), ..none }
        }
        (By::Batch, Some(who)) => Group { tenant: Some(who.tenant.clone()), batch: who.batch.clone(), ..none },
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "prices are checked to be 0 to 1,000")]
fn micros(usd: f64) -> u64 {
    (usd * 1e6).round() as u64
}
