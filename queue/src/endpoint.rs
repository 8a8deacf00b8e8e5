//! Endpoints: what was deployed, version by version. Passive data; a version never changes.

use serde::{Deserialize, Serialize};
use serde_json::Value;

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

/// What `stoke deploy` found out about a handler.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EndpointSpec {
    /// The package: the folder as `.tar.gz`, named by its hash.
    pub package_sha256: String,
    /// Its size.
    pub package_size_bytes: u64,
    /// `file.py:object` inside the package.
    pub entry: String,
    /// The exact requirements, in `requirements.txt` form; empty when the handler needs nothing.
    #[serde(default)]
    pub requirements_lock: String,
    /// Python to run it with, as `3.11`; empty means the worker's own.
    #[serde(default)]
    pub python: String,
    /// JSON Schema of the input.
    pub input_schema: Value,
    /// JSON Schema of the result.
    #[serde(default)]
    pub output_schema: Value,
    /// Declared VRAM need, GiB; 0 runs on the CPU.
    #[serde(default)]
    pub vram_gib: f64,
    /// Jobs one runner takes at once; more than 1 only for async handlers.
    #[serde(default = "one")]
    pub max_concurrency: u32,
    /// Default longest run.
    #[serde(default = "default_timeout_s")]
    pub timeout_s: u64,
    /// Default attempts.
    #[serde(default = "default_max_attempts")]
    pub max_attempts: u32,
}

fn one() -> u32 {
    1
}

fn default_timeout_s() -> u64 {
    600
}

fn default_max_attempts() -> u32 {
    3
}
