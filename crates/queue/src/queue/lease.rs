//! Leases: what a worker asks for, what it is granted, and the lease poll that waits.

use std::fmt;

use serde_json::value::RawValue;

use crate::gateway::LeaseRef;
use crate::id::{Fence, JobId};
use crate::job::JobSpec;
use crate::reach::Reach;

/// Default time that work waits before it may go ahead of more urgent work: 5 minutes.
pub const AGE_AFTER_MS: u64 = 5 * 60 * 1000;

/// A call of [`Queue::lease`](crate::Queue::lease) adds no further job once it has this many bytes of specs and inputs:
/// 8 MiB. A hundred inputs of 1 MiB would hold Redis for half a second, and the worker that runs the first of them would
/// wait for the last.
pub const LEASE_BYTES: usize = 8 << 20;

/// If the next job of a class stays the same for this long because no GPU has room for it, a GPU is reserved.
pub const HOLD_AFTER_MS: u64 = 20 * 1000;

/// For this long only one worker is asked to reserve a GPU for a class: about as long as its running jobs need to end.
pub const HOLD_MS: u64 = 60 * 1000;

/// A request for leases.
#[derive(Debug, Clone)]
pub struct LeaseQuery {
    /// The worker.
    pub worker_id: String,
    /// At most this many, 1 to 100.
    pub want: u32,
    /// What it can take.
    pub reach: Reach,
    /// The lanes of loaded models. They go first, also if their class is out of reach, unless the job whose turn it is
    /// has waited for `patience_ms`. Each lane once.
    pub warm: Vec<WarmLane>,
    /// See [`patience_ms`].
    pub patience_ms: u64,
    /// The class that the worker has made room for (see [`Queue::hold`](crate::Queue::hold)); only its jobs are leased.
    pub only: Option<u32>,
    /// Of waiters with the same reach, the one with the lowest rank is woken; 0 to 999,999.
    pub rank: u32,
    /// No further job is added once the specs and inputs have this many bytes; at least one job is leased.
    pub max_bytes: usize,
    /// The number of slots: the worker is leased no more than these run at once, and a few ahead ([`ahead`]). `None`:
    /// as many as requested.
    pub slots: Option<u32>,
    /// The slots used by its leases on other shards, in [`SLOT_PARTS`](crate::job::SLOT_PARTS).
    pub taken_elsewhere: u64,
    /// The waiter to park in the same step if nothing is ready, so that no wakeup is lost in between.
    pub park: Option<Waiter>,
}

/// Leases that a worker may hold ahead of its slots in any case: those whose results and ends are in transit.
const SPARE: u32 = 32;

/// Additional work that a worker may hold: half a second of its slots, up to a number of jobs. Workers request a tenth
/// of it.
const AHEAD_MS: f64 = 500.0;
const AHEAD_MAX: f64 = 300.0;

/// The most leases that a worker holds, regardless of its slots: as many as one heartbeat extends.
pub const LEASES_MAX: usize = 1_000;

/// How many leases a worker with `slots` slots may hold ahead if a run is expected to take `expected_ms`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to AHEAD_MAX")]
pub(crate) fn ahead(slots: u32, expected_ms: f64) -> u32 {
    SPARE + (f64::from(slots) * AHEAD_MS / expected_ms.max(1.0)).floor().min(AHEAD_MAX) as u32
}

/// A lane whose model a worker has loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WarmLane {
    /// The lane without its priority: `<class>:<tenant>:<endpoint>`.
    pub place: String,
    /// How many more jobs the model takes there.
    pub takes: u32,
}

impl fmt::Display for WarmLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}*{}", self.place, self.takes)
    }
}

/// How long another job is passed over for jobs of loaded models if loading its model takes `cold_ms`: three times
/// that, at most 20 seconds (docs/adr/0015 has the effect of other times).
#[must_use]
pub fn patience_ms(cold_ms: u64) -> u64 {
    cold_ms.saturating_mul(3).min(20_000)
}

impl LeaseQuery {
    /// The request of a worker with nothing loaded, which does not wait.
    #[must_use]
    pub fn new(worker_id: impl Into<String>, want: u32, reach: Reach) -> Self {
        Self {
            worker_id: worker_id.into(),
            want,
            reach,
            warm: Vec::new(),
            patience_ms: 0,
            only: None,
            rank: 0,
            max_bytes: LEASE_BYTES,
            slots: None,
            taken_elsewhere: 0,
            park: None,
        }
    }
}

/// A parked lease poll: the API replica that holds it and its number there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Waiter {
    /// The replica, as in [`Queue::listen`](crate::Queue::listen).
    pub replica: String,
    /// The waiter's number, unique within the replica.
    pub waiter: u64,
}

impl Waiter {
    /// The waiter's form in the waiting lists, with the numbers of the requirements that it meets: each of them has a
    /// list.
    pub(crate) fn listed(&self, reach: &Reach) -> String {
        format!("{self}/{}", reach.met())
    }
}

impl fmt::Display for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.replica, self.waiter)
    }
}

/// A granted lease.
#[derive(Debug, Clone)]
pub struct Lease {
    /// The job.
    pub job_id: JobId,
    /// The job's spec, which does not change.
    pub spec: JobSpec,
    /// Its input.
    pub input: Box<RawValue>,
    /// The number of this attempt.
    pub attempt: u32,
    /// The fence: the right to end the attempt.
    pub fence: Fence,
    /// How long the job was ready before, milliseconds.
    pub queued_ms: u64,
    /// Jobs left in its lane after this call, as far as the limits of tenant and endpoint let them start.
    pub behind: u64,
}

impl Lease {
    /// The reference to this lease.
    #[must_use]
    pub fn named(&self) -> LeaseRef {
        LeaseRef { job_id: self.job_id, fence: self.fence.clone() }
    }
}
