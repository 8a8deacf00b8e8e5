//! A segment: one archived piece of a tenant's day. This module defines its name and its content.
//!
//! `archive/<tenant>/<yyyy>/<mm>/<dd>/<first id>-<last id>-<nonce>.jsonl.zst`: one job per line, sorted by ID, each
//! once. The day is the UTC day of the IDs' time. The nonce makes the name unique; its first four digits are the fill
//! level of the segment, in thousandths. A segment is written once and never changed. The same job may be in two
//! segments with the same content: readers take either.

use std::ops::Range;

use bytes::Bytes;
use serde::Deserialize;
use stokehold_queue::JobId;
use stokehold_queue::job::Job;
use time::{Date, OffsetDateTime};

use super::Error;

/// Maximum number of jobs in a segment.
pub(crate) const JOBS_MAX: usize = 1_000;

/// Maximum number of bytes of lines in a segment, unless one line alone has more.
pub(crate) const BYTES_MAX: usize = 8 << 20;

/// Maximum number of bytes that are read, packed or unpacked: a segment of one job with the largest input, results and
/// attempts stays below.
pub(crate) const READ_MAX: usize = 32 << 20;

/// Compression level, the default of zstd: 300 MB/s, and a third smaller than the output of level 1.
const LEVEL: i32 = 3;

const SUFFIX: &str = ".jsonl.zst";

/// Day under which a job is archived.
pub(crate) fn day_of(id: JobId) -> Date {
    // IDs have 48 bits of milliseconds, which extend beyond the year 9999; no real ID does.
    let seconds = i64::try_from(id.created_ms() / 1000).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(seconds).map_or(Date::MAX, OffsetDateTime::date)
}

/// Prefix of the keys of a tenant's day.
pub(crate) fn day_prefix(tenant: &str, day: Date) -> String {
    format!("archive/{tenant}/{:04}/{:02}/{:02}/", day.year(), u8::from(day.month()), day.day())
}

/// A segment's name within its day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    /// The smallest id in it.
    pub(crate) first: JobId,
    /// The largest id in it.
    pub(crate) last: JobId,
    /// Fill level of the segment, by number or by size, in thousandths.
    pub(crate) fill: usize,
    nonce: String,
}

impl Name {
    /// Makes a new name for sorted lines; `None` when there are none.
    pub(crate) fn of(lines: &[Line]) -> Option<Self> {
        let (first, last) = (lines.first()?.id, lines.last()?.id);
        let bytes: usize = lines.iter().map(|line| line.text.len() + 1).sum();
        let fill = (1000 * lines.len() / JOBS_MAX).max(1000 * bytes / BYTES_MAX).min(1000);
        let nonce = format!("{fill:04x}{}", &stokehold_queue::nonce()[..12]);
        Some(Self { first, last, fill, nonce })
    }

    /// Parses the part of a key below a day's prefix. Returns `None` when it is not a name.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_suffix(SUFFIX)?.split('-');
        let (first, last, nonce) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?);
        let fill = usize::from_str_radix(nonce.get(..4)?, 16).ok()?;
        let name = Self { first, last, fill, nonce: nonce.to_owned() };
        (parts.next().is_none() && first <= last).then_some(name)
    }

    /// Returns whether a job of this ID may be in the segment.
    pub(crate) fn covers(&self, id: JobId) -> bool {
        self.first <= id && id <= self.last
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}-{}{SUFFIX}", self.first, self.last, self.nonce)
    }
}

/// One job in its archived form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// ID of the job.
    pub(crate) id: JobId,
    /// Record of the job, as JSON on one line, without the line end.
    pub(crate) text: String,
}

impl Line {
    /// Serialises a job.
    ///
    /// # Errors
    /// When the record cannot be written as JSON, which indicates a bug.
    pub(crate) fn of(job: &Job) -> Result<Self, Error> {
        let text = serde_json::to_string(job)
            .map_err(|error| Error::Corrupt { key: format!("job {}", job.id), why: error.to_string() })?;
        // Submitted JSON may contain line breaks between its tokens, where they have no meaning.
        let text = if text.contains(['\r', '\n']) { text.replace(['\r', '\n'], " ") } else { text };
        Ok(Self { id: job.id, text })
    }
}

