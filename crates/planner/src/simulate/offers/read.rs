//! Reading and validating offers.

use std::fs::File;
use std::io::{self, Read};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use csv::StringRecord;

use super::Kind;
use crate::name::Name;

/// The offers of a simulation without an offers file.
const DEFAULT: &str = include_str!("../offers.default.csv");
/// The required columns.
const COLUMNS: [&str; 9] =
    ["name", "vram_gb", "speed", "od_usd_h", "spot_usd_h", "spot_preempt_per_h", "boot_lo_s", "boot_hi_s", "max_count"];
/// Maximum size of the file, bytes: about ten thousand kinds.
const MAX_BYTES: u64 = 1_000_000;
/// Maximum length of a name, bytes.
const MAX_NAME: usize = 200;
/// Range of numbers that must be above 0. A price of 0 would make ratios meaningless.
const POSITIVE: RangeInclusive<f64> = 0.000_001..=1_000_000.0;
/// Range of numbers that may be 0.
const ANY: RangeInclusive<f64> = 0.0..=1_000_000.0;

/// Reason why offers cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("failed to read offers {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The contents of the file are invalid.
    #[error("{} line {line}: {fault}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: u64,
        /// The problem on that line.
        fault: ErrorKind,
    },
}

/// A problem with a line of offers, and its fix.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ErrorKind {
    /// A column is missing from the header, or the line ends before it.
    #[error("column {column} is missing: add it")]
    Missing {
        /// The column.
        column: &'static str,
    },
    /// Two columns of the same name.
    #[error("column {column} is there twice: remove one")]
    Twice {
        /// The column.
        column: &'static str,
    },
    /// A value is not a number, or is out of range.
    #[error("{column} is {found:?}: give a number from {least} to {most}")]
    Number {
        /// The column.
        column: &'static str,
        /// The value found.
        found: String,
        /// The minimum.
        least: f64,
        /// The maximum.
        most: f64,
    },
    /// A kind's name is missing, invalid or not unique.
    #[error("name is {found:?}: give a name of its own, of at most {max} bytes without control characters")]
    Name {
        /// The value found, or its beginning.
        found: String,
        /// Maximum length, bytes.
        max: usize,
    },
    /// The minimum boot time is above the maximum.
    #[error("boot_lo_s {lo_s} is above boot_hi_s {hi_s}: swap them")]
    Boot {
        /// `boot_lo_s`.
        lo_s: f64,
        /// `boot_hi_s`.
        hi_s: f64,
    },
    /// The file has a header and no kinds.
    #[error("there are no kinds: add a line for each")]
    NoKinds,
    /// The file is too large.
    #[error("more than {max} bytes: keep fewer kinds")]
    TooLarge {
        /// Maximum size, bytes.
        max: u64,
    },
    /// The file is not text.
    #[error("it is not UTF-8: store the offers as plain CSV")]
    NotText,
}

/// The offers of a simulation without an offers file. On-demand prices are medians from a public price catalogue of one
/// marketplace. Interruptible prices are assumed at 0.7 to 0.8 of them, with 0.3 losses an hour.
#[must_use]
pub fn default() -> Vec<Kind> {
    // A test parses these offers, so no error is possible here.
    parse(DEFAULT.as_bytes()).unwrap_or_default()
}

/// Reads offers. Columns are found by name; `name`, `vram_gb`, `speed`, `od_usd_h`, `spot_usd_h`, `spot_preempt_per_h`,
/// `boot_lo_s`, `boot_hi_s` and `max_count` are required, and others are ignored.
///
/// # Errors
/// [`Error::Malformed`] with the line and the required change; [`Error::Read`] if the file cannot be read at all.
pub fn read(path: &Path) -> Result<Vec<Kind>, Error> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(|source| Error::Read { path: path.to_owned(), source })?;
    parse(&bytes).map_err(|(line, fault)| Error::Malformed { path: path.to_owned(), line, fault })
}

fn parse(bytes: &[u8]) -> Result<Vec<Kind>, (u64, ErrorKind)> {
    if bytes.len() as u64 > MAX_BYTES {
        return Err((1, ErrorKind::TooLarge { max: MAX_BYTES }));
    }
    let mut csv = csv::ReaderBuilder::new().flexible(true).from_reader(bytes);
    let not_text = |error: csv::Error| (error.position().map_or(1, csv::Position::line), ErrorKind::NotText);
    let header = csv.headers().map_err(not_text)?.clone();
    check(&header).map_err(|fault| (1, fault))?;
    let mut kinds: Vec<Kind> = Vec::new();
    for record in csv.records() {
        let record = record.map_err(not_text)?;
        let line = record.position().map_or(1, csv::Position::line);
        let row = Row { header: &header, record: &record };
        let kind = row.kind(&kinds).map_err(|fault| (line, fault))?;
        kinds.push(kind);
    }
    if kinds.is_empty() { Err((csv.position().line(), ErrorKind::NoKinds)) } else { Ok(kinds) }
}

/// Checks that the header has every required column once.
fn check(header: &StringRecord) -> Result<(), ErrorKind> {
    for column in COLUMNS {
        match header.iter().filter(|name| *name == column).count() {
            0 => return Err(ErrorKind::Missing { column }),
            1 => {}
            _ => return Err(ErrorKind::Twice { column }),
        }
    }
    Ok(())
}

