//! The VRAM ledger: how much of which card is reserved. Reservations never exceed what a card has (P11).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stokehold_queue::gateway::Gpu;
use stokehold_queue::job::VRAM_CLASSES_GIB;

/// Kept free on each card for the driver and the display: the larger of this and a twentieth of the card.
const RESERVE_MIB: u64 = 512;

/// Names a reservation.
pub(crate) type Ticket = u64;

/// The ledger of all cards. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<Cards>>);

#[derive(Debug, Default)]
struct Cards {
    cards: Vec<Card>,
    tickets: Ticket,
}

#[derive(Debug)]
struct Card {
    index: u32,
    usable_mib: u64,
    reserved: BTreeMap<Ticket, u64>,
}

/// A part of a card, until this is dropped. It belongs to whatever owns the process that uses the memory, and goes with it.
#[derive(Debug)]
pub(crate) struct Reservation {
    ledger: Ledger,
    pub(crate) ticket: Ticket,
    /// The card's index.
    pub(crate) card: u32,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        for card in &mut self.ledger.lock().cards {
            card.reserved.remove(&self.ticket);
        }
    }
}

impl Card {
    fn free_mib(&self) -> u64 {
        self.usable_mib.saturating_sub(self.reserved.values().sum())
    }
}

impl Ledger {
    /// An empty ledger for these cards.
    pub(crate) fn new(gpus: &[Gpu]) -> Self {
        let card = |gpu: &Gpu| Card {
            index: gpu.index,
            usable_mib: gpu.vram_mib.saturating_sub(RESERVE_MIB.max(gpu.vram_mib / 20)),
            reserved: BTreeMap::new(),
        };
        Self(Arc::new(Mutex::new(Cards { cards: gpus.iter().map(card).collect(), tickets: 0 })))
    }

    /// Reserves on the card where the least is left over (ties: the lower index). `None` when no card has room; nothing is
    /// reserved then.
    pub(crate) fn reserve(&self, need_mib: u64) -> Option<Reservation> {
        let mut this = self.lock();
        let ticket = this.tickets;
        this.tickets += 1;
        let card = this
            .cards
            .iter_mut()
            .filter(|card| card.free_mib() >= need_mib)
            .min_by_key(|card| (card.free_mib() - need_mib, card.index))?;
        card.reserved.insert(ticket, need_mib);
        Some(Reservation { ledger: self.clone(), ticket, card: card.index })
    }

    /// The largest VRAM class, GiB, that would fit a card if these idle reservations were gone. 0: CPU jobs only.
    pub(crate) fn reach_gib(&self, idle: &[Ticket]) -> u32 {
        let this = self.lock();
        let room_mib = this.cards.iter().map(|card| {
            let idle_mib: u64 = idle.iter().filter_map(|ticket| card.reserved.get(ticket)).sum();
            card.free_mib() + idle_mib
        });
        // A class names a card's nominal size; what may be reserved on such a card is less by the reserve.
        let room_mib = room_mib.max().unwrap_or(0);
        VRAM_CLASSES_GIB.into_iter().rfind(|class| usable_of_class_mib(*class) <= room_mib).unwrap_or(0)
    }

    fn lock(&self) -> MutexGuard<'_, Cards> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the reserve leaves of a card of this nominal size. Cards of one class differ by some MiB in what they report: 2 % are
/// forgiven.
fn usable_of_class_mib(class_gib: u32) -> u64 {
    let total_mib = u64::from(class_gib) * 1024 * 98 / 100;
    total_mib.saturating_sub(RESERVE_MIB.max(total_mib / 20))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    fn ledger(sizes_mib: &[u64]) -> Ledger {
        let gpus: Vec<Gpu> = (0..)
            .zip(sizes_mib)
            .map(|(index, size)| Gpu { index, uuid: String::new(), name: String::new(), vram_mib: *size })
            .collect();
        Ledger::new(&gpus)
    }

    #[test]
    fn a_reservation_goes_to_the_card_it_fits_best() {
        let ledger = ledger(&[81_920, 24_576]);
        let card = |reservation: &Option<Reservation>| reservation.as_ref().map(|reservation| reservation.card);
        let small = ledger.reserve(20_000);
        assert_eq!(card(&small), Some(1));
        let large = ledger.reserve(20_000);
        assert_eq!(card(&large), Some(0), "the small card is full");
        assert_eq!(card(&ledger.reserve(70_000)), None);
        drop(large);
        assert_eq!(card(&ledger.reserve(70_000)), Some(0));
    }

    #[test]
    fn reach_is_the_class_of_the_largest_room_and_counts_what_can_be_evicted() {
        assert_eq!(ledger(&[]).reach_gib(&[]), 0);
        let ledger = ledger(&[24_564, 81_559]);
        assert_eq!(ledger.reach_gib(&[]), 80, "a card reports a little less than its name says");
        let reservation = ledger.reserve(60_000);
        assert_eq!(ledger.reach_gib(&[]), 24);
        assert_eq!(ledger.reach_gib(&[reservation.as_ref().map_or(0, |reservation| reservation.ticket)]), 80);
        drop(reservation);
        assert_eq!(ledger.reach_gib(&[]), 80);
    }

    proptest! {
        /// Whatever comes and goes: no card is ever reserved beyond what it has, what fits is not refused, and nothing is left over.
        #[test]
        fn reservations_never_exceed_a_card(
            sizes_mib in vec(1_000..200_000_u64, 1..4),
            steps in vec(prop_oneof![(1..100_000_u64).prop_map(Ok), any::<Index>().prop_map(Err)], 1..100),
        ) {
            let ledger = ledger(&sizes_mib);
            let mut held = Vec::new();
            for step in steps {
                match step {
                    Ok(need_mib) => {
                        let fits = ledger.lock().cards.iter().any(|card| card.free_mib() >= need_mib);
                        let reservation = ledger.reserve(need_mib);
                        prop_assert_eq!(reservation.is_some(), fits);
                        held.extend(reservation);
                    }
                    Err(index) if !held.is_empty() => drop(held.swap_remove(index.index(held.len()))),
                    Err(_) => {}
                }
                for card in &ledger.lock().cards {
                    prop_assert!(card.reserved.values().sum::<u64>() <= card.usable_mib);
                }
            }
            held.clear();
            prop_assert!(ledger.lock().cards.iter().all(|card| card.reserved.is_empty()));
        }
    }
}
