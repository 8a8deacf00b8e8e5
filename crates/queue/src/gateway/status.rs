//! The status of a worker, its GPUs and its models, as sent with every heartbeat.

use serde::{Deserialize, Serialize};

/// The status of a worker, as sent with every heartbeat.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// No new leases; finishing what it has.
    #[serde(default)]
    pub draining: bool,
    /// Endpoint versions with a live runner, as `name@version`.
    #[serde(default)]
    pub loaded: Vec<String>,
    /// Attempts running now.
    #[serde(default)]
    pub running: u32,
    /// Readings per card.
    #[serde(default)]
    pub gpus: Vec<GpuReading>,
    /// Its models, each with a runner or on the way to one.
    #[serde(default)]
    pub models: Vec<ModelStatus>,
    /// The machine around them.
    #[serde(default)]
    pub host: HostStatus,
    /// What models were seen to need since the last heartbeat that was answered. Not kept with the rest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub learned: Vec<LearnedNeed>,
}

/// A model on a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelStatus {
    /// Whose it is.
    #[serde(default)]
    pub tenant: String,
    /// `name@version`.
    pub name: String,
    /// What it does.
    pub state: ModelState,
    /// Its cards; none on the CPU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cards: Vec<ModelOnCard>,
    /// When a run of it last succeeded, unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub succeeded_ms: Option<u64>,
    /// Of its last runs, at most a hundred: the mean and the 95th percentile, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_ms: Option<u64>,
    /// See `mean_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95_ms: Option<u64>,
}

/// What a model has of a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelOnCard {
    /// NVML's index.
    pub index: u32,
    /// What it has reserved there, MiB.
    pub held_mib: u64,
    /// What its processes use there, MiB; absent where that cannot be seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_mib: Option<u64>,
}

/// What a model on a worker does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelState {
    /// Its environment is built, its runner started, or it warms up.
    Loading,
    /// Loaded without jobs.
    Idle,
    /// Jobs run on it, or are about to.
    Busy,
}

/// A worker's machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostStatus {
    /// Free where jobs work, bytes.
    pub disk_free_bytes: u64,
    /// The size of that disk, bytes.
    pub disk_total_bytes: u64,
    /// Cached environments, bytes.
    pub environments_bytes: u64,
    /// Taken by weights, those being fetched among them.
    #[serde(default)]
    pub weights_bytes: u64,
    /// Memory that could be used, bytes.
    pub memory_free_bytes: u64,
    /// The size of that memory, bytes.
    pub memory_total_bytes: u64,
    /// Received since the machine started, all interfaces but the loopback, bytes.
    pub received_bytes: u64,
    /// Sent.
    pub sent_bytes: u64,
}

/// What a model was seen to need of a card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnedNeed {
    /// Whose it is.
    pub tenant: String,
    /// The endpoint.
    pub endpoint: String,
    /// And its version.
    pub version: u32,
    /// The GPU's model name.
    pub gpu: String,
    /// Its peak and a margin, MiB.
    pub need_mib: u64,
}

/// One card's readings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuReading {
    /// NVML's index.
    pub index: u32,
    /// Used memory, MiB; absent where nothing can be read.
    #[serde(default)]
    pub vram_used_mib: Option<u64>,
    /// Reserved by models, MiB.
    #[serde(default)]
    pub vram_held_mib: u64,
    /// What a model could still reserve, MiB.
    #[serde(default)]
    pub vram_free_mib: u64,
    /// In use by processes that do not belong to the worker, MiB.
    #[serde(default)]
    pub vram_foreign_mib: u64,
    /// Degrees Celsius.
    #[serde(default)]
    pub temperature_c: Option<u32>,
    /// Percent.
    #[serde(default)]
    pub utilisation_pct: Option<u32>,
    /// Watts.
    #[serde(default)]
    pub power_w: Option<u32>,
    /// Uncorrected ECC errors since the driver was loaded.
    #[serde(default)]
    pub ecc_uncorrected: Option<u64>,
    /// Whether it takes work.
    #[serde(default)]
    pub health: GpuHealth,
    /// Why it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Whether a card takes work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuHealth {
    /// It does.
    #[default]
    Well,
    /// Not until it is cooler.
    Hot,
    /// Not until its worker starts again: it has failed.
    Fenced,
}
