//! Reads and validates a trace. Its contents are not trusted.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use csv::StringRecord;
use flate2::bufread::MultiGzDecoder;

use super::{Error, ErrorKind, HEADER, Job, Priority};
use crate::name::Name;

/// Maximum number of jobs. A simulation holds all of them in memory, about 400 MB.
const MAX_JOBS: usize = 5_000_000;
/// Maximum size after decompression, bytes: 200 for each of that many jobs. It stops gzip bombs.
const MAX_BYTES: u64 = 1_000_000_000;
/// Maximum arrival time, seconds: ten years.
const MAX_ARRIVAL_S: f64 = 315_360_000.0;
/// Maximum run time, seconds: thirty days.
const MAX_SERVICE_S: f64 = 2_592_000.0;
/// Maximum memory, GB: more than any GPU has.
const MAX_VRAM_GB: f64 = 10_000.0;
/// Maximum length of a name, bytes.
const MAX_NAME: usize = 200;
/// The first bytes of gzip data.
const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Reads a trace. Its first bytes show whether it is gzipped.
///
/// # Errors
/// [`Error::Malformed`] with the line and the required change; [`Error::Read`] if the file cannot be read at all.
pub fn read(path: &Path) -> Result<Vec<Job>, Error> {
    let failed = |source| Error::Read { path: path.to_owned(), source };
    let mut file = BufReader::new(File::open(path).map_err(failed)?);
    let is_gzip = file.fill_buf().map_err(failed)?.starts_with(&MAGIC);
    let found = if is_gzip { parse(MultiGzDecoder::new(file), MAX_BYTES) } else { parse(file, MAX_BYTES) };
    found.map_err(|found| match found {
        Found::Invalid(line, fault) => Error::Malformed { path: path.to_owned(), line, fault },
        Found::Io(line, error) if is_gzip && is_damage(&error) => {
            let fault = ErrorKind::Gzip { cause: error.to_string() };
            Error::Malformed { path: path.to_owned(), line, fault }
        }
        Found::Io(_, source) => failed(source),
    })
}

/// Whether an error is from the decoder, i.e. damaged gzip data, and not from the disk.
fn is_damage(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    matches!(error.kind(), InvalidData | InvalidInput | UnexpectedEof)
}

/// Error and the line at which it occurred.
enum Found {
    Invalid(u64, ErrorKind),
    Io(u64, io::Error),
}

fn parse(source: impl Read, max_bytes: u64) -> Result<Vec<Job>, Found> {
    // One byte more than the maximum. If that byte is read, the trace is too large.
    let limited = source.take(max_bytes + 1);
    let mut csv = csv::ReaderBuilder::new().flexible(true).has_headers(false).from_reader(limited);
    let mut lines = Lines::default();
    let mut record = StringRecord::new();
    loop {
        let line = csv.position().line();
        let is_read = csv.read_record(&mut record);
        // Checked first, because the record was cut off at the limit.
        if csv.get_ref().limit() == 0 {
            return Err(Found::Invalid(line, ErrorKind::TooLarge { max: max_bytes }));
        }
        if !is_read.map_err(|error| of_csv(error, line))? {
            return lines.end().map_err(|fault| Found::Invalid(line, fault));
        }
        // If empty lines precede the record, `line` is the first of them.
        let line = record.position().map_or(line, csv::Position::line);
        lines.take(&record).map_err(|fault| Found::Invalid(line, fault))?;
    }
}

fn of_csv(error: csv::Error, line: u64) -> Found {
    let line = error.position().map_or(line, csv::Position::line);
    match error.into_kind() {
        csv::ErrorKind::Io(error) => Found::Io(line, error),
        // A flexible reader has no other errors.
        _ => Found::Invalid(line, ErrorKind::NotText),
    }
}

/// Jobs that were read so far.
#[derive(Default)]
struct Lines {
    has_header: bool,
    jobs: Vec<Job>,
    /// Shared name, and memory, of each endpoint.
    endpoints: HashMap<String, (Name, f64)>,
}

impl Lines {
    fn take(&mut self, record: &StringRecord) -> Result<(), ErrorKind> {
        if !self.has_header {
            self.has_header = true;
            return header(record);
        }
        if self.jobs.len() == MAX_JOBS {
            return Err(ErrorKind::TooManyJobs { max: MAX_JOBS });
        }
        let job = self.job(record)?;
        self.jobs.push(job);
        Ok(())
    }

