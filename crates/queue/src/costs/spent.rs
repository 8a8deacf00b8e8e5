//! The use of ended attempts by day, tenant, endpoint, batch and instance. Attempts that were released, or lost with
//! their worker, reported no times: their cost is part of the instance's idle time.

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;

use redis::aio::ConnectionLike;
use serde::{Deserialize, Serialize};

use crate::connection::Connection;
use crate::error::Error;
use crate::gateway::FinishReport;
use crate::job::{JobSpec, TokenUsage};
use crate::keys::Keys;

/// Maximum number of days that one read covers, from the first.
pub const DAYS_MAX: u32 = 800;

const DAY_MS: u64 = 86_400_000;

/// Maximum number of days that one attempt is counted in. The last days of a longer attempt are counted.
const DAYS_OF_ATTEMPT: u64 = 400;

/// Limit of the time that a worker reports for one attempt, milliseconds. Sums stay exact in a double.
const MS_MAX: u64 = 1 << 40;

/// Number of fields per read, so that Redis serves other clients in between.
const PAGE: usize = 2_000;

/// The use of one instance by the attempts that ended on one day, for one endpoint or one of its batches.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Spent {
    /// Day, in days since 1970, UTC.
    pub day: u32,
    /// The tenant that owns the jobs.
    pub tenant: String,
    /// The endpoint; `*` means several that were too many to count separately.
    pub endpoint: String,
    /// The batch of the jobs.
    pub batch: Option<String>,
    /// Name of the worker that ran the jobs; `-` if it was no longer known.
    pub machine: String,
    /// Number of attempts that ended, with any outcome.
    pub jobs: u64,
    /// Time that a slot ran them, milliseconds. Jobs that share a call get equal parts.
    pub run_ms: u64,
    /// Cost of that time at the worker's price.
    pub run_usd_micros: u64,
    /// Cost of loading models for them at the worker's price.
    pub load_usd_micros: u64,
    /// Tokens of the jobs that ended with a result on that day.
    pub usage: TokenUsage,
}

/// The day of a time, in days since 1970, UTC.
#[must_use]
pub fn day_of(ms: u64) -> u32 {
    u32::try_from(ms / DAY_MS).unwrap_or(u32::MAX)
}

/// The use of one attempt.
#[derive(Debug)]
pub struct AttemptUse<'a> {
    /// The instance that the attempt ran on; `-` if unknown.
    pub machine: &'a str,
    /// Run time, milliseconds.
    pub run_ms: u64,
    /// Cost of running, micro-dollars.
    pub run_usd_micros: u64,
    /// Cost of loading the model, micro-dollars.
    pub load_usd_micros: u64,
    /// The tokens, if the attempt ended with a result.
    pub usage: TokenUsage,
}

/// The numbers of a field: jobs, milliseconds of running, micro-dollars of running and of loading, and the tokens of
/// prompts, cached and of completions. A field without tokens has only the first four.
pub type Numbers = [u64; 7];

impl<'a> AttemptUse<'a> {
    /// The use of the attempt of this report.
    #[must_use]
    pub fn of(report: &'a FinishReport) -> Self {
        let (loading_ms, occupied_ms) = (report.timing.loading_ms(), report.timing.occupied_ms());
        let cost = report.cost_usd_micros.unwrap_or(0).min(MS_MAX);
        let load = u128::from(cost) * u128::from(loading_ms) / u128::from(occupied_ms.max(1));
        let load_usd_micros = u64::try_from(load).unwrap_or(cost).min(cost);
        Self {
            machine: if report.machine.is_empty() { "-" } else { &report.machine },
            run_ms: occupied_ms.saturating_sub(loading_ms).min(MS_MAX),
            run_usd_micros: cost - load_usd_micros,
            load_usd_micros,
            usage: report.tokens().unwrap_or_default(),
        }
    }

    /// The field that counts the attempt.
    #[must_use]
    pub fn field(&self, spec: &JobSpec) -> String {
        let batch = spec.batch.as_ref().map_or("-", |line| &line.id);
        format!("{}|{}|{batch}|{}", spec.tenant, spec.endpoint, self.machine)
    }

    /// The numbers for each day that the attempt spans. Jobs and tokens count on the last one.
    #[expect(clippy::cast_precision_loss, reason = "as the script reckons: doubles, exact below 2^53")]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of what is not negative")]
    #[must_use]
    pub fn by_day(&self, since_ms: u64, now_ms: u64) -> Vec<(u32, Numbers)> {
        let took = [self.run_ms, self.run_usd_micros, self.load_usd_micros];
        let (last, mut left) = (now_ms / DAY_MS, took);
        let mut days = Vec::new();
        for day in (since_ms / DAY_MS).max(last.saturating_sub(DAYS_OF_ATTEMPT))..last {
            let within = now_ms.min((day + 1) * DAY_MS) - since_ms.max(day * DAY_MS);
            let share = within as f64 / (now_ms - since_ms) as f64;
            let part = took.map(|whole| (whole as f64 * share).floor() as u64);
            left = [0, 1, 2].map(|n| left[n] - part[n]);
            days.push((day_of(day * DAY_MS), [0, part[0], part[1], part[2], 0, 0, 0]));
        }
        let [prompt, cached, completion] = self.usage.numbers();
        days.push((day_of(now_ms), [1, left[0], left[1], left[2], prompt, cached, completion]));
        days
    }
}

