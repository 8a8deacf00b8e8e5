//! The ledger of one GPU. All sizes are in MiB.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use stokehold_protocol::gateway::{Gpu, ModelOnGpu};
use stokehold_protocol::vram::{reserve_mib, usable_mib};

use super::{Line, Need, Ticket, Verdict};

/// Margin above a model's measured peak: the larger of this and a twentieth of the peak.
const MARGIN_MIB: u64 = 64;

/// Normal fluctuation of the memory that belongs to no process.
const DRIFT_MIB: u64 = 256;

/// Time for the driver to free memory of exited processes; after this time, the memory is stuck.
const CLEAR_MAX: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct GpuAccount {
    pub(super) index: u32,
    /// Whether the GPU accepts work.
    pub(super) is_open: bool,
    /// Whether a model has claimed the GPU for itself.
    pub(super) is_claimed: bool,
    gpu: Gpu,
    is_looked_at: bool,
    /// Memory in use by other programs.
    foreign_mib: u64,
    /// The part of `foreign_mib` that belongs to no visible process.
    unclaimed_mib: u64,
    held: BTreeMap<Ticket, Reservation>,
    leaving: Option<Leaving>,
}

/// Former holders whose processes have exited, but whose memory is not confirmed to be free.
#[derive(Debug)]
struct Leaving {
    mib: u64,
    since: Instant,
    /// Unclaimed memory before these holders left.
    unclaimed_mib: u64,
}

#[derive(Debug)]
struct Reservation {
    mib: u64,
    /// Whether the holder does not share the GPU.
    is_whole: bool,
    /// The process group that uses the reservation, once it has started.
    group: Option<u32>,
    /// Current and peak memory of the holder's processes; `None` if unknown.
    seen_mib: Option<u64>,
    peak_mib: Option<u64>,
}

impl GpuAccount {
    pub(super) fn new(gpu: &Gpu, is_looked_at: bool) -> Self {
        Self {
            index: gpu.index,
            is_open: true,
            is_claimed: false,
            gpu: gpu.clone(),
            is_looked_at,
            foreign_mib: 0,
            unclaimed_mib: 0,
            held: BTreeMap::new(),
            leaving: None,
        }
    }

    pub(super) fn total_mib(&self) -> u64 {
        self.gpu.vram_mib
    }

    /// Maximum memory that can be reserved.
    pub(super) fn usable_mib(&self) -> u64 {
        usable_mib(self.gpu.vram_mib)
    }

    /// Whether the GPU could hold a model with this need if it were empty.
    pub(super) fn could_hold(&self, need: &Need) -> bool {
        self.asked_mib(need) <= self.usable_mib()
    }

    pub(super) fn is_clearing(&self) -> bool {
        self.leaving.is_some()
    }

    /// The memory to reserve here for a model with this need.
    pub(super) fn asked_mib(&self, need: &Need) -> u64 {
        let asked_mib = need.vram.on(&self.gpu);
        if need.is_all && need.vram.is_of_gpu() { asked_mib.max(self.usable_mib()) } else { asked_mib }
    }

    /// Reserved memory, including the memory of former holders until it is confirmed to be free.
    pub(super) fn held_mib(&self) -> u64 {
        self.held.values().map(|hold| hold.mib).sum::<u64>() + self.leaving_mib()
    }

    fn leaving_mib(&self) -> u64 {
        self.leaving.as_ref().map_or(0, |leaving| leaving.mib)
    }

    /// Memory that other programs use beyond the reserve for them.
    fn excess_mib(&self) -> u64 {
        self.foreign_mib.saturating_sub(reserve_mib(self.gpu.vram_mib))
    }

    pub(super) fn free_mib(&self) -> u64 {
        self.room_without_mib(&[])
    }

