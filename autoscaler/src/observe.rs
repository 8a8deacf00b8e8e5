//! Builds an [`Observation`] from the state of Redis, workers and providers. Pure; [`crate::live`] reads that state.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use stokehold_planner::observation::{Endpoint, JOINED, Machine, Observation, Offer, Phase, Runs, Traits, Work};
use stokehold_planner::snapshot::Needs;
use stokehold_planner::{Name, seconds};
use stokehold_queue::WorkerRecord;
use stokehold_queue::capability::parts_of;
use stokehold_queue::flow::{Flow, GpuRuns, LaneFlow};
use stokehold_queue::gateway::{GpuHealth, ModelState, ModelStatus};
use stokehold_queue::job::Priority;
use stokehold_queue::registry::{MachineRecord, MachineState, Wanted};
use stokehold_queue::requirements::Requirements;
use stokehold_queue::vram::{kind_of_gpus, sold_gib};
use stokehold_units::{Mib, UsdMicros};

use crate::provider::{Rental, RentalState};

/// Time without a heartbeat after which a worker is lost, milliseconds: five heartbeats.
pub const SILENT_MS: u64 = 15_000;

/// Minimum time since the last request for a machine before a list that shows it as lost or stopped is trusted,
/// milliseconds: a list may be some seconds old.
const LIST_LAG_MS: u64 = 15_000;

/// Time for which all workers may be silent at once before they count as lost, milliseconds: until then the gateway may
/// be down.
const GATEWAY_UNREACHABLE_MS: u64 = 600_000;

/// The same limit for a single worker, milliseconds: the time of a restart of the gateway and of a rejoin.
const GATEWAY_UNREACHABLE_TO_ONE_MS: u64 = 120_000;

/// Time after which no replica of the API leases a job to a drained worker, milliseconds. Replicas read the drained
/// workers once a second.
pub const DRAIN_KNOWN_MS: u64 = 2_000;

/// State of Redis, workers and providers at one moment.
#[derive(Debug, Default)]
pub(crate) struct RawState {
    pub(crate) now_ms: u64,
    pub(crate) flows: Vec<Flow>,
    /// New jobs of the deployed endpoints, by `<tenant>/<name>`.
    pub(crate) new_jobs: BTreeMap<String, NewJobs>,
    pub(crate) demands: BTreeMap<u32, Requirements>,
    pub(crate) workers: Vec<WorkerRecord>,
    pub(crate) machines: BTreeMap<String, MachineRecord>,
    /// Rentals by provider, for providers that could be reached; `None` for a provider without a list.
    pub(crate) rentals: BTreeMap<String, Option<Vec<Rental>>>,
    pub(crate) offers: Vec<Offer>,
    pub(crate) cooldowns: HashMap<String, u64>,
    /// Time of the last heartbeat with a running job, by name of the worker, unix milliseconds.
    pub(crate) busy_ms: BTreeMap<String, u64>,
    /// Current pause, if any.
    pub(crate) pause: Option<Pause>,
}

/// Properties of the new jobs of an endpoint, from its current version.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct NewJobs {
    pub(crate) class: u32,
    /// See [`Endpoint::at_once`].
    pub(crate) at_once: u32,
    /// See [`Endpoint::vram_fraction`].
    pub(crate) vram_fraction: Option<f64>,
}

/// A time in which heartbeats may be missing for a reason other than the worker: the gateway or Redis was down, or
/// nothing polled. Silence in it does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pause {
    /// Workers heard until this moment were alive, unix milliseconds.
    pub(crate) from_ms: u64,
    /// Time until which workers may report again, unix milliseconds.
    pub(crate) until_ms: u64,
}

impl RawState {
    /// Returns the worker of a machine if it has sent a heartbeat since the machine was last requested.
    pub(crate) fn worker_of(&self, machine: &MachineRecord) -> Option<&WorkerRecord> {
        machine.worker(&self.workers)
    }

    /// Whether a worker has been silent beyond the limit, outside of any pause, and is therefore lost.
    pub(crate) fn is_silent(&self, worker: &WorkerRecord) -> bool {
        let is_excused = |pause: Pause| self.now_ms < pause.until_ms && worker.seen_ms + SILENT_MS >= pause.from_ms;
        !self.is_heard(worker) && !self.pause.is_some_and(is_excused)
    }

    /// Whether a worker has sent a heartbeat within the last [`SILENT_MS`].
    pub(crate) fn is_heard(&self, worker: &WorkerRecord) -> bool {
        self.now_ms.saturating_sub(worker.seen_ms) <= SILENT_MS
    }

    /// Whether a pause makes it too early to conclude that a machine failed to start.
    pub(crate) fn is_paused(&self) -> bool {
        self.pause.is_some_and(|pause| self.now_ms < pause.until_ms)
    }

