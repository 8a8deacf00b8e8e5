//! The VRAM ledger: the memory that each model reserves on each GPU. Reservations never exceed the memory of a GPU
//! (P11).
//!
//! Memory is reserved before a model loads, by its expected need; readings of its processes through NVML correct the
//! reservation. Free memory is neither reserved nor in use by other programs.

mod gpu;

use std::cmp::Reverse;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stokehold_protocol::gateway::{Gpu, GpuCapability, ModelOnGpu};
use stokehold_protocol::vram::{VramNeed, reach_of_room_gib};

use gpu::GpuAccount;
use tokio::sync::Notify;

/// Identifies a holder.
pub type Ticket = u64;

/// The need of a model: a part of one GPU, or several whole GPUs.
#[derive(Debug, Clone, PartialEq)]
pub struct Need {
    /// Memory of each GPU.
    pub vram: VramNeed,
    /// Number of GPUs; more than one are not shared.
    pub gpus: usize,
    /// Whether the model takes all memory of each GPU because its need is unknown.
    pub is_all: bool,
}

impl Need {
    /// A part of one GPU.
    #[cfg(test)]
    pub(crate) fn part(mib: u64) -> Self {
        Self::of_mib(mib, 1)
    }

    /// A need of this much memory on each GPU, regardless of the GPU model.
    #[must_use]
    pub fn of_mib(mib: u64, gpus: usize) -> Self {
        Self { vram: VramNeed::of_mib(mib), gpus, is_all: false }
    }

    fn is_whole(&self) -> bool {
        self.gpus > 1
    }
}

/// A claim of GPUs: until it is dropped, no other model can reserve memory there. Reservations made through it remain.
#[derive(Debug)]
pub struct Claim {
    ledger: Ledger,
    /// The GPUs' indices.
    pub gpus: Vec<u32>,
    ended: Arc<Notify>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.ledger.each(&self.gpus, |gpu| gpu.is_claimed = false);
        self.ended.notify_waiters();
    }
}

/// A holder that may be evicted, and the cost of its eviction: its load time divided by how long it has been idle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Idle {
    /// Ticket of the holder.
    pub ticket: Ticket,
    /// Cost of the eviction.
    pub value: f64,
}

/// The ledger of all GPUs. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Ledger(Arc<Mutex<Accounts>>);

#[derive(Debug, Default)]
struct Accounts {
    gpus: Vec<GpuAccount>,
    tickets: Ticket,
}

/// Reserved memory on one or several GPUs. The owner of the processes that use the memory keeps it, and drops it when
/// they have exited. The memory is free once a reading has confirmed it.
#[derive(Debug)]
pub struct Reservation {
    ledger: Ledger,
    /// Ticket of the reservation.
    pub ticket: Ticket,
    /// Indices of the GPUs, in ascending order.
    pub gpus: Vec<u32>,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.ledger.each(&self.gpus, |gpu| gpu.release(self.ticket));
    }
}

impl Reservation {
    /// Sets the process group that uses the reservation.
    pub fn belongs_to(&self, group: u32) {
        self.ledger.each(&self.gpus, |gpu| gpu.belongs_to(self.ticket, group));
    }
}

impl Ledger {
    /// An empty ledger for these GPUs. With `are_looked_at`, released memory is free only once a reading has confirmed
    /// it.
    pub fn new(gpus: &[Gpu], are_looked_at: bool) -> Self {
        let gpus = gpus.iter().map(|gpu| GpuAccount::new(gpu, are_looked_at)).collect();
        Self(Arc::new(Mutex::new(Accounts { gpus, tickets: 0 })))
    }

    /// Reserves memory on those of these GPUs that leave the least free memory (ties: the lower index). `None` without
    /// any reservation if there is no room.
    pub fn reserve(&self, need: &Need, on: &[u32]) -> Option<Reservation> {
        let mut this = self.lock();
        let left = |gpu: &GpuAccount| gpu.free_for_mib(need, &[]).checked_sub(gpu.asked_mib(need));
        let able = this.gpus.iter().filter(|gpu| on.contains(&gpu.index));
        let mut fitting: Vec<(u64, u32)> = able.filter_map(|gpu| Some((left(gpu)?, gpu.index))).collect();
        fitting.sort_unstable();
        let chosen: Vec<u32> = fitting.into_iter().take(need.gpus).map(|(_, index)| index).collect();
        if chosen.len() < need.gpus {
            return None;
        }
        let ticket = this.hold(&chosen, need);
        drop(this);
        Some(self.reservation(ticket, chosen))
    }

    /// Claims those of these GPUs that have the most free memory, among those that are large enough and not claimed.
    /// Notifies `ended` when the claim ends.
    pub fn claim(&self, need: &Need, on: &[u32], ended: &Arc<Notify>) -> Option<Claim> {
        let mut this = self.lock();
        let able = this
            .gpus
            .iter_mut()
            .filter(|gpu| on.contains(&gpu.index) && gpu.is_open && !gpu.is_claimed && gpu.could_hold(need));
        let mut able: Vec<&mut GpuAccount> = able.collect();
        able.sort_by_key(|gpu| Reverse(gpu.free_mib()));
        able.truncate(need.gpus);
        if able.len() < need.gpus {
            return None;
        }
        able.iter_mut().for_each(|gpu| gpu.is_claimed = true);
        let gpus = able.iter().map(|gpu| gpu.index).collect();
        drop(this);
        Some(Claim { ledger: self.clone(), gpus, ended: Arc::clone(ended) })
    }

