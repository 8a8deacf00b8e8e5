//! The VRAM ledger: who has reserved how much of which card. Reservations never exceed what a card has (P11).

use std::collections::BTreeMap;

use stokehold_queue::gateway::Gpu;
use stokehold_queue::job::VRAM_CLASSES_GIB;

/// Kept free on each card for the driver and the display: the larger of this and a twentieth of the card.
const RESERVE_MIB: u64 = 512;

/// Whose reservation it is.
pub(crate) type Holder = u64;

/// The ledger of all cards.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    cards: Vec<Card>,
}

#[derive(Debug)]
struct Card {
    index: u32,
    usable_mib: u64,
    reserved: BTreeMap<Holder, u64>,
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
        Self { cards: gpus.iter().map(card).collect() }
    }

    /// Reserves on the card where the least is left over (ties: the lower index). `None` when no card has room; nothing is
    /// reserved then.
    pub(crate) fn reserve(&mut self, holder: Holder, need_mib: u64) -> Option<u32> {
        let card = self
            .cards
            .iter_mut()
            .filter(|card| card.free_mib() >= need_mib)
            .min_by_key(|card| (card.free_mib() - need_mib, card.index))?;
        card.reserved.insert(holder, need_mib);
        Some(card.index)
    }

    /// Gives a reservation back. Nothing happens when there is none.
    pub(crate) fn release(&mut self, holder: Holder) {
        for card in &mut self.cards {
            card.reserved.remove(&holder);
        }
    }

    /// The largest VRAM class, GiB, that would fit a card if these idle holders were evicted. 0: CPU jobs only.
    pub(crate) fn reach_gib(&self, idle: &[Holder]) -> u32 {
        let room_mib = self.cards.iter().map(|card| {
            let idle_mib: u64 = idle.iter().filter_map(|holder| card.reserved.get(holder)).sum();
            card.free_mib() + idle_mib
        });
        // A class names a card's nominal size; what may be reserved on such a card is less by the reserve.
        let room_mib = room_mib.max().unwrap_or(0);
        VRAM_CLASSES_GIB.into_iter().rfind(|class| usable_of_class_mib(*class) <= room_mib).unwrap_or(0)
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
        let mut ledger = ledger(&[81_920, 24_576]);
        assert_eq!(ledger.reserve(1, 20_000), Some(1));
        assert_eq!(ledger.reserve(2, 20_000), Some(0), "the small card is full");
        assert_eq!(ledger.reserve(3, 70_000), None);
        ledger.release(2);
        assert_eq!(ledger.reserve(3, 70_000), Some(0));
    }

    #[test]
    fn reservations_never_exceed_a_card_whatever_comes() {
        let mut ledger = ledger(&[24_576, 16_384]);
        for holder in 0..200 {
            let _ = ledger.reserve(holder, 700 * (holder % 13));
            if holder % 3 == 0 {
                ledger.release(holder / 2);
            }
            for card in &ledger.cards {
                assert!(card.reserved.values().sum::<u64>() <= card.usable_mib);
            }
        }
    }

    #[test]
    fn reach_is_the_class_of_the_largest_room_and_counts_what_can_be_evicted() {
        assert_eq!(ledger(&[]).reach_gib(&[]), 0);
        let mut ledger = ledger(&[24_564, 81_559]);
        assert_eq!(ledger.reach_gib(&[]), 80, "a card reports a little less than its name says");
        ledger.reserve(1, 60_000);
        assert_eq!(ledger.reach_gib(&[]), 24);
        assert_eq!(ledger.reach_gib(&[1]), 80);
    }
}
