//! As `lua/lease.lua` and `lua/lib/lease`: which jobs a worker gets.

use super::gates::{endpoint_gate, key_gate, tenant_gate};
use super::shelves::{ShelfName, parts_of};
use super::{Inner, Parked, Place, Record};
use crate::error::Error;
use crate::flow;
use crate::id::{Fence, JobId};
use crate::job::{Attempt, AttemptOutcome, SLOT_PARTS, Timing};
use crate::queue::{AGE_AFTER_MS, HOLD_AFTER_MS, HOLD_MS, LEASES_MAX, Lease, LeaseQuery, ahead};
use crate::reach::Reach;
use crate::state::JobEvent;
use crate::stored_spec;

const PASSED_MAX: u32 = 19;
const PASSED_KEPT: u32 = 1_000;
const IN_THE_WAY: usize = 100;

/// How long a job is set aside for one with the same key that goes first.
const KEY_WAIT_MS: u64 = 2_000;

/// One look through the shelves.
struct Pull<'a> {
    query: &'a LeaseQuery,
    nonce: String,
    lease_ms: u64,
    leases: Vec<Lease>,
    /// The lane of each.
    lanes: Vec<String>,
    /// How many jobs more each loaded model takes, by its lane without the priority; in the order of the query.
    takes: Vec<(String, usize)>,
    /// Bytes of their specs and inputs.
    bytes: usize,
    /// Entries and lanes out of the way that gave no lease.
    cleared: usize,
    passed: [u32; 3],
    waits: [bool; 3],
    /// Jobs that were set aside and go before another with the same key.
    to_front: Vec<(JobId, String)>,
    /// How many leases the worker holds, and what they take of its slots.
    held: (usize, u64),
    /// A job stays where it is, since the worker holds as many as it may.
    is_full: bool,
}

impl Pull<'_> {
    fn left(&self) -> usize {
        self.query.want as usize - self.leases.len()
    }

    fn is_large(&self) -> bool {
        self.bytes >= self.query.max_bytes
    }

    /// Whether the worker may hold one more job that takes `part` of a slot, of an endpoint with this expected run
    /// time.
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

