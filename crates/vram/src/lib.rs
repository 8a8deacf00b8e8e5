//! The VRAM ledger: who holds how much of which card. What is held never exceeds what a card has (P11).
//!
//! A model's part is reserved before it loads, at what it is thought to need; what NVML then sees of its processes corrects that. A
//! card's room is what neither is held nor is in use by somebody else.

mod card;

use std::cmp::Reverse;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stokehold_queue::gateway::{CardReach, Gpu, ModelOnCard};
use stokehold_queue::vram::{VramNeed, reach_of_room_gib};

use card::Card;
use tokio::sync::Notify;

/// Names a holder.
pub type Ticket = u64;

/// What a model takes: a part of one card, or several cards of which it has each for itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Need {
    /// Of each card.
    pub vram: VramNeed,
    /// How many cards; more than one are had whole.
    pub cards: usize,
    /// It takes all that each card has, because what it needs is not known.
    pub is_all: bool,
}

impl Need {
    /// A part of one card.
    #[cfg(test)]
    pub(crate) fn part(mib: u64) -> Self {
        Self::of_mib(mib, 1)
    }

    /// So much of each of these cards, whatever their kind.
    #[must_use]
    pub fn of_mib(mib: u64, cards: usize) -> Self {
        Self { vram: VramNeed::of_mib(mib), cards, is_all: false }
    }

    fn is_whole(&self) -> bool {
        self.cards > 1
    }
}

/// Cards that somebody wants for itself: until this is dropped, nobody else reserves there. What was reserved by it stays.
#[derive(Debug)]
pub struct Claim {
    ledger: Ledger,
    /// The cards' indices.
    pub cards: Vec<u32>,
    ended: Arc<Notify>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.ledger.each(&self.cards, |card| card.is_claimed = false);
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

/// The ledger of all cards. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Ledger(Arc<Mutex<Cards>>);

#[derive(Debug, Default)]
struct Cards {
    cards: Vec<Card>,
    tickets: Ticket,
}

/// A part of a card, or whole cards, until this is dropped. It belongs to whatever owns the processes that use the memory, and goes with
/// them: dropped when they are gone, it is free when a look at the card has shown so.
#[derive(Debug)]
pub struct Reservation {
    ledger: Ledger,
    /// Its name.
    pub ticket: Ticket,
    /// The cards' indices, the lowest first.
    pub cards: Vec<u32>,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.ledger.each(&self.cards, |card| card.release(self.ticket));
    }
}

impl Reservation {
    /// These processes use it: those of this group.
    pub fn belongs_to(&self, group: u32) {
        self.ledger.each(&self.cards, |card| card.belongs_to(self.ticket, group));
    }
}

impl Ledger {
    /// An empty ledger for these cards. Cards that are looked at have what is released believed only when a look has shown it.
    pub fn new(gpus: &[Gpu], are_looked_at: bool) -> Self {
        let cards = gpus.iter().map(|gpu| Card::new(gpu, are_looked_at)).collect();
        Self(Arc::new(Mutex::new(Cards { cards, tickets: 0 })))
    }

    /// Reserves on those of these cards where the least is left over (ties: the lower index). `None` when there is no room; nothing is
    /// reserved then.
    pub fn reserve(&self, need: &Need, on: &[u32]) -> Option<Reservation> {
        let mut this = self.lock();
        let left = |card: &Card| card.free_for_mib(need, &[]).checked_sub(card.asked_mib(need));
        let able = this.cards.iter().filter(|card| on.contains(&card.index));
        let mut fitting: Vec<(u64, u32)> = able.filter_map(|card| Some((left(card)?, card.index))).collect();
        fitting.sort_unstable();
        let chosen: Vec<u32> = fitting.into_iter().take(need.cards).map(|(_, index)| index).collect();
        if chosen.len() < need.cards {
            return None;
        }
        let ticket = this.hold(&chosen, need);
        drop(this);
        Some(self.reservation(ticket, chosen))
    }

