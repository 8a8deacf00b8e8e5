//! The VRAM ledger: who holds how much of which GPU. What is held never exceeds what a GPU has (P11).
//!
//! A model's part is reserved before it loads, at what it is thought to need; what NVML then sees of its processes corrects that. A
//! GPU's room is what neither is held nor is in use by somebody else.

mod gpu;

use std::cmp::Reverse;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stokehold_queue::gateway::{CardReach, Gpu, ModelOnCard};
use stokehold_queue::vram::{VramNeed, reach_of_room_gib};

use gpu::GpuAccount;
use tokio::sync::Notify;

/// Names a holder.
pub type Ticket = u64;

/// What a model takes: a part of one GPU, or several GPUs of which it has each for itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Need {
    /// Of each GPU.
    pub vram: VramNeed,
    /// How many GPUs; more than one are had whole.
    pub gpus: usize,
    /// It takes all that each GPU has, because what it needs is not known.
    pub is_all: bool,
}

impl Need {
    /// A part of one GPU.
    #[cfg(test)]
    pub(crate) fn part(mib: u64) -> Self {
        Self::of_mib(mib, 1)
    }

    /// So much of each of these GPUs, whatever their kind.
    #[must_use]
    pub fn of_mib(mib: u64, gpus: usize) -> Self {
        Self { vram: VramNeed::of_mib(mib), gpus, is_all: false }
    }

    fn is_whole(&self) -> bool {
        self.gpus > 1
    }
}

/// GPUs that somebody wants for itself: until this is dropped, nobody else reserves there. What was reserved by it stays.
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

/// A holder that may be evicted, and what its loss would cost: its time to load again over how long nobody has asked for it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Idle {
    /// Its name.
    pub ticket: Ticket,
    /// What its loss would cost.
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

/// A part of a GPU, or whole GPUs, until this is dropped. It belongs to whatever owns the processes that use the memory, and goes with
/// them: dropped when they are gone, it is free when a look at the GPU has shown so.
#[derive(Debug)]
pub struct Reservation {
    ledger: Ledger,
    /// Its name.
    pub ticket: Ticket,
    /// The GPUs' indices, the lowest first.
    pub gpus: Vec<u32>,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.ledger.each(&self.gpus, |gpu| gpu.release(self.ticket));
    }
}

impl Reservation {
    /// These processes use it: those of this group.
    pub fn belongs_to(&self, group: u32) {
        self.ledger.each(&self.gpus, |gpu| gpu.belongs_to(self.ticket, group));
    }
}

impl Ledger {
    /// An empty ledger for these GPUs. GPUs that are looked at have what is released believed only when a look has shown it.
    pub fn new(gpus: &[Gpu], are_looked_at: bool) -> Self {
        let gpus = gpus.iter().map(|gpu| GpuAccount::new(gpu, are_looked_at)).collect();
        Self(Arc::new(Mutex::new(Accounts { gpus, tickets: 0 })))
    }

    /// Reserves on those of these GPUs where the least is left over (ties: the lower index). `None` when there is no room; nothing is
    /// reserved then.
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

    /// Claims those of these GPUs on which the most is free, of those that are large enough and not claimed. `ended` is told when the
    /// claim ends.
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

    /// Whether there is room for it on the claimed GPUs.
    pub fn has_room_claimed(&self, claim: &Claim, need: &Need) -> bool {
        self.lock().has_room_claimed(claim, need)
    }

    /// Reserves on the claimed GPUs, once there is room. The claim stays.
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

    /// Whether somebody wants one of these GPUs for itself.
    pub fn is_claimed(&self, gpus: &[u32]) -> bool {
        self.lock().of(gpus).any(|gpu| gpu.is_claimed)
    }

    /// Whether all of these GPUs take work.
    pub fn are_open(&self, gpus: &[u32]) -> bool {
        self.lock().of(gpus).all(|gpu| gpu.is_open)
    }

    /// Whether memory of those who have left these GPUs is not yet seen to be free.
    pub fn is_clearing(&self, gpus: &[u32]) -> bool {
        self.lock().of(gpus).any(GpuAccount::is_clearing)
    }

    /// Whether there will be room on these GPUs as soon as a look has shown that those who have left are gone.
    pub fn is_about_to_fit(&self, need: &Need, on: &[u32]) -> bool {
        let this = self.lock();
        this.of(on).filter(|gpu| gpu.room_after_mib(need) >= gpu.asked_mib(need)).count() >= need.gpus
            && this.of(on).any(GpuAccount::is_clearing)
    }

    /// A model has warmed up: what it was seen to use at the most, and a margin, replaces what was reserved for it. A GPU that does not
    /// tell what each process uses leaves it as it is. MiB held from now on.
    pub fn settle(&self, ticket: Ticket) -> u64 {
        self.lock().gpus.iter_mut().filter_map(|gpu| gpu.settle(ticket)).sum()
    }

