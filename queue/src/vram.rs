//! The sizes that cards come in, and what of a card models may hold. API and workers reckon with the same numbers.

use crate::gateway::Gpu;

/// The VRAM sizes that real cards come in, GiB; 0 is "no GPU". A job stands on the shelf of the smallest that fits it.
pub const CLASSES_GIB: [u32; 15] = [0, 4, 6, 8, 10, 12, 16, 24, 32, 40, 48, 80, 96, 141, 192];

/// Kept free on each card for the driver and the display: the larger of this and a twentieth of the card.
const RESERVE_MIB: u64 = 512;

/// The smallest class that holds what an endpoint declares, or `None` when no single card does.
#[must_use]
pub fn class_of_gib(declared_gib: f64) -> Option<u32> {
    CLASSES_GIB.into_iter().find(|class| f64::from(*class) >= declared_gib)
}

/// What is kept free of a card.
#[must_use]
pub fn reserve_mib(total_mib: u64) -> u64 {
    RESERVE_MIB.max(total_mib / 20).min(total_mib)
}

/// What models may hold of a card.
#[must_use]
pub fn usable_mib(total_mib: u64) -> u64 {
    total_mib - reserve_mib(total_mib)
}

/// What models may hold at least of every card of a class. Cards of one class differ by some MiB in what they report: 2 % are forgiven.
#[must_use]
pub fn usable_of_class_mib(class_gib: u32) -> u64 {
    usable_mib(u64::from(class_gib) * 1024 * 98 / 100)
}

/// The class of a card: the largest whose need it can always meet.
#[must_use]
pub fn class_of_card_gib(total_mib: u64) -> u32 {
    CLASSES_GIB.into_iter().rfind(|class| usable_of_class_mib(*class) <= usable_mib(total_mib)).unwrap_or(0)
}

/// The smallest class whose cards have room for a model that was seen to need so much, or `None` when no single card has.
#[must_use]
pub fn class_of_need_gib(need_mib: u64) -> Option<u32> {
    CLASSES_GIB.into_iter().find(|class| usable_of_class_mib(*class) >= need_mib)
}

/// GiB, as people declare them, in MiB.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most some hundred GiB, never negative")]
pub fn mib_of_gib(gib: f64) -> u64 {
    (gib.max(0.0) * 1024.0).ceil() as u64
}

/// What a model that needs so much holds of a card of this size; more than [`usable_mib`] when it does not fit. One that asks for a card by
/// its name, 24 GiB on a card of the class 24, means that card and not the last of its bytes: it holds all that there is.
#[must_use]
pub fn held_of_card_mib(need_mib: u64, total_mib: u64) -> u64 {
    let nominal_mib = u64::from(class_of_card_gib(total_mib)) * 1024;
    if need_mib <= nominal_mib { need_mib.min(usable_mib(total_mib)) } else { need_mib }
}

/// A kind of card, as prices and speeds are kept by it: its name as its driver tells it without what all have, `RTX 4090` of `NVIDIA
/// GeForce RTX 4090`. What a test declares is of a kind by its size. At most 40 characters, for workers say what they like.
#[must_use]
pub fn kind_of_card(gpu: &Gpu) -> String {
    if gpu.uuid.starts_with("fake-") {
        return format!("fake {} GiB", class_of_card_gib(gpu.vram_mib));
    }
    let words = gpu.name.split_whitespace().filter(|word| !matches!(*word, "NVIDIA" | "GeForce" | "AMD" | "Radeon"));
    let kind: Vec<&str> = words.collect();
    kind.join(" ").chars().filter(|sign| !sign.is_control() && *sign != ':').take(KIND_MAX).collect()
}

/// The kind of a machine that computes on its processors.
pub const KIND_CPU: &str = "CPU";

/// Characters of a kind's name.
const KIND_MAX: usize = 40;

/// The kind of the cards of a machine: of its first, for most have cards of one kind.
#[must_use]
pub fn kind_of_cards(gpus: &[Gpu]) -> String {
    gpus.first().map_or_else(|| KIND_CPU.to_owned(), kind_of_card)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_of_the_class_that_their_name_says() {
        // As NVML tells them: a GTX 1660 Ti, RTX 3060, RTX 4090, A100 40 and 80, H200.
        let told = [6_144, 12_288, 24_564, 40_960, 81_920, 143_771];
        assert_eq!(told.map(class_of_card_gib), [6, 12, 24, 40, 80, 141]);
        assert_eq!(class_of_card_gib(0), 0);
    }

    #[test]
    fn kinds_are_names_without_what_all_have() {
        let card = |name: &str| Gpu { name: name.to_owned(), ..Gpu::default() };
        assert_eq!(kind_of_card(&card("NVIDIA GeForce RTX 4090")), "RTX 4090");
        assert_eq!(kind_of_card(&card("NVIDIA H100 80GB HBM3")), "H100 80GB HBM3");
        assert_eq!(kind_of_card(&card(&"x:".repeat(100))).len(), KIND_MAX);
        let fake = Gpu { uuid: "fake-0".to_owned(), vram_mib: 24_576, ..Gpu::default() };
        assert_eq!((kind_of_card(&fake), kind_of_cards(&[])), ("fake 24 GiB".to_owned(), KIND_CPU.to_owned()));
    }

    #[test]
    fn what_is_declared_fits_a_card_of_its_class() {
        for class in CLASSES_GIB {
            let total_mib = u64::from(class) * 1024 * 98 / 100;
            assert!(held_of_card_mib(u64::from(class) * 1024, total_mib) <= usable_mib(total_mib));
            assert_eq!(class_of_need_gib(usable_of_class_mib(class)), Some(class));
        }
        assert_eq!(held_of_card_mib(24 * 1024, 24_564), 24_564 - 24_564 / 20, "the whole card");
        assert_eq!(held_of_card_mib(10 * 1024, 24_564), 10 * 1024);
        assert_eq!(held_of_card_mib(32 * 1024, 24_564), 32 * 1024, "which does not fit");
    }

    #[test]
    fn a_need_goes_to_the_class_that_has_room_for_it() {
        assert_eq!(class_of_need_gib(0), Some(0));
        assert_eq!(class_of_need_gib(9 * 1024), Some(10));
        assert_eq!(class_of_need_gib(10 * 1024), Some(12));
        assert_eq!(class_of_need_gib(1 << 20), None);
    }
}