/// Sorts lines, drops duplicates and divides them into segments.
pub(crate) fn cut(mut lines: Vec<Line>) -> Vec<Vec<Line>> {
    lines.sort_by_key(|line| line.id);
    lines.dedup_by_key(|line| line.id);
    let (mut pieces, mut bytes) = (Vec::<Vec<Line>>::new(), 0);
    for line in lines {
        bytes += line.text.len() + 1;
        match pieces.last_mut() {
            Some(piece) if piece.len() < JOBS_MAX && bytes <= BYTES_MAX => piece.push(line),
            _ => {
                bytes = line.text.len() + 1;
                pieces.push(vec![line]);
            }
        }
    }
    pieces
}

/// Packs lines to the bytes of a segment. Takes milliseconds of CPU.
pub(crate) fn pack(lines: &[Line]) -> Result<Bytes, Error> {
    let mut text = Vec::with_capacity(lines.iter().map(|line| line.text.len() + 1).sum());
    for line in lines {
        text.extend_from_slice(line.text.as_bytes());
        text.push(b'\n');
    }
    let packed = zstd::bulk::compress(&text, LEVEL)
        .map_err(|error| Error::Corrupt { key: "a new segment".to_owned(), why: error.to_string() })?;
    Ok(packed.into())
}

/// An unpacked segment.
#[derive(Debug)]
pub(crate) struct Segment {
    text: String,
    index: Vec<(JobId, Range<usize>)>,
}

#[derive(Deserialize)]
struct JustId {
    id: JobId,
}

impl Segment {
    /// Unpacks the object at `key`. Takes milliseconds of CPU.
    pub(crate) fn unpack(key: &str, packed: &[u8]) -> Result<Self, Error> {
        let corrupt = |why: String| Error::Corrupt { key: key.to_owned(), why };
        let text = zstd::bulk::decompress(packed, READ_MAX).map_err(|error| corrupt(error.to_string()))?;
        let text = String::from_utf8(text).map_err(|error| corrupt(error.to_string()))?;
        let (mut index, mut at) = (Vec::new(), 0);
        for line in text.split_inclusive('\n') {
            let body = line.trim_end_matches('\n');
            if !body.is_empty() {
                let JustId { id } = serde_json::from_str(body).map_err(|error| corrupt(error.to_string()))?;
                index.push((id, at..at + body.len()));
            }
            at += line.len();
        }
        if !index.is_sorted_by_key(|(id, _)| *id) {
            return Err(corrupt("its lines are not sorted".to_owned()));
        }
        Ok(Self { text, index })
    }

    /// Approximate memory of the segment, bytes.
    pub(crate) fn weight(&self) -> u32 {
        u32::try_from(self.text.len() + self.index.len() * size_of::<(JobId, Range<usize>)>()).unwrap_or(u32::MAX)
    }

    /// IDs of the segment's jobs, in order, each with its line number.
    pub(crate) fn ids(&self) -> impl Iterator<Item = (usize, JobId)> {
        self.index.iter().enumerate().map(|(n, (id, _))| (n, *id))
    }

    /// Line number of a job.
    pub(crate) fn find(&self, id: JobId) -> Option<usize> {
        self.index.binary_search_by_key(&id, |(id, _)| *id).ok()
    }

    /// The line with this number; empty when there is none.
    pub(crate) fn line(&self, n: usize) -> &str {
        self.index.get(n).map_or("", |(_, range)| &self.text[range.clone()])
    }

    /// Parses the job on a line.
    pub(crate) fn job(&self, n: usize) -> Result<Job, Error> {
        serde_json::from_str(self.line(n)).map_err(|error| {
            let key = self.index.get(n).map_or_else(String::new, |(id, _)| format!("archived job {id}"));
            Error::Corrupt { key, why: error.to_string() }
        })
    }

