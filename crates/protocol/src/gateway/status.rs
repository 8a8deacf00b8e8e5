//! The status of a worker, its GPUs and its models, as sent with every heartbeat.

use serde::{Deserialize, Deserializer, Serialize};

use crate::id::JobId;

/// The status of a worker, as sent with every heartbeat.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Whether the worker drains: it takes no new leases and finishes those it has.
    #[serde(default)]
    pub draining: bool,
    /// Endpoint versions with a live runner, as `name@version`.
    #[serde(default)]
    pub loaded: Vec<String>,
    /// Number of running attempts.
    #[serde(default)]
    pub running: u32,
    /// Readings of the worker's GPUs.
    #[serde(default)]
    pub gpus: Vec<GpuReading>,
    /// Models of the worker that have a runner or are being loaded.
    #[serde(default)]
    pub models: Vec<ModelStatus>,
    /// Status of the worker's host.
    #[serde(default)]
    pub host: HostStatus,
    /// Leased jobs whose model is not loaded yet; the first ones if there are many. Absent from workers and dropped by
    /// gateways of the previous release.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "known_phases")]
    pub starting: Vec<StartingJob>,
    /// Memory needs learned since the last acknowledged heartbeat. They are not stored with the status.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub learned: Vec<LearnedNeed>,
}

/// Maximum number of starting jobs in a heartbeat. A worker has as many slots as it can run; more jobs wait behind
/// those.
pub const STARTING_MAX: usize = 100;

/// A leased job that waits for its model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartingJob {
    /// The job.
    pub job_id: JobId,
    /// The current phase of its model.
    pub phase: StartPhase,
    /// Time in this phase when the heartbeat was sent, milliseconds.
    pub phase_ms: u64,
}

/// A phase in the start of a model, in order. A model without weights waits for a GPU first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartPhase {
    /// The environment is built, and the package is fetched.
    Environment,
    /// The environment is ready, and weights are still downloaded.
    Weights,
    /// The model waits for room on a GPU. Gateways of the previous release ignore it.
    Gpu,
    /// The runner starts, loads the model and warms it up.
    Loading,
}

/// Reads the starting jobs, except those in a phase that only a later release has: a heartbeat must not fail for it.
fn known_phases<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<StartingJob>, D::Error> {
    let all = Vec::<serde_json::Value>::deserialize(deserializer)?;
    Ok(all.into_iter().filter_map(|one| serde_json::from_value(one).ok()).collect())
}

/// A model on a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelStatus {
    /// The tenant that owns the endpoint.
    #[serde(default)]
    pub tenant: String,
    /// The name and version: `name@version`.
    pub name: String,
    /// State of the model.
    pub state: ModelState,
    /// GPUs of the model; empty on the CPU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cards: Vec<ModelOnGpu>,
    /// Time at which a run of the model last succeeded, Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub succeeded_ms: Option<u64>,
    /// Mean run time of the last runs, at most a hundred, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_ms: Option<u64>,
    /// The 95th percentile of the same run times, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95_ms: Option<u64>,
}

/// The memory of a model on one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelOnGpu {
    /// The NVML index.
    pub index: u32,
    /// Reserved memory, MiB.
    pub held_mib: u64,
    /// Memory used by its processes, MiB; absent if it cannot be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_mib: Option<u64>,
}

/// The state of a model on a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelState {
    /// The environment is being built, the runner is starting, or the model warms up.
    Loading,
    /// The model is loaded and has no jobs.
    Idle,
    /// Jobs run on it, or are about to.
    Busy,
}

/// The status of a worker's host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostStatus {
    /// Free space on the disk where jobs run, bytes.
    pub disk_free_bytes: u64,
    /// Size of that disk, bytes.
    pub disk_total_bytes: u64,
    /// Size of cached environments, bytes.
    pub environments_bytes: u64,
    /// Size of weights, including those being fetched, bytes.
    #[serde(default)]
    pub weights_bytes: u64,
    /// Available memory, bytes.
    pub memory_free_bytes: u64,
    /// Total memory, bytes.
    pub memory_total_bytes: u64,
    /// Bytes received since the host started, on all interfaces but the loopback.
    pub received_bytes: u64,
    /// Bytes sent since the host started, on all interfaces but the loopback.
    pub sent_bytes: u64,
}

/// The learned memory need of a model on a GPU model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnedNeed {
    /// The tenant that owns the endpoint.
    pub tenant: String,
    /// Name of the endpoint.
    pub endpoint: String,
    /// Version of the endpoint.
    pub version: u32,
    /// The GPU's model name.
    pub gpu: String,
    /// The observed peak plus a margin, MiB.
    pub need_mib: u64,
}

/// The readings of one GPU.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuReading {
    /// The NVML index.
    pub index: u32,
    /// Used memory, MiB; absent if it cannot be read.
    #[serde(default)]
    pub vram_used_mib: Option<u64>,
    /// Reserved by models, MiB.
    #[serde(default)]
    pub vram_held_mib: u64,
    /// Memory that a model could still reserve, MiB.
    #[serde(default)]
    pub vram_free_mib: u64,
    /// Memory used by processes that do not belong to the worker, MiB.
    #[serde(default)]
    pub vram_foreign_mib: u64,
    /// Temperature, degrees Celsius.
    #[serde(default)]
    pub temperature_c: Option<u32>,
    /// Utilization, percent.
    #[serde(default)]
    pub utilisation_pct: Option<u32>,
    /// Power draw, watts.
    #[serde(default)]
    pub power_w: Option<u32>,
    /// Uncorrected ECC errors since the driver was loaded.
    #[serde(default)]
    pub ecc_uncorrected: Option<u64>,
    /// Whether the GPU takes work.
    #[serde(default)]
    pub health: GpuHealth,
    /// The reason why the GPU takes no work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The health of a GPU. Written with the first release's words, which an older API has to read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuHealth {
    /// The GPU takes work.
    #[default]
    #[serde(rename = "well", alias = "healthy")]
    Healthy,
    /// The GPU takes no work until it has cooled down.
    Hot,
    /// The GPU has failed and takes no work until its worker restarts.
    #[serde(rename = "fenced", alias = "faulty")]
    Faulty,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_gpus_health_is_read_in_both_spellings_and_written_in_the_old_one() {
        for (health, old, new) in [
            (GpuHealth::Healthy, "well", "healthy"),
            (GpuHealth::Hot, "hot", "hot"),
            (GpuHealth::Faulty, "fenced", "faulty"),
        ] {
            assert_eq!(serde_json::to_value(health).unwrap(), old);
            for word in [old, new] {
                assert_eq!(serde_json::from_value::<GpuHealth>(word.into()).unwrap(), health);
            }
        }
    }
}
