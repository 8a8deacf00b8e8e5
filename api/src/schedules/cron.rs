//! Ticks of a schedule: five or six cron fields, read on the clocks of one time zone.
//!
//! Where clocks are set back, an hour occurs twice; where they are set forward, one is skipped. As in Vixie cron, the
//! effect depends on whether hours and minutes are named:
//!
//! - Named (`30 2 * * *`, `0 9,17 * * *`): a skipped time ticks at the first moment after it, and a repeated time ticks
//!   the first time only. Therefore a daily job stays daily.
//! - One begins with `*` (`*/5 * * * *`, `0 * * * *`, `*/10 2 * * *`): ticks follow elapsed time. A skipped time does
//!   not tick, and a repeated time ticks twice, so every five minutes stays every five minutes.

use std::str::FromStr;

use chrono::{DateTime, LocalResult, NaiveDateTime, TimeZone, Utc};
use chrono_tz::{TZ_VARIANTS, Tz};
use croner::parser::{CronParser, Seconds, Year};

/// Maximum length of an expression; longer than any meaningful one.
const EXPRESSION_MAX: usize = 200;

/// Longest gap of a clock. No clock is set forward by more than a day (Samoa skipped one, in 2011).
const GAP_MAX_S: i64 = 25 * 3600;

/// The fields from the left: name, allowed values, and allowed words.
const FIELDS: [(&str, &str, &[&str]); 6] = [
    ("second", "0 to 59", &[]),
    ("minute", "0 to 59", &[]),
    ("hour", "0 to 23", &[]),
    ("day of month", "1 to 31, L for the last day, or 15W for the weekday closest to the 15th", &["L", "W"]),
    (
        "month",
        "1 to 12 or JAN to DEC",
        &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"],
    ),
    (
        "day of week",
        "0 to 7 or SUN to SAT (0 and 7 are Sunday), 1#2 for the second Monday or 5L for the last Friday",
        &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT", "L"],
    ),
];

/// Errors in a schedule's times, with the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// The expression is invalid.
    Expression(String),
    /// The time zone is invalid.
    TimeZone(String),
}

/// A cron expression on the clocks of a time zone.
#[derive(Clone)]
pub(crate) struct Cron {
    pattern: croner::Cron,
    zone: Tz,
    /// Set when hours and minutes are named, so that a tick is a time of day and not an interval.
    named: bool,
}

impl Cron {
    /// Parses the expression and the time zone.
    pub(crate) fn parse(expression: &str, time_zone: &str) -> Result<Self, Wrong> {
        let zone = Tz::from_str(time_zone).map_err(|_| Wrong::TimeZone(unknown_zone(time_zone)))?;
        let fields: Vec<&str> = expression.split_whitespace().collect();
        if !matches!(fields.len(), 5 | 6) || expression.len() > EXPRESSION_MAX {
            return Err(Wrong::Expression(format!(
                "must have 5 fields (minute, hour, day of month, month, day of week) or 6 (second first), but has {}",
                fields.len()
            )));
        }
        let known = &FIELDS[FIELDS.len() - fields.len()..];
        for (place, (field, (name, range, words))) in fields.iter().zip(known).enumerate() {
            let alone: Vec<&str> = (0..fields.len()).map(|n| if n == place { *field } else { "*" }).collect();
            if !spelled(field, words) || read(&alone.join(" ")).is_none() {
                return Err(Wrong::Expression(format!(
                    "the {name} is {field:?}; it must be {range}, or *, a list such as 1,2, a range such as 1-5 or steps such as */2"
                )));
            }
        }
        let pattern = read(&fields.join(" ")).ok_or_else(|| {
            Wrong::Expression("is not a cron expression; write one such as 30 9 * * MON-FRI".to_owned())
        })?;
        let [minute, hour] = [fields[fields.len() - 5], fields[fields.len() - 4]];
        let second_named = fields.len() == 5 || !fields[0].starts_with('*');
        let named = second_named && !minute.starts_with('*') && !hour.starts_with('*');
        let cron = Self { pattern, zone, named };
        // From a fixed time, so that the same expression is always valid or always invalid: a 29 February comes within
        // eight years of any date.
        if cron.next_after(0).is_none() {
            return Err(Wrong::Expression("never occurs: no month has such a day".to_owned()));
        }
        Ok(cron)
    }

    /// The first tick after this time, both Unix milliseconds. Ticks are whole seconds.
    pub(crate) fn next_after(&self, ms: u64) -> Option<u64> {
        let after = DateTime::<Utc>::from_timestamp(i64::try_from(ms / 1000).ok()?, 0)?;
        let tick = if self.named { self.next_named(after)? } else { self.next_passing(after)? };
        u64::try_from(tick.timestamp_millis()).ok()
    }

    fn next_passing(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let tick = self.pattern.find_next_occurrence(&after.with_timezone(&self.zone), false).ok()?;
        Some(tick.with_timezone(&Utc))
    }

    /// Finds the next time on a clock that is never set, then the moment at which this zone's clocks show it. Both
    /// follow the same order, so the first one that is not past is the next.
    fn next_named(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let mut shown = after.with_timezone(&self.zone).naive_local().and_utc();
        loop {
            shown = self.pattern.find_next_occurrence(&shown, false).ok()?;
            let tick = self.moment(shown.naive_utc())?;
            if tick > after {
                return Some(tick);
            }
        }
    }

    /// The moment at which this zone's clocks show this time for the first time. If they skip it, the first moment
    /// after the gap.
    fn moment(&self, shown: NaiveDateTime) -> Option<DateTime<Utc>> {
        match self.zone.from_local_datetime(&shown) {
            LocalResult::Single(moment) | LocalResult::Ambiguous(moment, _) => Some(moment.with_timezone(&Utc)),
            LocalResult::None => {
                let at = |seconds: i64| {
                    let moment = self.zone.from_local_datetime(&(shown + chrono::TimeDelta::seconds(seconds)));
                    moment.earliest().map(|moment| moment.with_timezone(&Utc))
                };
                let (mut within, mut beyond) = (0, GAP_MAX_S);
                at(beyond)?;
                while beyond - within > 1 {
                    let middle = within + (beyond - within) / 2;
                    if at(middle).is_some() { beyond = middle } else { within = middle }
                }
                at(beyond)
            }
        }
    }
}

fn read(expression: &str) -> Option<croner::Cron> {
    CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build().parse(expression).ok()
}

/// Returns whether a field is written with this field's words only: the parser would accept `MON` as a month.
fn spelled(field: &str, words: &[&str]) -> bool {
    let field = field.to_ascii_uppercase();
    field.split(',').all(|item| !item.is_empty())
        && field.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'*' | b',' | b'-' | b'/' | b'?' | b'#'))
        && field
            .split(|c: char| !c.is_ascii_alphabetic())
            .filter(|word| !word.is_empty())
            .all(|word| words.contains(&word))
}

fn unknown_zone(text: &str) -> String {
    let wanted = text.trim().replace(' ', "_");
    let close = TZ_VARIANTS.iter().map(|zone| zone.name()).find(|name| {
        let city = name.rsplit('/').next().unwrap_or(name);
        name.eq_ignore_ascii_case(&wanted) || city.eq_ignore_ascii_case(&wanted)
    });
    match close {
        Some(name) => format!("must be an IANA time zone name; did you mean {name}?"),
        None => "must be an IANA time zone name, e.g. Europe/Berlin, America/New_York or UTC".to_owned(),
    }
}

#[cfg(test)]
#[path = "cron_tests.rs"]
mod tests;