/// What to serve next: from which shelf, how far its class lies behind the next one, and at most how many; and the lane, if it is out of
/// turn.
struct Choice {
    shelf: ShelfName,
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
                // The wake that brought this worker here may have stood for more jobs than it took: pass it on, if only for want of room.
                pull.takes.iter_mut().for_each(|(_, takes)| *takes = usize::MAX);
                if let Some(more) = self.choose(&pull) {
                    self.wake(more.shelf.1, more.lane.as_deref());
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

    /// How many leases a worker holds, and what they take of its slots.
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

    /// Jobs that a lane has left, as far as its limits let them start now.
    fn jobs_behind(&self, lane: &str) -> u64 {
        let (_, tenant, endpoint) = parts_of(lane);
        let places = self.room(&tenant_gate(tenant)).0.min(self.room(&endpoint_gate(tenant, endpoint)).0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and the jobs of a lane")]
        let behind = places.clamp(0.0, self.ready.of(lane) as f64) as u64;
        behind
    }

    fn look(&mut self, pull: &mut Pull<'_>) {
        while pull.left() > 0 && pull.cleared < IN_THE_WAY && !pull.is_large() && !pull.is_full {
            let Some(choice) = self.choose(pull) else { return };
            let (had, priority) = (pull.leases.len(), usize::from(choice.shelf.0));
            self.serve(pull, &choice);
            for (id, lane) in std::mem::take(&mut pull.to_front) {
                if self.record(id).place == Place::Key {
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

    /// A class to make room for.
    pub(super) fn hold_card(&mut self, now: &Reach, could: &Reach) -> Option<u32> {
        let shelves = [0, 1, 2]
            .into_iter()
            .flat_map(|priority| self.tags[usize::from(priority)].iter().map(move |(class, _)| (priority, *class)));
        for shelf in shelves.collect::<Vec<ShelfName>>() {
            let class = shelf.1;
            if now.has(class) || !could.has(class) || self.now - self.stands_since(shelf) < HOLD_AFTER_MS {
                continue;
            }
            if self.holds_of.get(&class).is_none_or(|until| *until <= self.now) {
                self.holds_of.insert(class, self.now + HOLD_MS);
                return Some(class);
            }
        }
        None
    }

    /// Since when the same job has been the next one.
    fn stands_since(&mut self, shelf: ShelfName) -> u64 {
        let Some(head) = self.head(shelf) else { return self.now };
        let now = self.now;
        let stood = self.heads.entry(shelf).or_insert((head, now));
        if stood.0 != head {
            *stood = (head, now);
        }
        stood.1
    }

    fn choose(&self, pull: &Pull<'_>) -> Option<Choice> {
        let class_of = |priority| self.class_of(priority, pull);
        for priority in [1, 2] {
            if pull.passed[usize::from(priority)] >= PASSED_MAX
                && let Some((class, lead)) = class_of(priority)
                && self.is_aged((priority, class))
            {
                let lane =
                    if pull.query.reach.has(class) { None } else { self.loaded_lane(pull, priority, Some(class)) };
                return Some(Choice { shelf: (priority, class), lead, most: 1, lane });
            }
        }
        for priority in [0, 1, 2] {
            let Some((class, lead)) = class_of(priority) else { continue };
            // Not further than the next who has been passed over too often.
            let most = (usize::from(priority) + 1..3)
                .filter(|lower| pull.waits[*lower] && pull.passed[*lower] < PASSED_MAX)
                .map(|lower| (PASSED_MAX - pull.passed[lower]) as usize)
                .fold(pull.left(), usize::min);
            if let Some(lane) = self.warm_lane(pull, priority, class) {
                let most = most.min(pull.takes(&lane));
                return Some(Choice { shelf: parts_of(&lane).0, lead: f64::INFINITY, most, lane: Some(lane) });
            }
            return Some(Choice { shelf: (priority, class), lead, most, lane: None });
        }
        None
    }

    /// The class within reach whose turn it is, and how far its tag lies behind the next one's. Equal tags: the largest first.
    fn class_of(&self, priority: u8, pull: &Pull<'_>) -> Option<(u32, f64)> {
        let reach = &pull.query.reach;
        let is_open = |class| match pull.query.only {
            Some(only) => class == only && reach.has(class),
            None => reach.has(class) || self.loaded_lane(pull, priority, Some(class)).is_some(),
        };
        let tags = &self.tags[usize::from(priority)];
        let within: Vec<(u32, f64)> =
            tags.iter().map(|(class, tag)| (*class, tag)).filter(|(class, _)| is_open(*class)).collect();
        let (best, tag) = *within.iter().min_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))?;
        let rival =
            within.iter().filter(|(class, _)| *class != best).map(|(_, tag)| *tag).fold(f64::INFINITY, f64::min);
        Some((best, rival - tag))
    }

    /// The first lane of the worker's loaded models, of this class or of any, that is in its class queue and whose
    /// model takes more.
    fn loaded_lane(&self, pull: &Pull<'_>, priority: u8, class: Option<u32>) -> Option<String> {
        let is_open = |lane: &String| {
            let (shelf, tenant, _) = parts_of(lane);
            let stands = || self.shelves.get(&shelf)?.tenants.score(&tenant.to_owned());
            let among = || self.lanes_of.get(&(shelf, tenant.to_owned()))?.score(lane);
            class.is_none_or(|class| shelf.1 == class) && among().is_some() && stands().is_some()
        };
        let taking = pull.takes.iter().filter(|(_, takes)| *takes > 0);
        taking.map(|(place, _)| format!("{priority}:{place}")).find(is_open)
    }

    /// A lane of the worker's loaded models that may go before the job whose turn it is, or the only lane there that
    /// can go.
    fn warm_lane(&self, pull: &Pull<'_>, priority: u8, class: u32) -> Option<String> {
        if pull.query.only.is_some() {
            return None;
        }
        if !pull.query.reach.has(class) {
            return self.loaded_lane(pull, priority, Some(class));
        }
        let open = self.loaded_lane(pull, priority, None)?;
        let is_warm = pull.takes(self.next_lane((priority, class))?) > 0;
        (!is_warm && self.waited_ms((priority, class)) < pull.query.patience_ms).then_some(open)
    }

    /// The lane that would be served next.
    fn next_lane(&self, shelf: ShelfName) -> Option<&String> {
        let (tenant, _) = self.shelves.get(&shelf)?.tenants.first()?;
        Some(self.lanes_of.get(&(shelf, tenant.clone()))?.first()?.0)
    }

    fn head(&self, shelf: ShelfName) -> Option<JobId> {
        let lane = self.lanes.get(self.next_lane(shelf)?)?;
        lane.front.front().or(lane.queue.front()).copied()
    }

    /// How long the job that would be served next has been ready; 0 when there is none.
    fn waited_ms(&self, shelf: ShelfName) -> u64 {
        let head = self.head(shelf).and_then(|id| self.jobs.get(&id));
        head.map_or(0, |record| self.now.saturating_sub(record.ready_ms))
    }

    /// Whether the job that would be served next has waited too long.
    fn is_aged(&self, shelf: ShelfName) -> bool {
        self.waited_ms(shelf) >= AGE_AFTER_MS
    }

    /// Serves the tenant whose turn it is: at most as many as it is due before the next tenant, from one of its lanes.
    fn serve(&mut self, pull: &mut Pull<'_>, choice: &Choice) {
        let name = choice.shelf;
        // A class with a tag has a shelf with a tenant; the opposite is a broken invariant.
        let shelf = self.shelves.get(&name).expect("a class with a tag has a shelf");
        let mut head = shelf.tenants.iter().map(|(tenant, tag)| (tenant.clone(), tag));
        let (mut tenant, mut tag) = head.next().expect("a shelf has a tenant");
        let mut rival = head.next().map(|(_, tag)| tag);
        drop(head);
        let owner = choice.lane.as_deref().map(|lane| parts_of(lane).1.to_owned());
        let mut jumps = false;
        if let Some(owner) = owner.filter(|owner| *owner != tenant) {
            tag = shelf.tenants.score(&owner).expect("the tenant of a lane out of turn is in the class queue");
            (tenant, rival, jumps) = (owner, None, true);
        }
        let gate = tenant_gate(&tenant);
        let (places, due) = self.room(&gate);
        if places < 1.0 {
            self.hold_tenant(&gate, name, &tenant, due);
            pull.cleared += 1;
            return;
        }
        let among = (name, tenant.clone());
        let first = || self.lanes_of.get(&among).and_then(|lanes| lanes.first()).map(|(lane, _)| lane.clone());
        let Some(lane) = choice.lane.clone().or_else(first) else {
            self.step_off(name, &tenant);
            pull.cleared += 1;
            return;
        };
        let endpoint = parts_of(&lane).2.to_owned();
        let lane_gate = endpoint_gate(&tenant, &endpoint);
        let (lane_places, lane_due) = self.room(&lane_gate);
        if lane_places < 1.0 {
            self.hold_lane(&lane, lane_due);
            pull.cleared += 1;
            return;
        }

        let charged = self.expected_ms(&tenant, &endpoint);
        let step = charged / self.weight(&tenant);
        let tenants = self.shelves.get(&name).map_or(1, |shelf| shelf.tenants.len()) as f64;
        let siblings = self.lanes_of.get(&among).map_or(1, |lanes| lanes.len()) as f64;
        let mut most = (choice.most as f64).min(places).min(lane_places);
        most = most.min((choice.lead / (charged / tenants)).floor() + 1.0);
        if let Some(rival) = rival {
            most = most.min(((rival - tag) / step).floor() + 1.0);
        }
        if siblings > 1.0 {
            most = (most / siblings).ceil().min(most);
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and `want`")]
        let most = most as usize;
        let mut jobs = self.take_from(pull, true, &lane, most, charged);
        if self.lanes.get(&lane).is_some_and(|lane| lane.front.is_empty()) {
            jobs += self.take_from(pull, false, &lane, most - jobs, charged);
        }
        if jobs > 0 {
            if let Some(shelf) = self.shelves.get_mut(&name) {
                if shelf.tenants.score(&tenant).is_some() {
                    shelf.tenants.put(tenant.clone(), tag + jobs as f64 * step);
                }
                if !jumps {
                    shelf.now = tag + (jobs - 1) as f64 * step;
                }
            }
            let tags = &mut self.tags[usize::from(name.0)];
            let before = tags.score(&name.1).unwrap_or(0.0);
            tags.put(name.1, before + jobs as f64 * charged / tenants);
            self.start_at(&gate, jobs as u64);
            self.start_at(&lane_gate, jobs as u64);
        }
        if self.tidy_lane(&lane) && siblings > 1.0 {
            let turn = self.next_turn();
            if let Some(lanes) = self.lanes_of.get_mut(&among) {
                lanes.put(lane, turn);
            }
        }
    }

    fn take_from(&mut self, pull: &mut Pull<'_>, front: bool, name: &str, most: usize, charged: f64) -> usize {
        let (mut looked, mut taken) = (0, 0);
        while looked < most && !pull.is_large() && !pull.is_full {
            let Some(lane) = self.lanes.get(name) else { break };
            let jobs = if front { &lane.front } else { &lane.queue };
            let Some(id) = jobs.front().copied() else { break };
            let part = self.jobs.get(&id).map_or(SLOT_PARTS, |record| record.job.spec.part());
            if !pull.may_hold(part, charged) {
                pull.is_full = true;
                break;
            }
            if let Some(lane) = self.lanes.get_mut(name) {
                if front {
                    lane.front.pop_front()
                } else {
                    lane.queue.pop_front()
                };
            }
            looked += 1;
            taken += usize::from(self.take(pull, id, name, charged));
        }
        pull.cleared += looked - taken;
        taken
    }

    /// Whether this worker could take a job of this lane now, by the lane's class and endpoint.
    fn serves(&self, pull: &Pull<'_>, lane: &str) -> bool {
        let (shelf, tenant, endpoint) = parts_of(lane);
        let fits = match pull.query.only {
            Some(only) => shelf.1 == only,
            None => pull.query.reach.has(shelf.1) || pull.takes(lane) > 0,
        };
        fits && self.room(&endpoint_gate(tenant, endpoint)).0 >= 1.0
    }

    /// Whether a job with the same key that was submitted before this one goes first.
    fn goes_after(&mut self, pull: &mut Pull<'_>, id: JobId, lane: &str, gate: &str) -> bool {
        let (now, urgency) = (self.now, parts_of(lane).0.0);
        let arrival = self.record(id).arrival;
        for (other, its_lane) in self.line(gate) {
            if self.record(other).arrival >= arrival {
                return false;
            }
            if parts_of(&its_lane).0.0 > urgency || !self.serves(pull, &its_lane) {
                continue;
            }
            let record = self.record(other);
            let is_over = |due: Option<u64>| due.is_some_and(|due| due <= now);
            if is_over(record.start_by_ms) || is_over(record.job.spec.deadline_ms) {
                continue;
            }
            if record.place == Place::Key {
                pull.to_front.push((other, its_lane));
            }
            let until = (now + KEY_WAIT_MS) as f64;
            if self.holds.score(&gate.to_owned()).is_none_or(|due| until < due) {
                self.holds.put(gate.to_owned(), until);
            }
            return true;
        }
        false
    }

    /// One job: from its lane to a running attempt, unless its time is over or its key is taken.
    fn take(&mut self, pull: &mut Pull<'_>, id: JobId, lane: &str, charged: f64) -> bool {
        let now = self.now;
        let record = self.record(id);
        record.place = Place::Nowhere;
        let key = key_gate(&record.job.spec);
        if record.start_by_ms.is_some_and(|due| due <= now) || record.job.spec.deadline_ms.is_some_and(|due| due <= now)
        {
            return false;
        }
        if let Some((gate, most)) = key {
            if self.running.of(&gate) >= most || self.goes_after(pull, id, lane, &gate) {
                self.wait_for_key(id, lane);
                return false;
            }
            self.leave_line(id, lane, &gate);
            self.running.add(&gate, 1);
        }
        self.step(id, JobEvent::Lease);
        let record = self.record(id);
        record.attempt += 1;
        let fence = Fence::new(record.fence_counter() + 1, &pull.nonce);
        record.fence = Some(fence.clone());
        record.charged = charged;
        let started_by = record.start_by_ms.take();
        let deadline = record.job.spec.deadline_ms;
        let (first, priority) = (record.attempt == 1, record.job.spec.priority);
        let queued_ms = now.saturating_sub(record.ready_ms);
        record.job.attempts.push(Attempt {
            attempt: record.attempt,
            worker_id: pull.query.worker_id.clone(),
            fence: fence.clone(),
            leased_ms: now,
            ended_ms: None,
            outcome: AttemptOutcome::Running,
            timing: Timing { queued_ms, ..Timing::default() },
            cost_usd_micros: None,
            error: None,
        });
        let spec_bytes = stored_spec::encode(&record.job.spec).map_or(0, |text| text.len());
        pull.bytes += spec_bytes + record.job.input.get().len();
        pull.leases.push(Lease {
            job_id: id,
            spec: record.job.spec.clone(),
            input: record.job.input.clone(),
            attempt: record.attempt,
            fence,
            queued_ms,
            behind: 0,
        });
        pull.held = (pull.held.0 + 1, pull.held.1 + record.job.spec.part());
        pull.lanes.push(lane.to_owned());
        if started_by.is_some() {
            self.deadlines.remove(&id);
            if let Some(deadline) = deadline {
                self.deadlines.put(id, deadline as f64);
            }
        }
        self.ready.take_one(lane);
        if first {
            self.grow(flow::started(lane), 1);
            if queued_ms > flow::late_ms(priority) {
                self.grow(flow::late(lane), 1);
            }
        }
        self.leases.put(id, (now + pull.lease_ms) as f64);
        true
    }
}
