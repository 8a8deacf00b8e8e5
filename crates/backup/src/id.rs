//! The name of a backup: its start time and a random part. Names sort by time.

use std::fmt;
use std::str::FromStr;

use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime};

use crate::Error;

const STAMP: &[BorrowedFormatItem<'_>] = format_description!("[year][month][day]T[hour][minute][second]Z");

/// Length of the time stamp, e.g. `20261123T050000Z`.
const STAMP_LETTERS: usize = 16;

/// The name of a backup, e.g. `20261123T050000Z-9f3c1d2e`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BackupId(String);

impl BackupId {
    /// A name for a backup that starts now.
    #[must_use]
    pub fn new(now_ms: u64) -> Self {
        let stamp = at(now_ms).format(STAMP).unwrap_or_default();
        Self(format!("{stamp}-{:08x}", rand::random::<u32>()))
    }

    /// The start time, unix milliseconds.
    #[must_use]
    pub fn began_ms(&self) -> u64 {
        began_ms(&self.0).unwrap_or(0)
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn at(now_ms: u64) -> OffsetDateTime {
    let seconds = i64::try_from(now_ms / 1_000).unwrap_or(0);
    OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

fn began_ms(name: &str) -> Option<u64> {
    let stamp = PrimitiveDateTime::parse(name.get(..STAMP_LETTERS)?, STAMP).ok()?;
    u64::try_from(stamp.assume_utc().unix_timestamp()).ok().map(|seconds| seconds * 1_000)
}

impl FromStr for BackupId {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let random = name.get(STAMP_LETTERS..).and_then(|rest| rest.strip_prefix('-'));
        let is_random = random.is_some_and(|hex| hex.len() == 8 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match began_ms(name) {
            Some(_) if is_random => Ok(Self(name.to_owned())),
            _ => {
                Err(Error::Setting(format!("{name:?} is not a backup's name; an example is 20261123T050000Z-9f3c1d2e")))
            }
        }
    }
}

impl fmt::Display for BackupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_when_and_nothing_else_is_one() {
        let id = BackupId::new(1_795_410_000_999);
        assert!(id.as_str().starts_with("20261123T050000Z-"), "{id}");
        assert_eq!(id.as_str().parse::<BackupId>().unwrap(), id);
        assert_eq!(id.began_ms(), 1_795_410_000_000);
        for wrong in ["", "..", "20261123T050000Z", "20261323T050000Z-00000000", "20261123T050000Z-0000000/"] {
            assert!(wrong.parse::<BackupId>().is_err(), "{wrong}");
        }
    }
}