    fn end(self) -> Result<Vec<Job>, ErrorKind> {
        match (self.has_header, self.jobs.is_empty()) {
            (false, _) => Err(ErrorKind::Empty),
            (true, true) => Err(ErrorKind::NoJobs),
            (true, false) => Ok(self.jobs),
        }
    }

    fn job(&mut self, record: &StringRecord) -> Result<Job, ErrorKind> {
        let columns: Vec<&str> = record.iter().collect();
        let &[arrival, endpoint, service, vram, priority] = columns.as_slice() else {
            return Err(ErrorKind::Columns { found: columns.len() });
        };
        let arrival_s = number("arrival_s", arrival, MAX_ARRIVAL_S)?;
        let before_s = self.jobs.last().map_or(0.0, |job| job.arrival_s);
        if arrival_s < before_s {
            return Err(ErrorKind::Unsorted { arrival_s, before_s });
        }
        let service_s = number("service_s", service, MAX_SERVICE_S)?;
        let vram_gb = number("vram_gb", vram, MAX_VRAM_GB)?;
        let priority = self::priority(priority)?;
        Ok(Job { arrival_s, endpoint: self.endpoint(endpoint, vram_gb)?, service_s, vram_gb, priority })
    }

    fn endpoint(&mut self, name: &str, vram_gb: f64) -> Result<Name, ErrorKind> {
        if let Some((name, before_gb)) = self.endpoints.get(name) {
            let (name, before_gb) = (name.clone(), *before_gb);
            let is_same = before_gb.total_cmp(&vram_gb).is_eq();
            return if is_same { Ok(name) } else { Err(ErrorKind::Vram { endpoint: name, vram_gb, before_gb }) };
        }
        if name.is_empty() || name.len() > MAX_NAME || name.contains(char::is_control) {
            return Err(ErrorKind::Endpoint { found: beginning(name), max: MAX_NAME });
        }
        let shared = Name::from(name);
        self.endpoints.insert(name.to_owned(), (shared.clone(), vram_gb));
        Ok(shared)
    }
}

fn header(record: &StringRecord) -> Result<(), ErrorKind> {
    if record.iter().eq(HEADER) {
        return Ok(());
    }
    Err(ErrorKind::Header { found: beginning(&record.iter().collect::<Vec<_>>().join(",")) })
}

fn number(column: &'static str, found: &str, max: f64) -> Result<f64, ErrorKind> {
    let number = found.parse::<f64>().ok().filter(|number| (0.0..=max).contains(number));
    // -0 becomes 0, so that it is written as 0.
    number.map(f64::abs).ok_or_else(|| ErrorKind::Number { column, found: beginning(found), max })
}

fn priority(found: &str) -> Result<Priority, ErrorKind> {
    let all = [Priority::Interactive, Priority::Batch];
    let named = all.into_iter().find(|priority| priority.as_str() == found);
    named.ok_or_else(|| ErrorKind::Priority { found: beginning(found) })
}