    /// Whether there is room for this need on the claimed GPUs.
    pub fn has_room_claimed(&self, claim: &Claim, need: &Need) -> bool {
        self.lock().has_room_claimed(claim, need)
    }

    /// Reserves memory on the claimed GPUs if there is room. The claim remains.
    pub fn reserve_claimed(&self, claim: &Claim, need: &Need) -> Option<Reservation> {
        let mut this = self.lock();
        if !this.has_room_claimed(claim, need) {
            return None;
        }
        let ticket = this.hold(&claim.gpus, need);
        drop(this);
        Some(self.reservation(ticket, claim.gpus.clone()))
    }

    fn reservation(&self, ticket: Ticket, mut gpus: Vec<u32>) -> Reservation {
        gpus.sort_unstable();
        Reservation { ledger: self.clone(), ticket, gpus }
    }

    /// Whether any of these GPUs is claimed.
    pub fn is_claimed(&self, gpus: &[u32]) -> bool {
        self.lock().of(gpus).any(|gpu| gpu.is_claimed)
    }

    /// Whether all of these GPUs accept work.
    pub fn are_open(&self, gpus: &[u32]) -> bool {
        self.lock().of(gpus).all(|gpu| gpu.is_open)
    }

    /// Whether memory of former holders of these GPUs is not confirmed to be free.
    pub fn is_clearing(&self, gpus: &[u32]) -> bool {
        self.lock().of(gpus).any(GpuAccount::is_clearing)
    }

    /// Whether there will be room on these GPUs once the memory of former holders is confirmed to be free.
    pub fn is_about_to_fit(&self, need: &Need, on: &[u32]) -> bool {
        let this = self.lock();
        this.of(on).filter(|gpu| gpu.room_after_mib(need) >= gpu.asked_mib(need)).count() >= need.gpus
            && this.of(on).any(GpuAccount::is_clearing)
    }

    /// Replaces the reservation of a warmed-up model by its measured peak plus a margin. Does nothing if the GPU does
    /// not report the memory of processes. Returns the reserved MiB.
    pub fn settle(&self, ticket: Ticket) -> u64 {
        self.lock().gpus.iter_mut().filter_map(|gpu| gpu.settle(ticket)).sum()
    }

    /// Applies a reading of a GPU: the memory in use and, if known, the memory of each process group.
    pub fn observe(&self, index: u32, used_mib: u64, groups: Option<&[(u32, u64)]>) -> Verdict {
        self.on(index, |gpu| gpu.observe(used_mib, groups)).unwrap_or_default()
    }

    /// Sets whether a GPU accepts work. Reservations remain.
    pub fn set_open(&self, index: u32, is_open: bool) {
        self.on(index, |gpu| gpu.is_open = is_open);
    }

    /// For each GPU, the largest VRAM class in GiB of which every model would fit if these idle holders were gone, and
    /// the largest of which every model could have the GPU for itself. 0 if none.
    pub fn reach(&self, idle: &[Ticket]) -> Vec<GpuCapability> {
        let reach = |gpu: &GpuAccount| GpuCapability {
            index: gpu.index,
            reach_gib: reach_of_room_gib(gpu.total_mib(), gpu.room_without_mib(idle)),
            whole_gib: reach_of_room_gib(gpu.total_mib(), gpu.whole_without_mib(idle)),
        };
        self.lock().gpus.iter().map(reach).collect()
    }

    /// Whether these GPUs could hold a model with this need if they were empty.
    pub fn could_hold(&self, need: &Need, on: &[u32]) -> bool {
        self.lock().of(on).filter(|gpu| gpu.could_hold(need)).count() >= need.gpus
    }

    /// Whether a model needs more memory on one of these GPUs than the VRAM class of its jobs.
    pub fn needs_more_than_its_class(&self, need: &Need, on: &[u32]) -> bool {
        let class_mib = need.vram.class_gib().map_or(u64::MAX, |class| u64::from(class) * 1024);
        self.lock().of(on).any(|gpu| gpu.is_open && gpu.could_hold(need) && gpu.asked_mib(need) > class_mib)
    }

    /// The most memory that a model could have on each of `gpus` of these GPUs, alone on the largest that accept work.
    pub fn largest_mib(&self, gpus: usize, on: &[u32]) -> u64 {
        let mut usable: Vec<u64> = self.lock().of(on).filter(|gpu| gpu.is_open).map(GpuAccount::usable_mib).collect();
        usable.sort_unstable_by_key(|mib| Reverse(*mib));
        usable.get(gpus.saturating_sub(1)).copied().unwrap_or(0)
    }