    pub(crate) fn rental_of(&self, machine: &MachineRecord) -> Option<&Rental> {
        let listed = self.rentals.get(&machine.provider)?.as_ref()?;
        listed.iter().find(|rental| rental.label == machine.id || machine.rental.as_ref() == Some(&rental.id))
    }

    /// Whether a machine certainly holds no job: its worker is drained, has reported since all replicas know of the
    /// drain, and runs no job.
    pub(crate) fn is_done(&self, machine: &MachineRecord) -> bool {
        match (self.worker_of(machine), machine.drained_ms) {
            (None, _) => true,
            (Some(worker), Some(drained_ms)) => {
                worker.status.running == 0 && worker.status.draining && worker.seen_ms > drained_ms + DRAIN_KNOWN_MS
            }
            (Some(_), None) => false,
        }
    }

    /// Whether the provider lists a machine that should run as taken away, stopped or broken.
    pub(crate) fn is_taken(&self, machine: &MachineRecord) -> bool {
        let is_to_run = machine.is_done && machine.wanted == Wanted::Running;
        let age_ms = self.now_ms.saturating_sub(machine.wanted_ms);
        is_to_run
            && self.rental_of(machine).is_some_and(|rental| match rental.state {
                RentalState::Lost | RentalState::Stopped => age_ms >= LIST_LAG_MS,
                RentalState::Broken => true,
                RentalState::Starting | RentalState::Running => false,
            })
    }

    /// Whether all workers of machines that should run are silent at once, so that the gateway rather than the machines
    /// may be down.
    pub(crate) fn is_gateway_unreachable(&self) -> bool {
        if self.workers.iter().any(|worker| self.is_heard(worker)) {
            return false;
        }
        let is_to_run = |machine: &&MachineRecord| {
            let is_listed = match self.rentals.get(&machine.provider) {
                Some(Some(_)) => self.rental_of(machine).is_some(),
                Some(None) | None => true,
            };
            machine.wanted == Wanted::Running && is_listed && !self.is_taken(machine)
        };
        let heard_ms: Vec<u64> = self
            .machines
            .values()
            .filter(is_to_run)
            .filter_map(|machine| Some(self.worker_of(machine)?.seen_ms))
            .collect();
        let patience_ms = if heard_ms.len() > 1 { GATEWAY_UNREACHABLE_MS } else { GATEWAY_UNREACHABLE_TO_ONE_MS };
        heard_ms.into_iter().max().is_some_and(|last_ms| self.now_ms.saturating_sub(last_ms) < patience_ms)
    }

    /// Phase of a machine, and its start in unix milliseconds. `None` for a machine that is being given back.
    fn phase(&self, machine: &MachineRecord) -> Option<(Phase, u64)> {
        if self.is_taken(machine) {
            return Some((Phase::Lost, machine.wanted_ms));
        }
        let worker = self.worker_of(machine);
        let is_silent = worker.is_some_and(|worker| self.is_silent(worker));
        let (state, since_ms) = machine.state(worker, self.now_ms, if is_silent { SILENT_MS } else { u64::MAX });
        let phase = match state {
            MachineState::Booting => Phase::Booting,
            MachineState::Ready => Phase::Ready,
            MachineState::Draining => Phase::Draining,
            MachineState::Stopped => Phase::Stopped,
            MachineState::Resuming => Phase::Resuming,
            MachineState::Lost => Phase::Lost,
            MachineState::Ending => return None,
        };
        Some((phase, since_ms))
    }
}

/// Builds the observation of a state.
pub(crate) fn observation(seen: &RawState) -> Observation {
    let mut endpoints: Vec<Endpoint> = seen.flows.iter().map(|flow| endpoint(seen, flow)).collect();
    endpoints.sort_by(|a, b| a.name.cmp(&b.name));
    let mut machines: Vec<Machine> = seen.machines.values().filter_map(|machine| rented(seen, machine)).collect();
    let ours: BTreeSet<&str> = seen.machines.keys().map(String::as_str).collect();
    let others = seen.workers.iter().filter(|worker| !ours.contains(worker.name.as_str()) && !seen.is_silent(worker));
    machines.extend(others.map(|worker| joined(seen, worker)));
    machines.sort_by(|a, b| a.id.cmp(&b.id));
    let is_free = |name: &Name| seen.cooldowns.get(&**name).is_none_or(|until_ms| *until_ms <= seen.now_ms);
    // An offer whose machine is rented already cannot be rented again. Offers with several machines count them
    // themselves.
    let is_had = |offer: &Offer| seen.machines.values().any(|machine| machine.id == *offer.id);
    let may = |offer: &&Offer| is_free(&offer.id) && (offer.host.is_empty() || is_free(&offer.host)) && !is_had(offer);
    let mut offers: Vec<Offer> = seen.offers.iter().filter(may).cloned().collect();
    offers.sort_by(|a, b| (&a.provider, &a.id).cmp(&(&b.provider, &b.id)));
    Observation { at_s: seconds(seen.now_ms), endpoints, machines, offers }
}

