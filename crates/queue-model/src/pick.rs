//! Selects the jobs that a worker gets, like `lua/lease.lua` and `lua/lib/lease`.

mod choose;
mod serve;

use stokehold_protocol::capability::Capability;
use stokehold_protocol::id::JobId;
use stokehold_protocol::job::SLOT_PARTS;
use stokehold_queue::Error;
use stokehold_queue::implementation::ahead;
use stokehold_queue::queue::{HOLD_AFTER_MS, HOLD_MS, LEASES_MAX, Lease, LeaseQuery};

use super::class_queues::{ClassQueueName, parts_of};
use super::limit_scopes::{endpoint_scope, tenant_scope};
use super::{Inner, Parked, Position, Record};

const PASSED_MAX: u32 = 19;
const PASSED_KEPT: u32 = 1_000;
const IN_THE_WAY: usize = 100;

/// One lease call: its progress through the class queues.
struct Pull<'a> {
    query: &'a LeaseQuery,
    nonce: String,
    lease_ms: u64,
    leases: Vec<Lease>,
    /// The lane of each lease.
    lanes: Vec<String>,
    /// Number of further jobs that each loaded model takes, by its lane without the priority, in the order of the
    /// query.
    takes: Vec<(String, usize)>,
    /// Size of the specs and inputs of the leases, bytes.
    bytes: usize,
    /// Number of entries and lanes that were skipped without a lease.
    cleared: usize,
    passed: [u32; 3],
    waits: [bool; 3],
    /// Jobs that were set aside and go before another one with the same key.
    to_front: Vec<(JobId, String)>,
    /// Number of the worker's leases, and the parts of its slots that they take.
    held: (usize, u64),
    /// Whether a job was left in its lane because the worker has as many leases as it may.
    is_full: bool,
}

impl Pull<'_> {
    fn left(&self) -> usize {
        self.query.want as usize - self.leases.len()
    }

    fn is_large(&self) -> bool {
        self.bytes >= self.query.max_bytes
    }

    /// Whether the worker may have another lease of a job that takes `part` of a slot, if its endpoint has this
    /// expected run time.
    fn may_hold(&self, part: u64, expected_ms: f64) -> bool {
        let Some(slots) = self.query.slots else { return true };
        let most = u64::from(slots) * SLOT_PARTS + u64::from(ahead(slots, expected_ms)) * part;
        self.held.0 < LEASES_MAX && self.held.1 + part <= most
    }

    fn takes(&self, lane: &str) -> usize {
        let place = place_of(lane);
        self.takes.iter().find(|(warm, _)| warm == place).map_or(0, |(_, takes)| *takes)
    }
}

/// The next class queue to serve: the distance in virtual start from its class to the next one, the maximum number of
/// jobs, and the lane if it is served out of turn.
struct Choice {
    class_queue: ClassQueueName,
    lead: f64,
    most: usize,
    lane: Option<String>,
}

/// A lane without its priority.
fn place_of(lane: &str) -> &str {
    lane.split_once(':').map_or("", |(_, place)| place)
}

impl Inner {
    pub(super) fn lease(&mut self, query: &LeaseQuery, lease_ms: u64) -> Result<Vec<Lease>, Error> {
        loop {
            let mut pull = Pull {
                query,
                nonce: self.nonce(),
                lease_ms,
                leases: Vec::new(),
                bytes: 0,
                lanes: Vec::new(),
                takes: query.warm.iter().map(|warm| (warm.place.clone(), warm.takes as usize)).collect(),
                cleared: 0,
                passed: self.passed,
                waits: [0, 1, 2].map(|priority: usize| !self.tags[priority].is_empty()),
                to_front: Vec::new(),
                held: self.leases_of(query),
                is_full: false,
            };
            self.look(&mut pull);
            for priority in [1, 2] {
                let passed = if pull.waits[priority] { pull.passed[priority] } else { 0 };
                self.passed[priority] = passed.min(PASSED_KEPT);
            }
            for (lease, lane) in pull.leases.iter_mut().zip(&pull.lanes) {
                lease.behind = self.jobs_behind(lane);
            }
            if !pull.leases.is_empty() || pull.is_full {
                // A wakeup can be for several jobs. If jobs are left, the next waiter is woken, even if this worker
                // only lacked room.
                pull.takes.iter_mut().for_each(|(_, takes)| *takes = usize::MAX);
                if let Some(more) = self.choose(&pull) {
                    self.wake(more.class_queue.1, more.lane.as_deref());
                }
                if pull.leases.is_empty() {
                    return Err(Error::Full);
                }
            } else if pull.cleared >= IN_THE_WAY {
                continue;
            } else if let Some(waiter) = &query.park {
                let LeaseQuery { reach, rank, .. } = query.clone();
                let warm = query.warm.iter().map(|warm| warm.place.clone()).collect();
                self.parked.insert(waiter.listed(&reach), Parked { reach, rank, warm });
            }
            return Ok(pull.leases);
        }
    }

