//! A simulated machine: the worker's ledger over one GPU, the models on it, and its bill.

use stokehold_protocol::capability::Capability;
use stokehold_protocol::gateway::Gpu;
use stokehold_protocol::vram::mib_of_gib;
use stokehold_queue::queue::{LeaseQuery, WarmLane, patience_ms};
use stokehold_vram::{Idle, Ledger, Need, Reservation, Ticket};

use super::rules::{Rules, cold_load_s, disk_load_s};
use crate::durations::millis;
use crate::name::Name;
use crate::observation::Phase;

/// The only GPU of a machine.
const CARD: [u32; 1] = [0];

/// A model that is loaded, or being loaded.
struct Model {
    part: Reservation,
    endpoint: usize,
    lane: String,
    load_ms: u64,
    /// Time at which it is loaded.
    ready_ms: u64,
    used_ms: u64,
    /// Jobs that it runs now.
    running: u32,
}

impl Model {
    fn is_idle(&self) -> bool {
        self.running == 0
    }
}

/// The way in which a model became ready for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    Resident,
    FromDisk,
    Cold,
}

/// Needs of a job.
pub(super) struct Wanted<'a> {
    pub(super) endpoint: usize,
    pub(super) vram_gb: f64,
    pub(super) lane: &'a str,
}

pub(super) struct Machine {
    pub(super) id: Name,
    /// Index of the kind of machine.
    pub(super) kind: usize,
    pub(super) phase: Phase,
    pub(super) since_ms: u64,
    pub(super) rented_ms: u64,
    pub(super) is_interruptible: bool,
    pub(super) usd_per_hour: f64,
    /// Whether models run side by side.
    is_shared: bool,
    /// Jobs that one model runs at once.
    max_concurrency: u32,
    ledger: Ledger,
    models: Vec<Model>,
    on_disk: Vec<usize>,
    pub(super) running: Vec<Ticket>,
    pub(super) running_gb: f64,
    pub(super) idle_since_ms: u64,
    /// Capability that the machine reported in its waiting poll.
    pub(super) parked: Option<Capability>,
    /// Class for which the machine reserves room.
    pub(super) holds: Option<u32>,
    /// Number of times that the machine was switched off. Events of an earlier life are ignored.
    pub(super) life: u32,
    /// Whether the GPU is rented to another customer while the machine should resume.
    pub(super) is_taken: bool,
    /// Time up to which the machine has been charged.
    pub(super) billed_ms: u64,
}

impl Machine {
    pub(super) fn new(id: Name, kind: usize, vram_gb: f64, rules: &Rules, now_ms: u64) -> Self {
        // A twentieth of a GPU is kept free, and the figures of traces are the memory that models may use.
        let vram_mib = (mib_of_gib(vram_gb) * 20).div_ceil(19);
        let gpu = Gpu { index: 0, vram_mib, ..Gpu::default() };
        Self {
            id,
            kind,
            phase: Phase::Booting,
            since_ms: now_ms,
            rented_ms: now_ms,
            is_interruptible: false,
            usd_per_hour: 0.0,
            is_shared: rules.share_gb.is_some(),
            max_concurrency: rules.max_concurrency,
            ledger: Ledger::new(&[gpu], false),
            models: Vec::new(),
            on_disk: Vec::new(),
            running: Vec::new(),
            running_gb: 0.0,
            idle_since_ms: now_ms,
            parked: None,
            holds: None,
            life: 0,
            is_taken: false,
            billed_ms: now_ms,
        }
    }

    /// Enters a phase.
    pub(super) fn enter(&mut self, phase: Phase, now_ms: u64) {
        self.phase = phase;
        self.since_ms = now_ms;
        if phase == Phase::Ready {
            self.idle_since_ms = now_ms;
        }
    }

    /// Powers off: the memory is lost, the disk is not.
    pub(super) fn power_off(&mut self) {
        self.models.clear();
        self.running.clear();
        self.running_gb = 0.0;
        self.holds = None;
        self.life += 1;
    }

    /// Whether the GPU can take another job.
    pub(super) fn is_open(&self) -> bool {
        let has_room = |model: &Model| (1..self.max_concurrency).contains(&model.running);
        self.phase == Phase::Ready && (self.is_shared || self.running.is_empty() || self.models.iter().any(has_room))
    }

    fn idle(&self, now_ms: u64) -> Vec<Idle> {
        let value = |model: &Model| model.load_ms as f64 / (1_000.0 + (now_ms - model.used_ms) as f64);
        let idle = self.models.iter().filter(|model| model.is_idle());
        idle.map(|model| Idle { ticket: model.part.ticket, value: value(model) }).collect()
    }