/// Requirements of all endpoints, without duplicates. Endpoints with waiting or running jobs come first.
pub(crate) fn needs(seen: &RawState) -> Vec<Needs> {
    let mut endpoints: Vec<Endpoint> = seen.flows.iter().map(|flow| endpoint(seen, flow)).collect();
    let waiting = |endpoint: &Endpoint| endpoint.work.iter().map(|work| work.waiting).sum::<u64>();
    endpoints.sort_by(|a, b| {
        let urgency = |it: &Endpoint| (waiting(it) == 0, it.running == 0);
        urgency(a).cmp(&urgency(b)).then_with(|| a.name.cmp(&b.name))
    });
    let mut needs: Vec<Needs> = Vec::new();
    for Endpoint { vram, demands, .. } in endpoints {
        let of = Needs { vram, demands };
        if !needs.contains(&of) {
            needs.push(of);
        }
    }
    needs
}

/// Machines whose recorded offer cannot be read. Their properties are incomplete until their workers join.
pub(crate) fn unread(seen: &RawState) -> Vec<&str> {
    let is_unread = |machine: &&MachineRecord| machine.wanted != Wanted::Gone && Offer::recovered(&machine.offer).1;
    seen.machines.values().filter(is_unread).map(|machine| machine.id.as_str()).collect()
}

fn endpoint(seen: &RawState, flow: &Flow) -> Endpoint {
    let name = format!("{}/{}", flow.tenant, flow.endpoint);
    let new = seen.new_jobs.get(&name);
    let class = class_of(flow, new.map(|new| new.class));
    let (demands, gib) = parts_of(class);
    let mut work = [Work::default(); 3];
    let mut may_start = flow.may_start.unwrap_or(u64::MAX);
    for priority in Priority::ALL {
        let of = &mut work[usize::from(priority.digit())];
        for lane in flow.lanes.iter().filter(|lane| lane.priority == priority) {
            of.arrived += lane.arrived;
            of.started += lane.started;
            of.late += lane.late;
            // Jobs that a limit holds back need no further machine.
            let startable = lane.waiting.min(may_start);
            may_start -= startable;
            of.waiting += startable;
            if startable > 0 {
                of.oldest_s = of.oldest_s.max(seconds(lane.oldest_ms));
            }
        }
    }
    Endpoint {
        name: name.into(),
        vram: Mib::from_gib(f64::from(gib)),
        demands: seen.demands.get(&demands).cloned().unwrap_or_default(),
        work,
        running: flow.running,
        at_once: new.map_or(1, |new| new.at_once),
        vram_fraction: new.and_then(|new| new.vram_fraction),
        runs: flow.runs.iter().map(runs).collect(),
    }
}

/// Class that decides where the jobs of an endpoint can run. If jobs of several classes wait, e.g. after a job outgrew
/// its GPU or a version declared more memory, the largest, because it also holds the others. Otherwise the class of new
/// jobs.
fn class_of(flow: &Flow, of_new_jobs: Option<u32>) -> u32 {
    let gib = |lane: &&LaneFlow| parts_of(lane.class).1;
    let waiting = flow.lanes.iter().filter(|lane| lane.waiting > 0).max_by_key(gib);
    let ever = || flow.lanes.iter().max_by_key(|lane| lane.arrived);
    waiting.map(|lane| lane.class).or(of_new_jobs).or_else(|| ever().map(|lane| lane.class)).unwrap_or(0)
}

fn runs(of: &GpuRuns) -> Runs {
    Runs {
        kind: of.kind.as_str().into(),
        ended: of.ended,
        run_s: seconds(of.run_ms),
        cold_loads: of.cold_loads,
        cold_load_s: seconds(of.cold_load_ms),
        disk_loads: of.disk_loads,
        disk_load_s: seconds(of.disk_load_ms),
    }
}

