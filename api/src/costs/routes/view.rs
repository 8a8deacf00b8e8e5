//! Views of costs in the API.

use serde::Serialize;
use stokehold_queue::costs::{Cost, Instead, JobCost, Report, Row};
use stokehold_queue::job::Job;
use utoipa::ToSchema;

use crate::jobs::view::TokenUsageView;
use crate::time_format::rfc3339;

/// What costs are grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = CostsBy)]
pub(crate) enum ByWord {
    Endpoint,
    Tenant,
    Batch,
    Machine,
    Day,
    Job,
}

impl ByWord {
    const ALL: [(Self, &'static str); 6] = [
        (Self::Endpoint, "endpoint"),
        (Self::Tenant, "tenant"),
        (Self::Batch, "batch"),
        (Self::Machine, "machine"),
        (Self::Day, "day"),
        (Self::Job, "job"),
    ];

    pub(crate) fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, known)| *known == word).map(|(by, _)| by)
    }

    pub(crate) fn words() -> String {
        Self::ALL.map(|(_, word)| word).join(", ")
    }
}

/// The costs of a range of days and their parts.
#[derive(Serialize, ToSchema)]
#[schema(as = Costs)]
pub(crate) struct CostsView {
    by: ByWord,
    /// The first day, UTC.
    from: String,
    /// The last day.
    to: String,
    /// The most expensive row first; days and jobs by time.
    rows: Vec<RowView>,
    /// Rows beyond the limit; the total includes them.
    left_off: usize,
    /// The total of all rows. With `by=job`, the total of all jobs of those days, listed or not.
    total: RowView,
    /// The share of the total spent on idle instances, 0 to 1.
    idle_share: f64,
    savings: SavingsView,
}

/// What the same work would have cost elsewhere.
#[derive(Serialize, ToSchema)]
#[schema(as = Savings)]
pub(crate) struct SavingsView {
    /// The same instances for the same time without interruptible prices.
    on_demand_usd_micros: u64,
    /// The cost of running alone at hosted services, by the price list of this installation.
    hosted: Vec<InsteadView>,
}

/// What the same work would have cost at a service.
#[derive(Serialize, ToSchema)]
#[schema(as = HostedCost)]
pub(crate) struct InsteadView {
    service: String,
    usd_micros: u64,
    /// The cost here of the work for which the list has a price.
    ours_usd_micros: u64,
}

/// The cost of a row and its parts. The parts add up to the total.
#[derive(Serialize, ToSchema)]
#[schema(as = CostRow)]
pub(crate) struct RowView {
    /// The row's display name.
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    /// `*`: several endpoints, of which there were too many on a day to list them separately.
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    batch_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<String>,
    /// The UTC day, e.g. 2026-11-22.
    #[serde(skip_serializing_if = "Option::is_none")]
    day: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    job_id: Option<String>,
    /// Instances while jobs ran.
    run_usd_micros: u64,
    /// Instances while models were loaded for jobs.
    load_usd_micros: u64,
    /// Instances while they started; absent by job.
    #[serde(skip_serializing_if = "Option::is_none")]
    boot_usd_micros: Option<u64>,
    /// Instances while they were idle; absent by job.
    #[serde(skip_serializing_if = "Option::is_none")]
    idle_usd_micros: Option<u64>,
    /// Disks of stopped instances; absent by job.
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped_usd_micros: Option<u64>,
    /// Disks of other instances; absent by job.
    #[serde(skip_serializing_if = "Option::is_none")]
    disk_usd_micros: Option<u64>,
    /// Traffic in both directions; absent by job.
    #[serde(skip_serializing_if = "Option::is_none")]
    traffic_usd_micros: Option<u64>,
    /// Everything except running and loading.
    overhead_usd_micros: u64,
    total_usd_micros: u64,
    /// Ended attempts.
    jobs: u64,
    /// Null without jobs.
    per_job_usd_micros: Option<u64>,
    /// Null without jobs.
    per_1000_jobs_usd_micros: Option<u64>,
    /// Total run time, seconds; a call shared by several jobs counts in equal parts.
    run_s: f64,
    /// The tokens of the jobs that ended with a result; absent without tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<TokenUsageView>,
    /// The price of a million prompt and completion tokens: the cost of the endpoints with tokens, on the days on which
    /// they have some, divided by the tokens. Null without tokens.
    usd_micros_per_million_tokens: Option<u64>,
    /// Whether a provider has not yet billed the final amount.
    is_estimate: bool,
}

