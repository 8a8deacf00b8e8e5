//! Endpoints: the deployed versions. Passive data; a version never changes.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::job::{Priority, RetryPolicy};
use crate::requirements::Requirements;
use crate::vram::{VramNeed, mib_of_gib};

/// One deployed version of a model. Immutable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EndpointVersion {
    /// `[a-z0-9][a-z0-9-]{0,62}`.
    pub name: String,
    /// 1, 2, 3, ... per name.
    pub version: u32,
    /// Time of the deploy, Unix milliseconds.
    pub created_ms: u64,
    /// The deployed spec.
    #[serde(flatten)]
    pub spec: EndpointSpec,
}

/// The versions that receive an endpoint's new jobs. Stored as `6`, or as `6 7 10`: the current version, and 10 percent
/// for version 7. The previously current version comes last, e.g. `6 5` and `6 7 10 5`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    /// The version of jobs that name none.
    pub current: u32,
    /// Another version and its share of new jobs, percent.
    pub canary: Option<(u32, u32)>,
    /// The previously current version, the target of a rollback; `None` after a rollback.
    pub previous: Option<u32>,
}

impl Traffic {
    /// The version for a new job. `draw` is uniform from 0 to 99.
    #[must_use]
    pub fn pick(&self, draw: u32) -> u32 {
        match self.canary {
            Some((version, percent)) if draw < percent => version,
            _ => self.current,
        }
    }

    /// Each version with its share of new jobs, percent.
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
    /// Number of jobs that one slot of a worker runs at the same time.
    #[must_use]
    pub fn share(&self) -> u32 {
        self.max_concurrency.max(1).saturating_mul(self.max_batch_size.max(1))
    }

    /// The same value as stored in jobs (see [`JobSpec::share`](crate::job::JobSpec::share)): 0 if each job has its own
    /// slot.
    #[must_use]
    pub fn job_share(&self) -> u32 {
        match self.share() {
            1 => 0,
            share => share,
        }
    }

    /// Maximum time that the first job of a call waits for further ones.
    #[must_use]
    pub fn max_wait(&self) -> Duration {
        Duration::try_from_secs_f64(self.max_wait_ms / 1_000.0).unwrap_or_default()
    }

