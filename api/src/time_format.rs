//! Times in the API's format: RFC 3339 in UTC with milliseconds.

use time::OffsetDateTime;
use time::format_description::FormatItem;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;

const FORMAT: &[FormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

/// Formats Unix milliseconds.
#[must_use]
pub(crate) fn rfc3339(unix_ms: u64) -> String {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(unix_ms) * 1_000_000)
        .ok()
        .and_then(|at| at.format(FORMAT).ok())
        .unwrap_or_else(|| unix_ms.to_string())
}

/// 9999-12-31T23:59:59.999Z, the last time that can be written in this format.
const LAST_MS: u64 = 253_402_300_799_999;

/// Parses a time to Unix milliseconds. Returns `None` when the text is not a time, or is outside 1970 and the last time
/// that [`rfc3339`] can write.
#[must_use]
pub(crate) fn parse(text: &str) -> Option<u64> {
    let at = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    u64::try_from(at.unix_timestamp_nanos() / 1_000_000).ok().filter(|ms| *ms <= LAST_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_being_written() {
        assert_eq!(rfc3339(1_795_240_200_123), "2026-11-21T05:50:00.123Z");
        assert_eq!(parse("2026-11-21T05:50:00.123Z"), Some(1_795_240_200_123));
        assert_eq!(parse("2026-11-21T06:50:00.123+01:00"), Some(1_795_240_200_123));
        assert_eq!(parse("tomorrow"), None);
        assert_eq!(parse("9999-12-31T23:59:59.999Z").map(rfc3339).as_deref(), Some("9999-12-31T23:59:59.999Z"));
        assert_eq!(parse("9999-12-31T23:59:59-00:01"), None, "a year of five digits");
    }
}
