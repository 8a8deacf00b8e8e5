//! Class queues: they hold the ready jobs and decide which one is next, like `lua/lib/class_queues.lua` and
//! `lua/lib/enqueue.lua`. Every sum is computed in the same order as there, because virtual starts are compared to the
//! last bit.

use std::collections::{HashMap, HashSet, VecDeque};

use stokehold_protocol::id::JobId;
use stokehold_queue::implementation;

use super::limit_scopes::{endpoint_scope, key_scope};
use super::ranked::Ranked;
use super::{Inner, Position};

/// The expected run of an endpoint that has never run, milliseconds.
const EXPECTED_MS: f64 = 1_000.0;

/// The name of a class queue: priority and class.
pub(super) type ClassQueueName = (u8, u32);

/// A class queue: the tenants with ready jobs.
#[derive(Debug, Default)]
pub(super) struct ClassQueue {
    /// Active tenants, by virtual start.
    pub(super) tenants: Ranked<String>,
    /// The virtual time.
    pub(super) now: f64,
    /// Virtual starts of tenants that became inactive ahead of the virtual time.
    left: HashMap<String, f64>,
}

/// The jobs of a lane that may be leased.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) front: VecDeque<JobId>,
    pub(super) queue: VecDeque<JobId>,
}

impl Lane {
    pub(super) fn is_empty(&self) -> bool {
        self.front.is_empty() && self.queue.is_empty()
    }
}

/// Splits `<priority>:<class>:<tenant>:<endpoint>`.
pub(super) fn parts_of(lane: &str) -> (ClassQueueName, &str, &str) {
    let mut parts = lane.splitn(4, ':');
    let mut next = || parts.next().unwrap_or("");
    let (priority, class, tenant, endpoint) = (next(), next(), next(), next());
    ((priority.parse().unwrap_or(0), class.parse().unwrap_or(0)), tenant, endpoint)
}

fn member_of(class_queue: ClassQueueName) -> String {
    format!("{}:{}", class_queue.0, class_queue.1)
}

impl Inner {
    /// Time at which the first job of a lane became ready, Unix milliseconds.
    pub(super) fn since_ms(&self, lane: &Lane) -> Option<u64> {
        let heads = [lane.front.front(), lane.queue.front()].into_iter().flatten();
        heads.filter_map(|id| self.jobs.get(id)).map(|record| record.ready_ms).min()
    }

    pub(super) fn next_turn(&mut self) -> f64 {
        self.turn += 1;
        self.turn as f64
    }

    pub(super) fn expected_ms(&self, tenant: &str, endpoint: &str) -> f64 {
        self.costs.get(&format!("{tenant}:{endpoint}")).copied().unwrap_or(EXPECTED_MS)
    }

    /// Activates a tenant in a class queue, unless it is active.
    fn stand(&mut self, name: ClassQueueName, tenant: &str) {
        let stands = |class_queue: &ClassQueue| class_queue.tenants.score(&tenant.to_owned()).is_some();
        if self.class_queues.get(&name).is_some_and(stands) {
            return;
        }
        self.settle_charge(name, tenant);
        let class_queue = self.class_queues.entry(name).or_default();
        let left_at = class_queue.left.remove(tenant).unwrap_or(0.0);
        class_queue.tenants.put(tenant.to_owned(), class_queue.now.max(left_at));
        if class_queue.tenants.len() == 1 {
            let tags = &mut self.tags[usize::from(name.0)];
            let first = tags.first().map_or(0.0, |(_, tag)| tag);
            tags.put_new(name.1, first);
        }
    }

    /// Deactivates a tenant in a class queue.
    pub(super) fn step_off(&mut self, name: ClassQueueName, tenant: &str) {
        self.settle_charge(name, tenant);
        let Some(class_queue) = self.class_queues.get_mut(&name) else { return };
        let Some(tag) = class_queue.tenants.score(&tenant.to_owned()) else { return };
        class_queue.tenants.remove(&tenant.to_owned());
        if class_queue.tenants.is_empty() {
            self.tags[usize::from(name.0)].remove(&name.1);
            self.class_queues.remove(&name);
        } else if tag > class_queue.now {
            class_queue.left.insert(tenant.to_owned(), tag);
        }
    }

