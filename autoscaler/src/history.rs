//! Recorded rounds: a line of JSON with the settings, then one for each round. `stoke autoscaler plan --from` plans
//! them again.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use stokehold_planner::observation::Observation;
use stokehold_planner::plan::Plan;
use stokehold_planner::{Policy, RETIRED};

/// Size at which a file is rotated to `<file>.1`, replacing the previous one.
const BYTES_MAX: u64 = 64 << 20;

/// One round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    /// The observation.
    pub seen: Observation,
    /// The plan.
    pub plan: Plan,
}

/// Records rounds in a file.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    file: File,
    bytes: u64,
    policy: Policy,
}

/// Observations and plans of one autoscaler since its start.
#[derive(Debug, Clone, PartialEq)]
pub struct History {
    /// Settings of the autoscaler; the defaults if the file contains only observations.
    pub policy: Policy,
    /// Rounds in order. After a rotation they continue those of `<file>.1`.
    pub rounds: Vec<Recorded>,
}

impl Recorder {
    /// Opens a file to append the rounds of an autoscaler with these settings.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn open(path: &Path, policy: &Policy) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let bytes = file.metadata()?.len();
        let mut recorder = Self { path: path.to_owned(), file, bytes, policy: policy.clone() };
        recorder.write(&serde_json::json!({ "policy": policy }))?;
        Ok(recorder)
    }

    fn write(&mut self, line: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(line)?;
        line.push(b'\n');
        self.file.write_all(&line)?;
        self.bytes += line.len() as u64;
        Ok(())
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
            *self = Self::open(&self.path, &self.policy)?;
        }
        self.write(&Line { seen, plan })
    }
}

/// Reads the last history in a file of a [`Recorder`], or a single observation.
///
/// # Errors
/// If the file cannot be read, or with the number of an invalid line.
pub fn read(path: &Path) -> io::Result<History> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Line {
        Begins { policy: Box<Policy> },
        Round(Box<Recorded>),
        Alone(Box<Observation>),
    }
    let text = BufReader::new(File::open(path)?).lines();
    let mut history = History { policy: Policy::default(), rounds: Vec::new() };
    for (number, line) in text.enumerate() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        let wrong = |error| io::Error::other(format!("line {} is not a recorded round: {error}", number + 1));
        let mut line: serde_json::Value = serde_json::from_str(&line).map_err(wrong)?;
        if let Some(policy) = line.get_mut("policy").and_then(serde_json::Value::as_object_mut) {
            RETIRED.iter().for_each(|name| drop(policy.remove(*name)));
        }
        match serde_json::from_value(line).map_err(wrong)? {
            Line::Begins { policy } => history = History { policy: *policy, rounds: Vec::new() },
            Line::Round(round) => history.rounds.push(*round),
            Line::Alone(seen) => history.rounds.push(Recorded { seen: *seen, plan: Plan::default() }),
        }
    }
    Ok(history)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_history_of_an_earlier_release_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rounds.jsonl");
        let rent = serde_json::json!({"do": "rent", "offer": "77", "prefetch": ["acme/draw"]});
        let plan = serde_json::json!({"steps": [{"action": rent, "reason": {"why": "lost"}}]});
        let lines = [
            serde_json::json!({"policy": {"max_machines": 3, "prefetch_max": 24}}),
            serde_json::json!({"seen": Observation::default(), "plan": plan}),
        ];
        fs::write(&path, lines.map(|line| format!("{line}\n")).concat()).unwrap();
        let history = read(&path).unwrap();
        assert_eq!((history.policy.max_machines, history.rounds[0].plan.steps.len()), (3, 1));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rounds.jsonl");
        let rounds = [1.0, 2.5].map(|at_s| Observation { at_s, ..Observation::default() });
        let policy = Policy { max_machines: 3, ..Policy::default() };
        let mut recorder = Recorder::open(&path, &policy).unwrap();
        recorder.note(&rounds[0], &Plan::default()).unwrap();
        recorder.bytes = BYTES_MAX;
        recorder.note(&rounds[1], &Plan::default()).unwrap();
        for (file, seen) in [("rounds.jsonl.1", &rounds[0]), ("rounds.jsonl", &rounds[1])] {
            let history = read(&dir.path().join(file)).unwrap();
            assert_eq!(history.policy, policy);
            assert_eq!(history.rounds, [Recorded { seen: seen.clone(), plan: Plan::default() }]);
        }
        drop(Recorder::open(&path, &Policy::default()).unwrap());
        assert_eq!(read(&path).unwrap().rounds, [], "it is another's");
        fs::write(&path, "{}\n").unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("line 1"));
    }
}
