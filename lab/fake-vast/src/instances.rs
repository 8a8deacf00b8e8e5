//! What was rented.

use stokehold_vast::Status;

use crate::money::{Account, in_usd, per_ms_of_disk, per_ms_of_hourly};

/// How the container is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtype {
    /// The image's entrypoint, or `onstart` in its place, with the arguments.
    Args,
    /// The provider's entrypoint, then `onstart` as a script.
    Shell,
}

/// What somebody ordered.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    /// Nano-dollars an hour; none is on demand.
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

/// One contract.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub(crate) id: u64,
    pub(crate) ask: u64,
    /// Its index.
    pub(crate) machine: usize,
    /// The index of the block that it has.
    pub(crate) block: usize,
    pub(crate) order: Order,
    pub(crate) key: String,
    /// Nano-dollars an hour.
    pub(crate) price: u64,
    /// Nano-dollars per GB and month.
    pub(crate) storage: u64,
    pub(crate) created_ms: u64,
    pub(crate) status: Status,
    pub(crate) wants_running: bool,
    pub(crate) cur_state: &'static str,
    pub(crate) next_state: &'static str,
    pub(crate) message: Option<String>,
    pub(crate) has_cards: bool,
    /// It starts when its cards are free again.
    pub(crate) is_queued: bool,
    /// What the cards went for.
    pub(crate) outbid_by: Option<u64>,
    /// Steps that were planned before it grew are void.
    pub(crate) life: u64,
    pub(crate) starts: u32,
    /// Whoever runs machines has been told that it runs.
    pub(crate) is_up: bool,
    pub(crate) hidden_until_ms: u64,
    pub(crate) account: Account,
    pub(crate) increase: Option<Increase>,
}

/// A host asks for more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Increase {
    pub(crate) id: u64,
    /// Nano-dollars an hour.
    pub(crate) price: u64,
    pub(crate) created_ms: u64,
}

impl Instance {
    /// Units a millisecond for cards and disk, as it is now.
    pub(crate) fn rates(&self) -> (u128, u128) {
        let gpu = if self.status.charges_gpu() { per_ms_of_hourly(self.price) } else { 0 };
        let disk = if self.status.charges_disk() { per_ms_of_disk(self.storage, self.order.disk_mb) } else { 0 };
        (gpu, disk)
    }

    /// Dollars an hour while it runs.
    #[expect(clippy::cast_precision_loss, reason = "disks are small")]
    pub(crate) fn hourly_usd(&self) -> (f64, f64) {
        (in_usd(self.price), in_usd(self.storage) * (self.order.disk_mb as f64 / 1000.0) / 720.0)
    }

    pub(crate) fn states(&mut self, cur: &'static str, next: &'static str) {
        (self.cur_state, self.next_state) = (cur, next);
    }
}

/// What runs a machine learns when its container starts.
#[derive(Clone, Debug, PartialEq)]
pub struct Started {
    /// The contract.
    pub instance: u64,
    /// The box.
    pub machine: u64,
    /// The tag.
    pub label: Option<String>,
    /// What is run.
    pub image: String,
    /// How.
    pub runtype: Runtype,
    /// A script, or the entrypoint where there are arguments.
    pub onstart: Option<String>,
    /// Behind the entrypoint.
    pub args: Vec<String>,
    /// Variables; names that begin with `-` are flags of docker.
    pub env: Vec<(String, String)>,
    /// What may stop and destroy this instance, and nothing else.
    pub key: String,
    /// The kind of its cards.
    pub gpu_name: String,
    /// How many.
    pub num_gpus: usize,
    /// Of each, MB.
    pub gpu_ram_mb: u64,
    /// The box's address.
    pub public_ip: String,
    /// 1 at the first time.
    pub starts: u32,
}

/// What happened to a machine.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Its container starts.
    Started(Box<Started>),
    /// It is taken away at once; its disk stays.
    Halted {
        /// The contract.
        instance: u64,
    },
    /// It is gone with its disk.
    Destroyed {
        /// The contract.
        instance: u64,
    },
}

/// Something that happened, and when.
#[derive(Clone, Debug, PartialEq)]
pub struct Happened {
    /// Seconds.
    pub at_s: f64,
    /// What.
    pub event: Event,
}

/// One entry of the history: what an instance is from here on.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Milliseconds.
    pub at_ms: u64,
    /// The contract.
    pub instance: u64,
    /// None once it is destroyed and no longer charged.
    pub status: Option<Status>,
    /// Nano-dollars an hour while it runs.
    pub price: u64,
    /// Nano-dollars per GB and month.
    pub storage: u64,
    /// Its disk.
    pub disk_mb: u64,
}