    /// Charges a tenant `cost` milliseconds of a GPU.
    pub(super) fn charge(&mut self, name: ClassQueueName, tenant: &str, cost: f64) {
        let by = cost / self.weight(tenant);
        *self.charges.entry((name, tenant.to_owned())).or_default() += by;
    }

    /// Adds the charges of this call to a tenant's virtual start.
    pub(super) fn settle_charge(&mut self, name: ClassQueueName, tenant: &str) {
        let Some(by) = self.charges.remove(&(name, tenant.to_owned())) else { return };
        let Some(class_queue) = self.class_queues.get_mut(&name) else { return };
        if let Some(tag) = class_queue.tenants.score(&tenant.to_owned()) {
            class_queue.tenants.put(tenant.to_owned(), tag + by);
        } else if let Some(left_at) = class_queue.left.get_mut(tenant) {
            *left_at += by;
        }
    }

    /// Updates the expected run time of an endpoint, which its next start is charged. The value has one decimal, like
    /// in the script.
    pub(super) fn learn_cost(&mut self, tenant: &str, endpoint: &str, took: f64) {
        const SMOOTHING: f64 = 0.2;
        let field = format!("{tenant}:{endpoint}");
        let expected = self.costs.get(&field).map_or(took, |before| before + (took - before) * SMOOTHING);
        let kept = format!("{:.1}", expected.max(0.1)).parse().unwrap_or(expected);
        self.costs.insert(field, kept);
    }

    /// Adds a lane to the lanes of its tenant again.
    fn open_lane(&mut self, lane: &str) {
        let (name, tenant, _) = parts_of(lane);
        let turn = self.next_turn();
        self.lanes_of.entry((name, tenant.to_owned())).or_default().put_new(lane.to_owned(), turn);
        self.stand(name, tenant);
    }

    /// Puts a job into its lane, at the end or among the requeued ones. Returns the lane.
    pub(super) fn enqueue(&mut self, id: JobId, at_front: bool) -> String {
        let now = self.now;
        let record = self.record(id);
        record.ready_ms = now;
        record.place = if at_front { Position::Front } else { Position::Lane };
        record.job.run_after_ms = None;
        let name = implementation::lane(&record.job.spec);
        let lane = self.lanes.entry(name.clone()).or_default();
        if at_front {
            lane.front.push_back(id)
        } else {
            lane.queue.push_back(id)
        }
        self.ready.add(&name, 1);
        // A requeued job has already been counted as arrived.
        if !at_front {
            self.grow(implementation::arrived(&name), 1);
        }
        self.open_lane(&name);
        self.line_up(id, &name);
        name
    }

    /// Removes a lane if it is empty. Returns whether the lane has jobs.
    pub(super) fn tidy_lane(&mut self, name: &str) -> bool {
        if self.lanes.get(name).is_some_and(|lane| !lane.is_empty()) {
            return true;
        }
        self.lanes.remove(name);
        let (class_queue, tenant, _) = parts_of(name);
        self.close_lane(class_queue, tenant, name);
        false
    }

    /// Removes a lane from the lanes of its tenant.
    pub(super) fn close_lane(&mut self, class_queue: ClassQueueName, tenant: &str, name: &str) {
        let among = (class_queue, tenant.to_owned());
        if let Some(lanes) = self.lanes_of.get_mut(&among) {
            lanes.remove(&name.to_owned());
            if lanes.is_empty() {
                self.lanes_of.remove(&among);
            }
        }
        if !self.lanes_of.contains_key(&among) {
            self.step_off(class_queue, tenant);
        }
    }