    /// Number of a worker's leases, and the parts of its slots that they take.
    fn leases_of(&self, query: &LeaseQuery) -> (usize, u64) {
        let (mut jobs, mut parts) = (0, query.taken_elsewhere);
        if query.slots.is_some() {
            let its_own = |record: &&Record| record.running().is_some_and(|run| run.worker_id == query.worker_id);
            for record in self.jobs.values().filter(its_own) {
                (jobs, parts) = (jobs + 1, parts + record.job.spec.part());
            }
        }
        (jobs, parts)
    }

    /// Number of jobs left in a lane that its limits allow to start now.
    fn jobs_behind(&self, lane: &str) -> u64 {
        let (_, tenant, endpoint) = parts_of(lane);
        let places = self.room(&tenant_scope(tenant)).0.min(self.room(&endpoint_scope(tenant, endpoint)).0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and the jobs of a lane")]
        let behind = places.clamp(0.0, self.ready.of(lane) as f64) as u64;
        behind
    }

    fn look(&mut self, pull: &mut Pull<'_>) {
        while pull.left() > 0 && pull.cleared < IN_THE_WAY && !pull.is_large() && !pull.is_full {
            let Some(choice) = self.choose(pull) else { return };
            let (had, priority) = (pull.leases.len(), usize::from(choice.class_queue.0));
            self.serve(pull, &choice);
            for (id, lane) in std::mem::take(&mut pull.to_front) {
                if self.record(id).place == Position::Key {
                    self.call_forward(id, &lane);
                }
            }
            if let Some(lane) = &choice.lane
                && let Some((_, takes)) = pull.takes.iter_mut().find(|(place, _)| place == place_of(lane))
            {
                *takes -= pull.leases.len() - had;
            }
            let taken = u32::try_from(pull.leases.len() - had).unwrap_or(u32::MAX);
            if taken > 0 {
                if priority > 0 {
                    pull.passed[priority] = 0;
                }
                for lower in priority + 1..3 {
                    pull.passed[lower] = if pull.waits[lower] { pull.passed[lower] + taken } else { 0 };
                }
            }
        }
    }

    /// Returns a class that the worker should reserve room for.
    pub(super) fn hold_gpu(&mut self, now: &Capability, could: &Capability) -> Option<u32> {
        let class_queues = [0, 1, 2]
            .into_iter()
            .flat_map(|priority| self.tags[usize::from(priority)].iter().map(move |(class, _)| (priority, *class)));
        for class_queue in class_queues.collect::<Vec<ClassQueueName>>() {
            let class = class_queue.1;
            if now.has(class) || !could.has(class) || self.now - self.stands_since(class_queue) < HOLD_AFTER_MS {
                continue;
            }
            if self.holds_of.get(&class).is_none_or(|until| *until <= self.now) {
                self.holds_of.insert(class, self.now + HOLD_MS);
                return Some(class);
            }
        }
        None
    }

    /// Time since which the class queue has had the same next job, Unix milliseconds.
    fn stands_since(&mut self, class_queue: ClassQueueName) -> u64 {
        let Some(head) = self.head(class_queue) else { return self.now };
        let now = self.now;
        let stood = self.heads.entry(class_queue).or_insert((head, now));
        if stood.0 != head {
            *stood = (head, now);
        }
        stood.1
    }
}