    /// Takes note of what NVML sees on a GPU: all that is in use, and what process groups use, where they can be told apart.
    pub fn observe(&self, index: u32, used_mib: u64, groups: Option<&[(u32, u64)]>) -> Verdict {
        self.on(index, |gpu| gpu.observe(used_mib, groups)).unwrap_or_default()
    }

    /// Lets a GPU take work, or not. What is held stays held.
    pub fn set_open(&self, index: u32, is_open: bool) {
        self.on(index, |gpu| gpu.is_open = is_open);
    }

    /// For each GPU the largest VRAM class, GiB, of which every model would fit it if these idle holders were gone, and that of which
    /// every model could have it whole. 0: nothing does.
    pub fn reach(&self, idle: &[Ticket]) -> Vec<CardReach> {
        let reach = |gpu: &GpuAccount| CardReach {
            index: gpu.index,
            reach_gib: reach_of_room_gib(gpu.total_mib(), gpu.room_without_mib(idle)),
            whole_gib: reach_of_room_gib(gpu.total_mib(), gpu.whole_without_mib(idle)),
        };
        self.lock().gpus.iter().map(reach).collect()
    }

    /// Whether these GPUs could hold a model that needs so much, if nothing else were on them.
    pub fn could_hold(&self, need: &Need, on: &[u32]) -> bool {
        self.lock().of(on).filter(|gpu| gpu.could_hold(need)).count() >= need.gpus
    }

    /// Whether a model holds more of one of these GPUs than the class of its jobs says.
    pub fn needs_more_than_its_class(&self, need: &Need, on: &[u32]) -> bool {
        let class_mib = need.vram.class_gib().map_or(u64::MAX, |class| u64::from(class) * 1024);
        self.lock().of(on).any(|gpu| gpu.is_open && gpu.could_hold(need) && gpu.asked_mib(need) > class_mib)
    }

    /// What a model could hold of each of so many of these GPUs at the most, alone on the largest that take work.
    pub fn largest_mib(&self, gpus: usize, on: &[u32]) -> u64 {
        let mut usable: Vec<u64> = self.lock().of(on).filter(|gpu| gpu.is_open).map(GpuAccount::usable_mib).collect();
        usable.sort_unstable_by_key(|mib| Reverse(*mib));
        usable.get(gpus.saturating_sub(1)).copied().unwrap_or(0)
    }

    /// What a holder has, and is seen to use now, on each of its GPUs.
    pub fn held(&self, ticket: Ticket) -> Vec<ModelOnCard> {
        self.lock().gpus.iter().filter_map(|gpu| gpu.held_and_seen(ticket)).collect()
    }

    /// What a holder was seen to use of a GPU at the most, and the margin above it; `None` where that cannot be seen.
    pub fn need_mib(&self, ticket: Ticket) -> Option<u64> {
        self.lock().gpus.iter().filter_map(|gpu| gpu.need_mib(ticket)).max()
    }

    /// Forgets the most that a holder was seen to use: from now on counts what it uses from now on. What it holds stays.
    pub fn forget_peak(&self, ticket: Ticket) {
        self.lock().gpus.iter_mut().for_each(|gpu| gpu.forget_peak(ticket));
    }

    /// Which of these idle holders to evict so that `need` fits these GPUs, where the least is lost. `None` when it does not fit
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
        // One that has several GPUs makes way once.
        victims.sort_unstable();
        victims.dedup();
        Some(victims)
    }

    /// Which of these idle holders to evict so that a GPU is short of nothing; as many of them as there are, if that is not enough.
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

    /// A GPU as it stands.
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

    /// Holds what is needed of each of these GPUs.
    fn hold(&mut self, indices: &[u32], need: &Need) -> Ticket {
        let ticket = self.tickets;
        self.tickets += 1;
        self.gpus.iter_mut().filter(|gpu| indices.contains(&gpu.index)).for_each(|gpu| gpu.hold(ticket, need));
        ticket
    }
}

/// What a look at a GPU means for the ledger.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verdict {
    /// MiB more than there are, held and in use together: as much has to be given back.
    pub short_mib: u64,
    /// In use though the process that used it has been gone for long.
    pub stuck_mib: u64,
}

/// A GPU in the ledger, MiB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Held, also for those whose memory is not yet seen to be free.
    pub held_mib: u64,
    /// Neither held, nor in use by others beyond the reserve; 0 while it takes no work or is somebody's own.
    pub free_mib: u64,
    /// In use by others.
    pub foreign_mib: u64,
}

#[cfg(test)]
mod day;
#[cfg(test)]
mod packing;
#[cfg(test)]
mod tests;
