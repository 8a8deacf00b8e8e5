//! Format of the witnesses' journals: one JSON object per line, `i` growing within a file, `t` from one host's
//! monotonic clock.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Status of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The operation begins.
    Invoke,
    /// The operation was done.
    Ok,
    /// The operation was certainly not done.
    Fail,
    /// The outcome is unknown: every timeout, reset, and 5xx on a change.
    Info,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Grows by at least 1 within a file.
    pub i: u64,
    /// Monotonic nanoseconds.
    pub t: u64,
    /// The witness.
    pub p: String,
    /// The status.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// The subject: submit, poll, cancel, batch_submit, batch_poll, run_start, run_end, hook_recv, fault, heal, drain,
    /// final ...
    pub f: String,
    /// The client's own name for its request: the idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Number of the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Fence of the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<String>,
    /// Further values.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub v: Value,
    /// The reason of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub err: Option<String>,
}

impl Event {
    /// An event at the current time, not yet numbered.
    #[must_use]
    pub fn new(p: &str, kind: Kind, f: &str) -> Self {
        Self {
            i: 0,
            t: now_ns(),
            p: p.to_owned(),
            kind,
            f: f.to_owned(),
            key: None,
            job: None,
            attempt: None,
            fence: None,
            v: Value::Null,
            err: None,
        }
    }

    /// Adds the client's key.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Adds the job.
    #[must_use]
    pub fn job(mut self, job: impl Into<String>) -> Self {
        self.job = Some(job.into());
        self
    }

    /// Adds further values.
    #[must_use]
    pub fn v(mut self, v: Value) -> Self {
        self.v = v;
        self
    }

    /// Adds a reason.
    #[must_use]
    pub fn err(mut self, err: impl std::fmt::Display) -> Self {
        self.err = Some(err.to_string());
        self
    }

    /// A member of `v` as text; empty if it is not text.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        self.v.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// A member of `v` as a number; 0 if it is not a number.
    #[must_use]
    pub fn number(&self, name: &str) -> u64 {
        self.v.get(name).and_then(Value::as_u64).unwrap_or_default()
    }

    /// A member of `v` as a boolean; false if it is not a boolean.
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        self.v.get(name).and_then(Value::as_bool).unwrap_or_default()
    }
}

/// The host's monotonic clock, the one that Python's `time.monotonic_ns()` reads.
#[must_use]
pub fn now_ns() -> u64 {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    time.map_or(0, |time| time.tv_sec().unsigned_abs() * 1_000_000_000 + time.tv_nsec().unsigned_abs())
}

/// The host's wall clock in unix milliseconds, which Redis uses for its dates.
#[must_use]
pub fn wall_ms() -> u64 {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_REALTIME);
    time.map_or(0, |time| time.tv_sec().unsigned_abs() * 1_000 + time.tv_nsec().unsigned_abs() / 1_000_000)
}

/// One file of events. Each line is passed to the kernel before the next: lines of a killed process are kept.
pub struct Journal {
    file: Mutex<(u64, File)>,
}

impl Journal {
    /// Creates a file.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self { file: Mutex::new((0, file)) })
    }

    /// Numbers an event and writes it.
    ///
    /// # Panics
    /// If the write fails: a history with gaps proves nothing.
    pub fn write(&self, mut event: Event) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.0 += 1;
        event.i = file.0;
        let mut line = serde_json::to_vec(&event).unwrap_or_default();
        line.push(b'\n');
        if let Err(error) = file.1.write_all(&line) {
            panic!("the history cannot be written: {error}");
        }
    }
}

/// All events of a directory's `*.jsonl` files and of those in its `runs/`, in the order of their time.
///
/// # Errors
/// If a file cannot be read, a line is invalid, or `i` does not grow.
pub fn read(dir: &Path) -> Result<Vec<Event>> {
    let mut events = Vec::new();
    for folder in [dir.to_owned(), dir.join("runs")] {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "jsonl") {
                read_file(&path, &mut events).with_context(|| format!("{} is no history", path.display()))?;
            }
        }
    }
    events.sort_by_key(|event| event.t);
    Ok(events)
}

fn read_file(path: &Path, events: &mut Vec<Event>) -> Result<()> {
    let mut last = 0;
    let mut lines = BufReader::new(File::open(path)?).lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        let line = line?;
        let event: Event = match serde_json::from_str(&line) {
            Ok(event) => event,
            // The writer was killed in the middle of its last line.
            Err(_) if lines.peek().is_none() => break,
            Err(error) => return Err(error).with_context(|| format!("line {}", number + 1)),
        };
        ensure!(event.i > last, "line {}: i does not grow", number + 1);
        last = event.i;
        events.push(event);
    }
    Ok(())
}

/// Counts equal names.
pub fn tally<'a>(names: impl IntoIterator<Item = &'a str>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for name in names {
        *counts.entry(name.to_owned()).or_insert(0) += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_written_is_read_in_the_order_of_time() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one.jsonl"), dir.path().join("two.jsonl"));
        let (one, two) = (Journal::create(&one).unwrap(), Journal::create(&two).unwrap());
        one.write(Event::new("client-1", Kind::Invoke, "submit").key("k").v(json!({"n": 1})));
        two.write(Event::new("nemesis", Kind::Ok, "fault").v(json!({"kind": "pause"})));
        one.write(Event::new("client-1", Kind::Info, "submit").key("k").err("timeout"));
        let events = read(dir.path()).unwrap();
        let told: Vec<(u64, &str, Kind)> = events.iter().map(|event| (event.i, event.p.as_str(), event.kind)).collect();
        assert_eq!(told, [(1, "client-1", Kind::Invoke), (1, "nemesis", Kind::Ok), (2, "client-1", Kind::Info)]);
    }

    #[test]
    fn only_the_last_line_may_be_torn() {
        let dir = tempfile::tempdir().unwrap();
        let line = |i| format!("{{\"i\":{i},\"t\":{i},\"p\":\"r\",\"type\":\"ok\",\"f\":\"run_start\"}}\n");
        let path = dir.path().join("runs.jsonl");
        fs::write(&path, format!("{}{{\"i\":2,", line(1))).unwrap();
        assert_eq!(read(dir.path()).unwrap().len(), 1);
        fs::write(&path, format!("{{\"i\":2,\n{}", line(3))).unwrap();
        assert!(read(dir.path()).is_err());
        fs::write(&path, format!("{}{}", line(2), line(2))).unwrap();
        assert!(read(dir.path()).is_err(), "a number that does not grow");
    }
}