    /// The memory that would be free without these holders.
    pub(super) fn room_without_mib(&self, gone: &[Ticket]) -> u64 {
        let stays = || self.held.iter().filter(|(ticket, _)| !gone.contains(ticket)).map(|(_, hold)| hold);
        if !self.is_open || self.is_claimed || stays().any(|hold| hold.is_whole) {
            return 0;
        }
        let stays_mib: u64 = stays().map(|hold| hold.mib).sum();
        self.usable_mib().saturating_sub(self.excess_mib() + self.leaving_mib() + stays_mib)
    }

    /// The memory that would be free for a model that needs the GPU for itself, without these holders; 0 while there
    /// are others.
    pub(super) fn whole_without_mib(&self, gone: &[Ticket]) -> u64 {
        let is_empty = self.leaving.is_none() && self.held.keys().all(|ticket| gone.contains(ticket));
        if is_empty { self.room_without_mib(gone) } else { 0 }
    }

    /// The memory that would be free for this need without these holders.
    pub(super) fn free_for_mib(&self, need: &Need, gone: &[Ticket]) -> u64 {
        if need.is_whole() { self.whole_without_mib(gone) } else { self.room_without_mib(gone) }
    }

    /// Whether there is room for this need of the claim's owner.
    pub(super) fn has_room_claimed(&self, need: &Need) -> bool {
        let is_had = !need.is_whole() || self.held.is_empty() && self.leaving.is_none();
        let room_mib = self.usable_mib().saturating_sub(self.excess_mib() + self.held_mib());
        self.is_open && is_had && room_mib >= self.asked_mib(need)
    }

    /// The memory that will be free for this need once former holders' memory is confirmed to be free.
    pub(super) fn room_after_mib(&self, need: &Need) -> u64 {
        if !self.is_open || need.is_whole() && !self.held.is_empty() { 0 } else { self.free_mib() + self.leaving_mib() }
    }

    pub(super) fn held_by_mib(&self, ticket: Ticket) -> Option<u64> {
        Some(self.held.get(&ticket)?.mib)
    }

    pub(super) fn held_and_seen(&self, ticket: Ticket) -> Option<ModelOnGpu> {
        let hold = self.held.get(&ticket)?;
        Some(ModelOnGpu { index: self.index, held_mib: hold.mib, seen_mib: hold.seen_mib })
    }

    pub(super) fn hold(&mut self, ticket: Ticket, need: &Need) {
        let (mib, is_whole) = (self.asked_mib(need), need.is_whole());
        self.held.insert(ticket, Reservation { mib, is_whole, group: None, seen_mib: None, peak_mib: None });
    }

    pub(super) fn release(&mut self, ticket: Ticket) {
        let Some(hold) = self.held.remove(&ticket) else { return };
        // A holder that never had a process has used no memory.
        if self.is_looked_at && hold.group.is_some() {
            let before = self.leaving.take();
            self.leaving = Some(Leaving {
                mib: before.as_ref().map_or(0, |leaving| leaving.mib) + hold.mib,
                since: Instant::now(),
                unclaimed_mib: before.map_or(self.unclaimed_mib, |leaving| leaving.unclaimed_mib),
            });
        }
    }

    /// Raises a reservation as far as there is room. Returns the part that did not fit.
    fn raise(&mut self, ticket: Ticket, to_mib: u64) -> u64 {
        let room = self.usable_mib().saturating_sub(self.excess_mib() + self.held_mib());
        let Some(hold) = self.held.get_mut(&ticket) else { return 0 };
        let more = to_mib.saturating_sub(hold.mib);
        hold.mib += more.min(room);
        more.saturating_sub(room)
    }

    /// The measured peak of a holder plus the margin, limited by the usable memory.
    pub(super) fn need_mib(&self, ticket: Ticket) -> Option<u64> {
        let peak_mib = self.held.get(&ticket)?.peak_mib?;
        Some((peak_mib + MARGIN_MIB.max(peak_mib / 20)).min(self.usable_mib()))
    }

    pub(super) fn forget_peak(&mut self, ticket: Ticket) {
        if let Some(hold) = self.held.get_mut(&ticket) {
            hold.peak_mib = None;
        }
    }