/// Builds a rented machine. Until its worker joins, its properties are those of its offer.
fn rented(seen: &RawState, record: &MachineRecord) -> Option<Machine> {
    let (phase, since_ms) = seen.phase(record)?;
    let (offer, _) = Offer::recovered(&record.offer);
    let as_offered = Machine {
        id: record.id.as_str().into(),
        provider: record.provider.as_str().into(),
        kind: offer.kind,
        host: offer.host,
        phase,
        since_s: seconds(since_ms),
        rented_s: seconds(record.rented_ms),
        usd_per_hour: record.usd_micros_per_hour.into(),
        stopped_usd_per_hour: record.stopped_usd_micros_per_hour.into(),
        is_interruptible: record.is_interruptible,
        can_stop: offer.stopped_usd_per_hour.is_some() || record.stopped_usd_micros_per_hour > 0,
        cards: offer.cards,
        vram: offer.vram,
        slots: offer.slots,
        traits: offer.traits,
        running: 0,
        running_vram: Mib::ZERO,
        idle_since_s: None,
        resident: Vec::new(),
        on_disk: record.on_disk.iter().map(|name| name.as_str().into()).collect(),
    };
    let worker = seen.worker_of(record).filter(|_| matches!(phase, Phase::Ready | Phase::Draining));
    let Some(worker) = worker else { return Some(as_offered) };
    let machine = with_worker(seen, worker, as_offered);
    // The last heartbeat may be older than a job that was leased since.
    let unsure = phase == Phase::Draining && machine.running == 0 && !seen.is_done(record);
    Some(if unsure { Machine { running: 1, idle_since_s: None, ..machine } } else { machine })
}

/// Builds a machine from a worker that the autoscaler did not start.
fn joined(seen: &RawState, worker: &WorkerRecord) -> Machine {
    let phase = if worker.status.draining { Phase::Draining } else { Phase::Ready };
    let unknown = Machine {
        id: worker.worker_id.as_str().into(),
        provider: JOINED.into(),
        kind: Name::default(),
        host: worker.name.as_str().into(),
        phase,
        since_s: seconds(worker.joined_ms),
        rented_s: seconds(worker.joined_ms),
        usd_per_hour: UsdMicros::ZERO,
        stopped_usd_per_hour: UsdMicros::ZERO,
        is_interruptible: false,
        can_stop: false,
        cards: 0,
        vram: Mib::ZERO,
        slots: 0,
        traits: Traits::default(),
        running: 0,
        running_vram: Mib::ZERO,
        idle_since_s: None,
        resident: Vec::new(),
        on_disk: Vec::new(),
    };
    with_worker(seen, worker, unknown)
}

/// Completes a machine with the reports of its worker.
fn with_worker(seen: &RawState, worker: &WorkerRecord, machine: Machine) -> Machine {
    let status = &worker.status;
    let is_faulty = |index| status.gpus.iter().any(|gpu| gpu.index == index && gpu.health == GpuHealth::Faulty);
    let sound = worker.gpus.iter().filter(|gpu| !is_faulty(gpu.index));
    let classes: Vec<u32> = sound.map(|gpu| sold_gib(gpu.vram_mib)).collect();
    let cards = u32::try_from(classes.len()).unwrap_or(u32::MAX);
    let is_busy = |model: &&ModelStatus| model.state == ModelState::Busy;
    let held_mib = |model: &ModelStatus| model.cards.iter().map(|card| card.held_mib).sum::<u64>();
    let running_mib: u64 = status.models.iter().filter(is_busy).map(held_mib).sum();
    let mut resident: Vec<Name> = loaded(worker).map(Name::from).collect();
    resident.sort();
    resident.dedup();
    let last_run_ms = status.models.iter().filter_map(|model| model.succeeded_ms).max().unwrap_or(0);
    let last_seen_ms = seen.busy_ms.get(&worker.name).copied().unwrap_or(0);
    let idle_ms = worker.joined_ms.max(last_run_ms).max(last_seen_ms).min(seen.now_ms);
    Machine {
        kind: kind_of_gpus(&worker.gpus).into(),
        cards,
        vram: Mib::from_gib(f64::from(classes.into_iter().min().unwrap_or(0))),
        slots: worker.slots.div_ceil(cards.max(1)),
        traits: Traits {
            compute_capability: worker
                .gpus
                .iter()
                .filter_map(|gpu| gpu.compute_capability.as_deref()?.parse().ok())
                .min(),
            cuda: worker.cuda.as_deref().and_then(|cuda| cuda.parse().ok()),
            region: worker.region.clone(),
            trust: worker.trust,
            sandbox: worker.sandbox.unwrap_or_default(),
        },
        running: u64::from(status.running),
        running_vram: Mib(running_mib),
        idle_since_s: (status.running == 0).then(|| seconds(idle_ms)),
        resident,
        ..machine
    }
}

/// Endpoints, `<tenant>/<name>`, whose models a worker has loaded.
pub(crate) fn loaded(worker: &WorkerRecord) -> impl Iterator<Item = String> {
    let models = worker.status.models.iter().filter(|model| model.state != ModelState::Loading);
    models.map(|model| format!("{}/{}", model.tenant, model.name.split('@').next().unwrap_or_default()))
}

#[cfg(test)]
mod tests;
