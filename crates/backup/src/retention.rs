//! Which backups to delete. Pure: times in, times out.
//!
//! All backups of the last 24 hours are kept; the last one of each day for 7 days, of each week for 5 weeks, and of
//! each month for 12 months; and the newest one, regardless of its age. Each rule considers all backups, so that none
//! deletes a backup that another rule needs later.

use std::collections::BTreeSet;

use time::OffsetDateTime;

const HOUR_MS: u64 = 60 * 60 * 1_000;
const DAY_MS: u64 = 24 * HOUR_MS;

/// All backups of this time span are kept.
const ALL_MS: u64 = DAY_MS;
const DAILY_MS: u64 = 7 * DAY_MS;
const WEEKLY_MS: u64 = 5 * 7 * DAY_MS;
/// Twelve of the longest months.
const MONTHLY_MS: u64 = 366 * DAY_MS;

/// An incomplete backup of this age was abandoned: no backup takes that long.
pub const HALF_MS: u64 = DAY_MS;

/// Returns the start times of the backups to delete. `began` has the start times of all backups, unix milliseconds.
#[must_use]
pub fn too_many(now_ms: u64, began: &BTreeSet<u64>) -> BTreeSet<u64> {
    let mut kept: BTreeSet<u64> = began.last().copied().into_iter().collect();
    kept.extend(began.iter().filter(|began_ms| now_ms.saturating_sub(**began_ms) < ALL_MS));
    for (within_ms, period) in [(DAILY_MS, day as fn(u64) -> i64), (WEEKLY_MS, week), (MONTHLY_MS, month)] {
        let mut seen = BTreeSet::new();
        let newest_first = began.iter().rev().filter(|began_ms| now_ms.saturating_sub(**began_ms) < within_ms);
        kept.extend(newest_first.filter(|began_ms| seen.insert(period(**began_ms))));
    }
    began.difference(&kept).copied().collect()
}

fn day(at_ms: u64) -> i64 {
    i64::try_from(at_ms / DAY_MS).unwrap_or(i64::MAX)
}

/// Weeks begin on Monday; 1970 began on a Thursday.
fn week(at_ms: u64) -> i64 {
    (day(at_ms) + 3) / 7
}

fn month(at_ms: u64) -> i64 {
    let seconds = i64::try_from(at_ms / 1_000).unwrap_or(0);
    let date = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH).date();
    i64::from(date.year()) * 12 + i64::from(u8::from(date.month()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 2026-11-23, a Monday, 05:00 UTC.
    const NOW_MS: u64 = 1_795_410_000_000;

    /// The backups that remain after one every `every_ms` for `for_ms`, with a cleanup after each.
    fn lived(every_ms: u64, for_ms: u64) -> BTreeSet<u64> {
        let mut kept = BTreeSet::new();
        for at_ms in (NOW_MS - for_ms..=NOW_MS).step_by(every_ms as usize) {
            kept.insert(at_ms);
            kept = &kept - &too_many(at_ms, &kept);
        }
        kept
    }

    #[test]
    fn hourly_backups_of_two_years_are_some_fifty() {
        let kept = lived(HOUR_MS, 730 * DAY_MS);
        let ages: Vec<u64> = kept.iter().rev().map(|at_ms| (NOW_MS - at_ms) / DAY_MS).collect();
        assert_eq!(ages.iter().filter(|days| **days == 0).count(), 24);
        // The last one of each day before.
        assert_eq!(ages[24..30], [1, 2, 3, 4, 5, 6], "{ages:?}");
        // The last hours of Sundays, and of a month; that of October was 22 days ago.
        assert!([7, 14, 21, 28, 22].iter().all(|days| ages.contains(days)), "{ages:?}");
        assert!(ages.iter().all(|days| *days < 366) && ages.iter().any(|days| *days > 330), "{ages:?}");
        assert!((40..=60).contains(&kept.len()), "{}", kept.len());
    }

    proptest! {
        #[test]
        fn the_newest_and_the_last_day_stay_and_a_second_look_finds_nothing(
            ages in prop::collection::btree_set(0..900 * DAY_MS, 1..200),
        ) {
            let began: BTreeSet<u64> = ages.iter().map(|age| NOW_MS - age).collect();
            let gone = too_many(NOW_MS, &began);
            let kept = &began - &gone;
            prop_assert!(kept.contains(began.last().unwrap()));
            prop_assert!(gone.iter().all(|at_ms| NOW_MS - at_ms >= ALL_MS));
            prop_assert_eq!(too_many(NOW_MS, &kept), BTreeSet::new());
            // Each day, week and month that had a backup still has one.
            for (within_ms, period) in [(DAILY_MS, day as fn(u64) -> i64), (WEEKLY_MS, week), (MONTHLY_MS, month)] {
                let periods = |times: &BTreeSet<u64>| -> BTreeSet<i64> {
                    times.iter().filter(|at_ms| NOW_MS - **at_ms < within_ms).map(|at_ms| period(*at_ms)).collect()
                };
                prop_assert_eq!(periods(&began), periods(&kept));
            }
        }

        #[test]
        fn each_day_of_the_last_week_has_one_however_often_it_is_thinned_out(every_min in 20..600_u64) {
            let kept = lived(every_min * 60_000, 20 * DAY_MS);
            let days: BTreeSet<i64> = kept.iter().map(|at_ms| day(*at_ms)).collect();
            // The backup of today may not exist yet.
            prop_assert!((1..7).all(|ago| days.contains(&(day(NOW_MS) - ago))));
        }
    }
}