struct Row<'a> {
    header: &'a StringRecord,
    record: &'a StringRecord,
}

impl Row<'_> {
    fn kind(&self, before: &[Kind]) -> Result<Kind, ErrorKind> {
        let kind = Kind {
            name: self.name(before)?,
            vram_gb: self.number("vram_gb", POSITIVE)?,
            speed: self.number("speed", POSITIVE)?,
            od_usd_h: self.number("od_usd_h", POSITIVE)?,
            spot_usd_h: self.number("spot_usd_h", POSITIVE)?,
            spot_preempt_per_h: self.number("spot_preempt_per_h", ANY)?,
            boot_lo_s: self.number("boot_lo_s", ANY)?,
            boot_hi_s: self.number("boot_hi_s", ANY)?,
            // The number is whole and within ANY, whose range `u32` contains.
            max_count: self.number("max_count", ANY)?.floor() as u32,
        };
        if kind.boot_lo_s > kind.boot_hi_s {
            return Err(ErrorKind::Boot { lo_s: kind.boot_lo_s, hi_s: kind.boot_hi_s });
        }
        Ok(kind)
    }

    fn name(&self, before: &[Kind]) -> Result<Name, ErrorKind> {
        let name = self.text("name")?;
        let is_meant = !name.is_empty() && name.len() <= MAX_NAME && !name.contains(char::is_control);
        if is_meant && before.iter().all(|kind| &*kind.name != name) {
            return Ok(name.into());
        }
        Err(ErrorKind::Name { found: beginning(name), max: MAX_NAME })
    }

    fn number(&self, column: &'static str, within: RangeInclusive<f64>) -> Result<f64, ErrorKind> {
        let found = self.text(column)?;
        let number = found.parse::<f64>().ok().filter(|number| within.contains(number));
        number.map(f64::abs).ok_or_else(|| ErrorKind::Number {
            column,
            found: beginning(found),
            least: *within.start(),
            most: *within.end(),
        })
    }

    /// The value of a column, without surrounding spaces.
    fn text(&self, column: &'static str) -> Result<&str, ErrorKind> {
        let at = self.header.iter().position(|name| name == column);
        at.and_then(|at| self.record.get(at)).map(str::trim).ok_or(ErrorKind::Missing { column })
    }
}

/// The beginning of a value, for errors.
fn beginning(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;

    const ROW: &str = "A,24,1.0,0.4,0.28,0.3,60,240,64";

    fn said(text: &str) -> String {
        let (line, fault) = parse(text.as_bytes()).unwrap_err();
        format!("{line}: {fault}")
    }

    #[test]
    fn the_default_offers_read() {
        let kinds = default();
        assert_eq!(kinds, parse(DEFAULT.as_bytes()).unwrap());
        assert_eq!((kinds.len(), &*kinds[0].name, kinds[5].od_usd_h, kinds[5].max_count), (6, "RTX_4090", 1.93, 64));
    }

    #[test]
    fn columns_are_found_by_name_and_others_passed_over() {
        let text = "note,max_count,boot_hi_s,boot_lo_s,spot_preempt_per_h,spot_usd_h,od_usd_h,speed,vram_gb,name\n\
                    \"a, \"\"b\"\"\",64,240,60,0.3,0.28,0.4,1.0,24,A\n";
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        assert_eq!(read(file.path()).unwrap(), parse(format!("{}\n{ROW}", COLUMNS.join(",")).as_bytes()).unwrap());
    }

    #[test]
    fn what_is_wrong_is_told() {
        let header = COLUMNS.join(",");
        let of = |row: &str| said(&format!("{header}\n{row}"));
        assert_eq!(said(""), "1: column name is missing: add it");
        assert_eq!(said(&header.replace("speed", "fast")), "1: column speed is missing: add it");
        assert_eq!(said(&format!("{header},speed\n")), "1: column speed is there twice: remove one");
        assert_eq!(said(&format!("{header}\n")), "2: there are no kinds: add a line for each");
        assert_eq!(of("A,24"), "2: column speed is missing: add it");
        assert_eq!(of(&ROW.replace("1.0", "NaN")), "2: speed is \"NaN\": give a number from 0.000001 to 1000000");
        assert_eq!(of(&ROW.replace("64", "-1")), "2: max_count is \"-1\": give a number from 0 to 1000000");
        assert_eq!(of(&ROW.replace("60", "600")), "2: boot_lo_s 600 is above boot_hi_s 240: swap them");
        assert_eq!(
            of(&format!("{ROW}\n{ROW}")),
            "3: name is \"A\": give a name of its own, of at most 200 bytes without control characters"
        );
    }

    #[test]
    fn a_file_that_is_not_there_is_told() {
        let told = read(Path::new("/nowhere/offers.csv")).unwrap_err();
        assert_eq!(told.to_string(), "failed to read offers /nowhere/offers.csv");
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), row in "[0-9a,.\"\n-]{0,80}") {
            let _ = parse(&bytes);
            let _ = parse(format!("{}\n{row}", COLUMNS.join(",")).as_bytes());
        }
    }
}
