//! Endpoints: what was deployed, version by version. Passive data; a version never changes.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::demands::Demands;
use crate::job::{Priority, RetryPolicy};
use crate::vram::{VramNeed, mib_of_gib};

/// One deployed version of a model. Immutable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EndpointVersion {
    /// `[a-z0-9][a-z0-9-]{0,62}`.
    pub name: String,
    /// 1, 2, ... per name.
    pub version: u32,
    /// When, unix milliseconds.
    pub created_ms: u64,
    /// What it runs.
    #[serde(flatten)]
    pub spec: EndpointSpec,
}

/// Which versions of an endpoint new jobs run on. Stored as `6`, or as `6 7 10`: the current version, and 10 percent for another. The version
/// that was current before comes last, as `6 5` and `6 7 10 5`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    /// The one that a job runs on which names none.
    pub current: u32,
    /// Another, and the part of new jobs that it gets, percent.
    pub canary: Option<(u32, u32)>,
    /// What was current before, and is what there is to go back to; `None` once somebody has.
    pub previous: Option<u32>,
}

impl Traffic {
    /// The version for a new job. `draw` is from 0 to 99, each as likely.
    #[must_use]
    pub fn pick(&self, draw: u32) -> u32 {
        match self.canary {
            Some((version, percent)) if draw < percent => version,
            _ => self.current,
        }
    }

    /// Each version with its part of new jobs, percent.
    pub fn parts(&self) -> impl Iterator<Item = (u32, u32)> {
        let taken = self.canary.map_or(0, |(_, percent)| percent);
        std::iter::once((self.current, 100 - taken.min(100))).chain(self.canary)
    }
}

impl FromStr for Traffic {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let numbers: Vec<u32> = text.splitn(5, ' ').map(str::parse).collect::<Result<_, _>>().map_err(|_| ())?;
        let (current, canary, previous) = match numbers[..] {
            [current] => (current, None, None),
            [current, previous] => (current, None, Some(previous)),
            [current, version, percent] => (current, Some((version, percent)), None),
            [current, version, percent, previous] => (current, Some((version, percent)), Some(previous)),
            _ => return Err(()),
        };
        Ok(Self { current, canary, previous })
    }
}

impl EndpointSpec {
    /// Jobs that it takes at once in one slot of a worker.
    #[must_use]
    pub fn share(&self) -> u32 {
        self.max_concurrency.max(1).saturating_mul(self.max_batch_size.max(1))
    }

    /// The same as its jobs have it (see [`JobSpec::share`](crate::job::JobSpec::share)): 0 where each has a slot of its own.
    #[must_use]
    pub fn job_share(&self) -> u32 {
        match self.share() {
            1 => 0,
            share => share,
        }
    }

    /// What it needs of a GPU, with what was learned of it by GPU model, MiB.
    #[must_use]
    pub fn vram_need(&self, learned_mib: BTreeMap<String, u64>) -> VramNeed {
        VramNeed {
            declared_mib: mib_of_gib(self.vram_gib),
            fraction: self.vram_fraction,
            is_shown: !self.warmup.is_empty(),
            learned_mib,
        }
    }
}

/// What `stoke deploy` found out about a handler.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EndpointSpec {
    /// The package: the folder as `.tar.gz`, named by its hash.
    pub package_sha256: String,
    /// Its size.
    pub package_size_bytes: u64,
    /// What a worker starts for it.
    #[serde(default, skip_serializing_if = "Runner::is_python")]
    pub runner: Runner,
    /// `file.py:object` inside the package, of a RunPod script `file.py`; empty for a server or a command.
    pub entry: String,
    /// The exact requirements, in `requirements.txt` form; empty when the handler needs nothing.
    #[serde(default)]
    pub requirements_lock: String,
    /// Python to run it with, as `3.11`; empty means the worker's own.
    #[serde(default)]
    pub python: String,
    /// Whether its runners reach the network.
    #[serde(default, skip_serializing_if = "is_false")]
    pub network: bool,
    /// Variables that its runners see.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Names of the tenant's secrets that its runners get, as variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// Files that its runners find in a folder of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<Weight>,
    /// Whether pickles may be among them: reading one runs what it says.
    #[serde(default, skip_serializing_if = "is_false")]
    pub allow_pickle: bool,
    /// JSON Schema of the input.
    pub input_schema: Value,
    /// JSON Schema of the result.
    #[serde(default)]
    pub output_schema: Value,
    /// Declared VRAM need, GiB; 0 runs on the CPU.
    #[serde(default)]
    pub vram_gib: f64,
    /// The share of a card's memory that it takes on every card, 0 to 1; `vram_gib` is then the least that it runs with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vram_fraction: Option<f64>,
    /// What else it asks of its worker.
    #[serde(default, skip_serializing_if = "Demands::ask_nothing")]
    pub demands: Demands,
    /// Jobs one runner takes at once; more than 1 only for async handlers.
    #[serde(default = "one")]
    pub max_concurrency: u32,
    /// Jobs that one call of the handler takes; more than 1 only for handlers that were written for it.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub max_batch_size: u32,
    /// How long the first job of a call waits for others, milliseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub max_wait_ms: f64,
    /// How long it stays loaded after its last job, though others want its room, seconds.
    #[serde(default, skip_serializing_if = "is_none")]
    pub keep_warm_s: u64,
    /// Workers that have it loaded, jobs or not.
    #[serde(default, skip_serializing_if = "is_nobody")]
    pub min_warm: u32,
    /// How urgent its jobs are that do not say; `standard` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// Default longest run.
    #[serde(default = "default_timeout_s")]
    pub timeout_s: u64,
    /// Default attempts.
    #[serde(default = "default_max_attempts")]
    pub max_attempts: u32,
    /// When and after which failures its jobs are tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    /// Inputs that a worker runs once before the first job, the largest first: JSON objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warmup: Vec<Value>,
    /// What must allow an input before it runs, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<StepConfig>,
    /// What must allow an output before anybody sees it, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<StepConfig>,
}

