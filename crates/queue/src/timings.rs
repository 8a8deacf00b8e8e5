//! Durations of the parts of an endpoint's attempts, by version: histograms per hour, which `lua/lib/timings.lua`
//! counts in the commit that ends an attempt. A bucket is 9 % wide, so a reported time is accurate to 5 %.

use std::collections::{BTreeMap, HashMap};

use crate::connection::Connection;
use crate::error::Error;
use crate::keys::Keys;

/// Number of hours that are kept.
pub const HOURS_MAX: u64 = 48;

const HOUR_MS: u64 = 3_600_000;

/// Number of buckets per doubling.
const PER_DOUBLING: f64 = 8.0;

/// The parts of an attempt's time, and the total from ready to ended.
pub const PARTS: [&str; 9] = ["queue", "env", "weights", "boot", "load", "warmup", "run", "upload", "total"];

/// The attempts of one version that ended in some hours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VersionTimings {
    /// The version.
    pub version: u32,
    /// Number of attempts that succeeded.
    pub succeeded: u64,
    /// Number of attempts that failed.
    pub failed: u64,
    /// Cost of running and loading in all of them, at the price of their instances.
    pub usd_micros: u64,
    /// By part: number of succeeded attempts by bucket. An attempt that took no time in a part is in none of its
    /// buckets.
    parts: BTreeMap<String, BTreeMap<u32, u64>>,
}

impl VersionTimings {
    /// The quantile `share` (0 to 1) of the time that succeeded attempts took for a part, milliseconds; `None` if no
    /// attempt needed the part.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of what is not negative")]
    pub fn quantile_ms(&self, part: &str, share: f64) -> Option<u64> {
        let buckets = self.parts.get(part)?;
        let timed: u64 = buckets.values().sum();
        let wanted = ((self.succeeded.max(timed) as f64 * share).ceil() as u64).max(1);
        let mut seen = self.succeeded.saturating_sub(timed);
        if seen >= wanted {
            return Some(0);
        }
        for (bucket, count) in buckets {
            seen += count;
            if seen >= wanted {
                return Some(middle_ms(*bucket));
            }
        }
        buckets.keys().next_back().map(|bucket| middle_ms(*bucket))
    }

    /// The median time of the succeeded attempts that took at least `least_ms` for a part, milliseconds; `None` if
    /// there were none. Unlike [`VersionTimings::quantile_ms`], it ignores attempts that found the model loaded.
    #[must_use]
    pub fn typical_ms(&self, part: &str, least_ms: u64) -> Option<u64> {
        let taken = || self.parts.get(part).into_iter().flatten().map(|(bucket, count)| (middle_ms(*bucket), *count));
        let taken = || taken().filter(|(ms, _)| *ms >= least_ms);
        let half = taken().map(|(_, count)| count).sum::<u64>().div_ceil(2);
        let mut seen = 0;
        taken().find_map(|(ms, count)| {
            seen += count;
            (seen >= half).then_some(ms)
        })
    }

    fn count(&mut self, what: &str, by: u64) {
        match what.split_once(':') {
            None => match what {
                "ok" => self.succeeded += by,
                "failed" => self.failed += by,
                "usd" => self.usd_micros += by,
                // A field of a later release.
                _ => {}
            },
            Some((part, bucket)) => {
                if let Ok(bucket) = bucket.parse() {
                    *self.parts.entry(part.to_owned()).or_default().entry(bucket).or_default() += by;
                }
            }
        }
    }
}

/// The middle of a bucket, milliseconds. Example: 1,069 for the bucket that starts at 1,024 ms.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and as large as times get")]
fn middle_ms(bucket: u32) -> u64 {
    ((f64::from(bucket) + 0.5) / PER_DOUBLING).exp2().floor() as u64
}

/// Reads the attempts that ended in the last `hours`, including the current one; newest version first.
pub(crate) async fn read(
    connection: &Connection,
    keys: &Keys,
    (tenant, endpoint): (&str, &str),
    hours: u64,
    now_ms: u64,
) -> Result<Vec<VersionTimings>, Error> {
    let last = now_ms / HOUR_MS;
    let mut pipe = redis::pipe();
    for hour in (last + 1).saturating_sub(hours.clamp(1, HOURS_MAX))..=last {
        pipe.hgetall(keys.timings(tenant, endpoint, hour));
    }
    let found: Vec<HashMap<String, u64>> =
        pipe.query_async(&mut connection.redis()).await.map_err(Error::redis("read how long attempts took"))?;
    Ok(assemble(found.into_iter().flatten()))
}

fn assemble(fields: impl Iterator<Item = (String, u64)>) -> Vec<VersionTimings> {
    let mut versions: BTreeMap<u32, VersionTimings> = BTreeMap::new();
    for (field, by) in fields {
        let Some((Ok(version), what)) = field.split_once(':').map(|(version, what)| (version.parse(), what)) else {
            continue;
        };
        versions
            .entry(version)
            .or_insert_with(|| VersionTimings { version, ..VersionTimings::default() })
            .count(what, by);
    }
    versions.into_values().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(fields: &[(&str, u64)]) -> Vec<VersionTimings> {
        assemble(fields.iter().map(|(field, by)| ((*field).to_owned(), *by)))
    }

    #[test]
    fn hours_add_up_by_version_and_the_newest_comes_first() {
        let all =
            of(&[("1:ok", 2), ("2:ok", 1), ("1:ok", 3), ("1:failed", 1), ("1:usd", 70), ("1:later", 1), ("x", 1)]);
        let [new, old] = &all[..] else { panic!("{all:?}") };
        assert_eq!((new.version, new.succeeded), (2, 1));
        assert_eq!((old.version, old.succeeded, old.failed, old.usd_micros), (1, 5, 1, 70));
    }

    #[test]
    fn a_quantile_counts_those_that_took_no_time() {
        let all = of(&[("1:ok", 100), ("1:load:80", 10), ("1:run:80", 95), ("1:run:96", 5)]);
        let [of_one] = &all[..] else { panic!("{all:?}") };
        assert_eq!(of_one.quantile_ms("load", 0.5), Some(0), "most found the model loaded");
        assert_eq!(of_one.quantile_ms("load", 0.95), Some(1_069));
        assert_eq!((of_one.quantile_ms("run", 0.5), of_one.quantile_ms("run", 0.95)), (Some(1_069), Some(1_069)));
        assert_eq!(of_one.quantile_ms("run", 0.96), Some(4_277));
        assert_eq!(of_one.quantile_ms("weights", 0.5), None, "nobody needed any");
        assert_eq!(of_one.typical_ms("load", 1), Some(1_069), "those that loaded it");
        assert_eq!((of_one.typical_ms("run", 4_000), of_one.typical_ms("run", 5_000)), (Some(4_277), None));
    }
}