    /// Claims those of these cards on which the most is free, of those that are large enough and not claimed. `ended` is told when the
    /// claim ends.
    pub fn claim(&self, need: &Need, on: &[u32], ended: &Arc<Notify>) -> Option<Claim> {
        let mut this = self.lock();
        let able = this
            .cards
            .iter_mut()
            .filter(|card| on.contains(&card.index) && card.is_open && !card.is_claimed && card.could_hold(need));
        let mut able: Vec<&mut Card> = able.collect();
        able.sort_by_key(|card| Reverse(card.free_mib()));
        able.truncate(need.cards);
        if able.len() < need.cards {
            return None;
        }
        able.iter_mut().for_each(|card| card.is_claimed = true);
        let cards = able.iter().map(|card| card.index).collect();
        drop(this);
        Some(Claim { ledger: self.clone(), cards, ended: Arc::clone(ended) })
    }

    /// Whether there is room for it on the claimed cards.
    pub fn has_room_claimed(&self, claim: &Claim, need: &Need) -> bool {
        self.lock().has_room_claimed(claim, need)
    }

    /// Reserves on the claimed cards, once there is room. The claim stays.
    pub fn reserve_claimed(&self, claim: &Claim, need: &Need) -> Option<Reservation> {
        let mut this = self.lock();
        if !this.has_room_claimed(claim, need) {
            return None;
        }
        let ticket = this.hold(&claim.cards, need);
        drop(this);
        Some(self.reservation(ticket, claim.cards.clone()))
    }

    fn reservation(&self, ticket: Ticket, mut cards: Vec<u32>) -> Reservation {
        cards.sort_unstable();
        Reservation { ledger: self.clone(), ticket, cards }
    }

    /// Whether somebody wants one of these cards for itself.
    pub fn is_claimed(&self, cards: &[u32]) -> bool {
        self.lock().of(cards).any(|card| card.is_claimed)
    }

    /// Whether all of these cards take work.
    pub fn are_open(&self, cards: &[u32]) -> bool {
        self.lock().of(cards).all(|card| card.is_open)
    }

    /// Whether memory of those who have left these cards is not yet seen to be free.
    pub fn is_clearing(&self, cards: &[u32]) -> bool {
        self.lock().of(cards).any(Card::is_clearing)
    }

    /// Whether there will be room on these cards as soon as a look has shown that those who have left are gone.
    pub fn is_about_to_fit(&self, need: &Need, on: &[u32]) -> bool {
        let this = self.lock();
        this.of(on).filter(|card| card.room_after_mib(need) >= card.asked_mib(need)).count() >= need.cards
            && this.of(on).any(Card::is_clearing)
    }

    /// A model has warmed up: what it was seen to use at the most, and a margin, replaces what was reserved for it. A card that does not
    /// tell what each process uses leaves it as it is. MiB held from now on.
    pub fn settle(&self, ticket: Ticket) -> u64 {
        self.lock().cards.iter_mut().filter_map(|card| card.settle(ticket)).sum()
    }

    /// Takes note of what NVML sees on a card: all that is in use, and what process groups use, where they can be told apart.
    pub fn observe(&self, index: u32, used_mib: u64, groups: Option<&[(u32, u64)]>) -> Verdict {
        self.on(index, |card| card.observe(used_mib, groups)).unwrap_or_default()
    }

    /// Lets a card take work, or not. What is held stays held.
    pub fn set_open(&self, index: u32, is_open: bool) {
        self.on(index, |card| card.is_open = is_open);
    }

    /// For each card the largest VRAM class, GiB, of which every model would fit it if these idle holders were gone, and that of which
    /// every model could have it whole. 0: nothing does.
    pub fn reach(&self, idle: &[Ticket]) -> Vec<CardReach> {
        let reach = |card: &Card| CardReach {
            index: card.index,
            reach_gib: reach_of_room_gib(card.total_mib(), card.room_without_mib(idle)),
            whole_gib: reach_of_room_gib(card.total_mib(), card.whole_without_mib(idle)),
        };
        self.lock().cards.iter().map(reach).collect()
    }

    /// Whether these cards could hold a model that needs so much, if nothing else were on them.
    pub fn could_hold(&self, need: &Need, on: &[u32]) -> bool {
        self.lock().of(on).filter(|card| card.could_hold(need)).count() >= need.cards
    }

    /// Whether a model holds more of one of these cards than the class of its jobs says.
    pub fn needs_more_than_its_class(&self, need: &Need, on: &[u32]) -> bool {
        let class_mib = need.vram.class_gib().map_or(u64::MAX, |class| u64::from(class) * 1024);
        self.lock().of(on).any(|card| card.is_open && card.could_hold(need) && card.asked_mib(need) > class_mib)
    }