/// One file of an endpoint's weights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Weight {
    /// What it is called in the folder, as `unet/model.safetensors`.
    pub path: String,
    /// Where its author has it from, as `hf://org/model@<commit>/model.safetensors`; shown to people.
    pub source: String,
    /// Where it is fetched from: `https://`, `http://` or `s3://`; `None` where it was uploaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Of its bytes, lower-case hex.
    pub sha256: String,
    /// How many these are.
    pub size_bytes: u64,
}

/// The kinds of endpoint, with what their runners are to know.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Runner {
    /// A function or class that `@endpoint` marks.
    #[default]
    Python,
    /// A Cog predictor.
    Cog,
    /// A script that ends in `runpod.serverless.start`.
    Runpod,
    /// A program that serves HTTP on 127.0.0.1.
    Server(Server),
    /// A program that is run once per job.
    Command {
        /// It and its arguments.
        command: Vec<String>,
    },
}

/// A program that serves HTTP: a job is a request to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// It and its arguments; `{port}` stands for the port to listen on.
    pub command: Vec<String>,
    /// Answers 2xx once it is ready.
    pub ready_path: String,
    /// Where inputs are posted; without it a job names its path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The port of a server that cannot be told one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

impl Runner {
    /// The kind's name.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Cog => "cog",
            Self::Runpod => "runpod",
            Self::Server(_) => "server",
            Self::Command { .. } => "command",
        }
    }

    fn is_python(&self) -> bool {
        *self == Self::Python
    }
}

/// An endpoint that another one asks before or after each of its jobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepConfig {
    /// What it is called in the job's record.
    pub name: String,
    /// The endpoint that decides.
    pub endpoint: String,
    /// One of its versions; the one that is current at each submit when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// The most that each label's score may be, 0 to 1.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub thresholds: BTreeMap<String, f64>,
    /// Longest one attempt of it may run; the deciding endpoint's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u64>,
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_one(number: &u32) -> bool {
    *number == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_none(seconds: &u64) -> bool {
    *seconds == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_nobody(workers: &u32) -> bool {
    *workers == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(is_so: &bool) -> bool {
    !is_so
}

fn is_zero(number: &f64) -> bool {
    *number == 0.0
}

fn default_timeout_s() -> u64 {
    600
}

fn default_max_attempts() -> u32 {
    3
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_canary_gets_its_part_and_the_current_version_the_rest() {
        let traffic: Traffic = "6 7 10".parse().unwrap();
        assert_eq!((0..100).filter(|draw| traffic.pick(*draw) == 7).count(), 10);
        assert_eq!(traffic.parts().collect::<Vec<_>>(), [(6, 90), (7, 10)]);
        let stored = |text: &str| text.parse::<Traffic>().map(|it| (it.current, it.canary, it.previous));
        assert_eq!(stored("6"), Ok((6, None, None)));
        assert_eq!(stored("6 5"), Ok((6, None, Some(5))));
        assert_eq!(stored("6 7 10"), Ok((6, Some((7, 10)), None)));
        assert_eq!(stored("6 7 10 5"), Ok((6, Some((7, 10)), Some(5))));
        assert!(["", "six", "6 ", "6 7 10 5 4"].into_iter().all(|text| stored(text).is_err()));
    }
}
