//! Instances and their contracts.

use stokehold_vast::Status;

use crate::money::{Account, in_usd, per_ms_of_disk, per_ms_of_hourly};

/// How the container starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtype {
    /// The image's entrypoint, or `onstart` in its place, with the arguments.
    Args,
    /// The provider's entrypoint, then `onstart` as a script.
    Shell,
}

/// Parameters of a rent.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    /// Bid, nano-dollars per hour; `None`: on demand.
    pub(crate) bid: Option<u64>,
    pub(crate) disk_mb: u64,
    pub(crate) label: Option<String>,
    pub(crate) image: String,
    pub(crate) runtype: Runtype,
    pub(crate) runtype_word: String,
    pub(crate) onstart: Option<String>,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) cancel_unavail: bool,
    pub(crate) is_stopped: bool,
}

/// A contract.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub(crate) id: u64,
    pub(crate) ask: u64,
    /// Index of the machine.
    pub(crate) machine: usize,
    /// Index of the block of GPUs.
    pub(crate) block: usize,
    pub(crate) order: Order,
    pub(crate) key: String,
    /// Price, nano-dollars per hour.
    pub(crate) price: u64,
    /// Price of storage, nano-dollars per GB and month.
    pub(crate) storage: u64,
    pub(crate) created_ms: u64,
    pub(crate) status: Status,
    pub(crate) wants_running: bool,
    pub(crate) cur_state: &'static str,
    pub(crate) next_state: &'static str,
    pub(crate) message: Option<String>,
    pub(crate) has_gpus: bool,
    /// Whether it starts as soon as its GPUs are free again.
    pub(crate) is_queued: bool,
    /// Bid to which it lost its GPUs.
    pub(crate) outbid_by: Option<u64>,
    /// Counter of its lives. Steps that were planned in an earlier life are void.
    pub(crate) life: u64,
    pub(crate) starts: u32,
    /// Whether a `Started` event was emitted for the current run.
    pub(crate) is_up: bool,
    pub(crate) hidden_until_ms: u64,
    pub(crate) account: Account,
    pub(crate) increase: Option<Increase>,
}

/// Price increase that a host requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Increase {
    pub(crate) id: u64,
    /// New price, nano-dollars per hour.
    pub(crate) price: u64,
    pub(crate) created_ms: u64,
}

impl Instance {
    /// Current charges for GPUs and disk, units per millisecond.
    pub(crate) fn rates(&self) -> (u128, u128) {
        let gpu = if self.status.charges_gpu() { per_ms_of_hourly(self.price) } else { 0 };
        let disk = if self.status.charges_disk() { per_ms_of_disk(self.storage, self.order.disk_mb) } else { 0 };
        (gpu, disk)
    }

    /// Prices of GPUs and disk while it runs, dollars per hour.
    #[expect(clippy::cast_precision_loss, reason = "disks are small")]
    pub(crate) fn hourly_usd(&self) -> (f64, f64) {
        (in_usd(self.price), in_usd(self.storage) * (self.order.disk_mb as f64 / 1000.0) / 720.0)
    }

    pub(crate) fn states(&mut self, cur: &'static str, next: &'static str) {
        (self.cur_state, self.next_state) = (cur, next);
    }
}

/// Parameters of a container that starts.
#[derive(Clone, Debug, PartialEq)]
pub struct Started {
    /// ID of the contract.
    pub instance: u64,
    /// ID of the machine.
    pub machine: u64,
    /// Label.
    pub label: Option<String>,
    /// Image.
    pub image: String,
    /// How the container starts.
    pub runtype: Runtype,
    /// Script, or entrypoint if there are arguments.
    pub onstart: Option<String>,
    /// Arguments of the entrypoint.
    pub args: Vec<String>,
    /// Environment variables; names that begin with `-` are flags of Docker.
    pub env: Vec<(String, String)>,
    /// API key that can only stop and destroy this instance.
    pub key: String,
    /// Name of its kind of GPU.
    pub gpu_name: String,
    /// Number of GPUs.
    pub num_gpus: usize,
    /// Memory of each GPU, MB.
    pub gpu_ram_mb: u64,
    /// IP address of the machine.
    pub public_ip: String,
    /// Number of starts including this one.
    pub starts: u32,
}

/// A change of a container.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The container starts.
    Started(Box<Started>),
    /// The container is taken away at once; its disk stays.
    Halted {
        /// ID of the contract.
        instance: u64,
    },
    /// The container and its disk are destroyed.
    Destroyed {
        /// ID of the contract.
        instance: u64,
    },
}

/// An event and its time.
#[derive(Clone, Debug, PartialEq)]
pub struct Happened {
    /// Time, seconds.
    pub at_s: f64,
    /// The event.
    pub event: Event,
}

/// Entry of the history: the state of an instance from a time on.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Time, milliseconds.
    pub at_ms: u64,
    /// ID of the contract.
    pub instance: u64,
    /// Status; `None` once it is destroyed and no longer charged for.
    pub status: Option<Status>,
    /// Price while it runs, nano-dollars per hour.
    pub price: u64,
    /// Price of storage, nano-dollars per GB and month.
    pub storage: u64,
    /// Size of the disk, MB.
    pub disk_mb: u64,
}
