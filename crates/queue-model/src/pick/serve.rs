//! Moves jobs from a lane to running attempts, like `lua/lib/lease/serve.lua`, `take.lua` and `key_order.lua`.

use stokehold_protocol::id::{Fence, JobId};
use stokehold_protocol::job::{Attempt, AttemptOutcome, SLOT_PARTS, Timing};
use stokehold_protocol::state::JobEvent;
use stokehold_queue::flow;
use stokehold_queue::implementation;
use stokehold_queue::queue::Lease;

use super::{Choice, Inner, Pull};
use crate::Position;
use crate::class_queues::parts_of;
use crate::limit_scopes::{endpoint_scope, key_scope, tenant_scope};

/// Time that a job is set aside for an earlier one with the same key, milliseconds.
const KEY_WAIT_MS: u64 = 2_000;

impl Inner {
    /// Serves the next tenant of a class queue from one of its lanes. The tenant gets at most as many jobs as it is due
    /// before the next tenant.
    pub(super) fn serve(&mut self, pull: &mut Pull<'_>, choice: &Choice) {
        let name = choice.class_queue;
        // A class with a virtual start has a class queue with a tenant; otherwise an invariant is broken.
        let class_queue = self.class_queues.get(&name).expect("a class with a tag has a shelf");
        let mut head = class_queue.tenants.iter().map(|(tenant, tag)| (tenant.clone(), tag));
        let (mut tenant, mut tag) = head.next().expect("a shelf has a tenant");
        let mut rival = head.next().map(|(_, tag)| tag);
        drop(head);
        let owner = choice.lane.as_deref().map(|lane| parts_of(lane).1.to_owned());
        let mut jumps = false;
        if let Some(owner) = owner.filter(|owner| *owner != tenant) {
            tag = class_queue.tenants.score(&owner).expect("the tenant of a lane out of turn is in the class queue");
            (tenant, rival, jumps) = (owner, None, true);
        }
        let scope = tenant_scope(&tenant);
        let (places, due) = self.room(&scope);
        if places < 1.0 {
            self.hold_tenant(&scope, name, &tenant, due);
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
        let lane_gate = endpoint_scope(&tenant, &endpoint);
        let (lane_places, lane_due) = self.room(&lane_gate);
        if lane_places < 1.0 {
            self.hold_lane(&lane, lane_due);
            pull.cleared += 1;
            return;
        }

        let charged = self.expected_ms(&tenant, &endpoint);
        let step = charged / self.weight(&tenant);
        let tenants = self.class_queues.get(&name).map_or(1, |class_queue| class_queue.tenants.len()) as f64;
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
            if let Some(class_queue) = self.class_queues.get_mut(&name) {
                if class_queue.tenants.score(&tenant).is_some() {
                    class_queue.tenants.put(tenant.clone(), tag + jobs as f64 * step);
                }
                if !jumps {
                    class_queue.now = tag + (jobs - 1) as f64 * step;
                }
            }
            let tags = &mut self.tags[usize::from(name.0)];
            let before = tags.score(&name.1).unwrap_or(0.0);
            tags.put(name.1, before + jobs as f64 * charged / tenants);
            self.start_at(&scope, jobs as u64);
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
        let (class_queue, tenant, endpoint) = parts_of(lane);
        let fits = match pull.query.only {
            Some(only) => class_queue.1 == only,
            None => pull.query.reach.has(class_queue.1) || pull.takes(lane) > 0,
        };
        fits && self.room(&endpoint_scope(tenant, endpoint)).0 >= 1.0
    }

    /// Whether a job with the same key that was submitted earlier must go first.
    fn goes_after(&mut self, pull: &mut Pull<'_>, id: JobId, lane: &str, scope: &str) -> bool {
        let (now, urgency) = (self.now, parts_of(lane).0.0);
        let arrival = self.record(id).arrival;
        for (other, its_lane) in self.line(scope) {
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
            if record.place == Position::Key {
                pull.to_front.push((other, its_lane));
            }
            let until = (now + KEY_WAIT_MS) as f64;
            if self.holds.score(&scope.to_owned()).is_none_or(|due| until < due) {
                self.holds.put(scope.to_owned(), until);
            }
            return true;
        }
        false
    }

    /// Moves one job from its lane to a running attempt, unless its deadline has passed or its key is at its limit.
    fn take(&mut self, pull: &mut Pull<'_>, id: JobId, lane: &str, charged: f64) -> bool {
        let now = self.now;
        let record = self.record(id);
        record.place = Position::Nowhere;
        let key = key_scope(&record.job.spec);
        if record.start_by_ms.is_some_and(|due| due <= now) || record.job.spec.deadline_ms.is_some_and(|due| due <= now)
        {
            return false;
        }
        if let Some((scope, most)) = key {
            if self.running.of(&scope) >= most || self.goes_after(pull, id, lane, &scope) {
                self.wait_for_key(id, lane);
                return false;
            }
            self.leave_line(id, lane, &scope);
            self.running.add(&scope, 1);
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
            usage: None,
            error: None,
        });
        let spec_bytes = implementation::encode_spec(&record.job.spec).map_or(0, |text| text.len());
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
            self.grow(implementation::started(lane), 1);
            if queued_ms > flow::late_ms(priority) {
                self.grow(implementation::late(lane), 1);
            }
        }
        self.leases.put(id, (now + pull.lease_ms) as f64);
        true
    }
}