    /// The GPU memory that the model needs, including learned values by GPU model, MiB.
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

/// An endpoint version as sent by `stoke deploy`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EndpointSpec {
    /// The package: the folder as `.tar.gz`, named by its hash.
    pub package_sha256: String,
    /// The package's size.
    pub package_size_bytes: u64,
    /// The kind of program that a worker starts for the endpoint.
    #[serde(default, skip_serializing_if = "Runner::is_python")]
    pub runner: Runner,
    /// `file.py:object` inside the package; for a RunPod script `file.py`; empty for a server or a command.
    pub entry: String,
    /// The locked requirements in `requirements.txt` form; empty if the handler needs none.
    #[serde(default)]
    pub requirements_lock: String,
    /// The Python version, e.g. `3.11`; empty means the worker's own.
    #[serde(default)]
    pub python: String,
    /// Whether the runners have network access.
    #[serde(default, skip_serializing_if = "is_false")]
    pub network: bool,
    /// Environment variables of the runners.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Names of the tenant's secrets that the runners receive as environment variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// Weights files, which the runners find in a separate folder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<Weight>,
    /// Whether weights may contain pickles, which run code when they are read.
    #[serde(default, skip_serializing_if = "is_false")]
    pub allow_pickle: bool,
    /// JSON Schema of the input.
    pub input_schema: Value,
    /// JSON Schema of the result.
    #[serde(default)]
    pub output_schema: Value,
    /// The declared VRAM, GiB; 0 runs on the CPU.
    #[serde(default)]
    pub vram_gib: f64,
    /// The share of a GPU's memory that the model takes on any GPU, 0 to 1; `vram_gib` is then the minimum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vram_fraction: Option<f64>,
    /// Other requirements for workers.
    #[serde(default, skip_serializing_if = "Requirements::ask_nothing")]
    pub demands: Requirements,
    /// Maximum number of jobs that one runner runs concurrently; more than 1 only for async handlers.
    #[serde(default = "one")]
    pub max_concurrency: u32,
    /// Maximum number of jobs in one call of the handler; more than 1 only for handlers written for batches.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub max_batch_size: u32,
    /// Maximum time that the first job of a call waits for further ones, milliseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub max_wait_ms: f64,
    /// Time for which the model stays loaded after its last job, even if others need the memory, seconds.
    #[serde(default, skip_serializing_if = "is_none")]
    pub keep_warm_s: u64,
    /// Number of workers that keep the model loaded without jobs.
    #[serde(default, skip_serializing_if = "is_nobody")]
    pub min_warm: u32,
    /// The priority of jobs that set none; `standard` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// Time limit of jobs that set none, seconds.
    #[serde(default = "default_timeout_s")]
    pub timeout_s: u64,
    /// Time within which jobs that set none must start, seconds; the general default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_timeout_s: Option<u64>,
    /// Maximum number of attempts of jobs that set none.
    #[serde(default = "default_max_attempts")]
    pub max_attempts: u32,
    /// Retry policy of the endpoint's jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    /// Inputs that a worker runs once before the first job, the largest first: JSON objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warmup: Vec<Value>,
    /// Steps that must allow an input before it runs, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<StepConfig>,
    /// Steps that must allow an output before it is returned, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<StepConfig>,
    /// The part of OpenAI's API that the endpoint speaks; if absent, servers speak what their path implies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub openai: Option<OpenAiApi>,
    /// Other names under which clients of OpenAI's API find the endpoint.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub openai_models: Vec<String>,
    /// The name that the endpoint's own server has for its model; if absent, the name in the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub openai_served_model: Option<String>,
}

/// A part of OpenAI's API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpenAiApi {
    /// Chat completions; at a server also completions and responses.
    Chat,
    /// Embeddings.
    Embeddings,
    /// Generation of images.
    Images,
    /// Nothing of it.
    None,
}

/// One file of an endpoint's weights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Weight {
    /// The file's path in the folder, e.g. `unet/model.safetensors`.
    pub path: String,
    /// The origin of the file, for people to read, e.g. `hf://org/model@<commit>/model.safetensors`.
    pub source: String,
    /// The address to fetch it from: `https://`, `http://` or `s3://`; `None` if it was uploaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The SHA-256 of the file, lower-case hex.
    pub sha256: String,
    /// The size of the file.
    pub size_bytes: u64,
}

/// The kinds of endpoint, with what their runners need.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Runner {
    /// A function or class decorated with `@endpoint`.
    #[default]
    Python,
    /// A Cog predictor.
    Cog,
    /// A script that ends in `runpod.serverless.start`.
    Runpod,
    /// A program that serves HTTP on 127.0.0.1.
    Server(Server),
    /// A program that runs once per job.
    Command {
        /// The program and its arguments.
        command: Vec<String>,
    },
}

/// A program that serves HTTP: a job is a request to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// The program and its arguments; `{port}` is replaced by the port to listen on.
    pub command: Vec<String>,
    /// The path that answers 2xx once the server is ready.
    pub ready_path: String,
    /// The path that inputs are posted to; without it, a job names its path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The port of a server whose port is fixed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The metric that shows that the server has no room for another job, and its limit, e.g.
    /// `vllm:num_requests_waiting > 0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<String>,
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

/// An endpoint that decides on another endpoint's jobs, before or after they run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepConfig {
    /// The step's name in the job's record.
    pub name: String,
    /// The endpoint that decides.
    pub endpoint: String,
    /// The version; if absent, the version that is current at each submit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// The highest allowed score of each label, 0 to 1.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub thresholds: BTreeMap<String, f64>,
    /// Time limit of one of its attempts, seconds; if absent, the deciding endpoint's.
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