    pub(super) fn settle(&mut self, ticket: Ticket) -> Option<u64> {
        if let Some(need_mib) = self.need_mib(ticket) {
            let hold = self.held.get_mut(&ticket)?;
            hold.mib = hold.mib.min(need_mib);
            self.raise(ticket, need_mib);
        }
        self.held_by_mib(ticket)
    }

    pub(super) fn belongs_to(&mut self, ticket: Ticket, group: u32) {
        if let Some(hold) = self.held.get_mut(&ticket) {
            hold.group = Some(group);
        }
    }

    pub(super) fn observe(&mut self, used_mib: u64, groups: Option<&[(u32, u64)]>) -> Verdict {
        for hold in self.held.values_mut() {
            let (Some(groups), Some(mine)) = (groups, hold.group) else { continue };
            let seen_mib = groups.iter().filter(|(group, _)| *group == mine).map(|(_, mib)| mib).sum();
            hold.seen_mib = Some(seen_mib);
            hold.peak_mib = hold.peak_mib.max(Some(seen_mib));
        }
        // If the memory of processes is unknown, each holder counts with its reservation.
        let (ours_mib, claimed_mib): (u64, u64) = match groups {
            Some(groups) => {
                (self.held.values().filter_map(|hold| hold.seen_mib).sum(), groups.iter().map(|(_, mib)| mib).sum())
            }
            None => {
                let held_mib = self.held.values().map(|hold| hold.mib).sum();
                (held_mib, held_mib)
            }
        };
        let unclaimed_mib = used_mib.saturating_sub(claimed_mib);
        let stuck_mib = self.clear(unclaimed_mib);
        // Memory of former holders counts as theirs until it is confirmed to be free.
        self.foreign_mib = used_mib.saturating_sub(ours_mib + self.leaving_mib());
        let grown: Vec<(Ticket, u64)> =
            self.held.iter().filter_map(|(ticket, hold)| Some((*ticket, hold.seen_mib?))).collect();
        let over: u64 = grown.into_iter().map(|(ticket, seen_mib)| self.raise(ticket, seen_mib)).sum();
        let short_mib = over + (self.held_mib() + self.excess_mib()).saturating_sub(self.usable_mib());
        Verdict { short_mib, stuck_mib }
    }

    /// Removes the former holders once the unclaimed memory is back at its earlier level. Returns the memory that is
    /// stuck.
    fn clear(&mut self, unclaimed_mib: u64) -> u64 {
        let Some(leaving) = &self.leaving else {
            self.unclaimed_mib = unclaimed_mib;
            return 0;
        };
        let more_mib = unclaimed_mib.saturating_sub(leaving.unclaimed_mib);
        if more_mib <= DRIFT_MIB {
            self.leaving = None;
            self.unclaimed_mib = unclaimed_mib;
            return 0;
        }
        if leaving.since.elapsed() < CLEAR_MAX {
            return 0;
        }
        // The stuck memory counts as foreign from now on.
        self.leaving = None;
        self.unclaimed_mib = unclaimed_mib;
        more_mib
    }

    /// The first of these holders whose eviction makes enough room, without unnecessary ones.
    pub(super) fn victims(&self, need: &Need, idle: &[Ticket]) -> Vec<Ticket> {
        let (mib, mut gone) = (self.asked_mib(need), Vec::new());
        for ticket in idle.iter().filter(|ticket| self.held.contains_key(ticket)) {
            if self.free_for_mib(need, &gone) >= mib {
                break;
            }
            gone.push(*ticket);
        }
        // A small holder need not be evicted if a large one must be evicted as well. The most expensive unnecessary
        // holder stays.
        for ticket in gone.clone().into_iter().rev() {
            let others: Vec<Ticket> = gone.iter().copied().filter(|other| *other != ticket).collect();
            if self.free_for_mib(need, &others) >= mib {
                gone = others;
            }
        }
        gone
    }

    pub(super) fn line(&self) -> Line {
        Line { held_mib: self.held_mib(), free_mib: self.free_mib(), foreign_mib: self.foreign_mib }
    }
}
