//! What was seen and decided, a line of JSON for each round: `stoke autoscaler plan --from` decides it again.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::observation::Observation;
use crate::plan::Plan;

/// A file that has grown to this is put aside, as `<file>.1`; the one that was there before goes.
const BYTES_MAX: u64 = 64 << 20;

/// One round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    /// What was seen.
    pub seen: Observation,
    /// What was decided.
    pub plan: Plan,
}

/// Writes rounds down.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl Recorder {
    /// Goes on at the end of this file.
    ///
    /// # Errors
    /// When it cannot be written to.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), file, bytes })
    }

    pub(crate) fn note(&mut self, seen: &Observation, plan: &Plan) -> io::Result<()> {
        #[derive(Serialize)]
        struct Line<'a> {
            seen: &'a Observation,
            plan: &'a Plan,
        }
        if self.bytes >= BYTES_MAX {
            let mut aside = self.path.clone().into_os_string();
            aside.push(".1");
            fs::rename(&self.path, aside)?;
            *self = Self::open(&self.path)?;
        }
        let mut line = serde_json::to_vec(&Line { seen, plan })?;
        line.push(b'\n');
        self.file.write_all(&line)?;
        self.bytes += line.len() as u64;
        Ok(())
    }
}

/// Reads what a [`Recorder`] wrote, or a single observation.
///
/// # Errors
/// When it cannot be read; with the number of the line that is neither.
pub fn read(path: &Path) -> io::Result<Vec<Observation>> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Line {
        Round(Box<Recorded>),
        Alone(Box<Observation>),
    }
    let text = BufReader::new(File::open(path)?).lines();
    let mut seen = Vec::new();
    for (number, line) in text.enumerate() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        let wrong = |error| io::Error::other(format!("line {} is no recorded round: {error}", number + 1));
        seen.push(match serde_json::from_str(&line).map_err(wrong)? {
            Line::Round(round) => round.seen,
            Line::Alone(observation) => *observation,
        });
    }
    Ok(seen)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rounds.jsonl");
        let rounds = [1.0, 2.5].map(|at_s| Observation { at_s, ..Observation::default() });
        let mut recorder = Recorder::open(&path).unwrap();
        recorder.note(&rounds[0], &Plan::default()).unwrap();
        let mut recorder = Recorder::open(&path).unwrap();
        recorder.bytes = BYTES_MAX;
        recorder.note(&rounds[1], &Plan::default()).unwrap();
        assert_eq!(read(&dir.path().join("rounds.jsonl.1")).unwrap(), rounds[..1]);
        assert_eq!(read(&path).unwrap(), rounds[1..]);
        fs::write(&path, "{}\n").unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("line 1"));
    }
}
