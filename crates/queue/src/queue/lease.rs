//! Leases: what a worker requests, what it is granted, and parked lease polls.

use std::fmt;

use serde_json::value::RawValue;

use crate::capability::Capability;
use crate::gateway::LeaseRef;
use crate::id::{Fence, JobId};
use crate::job::JobSpec;

/// Default time after which waiting work may go ahead of more urgent work: 5 minutes.
pub const AGE_AFTER_MS: u64 = 5 * 60 * 1000;

/// Maximum size of the specs and inputs in one call of [`Queue::lease`](crate::Queue::lease), after which no further
/// job is added: 8 MiB. A hundred inputs of 1 MiB would block Redis for half a second, and the worker that runs the
/// first of them would wait for the last.
pub const LEASE_BYTES: usize = 8 << 20;

/// Time after which a worker is asked to reserve a GPU, if the next job of a class stays the same because no GPU has
/// room for it.
pub const HOLD_AFTER_MS: u64 = 20 * 1000;

/// Time for which only one worker is asked to reserve a GPU for a class: about as long as its running jobs need to end.
pub const HOLD_MS: u64 = 60 * 1000;

/// A request for leases.
#[derive(Debug, Clone)]
pub struct LeaseQuery {
    /// The worker.
    pub worker_id: String,
    /// Maximum number of leases, 1 to 100.
    pub want: u32,
    /// The worker's capability.
    pub reach: Capability,
    /// The lanes of loaded models, each lane once. Their jobs go first, even if their class exceeds the capability,
    /// unless the next job in turn has waited for `patience_ms`.
    pub warm: Vec<WarmLane>,
    /// See [`patience_ms`].
    pub patience_ms: u64,
    /// The class that the worker has reserved room for (see [`Queue::hold`](crate::Queue::hold)); only its jobs are
    /// leased.
    pub only: Option<u32>,
    /// Rank among waiters with the same capability, 0 to 999,999. The lowest rank is woken first.
    pub rank: u32,
    /// Maximum size of specs and inputs, bytes, after which no further job is added; at least one job is leased.
    pub max_bytes: usize,
    /// The number of slots. The worker gets as many leases as run in them at once, plus a few ahead ([`ahead`]). `None`
    /// grants as many as requested.
    pub slots: Option<u32>,
    /// The slots used by its leases on other shards, in [`SLOT_PARTS`](crate::job::SLOT_PARTS).
    pub taken_elsewhere: u64,
    /// The waiter to park in the same step if nothing is ready, so that no wakeup is lost in between.
    pub park: Option<Waiter>,
}

/// Number of leases ahead of its slots that a worker may always have: their results and ends are in transit.
const SPARE: u32 = 32;

/// Further leases ahead, as half a second of work for the slots, up to a maximum number of jobs. Workers request a
/// tenth of it.
const AHEAD_MS: f64 = 500.0;
const AHEAD_MAX: f64 = 300.0;

/// Maximum number of leases of a worker, regardless of its slots: as many as one heartbeat extends.
pub const LEASES_MAX: usize = 1_000;

/// Number of leases ahead that a worker with `slots` slots may have if a run is expected to take `expected_ms`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to AHEAD_MAX")]
#[must_use]
pub fn ahead(slots: u32, expected_ms: f64) -> u32 {
    SPARE + (f64::from(slots) * AHEAD_MS / expected_ms.max(1.0)).floor().min(AHEAD_MAX) as u32
}

/// A lane whose model a worker has loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WarmLane {
    /// The lane without its priority: `<class>:<tenant>:<endpoint>`.
    pub place: String,
    /// Number of further jobs that the model takes there.
    pub takes: u32,
}

impl fmt::Display for WarmLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}*{}", self.place, self.takes)
    }
}

/// Maximum time that another job waits for jobs of loaded models if loading its model takes `cold_ms`: three times
/// that, at most 20 seconds (docs/adr/0015 has the effect of other values).
#[must_use]
pub fn patience_ms(cold_ms: u64) -> u64 {
    cold_ms.saturating_mul(3).min(20_000)
}

impl LeaseQuery {
    /// The request of a worker with no loaded models, which does not wait.
    #[must_use]
    pub fn new(worker_id: impl Into<String>, want: u32, reach: Capability) -> Self {
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
    /// The replica, as named in [`Queue::listen`](crate::Queue::listen).
    pub replica: String,
    /// The waiter's number, unique within the replica.
    pub waiter: u64,
}

impl Waiter {
    /// The waiter's entry in the waiting lists, with the numbers of the requirement sets that it meets: each set has a
    /// list.
    #[must_use]
    pub fn listed(&self, reach: &Capability) -> String {
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
    /// Input of the job.
    pub input: Box<RawValue>,
    /// The number of this attempt.
    pub attempt: u32,
    /// The fence: the lease token, which gives the right to end the attempt.
    pub fence: Fence,
    /// Time that the job was ready before the lease, milliseconds.
    pub queued_ms: u64,
    /// Number of jobs left in its lane after this call that the limits of tenant and endpoint allow to start.
    pub behind: u64,
}

impl Lease {
    /// The reference to this lease.
    #[must_use]
    pub fn named(&self) -> LeaseRef {
        LeaseRef { job_id: self.job_id, fence: self.fence.clone() }
    }
}