    /// All lines, to be written again.
    pub(crate) fn into_lines(self) -> impl Iterator<Item = Line> {
        let Self { text, index } = self;
        index.into_iter().map(move |(id, range)| Line { id, text: text[range].to_owned() })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::value::RawValue;
    use stokehold_queue::Fence;
    use stokehold_queue::job::{Attempt, AttemptOutcome, JobResult, JobSpec, JobState, Timing};

    use super::*;

    /// A job that has succeeded.
    pub(crate) fn ended(tenant: &str, input: &str) -> Job {
        let id = JobId::new(0);
        Job {
            id,
            spec: JobSpec { tenant: tenant.into(), endpoint: "echo".into(), version: 1, ..JobSpec::default() },
            input: RawValue::from_string(input.to_owned()).unwrap(),
            state: JobState::Succeeded,
            attempts: vec![Attempt {
                attempt: 1,
                worker_id: "w".into(),
                fence: Fence::new(1, "a"),
                leased_ms: 1,
                ended_ms: Some(2),
                outcome: AttemptOutcome::Succeeded,
                timing: Timing { run_ms: 1, ..Timing::default() },
                cost_usd_micros: Some(3),
                usage: None,
                error: None,
            }],
            result: Some(JobResult::Inline(RawValue::from_string("{\"n\":1.50}".to_owned()).unwrap())),
            held: None,
            error: None,
            progress: None,
            oom_events: 0,
            run_after_ms: None,
            ended_ms: Some(2),
            steps: Vec::new(),
            revision: String::new(),
        }
    }

    #[test]
    fn a_segment_keeps_every_word_of_its_jobs() {
        let jobs: Vec<Job> = ["{\n \"a\":\r\n 1.10 }", "\"\\n\"", "null"].map(|input| ended("acme", input)).into();
        let lines: Vec<Line> = jobs.iter().map(|job| Line::of(job).unwrap()).collect();
        let pieces = cut(lines.iter().rev().chain(&lines).cloned().collect());
        assert_eq!(pieces, [lines], "sorted, each once");
        let segment = Segment::unpack("k", &pack(&pieces[0]).unwrap()).unwrap();
        for job in &jobs {
            let found = segment.job(segment.find(job.id).unwrap()).unwrap();
            assert_eq!(found.input.get(), job.input.get().replace(['\r', '\n'], " "));
            assert_eq!((found.spec, found.attempts), (job.spec.clone(), job.attempts.clone()));
            let Some(JobResult::Inline(result)) = found.result else { panic!("the result is kept") };
            assert_eq!(result.get(), "{\"n\":1.50}");
        }
        assert_eq!(segment.find(JobId::new(0)), None);
        assert_eq!(segment.into_lines().collect::<Vec<_>>(), pieces[0]);
    }

    #[test]
    fn what_other_releases_archived_can_be_read() {
        let id = JobId::new(0);
        let spec = r#"{"tenant":"acme","endpoint":"echo","version":1,"timeout_ms":1,"max_attempts":1,"later":[1]}"#;
        let text = format!(r#"{{"id":"{id}","spec":{spec},"input":{{}},"state":"cancelled","later":{{"x":1}}}}"#);
        let job: Job = serde_json::from_str(&text).unwrap();
        assert_eq!((job.id, job.state, job.attempts.len()), (id, JobState::Cancelled, 0));
    }

    #[test]
    fn names_say_what_is_inside() {
        let lines: Vec<Line> = (0..3).map(|_| Line { id: JobId::new(0), text: "{}".into() }).collect();
        let name = Name::of(&lines).unwrap();
        assert_eq!(Name::parse(&name.to_string()).unwrap(), name);
        assert_eq!((name.first, name.last, name.fill), (lines[0].id, lines[2].id, 3));
        let large = Line { id: JobId::new(0), text: "x".repeat(BYTES_MAX / 2) };
        assert_eq!(Name::of(&[large]).unwrap().fill, 500);
        assert!(name.covers(lines[1].id) && !name.covers(JobId::new(0)));
        assert_eq!(Name::of(&[]), None);
        let reversed = format!("{}-{}-0003abc{SUFFIX}", lines[2].id, lines[0].id);
        for wrong in ["", "x.jsonl.zst", &format!("{}-{}.jsonl.zst", lines[0].id, lines[1].id), &reversed] {
            assert_eq!(Name::parse(wrong), None, "{wrong}");
        }
        let id: JobId = "019aa9a0af7b7000800000000000000a".parse().unwrap();
        assert_eq!(day_prefix("acme", day_of(id)), "archive/acme/2025/11/22/");
        assert_eq!(day_of("ffffffffffff7000800000000000000a".parse().unwrap()), Date::MAX);
    }

    #[test]
    fn segments_are_cut_by_number_and_by_size() {
        let lines = |count: usize, bytes: usize| -> Vec<Line> {
            (0..count).map(|_| Line { id: JobId::new(0), text: "x".repeat(bytes) }).collect()
        };
        let lens = |pieces: Vec<Vec<Line>>| -> Vec<usize> { pieces.iter().map(Vec::len).collect() };
        assert_eq!(lens(cut(lines(2_001, 1))), [1_000, 1_000, 1]);
        assert_eq!(lens(cut(lines(3, 4 << 20))), [1, 1, 1]);
        assert_eq!(lens(cut(lines(3, 3 << 20))), [2, 1]);
        assert_eq!(lens(cut(lines(2, 9 << 20))), [1, 1]);
    }
}
