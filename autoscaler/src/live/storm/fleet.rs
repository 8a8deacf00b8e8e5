//! The workers on the machines and their jobs, in simulated time.

mod jobs;
mod told;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use rand::Rng as _;
use rand::rngs::StdRng;
use stokehold_fake_vast::{Event, Started};
use stokehold_queue::job::Priority;
use stokehold_queue::registry::Wanted;

use self::jobs::{Jobs, Slots};
use super::cloud::{World, id_of};
use crate::sync::lock;

/// Duration of a job, milliseconds.
const RUN_MS: u64 = 20_000;

/// An endpoint with jobs of one kind.
#[derive(Clone, Copy)]
pub(super) struct Endpoint {
    pub(super) name: &'static str,
    /// VRAM class of its jobs, GiB.
    pub(super) class: u32,
    pub(super) priority: Priority,
}

struct Machine {
    /// The provider's number of the host.
    host: u64,
    joins_ms: u64,
    seen_ms: u64,
    joined_ms: u64,
    card_mb: u64,
    is_up: bool,
    slots: Slots,
}

#[derive(Default)]
struct Parts {
    /// Machines by ID.
    machines: BTreeMap<String, Machine>,
    numbers: BTreeMap<u64, String>,
    jobs: Jobs,
    /// Time until which no heartbeat arrives, milliseconds.
    deaf_until_ms: u64,
    drained: BTreeSet<String>,
    /// Share of machines whose worker never joins.
    never_joins: f64,
    /// Host and time of each start of a machine, and below of each loss, milliseconds.
    came_ms: Vec<(u64, u64)>,
    lost_ms: Vec<(u64, u64)>,
}

/// The fleet. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Fleet(Arc<Mutex<Parts>>);

impl Fleet {
    pub(super) fn of(endpoints: &[Endpoint], never_joins: f64) -> Self {
        let parts = Parts { jobs: Jobs::of(endpoints), never_joins, ..Parts::default() };
        Self(Arc::new(Mutex::new(parts)))
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        lock(&self.0)
    }

    /// Whether the worker of this machine has joined and runs.
    pub(super) fn serves(&self, id: &str) -> bool {
        self.parts().machines.get(id).is_some_and(|machine| machine.is_up && machine.joined_ms > 0)
    }

    /// Number of machines whose workers have joined and run.
    pub(super) fn serving(&self) -> usize {
        let parts = self.parts();
        parts.machines.values().filter(|machine| machine.is_up && machine.joined_ms > 0).count()
    }

    /// Submits jobs to an endpoint, given by its index.
    pub(super) fn submit(&self, endpoint: usize, jobs: usize, now_ms: u64) {
        self.parts().jobs.submit(endpoint, jobs, now_ms);
    }

    /// Numbers of waiting and of ended jobs of an endpoint.
    pub(super) fn count(&self, endpoint: usize) -> (usize, u64) {
        let parts = self.parts();
        (parts.jobs.waiting(endpoint), parts.jobs.ended(endpoint))
    }

    /// Number of jobs that were lost with their machine and run again elsewhere.
    pub(super) fn lost_jobs(&self) -> usize {
        self.parts().jobs.lost
    }

    /// The longest wait of the endpoint's jobs that started since the last call, milliseconds.
    pub(super) fn longest_wait_ms(&self, endpoint: usize) -> u64 {
        self.parts().jobs.longest_wait_ms(endpoint)
    }

    /// Hosts on which a machine started within this time after another one was lost there.
    pub(super) fn returned_to(&self, within_ms: u64) -> Vec<u64> {
        let parts = self.parts();
        let is_soon = |(host, at_ms): &(u64, u64)| {
            parts.lost_ms.iter().any(|(lost, lost_ms)| lost == host && (*lost_ms..lost_ms + within_ms).contains(at_ms))
        };
        parts.came_ms.iter().filter(|came| is_soon(came)).map(|(host, _)| *host).collect()
    }

    /// Starts bursts of work, and periods in which no heartbeat arrives, at random.
    pub(super) fn rage(&self, world: &World, random: &mut StdRng) {
        let now_ms = world.cloud.clock().now_ms();
        let mut parts = self.parts();
        if random.random_bool(0.01) {
            parts.deaf_until_ms = now_ms + random.random_range(20_000..400_000);
        }
        for endpoint in 0..parts.jobs.endpoints.len() {
            if random.random_bool(0.1) {
                let jobs = random.random_range(1..60);
                parts.jobs.submit(endpoint, jobs, now_ms);
            }
        }
    }

    /// Lets heartbeats arrive again and cancels waiting jobs, so that no machine is needed any more.
    pub(super) fn calm(&self) {
        let mut parts = self.parts();
        parts.deaf_until_ms = 0;
        parts.jobs.call_off();
    }

    /// Advances the fleet to the current time: machines start and end, jobs start and end.
    pub(super) fn step(&self, world: &World, random: &mut StdRng) {
        let happened = world.cloud.happened();
        let now_ms = world.cloud.clock().now_ms();
        let mut parts = self.parts();
        for happened in happened {
            match happened.event {
                Event::Started(started) => parts.came(&started, now_ms, random),
                Event::Halted { instance } => parts.went(instance, now_ms, true),
                Event::Destroyed { instance } => parts.went(instance, now_ms, false),
            }
        }
        let (wanted, drained) = {
            let rows = world.ledger.rows();
            let wanted: BTreeSet<String> =
                rows.machines.values().filter(|it| it.wanted == Wanted::Running).map(|it| it.id.clone()).collect();
            (wanted, rows.drains.keys().cloned().collect::<BTreeSet<_>>())
        };
        parts.drained = drained;
        parts.work(&wanted, now_ms);
    }
}

impl Parts {
    fn came(&mut self, started: &Started, now_ms: u64, random: &mut StdRng) {
        let id = id_of(started.label.as_deref().unwrap_or_default()).to_owned();
        self.numbers.insert(started.instance, id.clone());
        self.came_ms.push((started.machine, now_ms));
        let never = random.random_bool(self.never_joins);
        let machine = Machine {
            host: started.machine,
            joins_ms: if never { u64::MAX } else { now_ms + random.random_range(1_000..60_000) },
            seen_ms: 0,
            joined_ms: 0,
            card_mb: started.gpu_ram_mb,
            is_up: true,
            slots: Slots::of(started.num_gpus),
        };
        self.machines.insert(id, machine);
    }

    /// Stops the worker on an instance. Its jobs are requeued.
    fn went(&mut self, instance: u64, now_ms: u64, is_loss: bool) {
        let Some(machine) = self.numbers.get(&instance).and_then(|id| self.machines.get_mut(id)) else { return };
        if std::mem::take(&mut machine.is_up) && is_loss {
            self.lost_ms.push((machine.host, now_ms));
        }
        self.jobs.put_back(&mut machine.slots);
    }

    fn work(&mut self, wanted: &BTreeSet<String>, now_ms: u64) {
        let is_deaf = now_ms < self.deaf_until_ms;
        for (id, machine) in &mut self.machines {
            if !machine.is_up {
                continue;
            }
            self.jobs.end(&mut machine.slots, now_ms);
            if is_deaf || now_ms < machine.joins_ms || (machine.joined_ms == 0 && !wanted.contains(id)) {
                continue;
            }
            machine.seen_ms = now_ms;
            if machine.joined_ms == 0 {
                machine.joined_ms = now_ms;
            }
            if !self.drained.contains(id) {
                self.jobs.take(&mut machine.slots, machine.card_mb, now_ms);
            }
        }
    }
}
