//! Builds an [`Observation`] from the state of Redis, workers and providers. Pure; [`crate::live`] reads that state.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use stokehold_queue::WorkerRecord;
use stokehold_queue::demands::Demands;
use stokehold_queue::flow::{CardRuns, Flow, LaneFlow};
use stokehold_queue::gateway::{GpuHealth, ModelState, ModelStatus};
use stokehold_queue::job::Priority;
use stokehold_queue::reach::parts_of;
use stokehold_queue::registry::{MachineRecord, MachineState, Wanted};
use stokehold_queue::vram::{kind_of_cards, sold_gib};

use crate::durations::seconds;
use crate::money::dollars;
use crate::name::Name;
use crate::observation::{Endpoint, JOINED, Machine, Observation, Offer, Phase, Runs, Traits, Work};
use crate::provider::{Rental, RentalState};
use crate::snapshot::Needs;

/// Time without a heartbeat after which a worker is lost, milliseconds: five heartbeats.
pub const SILENT_MS: u64 = 15_000;

/// Minimum time since the last request for a machine before a list that shows it as lost or stopped is trusted,
/// milliseconds: a list may be some seconds old.
const LIST_LAG_MS: u64 = 15_000;

/// Time for which all workers may be silent at once before they count as lost, milliseconds: until then the gateway may
/// be down.
const GATEWAY_UNREACHABLE_MS: u64 = 600_000;

/// The same for a single worker, milliseconds: the time of a restart of the gateway and of a rejoin.
const GATEWAY_UNREACHABLE_TO_ONE_MS: u64 = 120_000;

/// Time after which no replica of the API leases a job to a drained worker, milliseconds. Replicas read the drained
/// workers once a second.
pub const DRAIN_KNOWN_MS: u64 = 2_000;

/// State of Redis, workers and providers at one moment.
#[derive(Debug, Default)]
pub(crate) struct RawState {
    pub(crate) now_ms: u64,
    pub(crate) flows: Vec<Flow>,
    /// Class of the new jobs of an endpoint, by `<tenant>/<name>`.
    pub(crate) classes: BTreeMap<String, u32>,
    /// Number of these jobs that one process runs at once, if more than one.
    pub(crate) at_once: BTreeMap<String, u32>,
    pub(crate) demands: BTreeMap<u32, Demands>,
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