/// Reads the spending on these days; with a tenant, only that tenant's.
pub(crate) async fn read_spent(
    connection: &Connection,
    keys: &Keys,
    days: RangeInclusive<u32>,
    tenant: Option<&str>,
) -> Result<Vec<Spent>, Error> {
    let first = *days.start();
    let last = (*days.end()).min(first.saturating_add(DAYS_MAX - 1));
    let mut redis = connection.redis();
    let mut found: BTreeMap<(u32, String), Numbers> = BTreeMap::new();
    // Reads the first page of all days at once, then further pages of the days that have more.
    let mut open: Vec<(u32, u64)> = (first..=last).map(|day| (day, 0)).collect();
    while !open.is_empty() {
        let pages = read_pages(&mut redis, keys, &open, tenant).await.map_err(Error::redis("read the spending"))?;
        let mut more = Vec::new();
        for ((day, _), (cursor, page)) in open.into_iter().zip(pages) {
            found.extend(page.into_iter().map(|(field, text)| ((day, field), numbers(&text))));
            if cursor != 0 {
                more.push((day, cursor));
            }
        }
        open = more;
    }
    Ok(spent_of(found.iter().map(|((day, field), took)| (*day, field, *took)), tenant))
}

type Page = (u64, HashMap<String, String>);

async fn read_pages(
    redis: &mut impl ConnectionLike,
    keys: &Keys,
    open: &[(u32, u64)],
    tenant: Option<&str>,
) -> Result<Vec<Page>, redis::RedisError> {
    let mut pipe = redis::pipe();
    for (day, cursor) in open {
        pipe.cmd("HSCAN").arg(keys.spent(*day)).arg(cursor).arg("COUNT").arg(PAGE);
        if let Some(tenant) = tenant {
            pipe.arg("MATCH").arg(format!("{tenant}|*"));
        }
    }
    pipe.query_async(redis).await
}

fn numbers(text: &str) -> Numbers {
    let mut words = text.split(' ').map(|word| word.parse().unwrap_or(0));
    [(); 7].map(|()| words.next().unwrap_or(0))
}

/// Parses the fields. The result is sorted.
pub fn spent_of<'a>(found: impl Iterator<Item = (u32, &'a String, Numbers)>, tenant: Option<&str>) -> Vec<Spent> {
    let one = |(day, field, numbers): (u32, &String, Numbers)| {
        let [jobs, run_ms, run_usd_micros, load_usd_micros, prompt, cached, completion] = numbers;
        let mut parts = field.splitn(4, '|').map(str::to_owned);
        let (whose, endpoint, batch, machine) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let batch = Some(batch).filter(|batch| batch != "-");
        let spent = Spent {
            day,
            tenant: whose,
            endpoint,
            batch,
            machine,
            jobs,
            run_ms,
            run_usd_micros,
            load_usd_micros,
            usage: [prompt, cached, completion].into(),
        };
        tenant.is_none_or(|tenant| tenant == spent.tenant).then_some(spent)
    };
    let mut spent: Vec<Spent> = found.filter_map(one).collect();
    spent.sort();
    spent
}

#[cfg(test)]
mod tests {
    use super::*;

    fn took(run: u64, load: u64) -> AttemptUse<'static> {
        let usage = TokenUsage::from([9, 4, 2]);
        AttemptUse { machine: "m", run_ms: run, run_usd_micros: run, load_usd_micros: load, usage }
    }

    #[test]
    fn an_attempt_over_midnight_is_counted_in_each_of_its_days() {
        let noon = 10 * DAY_MS + DAY_MS / 2;
        assert_eq!(took(7, 1).by_day(noon, noon + 5), [(10, [1, 7, 7, 1, 9, 4, 2])]);
        assert_eq!(
            took(7, 1).by_day(noon, noon),
            [(10, [1, 7, 7, 1, 9, 4, 2])],
            "one that took no time ended all the same"
        );
        let over = took(1_001, 3).by_day(noon, noon + DAY_MS);
        assert_eq!(over, [(10, [0, 500, 500, 1, 0, 0, 0]), (11, [1, 501, 501, 2, 9, 4, 2])]);
        let long = took(1_000_000, 0).by_day(0, 10_000 * DAY_MS);
        assert_eq!(long.len(), 401);
        assert_eq!(long.iter().map(|(_, part)| part[1]).sum::<u64>(), 1_000_000, "and nothing is lost");
    }

    #[test]
    fn a_machine_may_be_called_what_its_operator_likes() {
        let found = ["acme|draw|-|rack 2|left".to_owned(), "zoo|draw|batch_1|m".to_owned(), "no field".to_owned()];
        let all = spent_of(found.iter().map(|field| (3, field, [1, 2, 3, 4, 5, 6, 7])), None);
        let [acme, zoo] = &all[..] else { panic!("{all:?}") };
        assert_eq!((acme.machine.as_str(), acme.batch.as_deref()), ("rack 2|left", None));
        assert_eq!((zoo.batch.as_deref(), zoo.jobs, zoo.load_usd_micros), (Some("batch_1"), 1, 4));
        assert_eq!(zoo.usage, TokenUsage::from([5, 6, 7]));
        assert_eq!(numbers("1 2 3 4"), [1, 2, 3, 4, 0, 0, 0]);
        assert_eq!(spent_of(found.iter().map(|field| (3, field, [1; 7])), Some("zoo")).len(), 1);
    }
}