    /// Blocks a tenant's jobs in one class queue by its own limits.
    pub(super) fn hold_tenant(&mut self, scope: &str, class_queue: ClassQueueName, tenant: &str, due: Option<f64>) {
        self.hold(scope, member_of(class_queue), due);
        self.step_off(class_queue, tenant);
    }

    /// Unblocks the tenants and lanes that a limit scope blocks.
    pub(super) fn resume(&mut self, scope: &str) {
        if scope.starts_with("k:") {
            return self.next_in_key(scope);
        }
        let Some(held) = self.held.remove(scope) else { return };
        self.holds.remove(&scope.to_owned());
        for (member, _) in held.iter() {
            if let Some(tenant) = scope.strip_prefix("t:") {
                let (class_queue, _, _) = parts_of(member);
                if self.lanes_of.contains_key(&(class_queue, tenant.to_owned())) {
                    self.stand(class_queue, tenant);
                    self.wake(class_queue.1, None);
                }
            } else if self.lanes.get(member).is_some_and(|lane| !lane.is_empty()) {
                self.open_lane(member);
                self.wake(parts_of(member).0.1, Some(member));
            }
        }
    }

    /// Blocks a lane by the limits of its endpoint.
    pub(super) fn hold_lane(&mut self, lane: &str, due: Option<f64>) {
        let (class_queue, tenant, endpoint) = parts_of(lane);
        self.hold(&endpoint_scope(tenant, endpoint), lane.to_owned(), due);
        self.close_lane(class_queue, tenant, lane);
    }

    /// Adds a queued job with a concurrency key to the key queue, in the order of arrival.
    fn line_up(&mut self, id: JobId, lane: &str) {
        let record = self.record(id);
        let (arrival, key) = (record.arrival, key_scope(&record.job.spec));
        if let Some((scope, _)) = key {
            self.waiting.entry(scope).or_default().put((id, lane.to_owned()), arrival);
        }
    }

    /// Sets a job aside until its concurrency key admits it. The job keeps its position in the key queue.
    pub(super) fn wait_for_key(&mut self, id: JobId, lane: &str) {
        self.record(id).place = Position::Key;
        self.line_up(id, lane);
    }

    pub(super) fn leave_line(&mut self, id: JobId, lane: &str, scope: &str) {
        if let Some(waiting) = self.waiting.get_mut(scope) {
            waiting.remove(&(id, lane.to_owned()));
            if waiting.is_empty() {
                self.waiting.remove(scope);
            }
        }
    }

    /// The first jobs of a key queue.
    pub(super) fn line(&self, scope: &str) -> Vec<(JobId, String)> {
        const LINE_MAX: usize = 100;
        let line = self.waiting.get(scope).into_iter().flat_map(|line| line.iter());
        line.take(LINE_MAX).map(|(member, _)| member.clone()).collect()
    }

    /// Requeues a job that was set aside.
    pub(super) fn call_forward(&mut self, id: JobId, lane: &str) {
        self.ready.take_one(lane);
        self.enqueue(id, true);
    }

    /// Requeues jobs at the head of a key queue, as many of each lane as the concurrency key allows.
    pub(super) fn next_in_key(&mut self, scope: &str) {
        let line = self.line(scope);
        if line.is_empty() {
            self.holds.remove(&scope.to_owned());
        }
        let running = self.running.of(scope);
        let (mut in_lane, mut full) = (HashMap::<String, u64>::new(), HashSet::new());
        for (id, lane) in line {
            if full.contains(&lane) {
                continue;
            }
            let record = self.record(id);
            let (place, most) = (record.place, key_scope(&record.job.spec).map_or(0, |(_, most)| most));
            let before = in_lane.entry(lane.clone()).or_default();
            if place != Position::Key {
                *before += 1;
            } else if running + *before < most {
                *before += 1;
                self.call_forward(id, &lane);
                self.wake(parts_of(&lane).0.1, Some(&lane));
            } else {
                full.insert(lane);
            }
        }
    }
}