    /// Whether a machine certainly holds no job: its worker is drained, reported so after all replicas knew, and runs
    /// no job.
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
    for Endpoint { vram_gb, demands, .. } in endpoints {
        let of = Needs { vram_gb, demands };
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
    let class = class_of(flow, seen.classes.get(&name).copied());
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
    let at_once = seen.at_once.get(&name).copied().unwrap_or(1);
    Endpoint {
        name: name.into(),
        vram_gb: f64::from(gib),
        demands: seen.demands.get(&demands).cloned().unwrap_or_default(),
        work,
        running: flow.running,
        at_once,
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

fn runs(of: &CardRuns) -> Runs {
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
        usd_per_hour: dollars(record.usd_micros_per_hour),
        stopped_usd_per_hour: dollars(record.stopped_usd_micros_per_hour),
        is_interruptible: record.is_interruptible,
        can_stop: offer.stopped_usd_per_hour.is_some() || record.stopped_usd_micros_per_hour > 0,
        cards: offer.cards,
        vram_gb: offer.vram_gb,
        slots: offer.slots,
        traits: offer.traits,
        running: 0,
        running_gb: 0.0,
        idle_since_s: None,
        resident: Vec::new(),
        on_disk: record.on_disk.iter().map(|name| name.as_str().into()).collect(),
    };
    let worker = seen.worker_of(record).filter(|_| matches!(phase, Phase::Ready | Phase::Draining));
    let Some(worker) = worker else { return Some(as_offered) };
    let machine = told(seen, worker, as_offered);
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
        usd_per_hour: 0.0,
        stopped_usd_per_hour: 0.0,
        is_interruptible: false,
        can_stop: false,
        cards: 0,
        vram_gb: 0.0,
        slots: 0,
        traits: Traits::default(),
        running: 0,
        running_gb: 0.0,
        idle_since_s: None,
        resident: Vec::new(),
        on_disk: Vec::new(),
    };
    told(seen, worker, unknown)
}

/// Completes a machine with the reports of its worker.
fn told(seen: &RawState, worker: &WorkerRecord, machine: Machine) -> Machine {
    let status = &worker.status;
    let is_fenced = |index| status.gpus.iter().any(|gpu| gpu.index == index && gpu.health == GpuHealth::Fenced);
    let sound = worker.gpus.iter().filter(|gpu| !is_fenced(gpu.index));
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
        kind: kind_of_cards(&worker.gpus).into(),
        cards,
        vram_gb: f64::from(classes.into_iter().min().unwrap_or(0)),
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
        running_gb: gib(running_mib),
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

#[expect(clippy::cast_precision_loss, reason = "far less than 2^53")]
fn gib(mib: u64) -> f64 {
    mib as f64 / 1_024.0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    const NOW_MS: u64 = 1_000_000_000;

    fn lane(priority: Priority, class: u32, waiting: u64, oldest_ms: u64) -> LaneFlow {
        LaneFlow { priority, class, arrived: waiting + 5, started: 5, late: 1, waiting, oldest_ms }
    }

    fn flow(may_start: Option<u64>, lanes: Vec<LaneFlow>) -> Flow {
        Flow { tenant: "acme".to_owned(), endpoint: "draw".to_owned(), running: 2, may_start, lanes, ..Flow::default() }
    }

    fn of(flow: Flow) -> Endpoint {
        let classes = [("acme/draw".to_owned(), 10)].into();
        let demands = [(0, Demands::default()), (3, Demands { gpus: 2, ..Demands::default() })].into();
        let seen = RawState { now_ms: NOW_MS, flows: vec![flow], classes, demands, ..RawState::default() };
        observation(&seen).endpoints.remove(0)
    }

    #[test]
    fn what_limits_keep_back_is_not_for_another_machine() {
        let lanes = || vec![lane(Priority::Interactive, 10, 3, 9_000), lane(Priority::Batch, 10, 40, 90_000)];
        let free = of(flow(None, lanes()));
        assert_eq!([free.work[0].waiting, free.work[1].waiting, free.work[2].waiting], [3, 0, 40]);
        assert_eq!((free.work[2].oldest_s, free.running, free.work[2].arrived), (90.0, 2, 45));
        let held = of(flow(Some(4), lanes()));
        assert_eq!([held.work[0].waiting, held.work[2].waiting], [3, 1], "the urgent ones first");
        assert_eq!(of(flow(Some(0), lanes())).work[0].oldest_s, 0.0);
    }

    #[test]
    fn the_largest_class_that_waits_decides_and_else_that_of_new_jobs() {
        let outgrown = of(flow(None, vec![lane(Priority::Batch, 10, 1, 0), lane(Priority::Batch, 3_024, 1, 0)]));
        assert_eq!((outgrown.vram_gb, outgrown.demands.gpus), (24.0, 2));
        assert_eq!(of(flow(None, vec![lane(Priority::Batch, 80, 0, 0)])).vram_gb, 10.0, "nothing of the old one waits");
    }

    fn worker(name: &str, running: u32, seen_ms: u64) -> WorkerRecord {
        serde_json::from_value(json!({
            "worker_id": format!("w_{name}"), "name": name, "release": "", "slots": 4, "joined_ms": NOW_MS - 50_000, "seen_ms": seen_ms,
            "gpus": [{"index": 0, "uuid": "GPU-1", "name": "NVIDIA GeForce RTX 4090", "vram_mib": 24_564}],
            "status": {"running": running, "models": [
                {"tenant": "acme", "name": "draw@3", "state": "busy", "cards": [{"index": 0, "held_mib": 10_240}]},
                {"tenant": "acme", "name": "write@1", "state": "loading"}]},
        }))
        .unwrap()
    }

    fn record(wanted: Wanted) -> MachineRecord {
        let offer = json!({"id": "77", "provider": "cloud", "kind": "4090 as sold", "host": "box-3", "count": 1, "cards": 1,
            "vram_gb": 24.0, "speed": 1.0, "usd_per_hour": 0.35, "stopped_usd_per_hour": 0.01, "boot_s": 90.0});
        let machine = json!({"id": "m-1", "provider": "cloud", "rental": "9001", "offer": offer, "wanted": wanted,
            "wanted_ms": NOW_MS - 100_000, "is_done": true, "rented_ms": NOW_MS - 100_000, "usd_micros_per_hour": 350_000});
        serde_json::from_value(machine).unwrap()
    }

    fn machines(record: MachineRecord, workers: Vec<WorkerRecord>) -> Vec<Machine> {
        let machines = [(record.id.clone(), record)].into();
        observation(&RawState { now_ms: NOW_MS, machines, workers, ..RawState::default() }).machines
    }

    fn phase(record: MachineRecord, workers: Vec<WorkerRecord>) -> Option<Phase> {
        machines(record, workers).first().map(|machine| machine.phase)
    }

    #[test]
    fn a_machine_is_where_its_record_and_its_worker_say() {
        let running = || record(Wanted::Running);
        assert_eq!(phase(running(), vec![]), Some(Phase::Booting));
        assert_eq!(phase(running(), vec![worker("m-1", 0, NOW_MS)]), Some(Phase::Ready));
        assert_eq!(phase(running(), vec![worker("m-1", 0, NOW_MS - 16_000)]), Some(Phase::Lost));
        let before = vec![worker("m-1", 0, NOW_MS - 100_001)];
        assert_eq!(phase(running(), before), Some(Phase::Booting), "one of an earlier life does not count");
        let resumed = MachineRecord { rented_ms: 1, ..running() };
        assert_eq!(phase(resumed, vec![]), Some(Phase::Resuming));
        assert_eq!(phase(record(Wanted::Stopped), vec![]), Some(Phase::Stopped));
        assert_eq!(phase(record(Wanted::Gone), vec![]), None, "it is spoken of no more");
    }

    #[test]
    fn a_machine_is_as_its_worker_tells() {
        let [machine] = &machines(record(Wanted::Running), vec![worker("m-1", 1, NOW_MS)])[..] else { panic!() };
        assert_eq!((&*machine.kind, machine.vram_gb, machine.slots, machine.running), ("RTX 4090", 24.0, 4, 1));
        assert_eq!((machine.running_gb, machine.idle_since_s, machine.usd_per_hour), (10.0, None, 0.35));
        assert_eq!(machine.resident, ["acme/draw".into()], "what is loading is not there yet");
        let draining = MachineRecord { drained_ms: Some(NOW_MS - 1_000), ..record(Wanted::Running) };
        let [machine] = &machines(draining, vec![worker("m-1", 0, NOW_MS - 500)])[..] else { panic!() };
        assert_eq!((machine.phase, machine.running), (Phase::Draining, 1), "it may have been given one just now");
    }

    #[test]
    fn a_machine_whose_offer_cannot_be_read_is_seen_paid_for_and_said() {
        let damaged = || MachineRecord {
            offer: json!({"id": "77", "provider": "cloud", "kind": ["RTX 4090"], "host": "box-3"}),
            stopped_usd_micros_per_hour: 10_000,
            ..record(Wanted::Running)
        };
        let [machine] = &machines(damaged(), vec![])[..] else { panic!("it is gone from the plan") };
        assert_eq!((machine.phase, machine.usd_per_hour, &*machine.host), (Phase::Booting, 0.35, "box-3"));
        let [machine] = &machines(damaged(), vec![worker("m-1", 0, NOW_MS)])[..] else { panic!() };
        assert_eq!(
            (machine.phase, machine.vram_gb, machine.cards),
            (Phase::Ready, 24.0, 1),
            "its worker says what it is"
        );
        assert!(machine.idle_since_s.is_some() && machine.can_stop, "it is given up as others are");
        let seen = |machine: MachineRecord| RawState {
            machines: [(machine.id.clone(), machine)].into(),
            ..RawState::default()
        };
        assert_eq!(unread(&seen(damaged())), ["m-1"]);
        assert_eq!(unread(&seen(record(Wanted::Running))), [""; 0]);
        assert_eq!(unread(&seen(MachineRecord { wanted: Wanted::Gone, ..damaged() })), [""; 0]);
    }

    #[test]
    fn when_all_fall_silent_at_once_it_may_be_the_gateway() {
        let other = MachineRecord { id: "m-2".to_owned(), ..record(Wanted::Running) };
        let gateway_unreachable = |machines: &[MachineRecord], workers: Vec<WorkerRecord>| {
            let machines = machines.iter().map(|machine| (machine.id.clone(), machine.clone())).collect();
            RawState { now_ms: NOW_MS, machines, workers, ..RawState::default() }.is_gateway_unreachable()
        };
        let both = [record(Wanted::Running), other];
        let silent = |name, s: u64| worker(name, 0, NOW_MS - s * 1_000);
        assert!(gateway_unreachable(&both, vec![silent("m-1", 80), silent("m-2", 90)]));
        assert!(!gateway_unreachable(&both, vec![silent("m-1", 80), silent("m-2", 1)]), "one is heard");
        assert!(!gateway_unreachable(&both, vec![]), "nobody has ever been heard");
        assert!(gateway_unreachable(&both[..1], vec![silent("m-1", 30)]));
        let old = [MachineRecord { wanted_ms: 1, ..record(Wanted::Running) }];
        assert!(gateway_unreachable(&old, vec![silent("m-1", 110)]), "a restart may take so long");
        assert!(!gateway_unreachable(&old, vec![silent("m-1", 121)]), "it is likelier to be the one that is gone");
        assert!(!gateway_unreachable(&[], vec![silent("desk", 30)]), "none of ours");
    }

    #[test]
    fn silence_that_is_ours_is_held_against_nobody_who_was_there() {
        let at = |silent_s: u64, pause: Option<Pause>| {
            let workers = vec![worker("m-1", 0, NOW_MS - silent_s * 1_000)];
            let machines = [("m-1".to_owned(), record(Wanted::Running))].into();
            let seen = RawState { now_ms: NOW_MS, machines, workers, pause, ..RawState::default() };
            (observation(&seen).machines[0].phase, seen.is_paused())
        };
        let pause = |until_ms| Some(Pause { from_ms: NOW_MS - 40_000, until_ms });
        assert_eq!(at(45, None), (Phase::Lost, false));
        assert_eq!(at(45, pause(NOW_MS + 1)), (Phase::Ready, true), "it may come back yet");
        assert_eq!(at(45, pause(NOW_MS)), (Phase::Lost, false), "it has not");
        assert_eq!(at(60, pause(NOW_MS + 1)), (Phase::Lost, true), "it was gone before");
    }

    #[test]
    fn a_worker_that_somebody_else_started_is_a_machine_too() {
        let seen = RawState { now_ms: NOW_MS, workers: vec![worker("desk", 0, NOW_MS)], ..RawState::default() };
        let [machine] = &observation(&seen).machines[..] else { panic!() };
        assert_eq!((&*machine.provider, &*machine.id, machine.phase), (JOINED, "w_desk", Phase::Ready));
    }

    #[test]
    fn offers_of_hosts_that_are_left_alone_are_not_there() {
        let offer: Offer = serde_json::from_value(record(Wanted::Running).offer).unwrap();
        let seen = |host: &str, until_ms| RawState {
            now_ms: NOW_MS,
            offers: vec![offer.clone()],
            cooldowns: [(host.to_owned(), until_ms)].into(),
            ..RawState::default()
        };
        let left = |host, until_ms| observation(&seen(host, until_ms)).offers.len();
        assert_eq!(
            [left("box-3", NOW_MS + 1), left("77", NOW_MS + 1), left("box-3", NOW_MS), left("x", NOW_MS + 1)],
            [0, 0, 1, 1]
        );
    }
}