    fn reach_gib(&self) -> u32 {
        let idle: Vec<Ticket> =
            self.models.iter().filter(|model| model.is_idle()).map(|model| model.part.ticket).collect();
        self.ledger.reach(&idle).first().map_or(0, |card| card.reach_gib)
    }

    /// Lease request to the queue.
    pub(super) fn query(&self) -> LeaseQuery {
        // Where one model runs at a time, the others wait until it has no jobs.
        let is_alone = !self.is_shared && !self.running.is_empty();
        let takes = |model: &Model| match model.running {
            0 if is_alone => 0,
            running => self.max_concurrency.saturating_sub(running),
        };
        let loaded: Vec<&Model> = self.models.iter().filter(|model| takes(model) > 0).collect();
        let reach_gib = if is_alone { 0 } else { self.reach_gib() };
        let mut query = LeaseQuery::new(&*self.id, 1, Capability::usual(reach_gib));
        query.warm = loaded.iter().map(|model| WarmLane { place: model.lane.clone(), takes: takes(model) }).collect();
        // Models of the same endpoint are one lane, which takes as many jobs.
        query.warm.sort_by(|a, b| a.place.cmp(&b.place));
        query.warm.dedup_by(|next, first| {
            let is_same = next.place == first.place;
            first.takes += if is_same { next.takes } else { 0 };
            is_same
        });
        let cold_ms = loaded.iter().map(|model| model.load_ms).sum::<u64>() / (loaded.len() as u64).max(1);
        query.patience_ms = patience_ms(cold_ms);
        query
    }

    /// Prepares a model for a job and assigns it. Returns its ticket, the way in which it became ready, and the time
    /// that this takes.
    pub(super) fn place(&mut self, wanted: &Wanted<'_>, now_ms: u64) -> (Ticket, Load, u64) {
        let most = self.max_concurrency;
        let is_free = |model: &&mut Model| model.running < most && model.endpoint == wanted.endpoint;
        self.running_gb += wanted.vram_gb;
        if let Some(model) = self.models.iter_mut().find(is_free) {
            (model.running, model.used_ms) = (model.running + 1, now_ms);
            let ticket = model.part.ticket;
            self.running.push(ticket);
            return (ticket, Load::Resident, model.ready_ms.saturating_sub(now_ms));
        }
        let need = Need::of_mib(mib_of_gib(wanted.vram_gb), 1);
        let part = self.ledger.reserve(&need, &CARD).unwrap_or_else(|| {
            // The capability includes the job, so idle models can make room for it. Otherwise an invariant is broken.
            let victims = self.ledger.victims(&need, &CARD, &self.idle(now_ms)).expect("it is within reach");
            self.models.retain(|model| !victims.contains(&model.part.ticket));
            self.ledger.reserve(&need, &CARD).expect("room was made")
        });
        let is_here = self.on_disk.contains(&wanted.endpoint);
        let disk_ms = millis(disk_load_s(wanted.vram_gb));
        let (load, load_ms) =
            if is_here { (Load::FromDisk, disk_ms) } else { (Load::Cold, millis(cold_load_s(wanted.vram_gb))) };
        if !is_here {
            self.on_disk.push(wanted.endpoint);
        }
        let ticket = part.ticket;
        let (endpoint, lane) = (wanted.endpoint, wanted.lane.to_owned());
        self.models.push(Model {
            part,
            endpoint,
            lane,
            load_ms: disk_ms,
            ready_ms: now_ms + load_ms,
            used_ms: now_ms,
            running: 1,
        });
        self.running.push(ticket);
        (ticket, load, load_ms)
    }

    /// Ends a job.
    pub(super) fn free(&mut self, ticket: Ticket, vram_gb: f64, now_ms: u64) {
        if let Some(place) = self.running.iter().position(|running| *running == ticket) {
            self.running.swap_remove(place);
        }
        self.running_gb -= vram_gb;
        if let Some(model) = self.models.iter_mut().find(|model| model.part.ticket == ticket) {
            (model.running, model.used_ms) = (model.running.saturating_sub(1), now_ms);
        }
        if self.running.is_empty() {
            (self.idle_since_ms, self.running_gb) = (now_ms, 0.0);
        }
    }

    /// Endpoints whose models are loaded.
    pub(super) fn resident(&self) -> impl Iterator<Item = usize> {
        self.models.iter().map(|model| model.endpoint)
    }

    /// Endpoints whose weights are on its disk.
    pub(super) fn on_disk(&self) -> &[usize] {
        &self.on_disk
    }
}
