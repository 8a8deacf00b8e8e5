//! The VRAM ledger: who holds how much of which card. What is held never exceeds what a card has (P11).
//!
//! A model's part is reserved before it loads, at what it is thought to need; what NVML then sees of its processes corrects that. A
//! card's room is what neither is held nor is in use by somebody else.

mod card;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stokehold_queue::gateway::{CardReach, Gpu};
use stokehold_queue::vram::CLASSES_GIB;

use card::Card;
use tokio::sync::Notify;

/// Names a holder.
pub(crate) type Ticket = u64;

/// A card that somebody wants for itself: until this is dropped, nobody else reserves there. What was reserved by it stays.
#[derive(Debug)]
pub(crate) struct Claim {
    ledger: Ledger,
    /// The card's index.
    pub(crate) card: u32,
    ended: Arc<Notify>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.ledger.on(self.card, |card| card.is_claimed = false);
        self.ended.notify_waiters();
    }
}

/// A holder that may be evicted, and what its loss would cost: its time to load again over how long nobody has asked for it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Idle {
    pub(crate) ticket: Ticket,
    pub(crate) value: f64,
}

/// The ledger of all cards. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<Cards>>);

#[derive(Debug, Default)]
struct Cards {
    cards: Vec<Card>,
    tickets: Ticket,
}

/// A part of a card, until this is dropped. It belongs to whatever owns the processes that use the memory, and goes with them: dropped
/// when they are gone, it is free when a look at the card has shown so.
#[derive(Debug)]
pub(crate) struct Reservation {
    ledger: Ledger,
    pub(crate) ticket: Ticket,
    /// The card's index.
    pub(crate) card: u32,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.ledger.on(self.card, |card| card.release(self.ticket));
    }
}

impl Reservation {
    /// These processes use it: those of this group.
    pub(crate) fn belongs_to(&self, group: u32) {
        self.ledger.on(self.card, |card| card.belongs_to(self.ticket, group));
    }
}

impl Ledger {
    /// An empty ledger for these cards. Cards that are looked at have what is released believed only when a look has shown it.
    pub(crate) fn new(gpus: &[Gpu], are_looked_at: bool) -> Self {
        let cards = gpus.iter().map(|gpu| Card::new(gpu.index, gpu.vram_mib, are_looked_at)).collect();
        Self(Arc::new(Mutex::new(Cards { cards, tickets: 0 })))
    }

    /// Reserves on that of these cards where the least is left over (ties: the lower index). `None` when none has room; nothing is
    /// reserved then.
    pub(crate) fn reserve(&self, need_mib: u64, on: &[u32]) -> Option<Reservation> {
        let mut this = self.lock();
        let ticket = this.tickets;
        let left = |card: &Card| card.free_mib().checked_sub(card.asked_mib(need_mib));
        let able = this.cards.iter_mut().filter(|card| on.contains(&card.index));
        let fitting = able.filter_map(|card| Some((left(card)?, card)));
        let (_, card) = fitting.min_by_key(|(left_mib, card)| (*left_mib, card.index))?;
        card.hold(ticket, card.asked_mib(need_mib));
        let index = card.index;
        this.tickets += 1;
        drop(this);
        Some(Reservation { ledger: self.clone(), ticket, card: index })
    }

    /// Claims that of these cards on which the most is free, of those that are large enough and not claimed. `ended` is told when the claim ends.
    pub(crate) fn claim(&self, need_mib: u64, on: &[u32], ended: &Arc<Notify>) -> Option<Claim> {
        let mut this = self.lock();
        let able = this
            .cards
            .iter_mut()
            .filter(|card| on.contains(&card.index) && card.is_open && !card.is_claimed && card.could_hold(need_mib));
        let card = able.max_by_key(|card| card.free_mib())?;
        card.is_claimed = true;
        let index = card.index;
        drop(this);
        Some(Claim { ledger: self.clone(), card: index, ended: Arc::clone(ended) })
    }

    /// Whether there is room for so much on the claimed card.
    pub(crate) fn has_room_claimed(&self, claim: &Claim, need_mib: u64) -> bool {
        self.on(claim.card, |card| card.has_room_claimed(need_mib)).unwrap_or(false)
    }

    /// Reserves on the claimed card, once there is room. The claim stays.
    pub(crate) fn reserve_claimed(&self, claim: &Claim, need_mib: u64) -> Option<Reservation> {
        let mut this = self.lock();
        let ticket = this.tickets;
        let card = this.cards.iter_mut().find(|card| card.index == claim.card)?;
        if !card.has_room_claimed(need_mib) {
            return None;
        }
        card.hold(ticket, card.asked_mib(need_mib));
        this.tickets += 1;
        drop(this);
        Some(Reservation { ledger: self.clone(), ticket, card: claim.card })
    }

    /// Whether somebody wants a card for itself.
    pub(crate) fn is_claimed(&self, index: u32) -> bool {
        self.on(index, |card| card.is_claimed).unwrap_or(false)
    }

    /// Whether a card takes work.
    pub(crate) fn is_open(&self, index: u32) -> bool {
        self.on(index, |card| card.is_open).unwrap_or(false)
    }

    /// Whether memory of those who have left a card is not yet seen to be free.
    pub(crate) fn is_clearing(&self, index: u32) -> bool {
        self.on(index, |card| card.is_clearing()).unwrap_or(false)
    }

    /// Whether there will be room on one of these cards as soon as a look has shown that those who have left are gone.
    pub(crate) fn is_about_to_fit(&self, need_mib: u64, on: &[u32]) -> bool {
        self.lock()
            .cards
            .iter()
            .any(|card| on.contains(&card.index) && card.room_after_mib() >= card.asked_mib(need_mib))
    }