    /// The reserved and used memory of a holder on each of its GPUs.
    pub fn held(&self, ticket: Ticket) -> Vec<ModelOnGpu> {
        self.lock().gpus.iter().filter_map(|gpu| gpu.held_and_seen(ticket)).collect()
    }

    /// The measured peak of a holder on a GPU plus the margin; `None` if unknown.
    pub fn need_mib(&self, ticket: Ticket) -> Option<u64> {
        self.lock().gpus.iter().filter_map(|gpu| gpu.need_mib(ticket)).max()
    }

    /// Resets the measured peak of a holder. Its reservation remains.
    pub fn forget_peak(&self, ticket: Ticket) {
        self.lock().gpus.iter_mut().for_each(|gpu| gpu.forget_peak(ticket));
    }

    /// The idle holders to evict so that `need` fits on these GPUs at the lowest cost. `None` if it does not fit even
    /// without all of them.
    pub fn victims(&self, need: &Need, on: &[u32], idle: &[Idle]) -> Option<Vec<Ticket>> {
        let this = self.lock();
        let mut cheapest_first = idle.to_vec();
        cheapest_first.sort_by(|a, b| a.value.total_cmp(&b.value));
        let gone: Vec<Ticket> = cheapest_first.iter().map(|idle| idle.ticket).collect();
        let value_of = |tickets: &[Ticket]| -> f64 {
            idle.iter().filter(|idle| tickets.contains(&idle.ticket)).map(|idle| idle.value).sum()
        };
        let possible = this.of(on).filter(|gpu| gpu.free_for_mib(need, &gone) >= gpu.asked_mib(need));
        let mut choices: Vec<Vec<Ticket>> = possible.map(|gpu| gpu.victims(need, &gone)).collect();
        choices.sort_by(|a, b| value_of(a).total_cmp(&value_of(b)));
        if choices.len() < need.gpus {
            return None;
        }
        let mut victims = choices.into_iter().take(need.gpus).flatten().collect::<Vec<_>>();
        // A holder of several GPUs is evicted once.
        victims.sort_unstable();
        victims.dedup();
        Some(victims)
    }

    /// The idle holders to evict so that a GPU is not short of memory; all of them if that is not enough.
    pub fn relief(&self, index: u32, short_mib: u64, idle: &[Idle]) -> Vec<Ticket> {
        let this = self.lock();
        let Some(gpu) = this.gpus.iter().find(|gpu| gpu.index == index) else { return Vec::new() };
        let mut here: Vec<(f64, Ticket, u64)> =
            idle.iter().filter_map(|idle| Some((idle.value, idle.ticket, gpu.held_by_mib(idle.ticket)?))).collect();
        here.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut got_mib = 0;
        let enough = here.into_iter().take_while(|(_, _, mib)| {
            let is_wanted = got_mib < short_mib;
            got_mib += mib;
            is_wanted
        });
        enough.map(|(_, ticket, _)| ticket).collect()
    }

    /// The current totals of a GPU.
    pub fn line(&self, index: u32) -> Option<Line> {
        self.on(index, |gpu| gpu.line())
    }

    fn on<T>(&self, index: u32, act: impl FnOnce(&mut GpuAccount) -> T) -> Option<T> {
        self.lock().gpus.iter_mut().find(|gpu| gpu.index == index).map(act)
    }

    fn each(&self, gpus: &[u32], act: impl FnMut(&mut GpuAccount)) {
        self.lock().gpus.iter_mut().filter(|gpu| gpus.contains(&gpu.index)).for_each(act);
    }

    fn lock(&self) -> MutexGuard<'_, Accounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Accounts {
    fn of(&self, indices: &[u32]) -> impl Iterator<Item = &GpuAccount> {
        self.gpus.iter().filter(|gpu| indices.contains(&gpu.index))
    }

    fn has_room_claimed(&self, claim: &Claim, need: &Need) -> bool {
        self.of(&claim.gpus).all(|gpu| gpu.has_room_claimed(need))
    }

    /// Reserves the needed memory on each of these GPUs.
    fn hold(&mut self, indices: &[u32], need: &Need) -> Ticket {
        let ticket = self.tickets;
        self.tickets += 1;
        self.gpus.iter_mut().filter(|gpu| indices.contains(&gpu.index)).for_each(|gpu| gpu.hold(ticket, need));
        ticket
    }
}

/// The effect of a reading of a GPU on the ledger.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verdict {
    /// MiB by which reserved and used memory exceed the GPU's memory.
    pub short_mib: u64,
    /// Memory that is still in use long after its process has exited.
    pub stuck_mib: u64,
}

/// Totals of a GPU in MiB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Reserved memory, including the memory of former holders until it is confirmed to be free.
    pub held_mib: u64,
    /// Memory that is neither reserved nor in use by other programs beyond the reserve; 0 while the GPU accepts no work
    /// or is claimed.
    pub free_mib: u64,
    /// Memory in use by other programs.
    pub foreign_mib: u64,
}

#[cfg(test)]
mod day;
#[cfg(test)]
mod packing;
#[cfg(test)]
mod tests;