/// The beginning of a value, for errors.
fn beginning(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};
    use proptest::prelude::*;

    use super::*;

    const HEAD: &str = "arrival_s,endpoint,service_s,vram_gb,priority\n";

    fn read_bytes(bytes: &[u8]) -> Result<Vec<Job>, Error> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        read(file.path())
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// The part of the error message after the file's name.
    fn said(bytes: &[u8]) -> String {
        let said = read_bytes(bytes).unwrap_err().to_string();
        said.split_once(" line ").map(|(_, said)| said.to_owned()).unwrap_or(said)
    }

    fn said_of(rows: &str) -> String {
        said(format!("{HEAD}{rows}").as_bytes())
    }

    #[test]
    fn plain_and_gzipped_traces_read_alike() {
        let text = format!("{HEAD}0.0,a,1.5,8,batch\r\n\n2,\"b,c\",0,4.5,interactive");
        let jobs = read_bytes(text.as_bytes()).unwrap();
        assert_eq!(jobs, read_bytes(&gzip(text.as_bytes())).unwrap());
        let told: Vec<_> = jobs.iter().map(|job| (job.arrival_s, &*job.endpoint, job.service_s, job.vram_gb)).collect();
        assert_eq!(told, [(0.0, "a", 1.5, 8.0), (2.0, "b,c", 0.0, 4.5)]);
        assert_eq!(jobs[1].priority, Priority::Interactive);
    }

    #[test]
    fn gzip_in_several_members_is_one_trace() {
        let halves = [format!("{HEAD}0,a,1,8,batch\n"), "1,a,1,8,batch\n".to_owned()];
        assert_eq!(read_bytes(&halves.map(|half| gzip(half.as_bytes())).concat()).unwrap().len(), 2);
    }

    #[test]
    fn a_wrong_header_is_told() {
        let wanted = "arrival_s,endpoint,service_s,vram_gb,priority";
        assert_eq!(said(b""), format!("1: the file is empty: begin it with the header {wanted}"));
        assert_eq!(said(b"a,b\n"), format!("1: the header is \"a,b\": make it {wanted}"));
        assert_eq!(
            said(b"arrival_s,endpoint,service_s,vram_gb\n0,a,1,8\n"),
            format!("1: the header is \"arrival_s,endpoint,service_s,vram_gb\": make it {wanted}")
        );
        assert_eq!(said_of(""), "2: there are no jobs: add a line for each");
    }

    #[test]
    fn a_wrong_line_is_told() {
        assert_eq!(said_of("0,a,1,8\n"), "2: 4 columns: give arrival_s,endpoint,service_s,vram_gb,priority");
        assert_eq!(said_of("0,a,1,8,high\n"), "2: priority is \"high\": give interactive or batch");
        for wrong in ["NaN", "-1", "inf", "-inf", "1e99", "", " 1", "1 s"] {
            let told = format!("2: service_s is {wrong:?}: give a number from 0 to 2592000");
            assert_eq!(said_of(&format!("0,a,{wrong},8,batch\n")), told);
        }
        assert_eq!(
            said_of("0,,1,8,batch\n"),
            "2: endpoint is \"\": give a name of at most 200 bytes without control characters"
        );
    }

    #[test]
    fn lines_that_do_not_go_together_are_told() {
        assert_eq!(
            said_of("5,a,1,8,batch\n4,a,1,8,batch\n"),
            "3: arrival_s 4 is below 5 of the line above: sort the lines by arrival_s"
        );
        assert_eq!(
            said_of("5,a,1,8,batch\n6,a,1,9,batch\n"),
            "3: vram_gb of a is 9 here and 8 before: give it one value, or the endpoint two names"
        );
    }

    #[test]
    fn gzip_that_is_cut_short_is_told() {
        let whole = gzip(format!("{HEAD}{}", "0,a,1,8,batch\n".repeat(500)).as_bytes());
        for length in [2, 9, whole.len() / 2, whole.len() - 1] {
            assert!(said(&whole[..length]).contains("damaged or cut short"), "{length}");
        }
        assert!(said(&[whole.as_slice(), b"more"].concat()).contains("damaged or cut short"));
    }

    #[test]
    fn what_is_not_text_is_told() {
        assert!(said(b"\xff\xfe\n").contains("not UTF-8"));
        assert!(said_of("0,\0,1,8,batch\n").contains("control characters"));
    }

    #[test]
    fn what_is_too_large_is_told() {
        let text = format!("{HEAD}{}", "0,a,1,8,batch\n".repeat(10));
        assert_eq!(parse(text.as_bytes(), text.len() as u64).map_err(|_| ()).unwrap().len(), 10);
        for max in [text.len() as u64 - 1, text.len() as u64 - 14, 50] {
            let Err(Found::Invalid(_, fault)) = parse(text.as_bytes(), max) else { panic!("{max} bytes were enough") };
            assert_eq!(fault, ErrorKind::TooLarge { max });
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_told() {
        let told = read(Path::new("/nowhere/trace.csv")).unwrap_err();
        assert_eq!(told.to_string(), "failed to read trace /nowhere/trace.csv");
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), rows in "[0-9a,.\"\n-]{0,80}") {
            let _ = parse(bytes.as_slice(), 100);
            let _ = parse(gzip(&bytes).as_slice(), 100);
            let _ = parse(format!("{HEAD}{rows}").as_bytes(), 1_000);
        }
    }
}