    /// A model has warmed up: what it was seen to use at the most, and a margin, replaces what was reserved for it. A card that does not
    /// tell what each process uses leaves it as it is. MiB held from now on.
    pub(crate) fn settle(&self, ticket: Ticket) -> u64 {
        self.lock().cards.iter_mut().find_map(|card| card.settle(ticket)).unwrap_or(0)
    }

    /// Takes note of what NVML sees on a card: all that is in use, and what process groups use, where they can be told apart.
    pub(crate) fn observe(&self, index: u32, used_mib: u64, groups: Option<&[(u32, u64)]>) -> Verdict {
        self.on(index, |card| card.observe(used_mib, groups)).unwrap_or_default()
    }

    /// Lets a card take work, or not. What is held stays held.
    pub(crate) fn set_open(&self, index: u32, is_open: bool) {
        self.on(index, |card| card.is_open = is_open);
    }

    /// For each card the largest VRAM class, GiB, of which every model would fit it if these idle holders were gone. 0: nothing does.
    pub(crate) fn reach(&self, idle: &[Ticket]) -> Vec<CardReach> {
        let reach_gib = |card: &Card| {
            let room_mib = card.room_without_mib(idle);
            let fits = |class: &u32| card.asked_mib(u64::from(*class) * 1024) <= room_mib;
            CLASSES_GIB.into_iter().rfind(fits).unwrap_or(0)
        };
        let reach = |card: &Card| CardReach { index: card.index, reach_gib: reach_gib(card) };
        self.lock().cards.iter().map(reach).collect()
    }

    /// Whether one of these cards could hold a model that needs so much, if nothing else were on it.
    pub(crate) fn could_hold(&self, need_mib: u64, on: &[u32]) -> bool {
        self.lock().cards.iter().any(|card| on.contains(&card.index) && card.could_hold(need_mib))
    }

    /// What a model could hold at the most, alone on the largest of these cards that takes work.
    pub(crate) fn largest_mib(&self, on: &[u32]) -> u64 {
        let this = self.lock();
        let open = this.cards.iter().filter(|card| on.contains(&card.index) && card.is_open);
        open.map(Card::usable_mib).max().unwrap_or(0)
    }

    /// What a holder has, and is seen to use now, MiB.
    pub(crate) fn held(&self, ticket: Ticket) -> Option<(u64, Option<u64>)> {
        self.lock().cards.iter().find_map(|card| card.held_and_seen_mib(ticket))
    }

    /// What a holder was seen to use at the most, and the margin above it; `None` where that cannot be seen.
    pub(crate) fn need_mib(&self, ticket: Ticket) -> Option<u64> {
        self.lock().cards.iter().find_map(|card| card.need_mib(ticket))
    }

    /// Which of these idle holders to evict so that `need` fits one of these cards, where the least is lost. `None` when it does not fit
    /// without all of them.
    pub(crate) fn victims(&self, need_mib: u64, on: &[u32], idle: &[Idle]) -> Option<Vec<Ticket>> {
        let this = self.lock();
        let mut cheapest_first = idle.to_vec();
        cheapest_first.sort_by(|a, b| a.value.total_cmp(&b.value));
        let gone: Vec<Ticket> = cheapest_first.iter().map(|idle| idle.ticket).collect();
        let value_of = |tickets: &[Ticket]| -> f64 {
            idle.iter().filter(|idle| tickets.contains(&idle.ticket)).map(|idle| idle.value).sum()
        };
        let possible = this
            .cards
            .iter()
            .filter(|card| on.contains(&card.index) && card.room_without_mib(&gone) >= card.asked_mib(need_mib));
        let choices = possible.map(|card| card.victims(card.asked_mib(need_mib), &gone));
        choices.min_by(|a, b| value_of(a).total_cmp(&value_of(b)))
    }

    /// Which of these idle holders to evict so that a card is short of nothing; as many of them as there are, if that is not enough.
    pub(crate) fn relief(&self, index: u32, short_mib: u64, idle: &[Idle]) -> Vec<Ticket> {
        let this = self.lock();
        let Some(card) = this.cards.iter().find(|card| card.index == index) else { return Vec::new() };
        let mut here: Vec<(f64, Ticket, u64)> =
            idle.iter().filter_map(|idle| Some((idle.value, idle.ticket, card.held_by_mib(idle.ticket)?))).collect();
        here.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut got_mib = 0;
        let enough = here.into_iter().take_while(|(_, _, mib)| {
            let is_wanted = got_mib < short_mib;
            got_mib += mib;
            is_wanted
        });
        enough.map(|(_, ticket, _)| ticket).collect()
    }

    /// A card as it stands.
    pub(crate) fn line(&self, index: u32) -> Option<Line> {
        self.on(index, |card| card.line())
    }

    fn on<T>(&self, index: u32, act: impl FnOnce(&mut Card) -> T) -> Option<T> {
        self.lock().cards.iter_mut().find(|card| card.index == index).map(act)
    }

    fn lock(&self) -> MutexGuard<'_, Cards> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a look at a card means for the ledger.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// MiB more than there are, held and in use together: as much has to be given back.
    pub(crate) short_mib: u64,
    /// In use though the process that used it has been gone for long.
    pub(crate) stuck_mib: u64,
}

/// A card in the ledger, MiB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) held_mib: u64,
    pub(crate) free_mib: u64,
    /// In use by others.
    pub(crate) foreign_mib: u64,
}

#[cfg(test)]
mod day;
#[cfg(test)]
mod tests;