    /// What a model could hold of each of so many of these cards at the most, alone on the largest that take work.
    pub fn largest_mib(&self, cards: usize, on: &[u32]) -> u64 {
        let mut usable: Vec<u64> = self.lock().of(on).filter(|card| card.is_open).map(Card::usable_mib).collect();
        usable.sort_unstable_by_key(|mib| Reverse(*mib));
        usable.get(cards.saturating_sub(1)).copied().unwrap_or(0)
    }

    /// What a holder has, and is seen to use now, on each of its cards.
    pub fn held(&self, ticket: Ticket) -> Vec<ModelOnCard> {
        self.lock().cards.iter().filter_map(|card| card.held_and_seen(ticket)).collect()
    }

    /// What a holder was seen to use of a card at the most, and the margin above it; `None` where that cannot be seen.
    pub fn need_mib(&self, ticket: Ticket) -> Option<u64> {
        self.lock().cards.iter().filter_map(|card| card.need_mib(ticket)).max()
    }

    /// Forgets the most that a holder was seen to use: from now on counts what it uses from now on. What it holds stays.
    pub fn forget_peak(&self, ticket: Ticket) {
        self.lock().cards.iter_mut().for_each(|card| card.forget_peak(ticket));
    }

    /// Which of these idle holders to evict so that `need` fits these cards, where the least is lost. `None` when it does not fit
    /// without all of them.
    pub fn victims(&self, need: &Need, on: &[u32], idle: &[Idle]) -> Option<Vec<Ticket>> {
        let this = self.lock();
        let mut cheapest_first = idle.to_vec();
        cheapest_first.sort_by(|a, b| a.value.total_cmp(&b.value));
        let gone: Vec<Ticket> = cheapest_first.iter().map(|idle| idle.ticket).collect();
        let value_of = |tickets: &[Ticket]| -> f64 {
            idle.iter().filter(|idle| tickets.contains(&idle.ticket)).map(|idle| idle.value).sum()
        };
        let possible = this.of(on).filter(|card| card.free_for_mib(need, &gone) >= card.asked_mib(need));
        let mut choices: Vec<Vec<Ticket>> = possible.map(|card| card.victims(need, &gone)).collect();
        choices.sort_by(|a, b| value_of(a).total_cmp(&value_of(b)));
        if choices.len() < need.cards {
            return None;
        }
        let mut victims = choices.into_iter().take(need.cards).flatten().collect::<Vec<_>>();
        // One that has several cards makes way once.
        victims.sort_unstable();
        victims.dedup();
        Some(victims)
    }

    /// Which of these idle holders to evict so that a card is short of nothing; as many of them as there are, if that is not enough.
    pub fn relief(&self, index: u32, short_mib: u64, idle: &[Idle]) -> Vec<Ticket> {
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
    pub fn line(&self, index: u32) -> Option<Line> {
        self.on(index, |card| card.line())
    }

    fn on<T>(&self, index: u32, act: impl FnOnce(&mut Card) -> T) -> Option<T> {
        self.lock().cards.iter_mut().find(|card| card.index == index).map(act)
    }

    fn each(&self, cards: &[u32], act: impl FnMut(&mut Card)) {
        self.lock().cards.iter_mut().filter(|card| cards.contains(&card.index)).for_each(act);
    }

    fn lock(&self) -> MutexGuard<'_, Cards> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cards {
    fn of(&self, indices: &[u32]) -> impl Iterator<Item = &Card> {
        self.cards.iter().filter(|card| indices.contains(&card.index))
    }

    fn has_room_claimed(&self, claim: &Claim, need: &Need) -> bool {
        self.of(&claim.cards).all(|card| card.has_room_claimed(need))
    }

    /// Holds what is needed of each of these cards.
    fn hold(&mut self, indices: &[u32], need: &Need) -> Ticket {
        let ticket = self.tickets;
        self.tickets += 1;
        self.cards.iter_mut().filter(|card| indices.contains(&card.index)).for_each(|card| card.hold(ticket, need));
        ticket
    }
}

/// What a look at a card means for the ledger.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verdict {
    /// MiB more than there are, held and in use together: as much has to be given back.
    pub short_mib: u64,
    /// In use though the process that used it has been gone for long.
    pub stuck_mib: u64,
}

/// A card in the ledger, MiB.
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
