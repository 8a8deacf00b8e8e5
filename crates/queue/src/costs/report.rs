//! Cost reports, grouped by a chosen dimension.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::{Cost, Line};
use crate::job::TokenUsage;

const HOUR_MS: u128 = 3_600_000;

/// The dimension by which a report groups costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// By endpoint of a tenant.
    Endpoint,
    /// By tenant that owns the jobs.
    Tenant,
    /// By batch; jobs outside batches form one group per tenant.
    Batch,
    /// By instance.
    Machine,
    /// By day, UTC.
    Day,
}

/// The group of a row. Members that the report does not group by are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    /// Day, in days since 1970, UTC.
    pub day: Option<u32>,
    /// Name of the instance.
    pub machine: Option<String>,
    /// The tenant.
    pub tenant: Option<String>,
    /// Name of the endpoint.
    pub endpoint: Option<String>,
    /// Id of the batch.
    pub batch: Option<String>,
    /// Whether the row is the cost of instances on days on which they served nothing.
    pub is_nobodys: bool,
}

/// A row of a report, or its total.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row {
    /// The group.
    pub group: Group,
    /// Costs by category.
    pub cost: Cost,
    /// Number of attempts that ended.
    pub jobs: u64,
    /// Time that slots ran them, milliseconds.
    pub run_ms: u64,
    /// Tokens of the jobs that ended with a result.
    pub usage: TokenUsage,
    /// The part of the cost that belongs to endpoints with tokens, on the days on which they have some.
    pub of_tokens_usd_micros: u64,
    /// On-demand cost of the same use.
    pub on_demand_usd_micros: u64,
    /// Whether a provider has not billed the final amount yet.
    pub is_estimate: bool,
}

impl Row {
    /// The cost of a thousand jobs of this row, micro-dollars; `None` if it has no jobs.
    #[must_use]
    pub fn per_1000_jobs(&self) -> Option<u64> {
        let all = u128::from(self.cost.total()) * 1_000;
        (self.jobs > 0).then(|| u64::try_from(all / u128::from(self.jobs)).unwrap_or(u64::MAX))
    }

    /// The price of a million tokens, micro-dollars: the cost of the endpoints with tokens, divided by the tokens; `None`
    /// without tokens.
    #[must_use]
    pub fn per_million_tokens(&self) -> Option<u64> {
        self.usage.per_million(self.of_tokens_usd_micros)
    }

    fn add(&mut self, line: &Line, has_tokens: bool) {
        self.cost += line.cost;
        self.jobs += line.jobs;
        self.run_ms += line.run_ms;
        self.usage += line.usage;
        self.of_tokens_usd_micros += if has_tokens { line.cost.total() } else { 0 };
        self.on_demand_usd_micros += line.on_demand;
        self.is_estimate |= line.is_estimate;
    }
}

/// The price of an hour on one GPU model at a service that hosts models.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hosted {
    /// Name of the service.
    pub service: String,
    /// GPU model, spelled like in the records of instances.
    pub kind: String,
    /// Price of an hour, dollars.
    pub usd_per_hour: f64,
}

/// The cost of the same running time at a hosting service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instead {
    /// Name of the service.
    pub service: String,
    /// The cost there.
    pub usd_micros: u64,
    /// Our cost of the running time that the service has a price for.
    pub ours_usd_micros: u64,
}

/// A cost report.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Rows, most expensive first; days in chronological order.
    pub rows: Vec<Row>,
    /// The total.
    pub total: Row,
    /// The cost of the same running time at hosting services, by service.
    pub hosted: Vec<Instead>,
}

impl Report {
    /// The idle share of the total cost, 0 to 1.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    pub fn idle_share(&self) -> f64 {
        let total = self.total.cost.total();
        if total == 0 { 0.0 } else { self.total.cost.idle as f64 / total as f64 }
    }
}

/// Groups cost lines into a report; with `tenant`, only the lines of that tenant.
#[must_use]
pub fn report(lines: &[Line], by: By, tenant: Option<&str>, prices: &[Hosted]) -> Report {
    let (mut rows, mut all): (BTreeMap<Group, Row>, Row) = (BTreeMap::new(), Row::default());
    let mut hosted: BTreeMap<&str, (u128, u64)> = BTreeMap::new();
    let is_asked_for = |line: &&Line| match (tenant, &line.who) {
        (Some(tenant), Some(who)) => who.tenant == tenant,
        (Some(_), None) => false,
        (None, _) => true,
    };
    // A line without tokens counts too if the endpoint has some on that day: its failed runs are part of the price.
    let owner = |line: &'_ Line| line.who.clone().map(|who| (line.day, who.tenant, who.endpoint));
    let with_tokens: BTreeSet<_> = lines.iter().filter(|line| line.usage.total() > 0).filter_map(owner).collect();
    for line in lines.iter().filter(is_asked_for) {
        let has_tokens = !with_tokens.is_empty() && owner(line).is_some_and(|of| with_tokens.contains(&of));
        let group = group(line, by);
        rows.entry(group.clone()).or_insert_with(|| Row { group, ..Row::default() }).add(line, has_tokens);
        all.add(line, has_tokens);
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