impl CostsView {
    pub(crate) fn new(
        by: ByWord,
        (from, to): (u32, u32),
        mut rows: Vec<RowView>,
        limit: usize,
        report: &Report,
    ) -> Self {
        let left_off = rows.len().saturating_sub(limit);
        rows.truncate(limit);
        let hosted = |Instead { service, usd_micros, ours_usd_micros }: &Instead| InsteadView {
            service: service.clone(),
            usd_micros: *usd_micros,
            ours_usd_micros: *ours_usd_micros,
        };
        Self {
            by,
            from: date(from),
            to: date(to),
            rows,
            left_off,
            total: RowView { name: "total".to_owned(), ..RowView::costing(&report.total) },
            idle_share: report.idle_share(),
            savings: SavingsView {
                on_demand_usd_micros: report.total.on_demand_usd_micros,
                hosted: report.hosted.iter().map(hosted).collect(),
            },
        }
    }
}

impl RowView {
    pub(crate) fn new(row: &Row, by: ByWord) -> Self {
        let group = &row.group;
        let day = group.day.map(date);
        let tenant = group.tenant.as_deref().unwrap_or_default();
        let name = match (group.is_nobodys, by) {
            (true, _) => "(nothing served)".to_owned(),
            (_, ByWord::Endpoint) => format!("{tenant}/{}", group.endpoint.as_deref().unwrap_or_default()),
            (_, ByWord::Batch) => group.batch.clone().unwrap_or_else(|| format!("({tenant}, in no batch)")),
            (_, ByWord::Machine) => group.machine.clone().unwrap_or_default(),
            (_, ByWord::Day) => day.clone().unwrap_or_default(),
            (_, ByWord::Tenant | ByWord::Job) => tenant.to_owned(),
        };
        Self {
            name,
            tenant: group.tenant.clone(),
            endpoint: group.endpoint.clone(),
            batch_id: group.batch.clone(),
            machine: group.machine.clone(),
            day,
            ..Self::costing(row)
        }
    }

    fn costing(row: &Row) -> Self {
        let Cost { run, load, boot, idle, stopped, disk, traffic } = row.cost;
        Self {
            boot_usd_micros: Some(boot),
            idle_usd_micros: Some(idle),
            stopped_usd_micros: Some(stopped),
            disk_usd_micros: Some(disk),
            traffic_usd_micros: Some(traffic),
            jobs: row.jobs,
            per_job_usd_micros: row.per_1000_jobs().map(|per| per / 1_000),
            per_1000_jobs_usd_micros: row.per_1000_jobs(),
            run_s: seconds(row.run_ms),
            usage: TokenUsageView::of(row.usage),
            usd_micros_per_million_tokens: row.per_million_tokens(),
            is_estimate: row.is_estimate,
            ..Self::adding_up(run, load, row.cost.overhead())
        }
    }

    pub(crate) fn of_job(job: &Job, cost: JobCost) -> Self {
        let ended: Vec<_> = job.attempts.iter().filter(|attempt| attempt.timing.occupied_ms() > 0).collect();
        let usage = job.usage();
        let run_ms = ended.iter().map(|attempt| attempt.timing.occupied_ms() - attempt.timing.loading_ms()).sum();
        Self {
            name: job.id.to_string(),
            tenant: Some(job.spec.tenant.clone()),
            endpoint: Some(job.spec.endpoint.clone()),
            batch_id: job.spec.batch.as_ref().map(|line| line.id.clone()),
            day: job.ended_ms.map(|ended_ms| date(stokehold_queue::costs::day_of(ended_ms))),
            job_id: Some(job.id.to_string()),
            jobs: ended.len() as u64,
            run_s: seconds(run_ms),
            usage: usage.and_then(TokenUsageView::of),
            usd_micros_per_million_tokens: usage.and_then(|usage| usage.per_million(cost.total)),
            is_estimate: cost.is_estimate,
            ..Self::adding_up(cost.run, cost.load, cost.overhead)
        }
    }

    fn adding_up(run: u64, load: u64, overhead: u64) -> Self {
        Self {
            name: String::new(),
            tenant: None,
            endpoint: None,
            batch_id: None,
            machine: None,
            day: None,
            job_id: None,
            run_usd_micros: run,
            load_usd_micros: load,
            boot_usd_micros: None,
            idle_usd_micros: None,
            stopped_usd_micros: None,
            disk_usd_micros: None,
            traffic_usd_micros: None,
            overhead_usd_micros: overhead,
            total_usd_micros: run + load + overhead,
            jobs: 0,
            per_job_usd_micros: None,
            per_1000_jobs_usd_micros: None,
            run_s: 0.0,
            usage: None,
            usd_micros_per_million_tokens: None,
            is_estimate: false,
        }
    }
}

/// Formats a day since 1970 as a date.
fn date(day: u32) -> String {
    rfc3339(u64::from(day) * 86_400_000).chars().take("2026-11-22".len()).collect()
}

#[expect(clippy::cast_precision_loss, reason = "some thousand years of milliseconds fit a double's 53 bits")]
fn seconds(ms: u64) -> f64 {
    ms as f64 / 1_000.0
}
