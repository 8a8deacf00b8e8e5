//! The capacity of GPUs, and the memory needs of models. The API, workers, the ledger and the autoscaler all compute
//! with these functions, in MiB.
//!
//! Jobs wait in lanes by their *class*: the VRAM that they need, GiB, rounded up. The class is an index that lets a
//! lease skip lanes of jobs that are too large. It is the least that the model needs of any GPU; what it needs of a
//! particular one is [`VramNeed::on`].

use std::collections::BTreeMap;

use crate::gpus::Gpu;

/// Memory sizes in the data sheets of GPUs, GiB.
pub const SOLD_GIB: [u32; 21] = [4, 6, 8, 10, 11, 12, 16, 20, 24, 32, 40, 48, 64, 80, 94, 96, 141, 180, 192, 256, 288];

/// The least memory that a GPU reports, as a percentage of the size in its data sheet. An A10 with 24 GiB reports
/// 22,731 MiB with older drivers, which is 92.5 %: ECC takes 6.25 %, and the firmware the rest.
const REPORTED_MIN_PERCENT: u64 = 92;

/// Maximum VRAM that an endpoint may declare, GiB: the memory of one GPU.
pub const DECLARED_MAX_GIB: u32 = 384;

/// Minimum memory kept free on each GPU for the driver and the display: the larger of this and a twentieth of the GPU's
/// memory.
const RESERVE_MIB: u64 = 512;

/// The key of [`VramNeed::learned_mib`] for the least need on any GPU: a model that has outgrown a GPU needs more than
/// that GPU has.
pub const ANY_KIND: &str = "*";

/// The class of a declared size; `None` if it is larger than [`DECLARED_MAX_GIB`] or not a valid size.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be 0 to 384")]
pub fn class_of_gib(declared_gib: f64) -> Option<u32> {
    (0.0..=f64::from(DECLARED_MAX_GIB)).contains(&declared_gib).then(|| declared_gib.ceil() as u32)
}

/// The class of a need; `None` if no GPU is large enough.
#[must_use]
pub fn class_of_mib(need_mib: u64) -> Option<u32> {
    u32::try_from(need_mib.div_ceil(1024)).ok().filter(|class| *class <= DECLARED_MAX_GIB)
}

/// The memory that is kept free on a GPU, MiB.
#[must_use]
pub fn reserve_mib(total_mib: u64) -> u64 {
    RESERVE_MIB.max(total_mib / 20).min(total_mib)
}

/// The memory that models may reserve on a GPU, MiB.
#[must_use]
pub fn usable_mib(total_mib: u64) -> u64 {
    total_mib - reserve_mib(total_mib)
}

/// The largest class that an empty GPU takes: the size in its data sheet, although the GPU reports less and a part
/// stays free.
#[must_use]
pub fn sold_gib(total_mib: u64) -> u32 {
    let is_sold_as = |gib: &u32| total_mib.saturating_mul(100) >= u64::from(*gib) * 1024 * REPORTED_MIN_PERCENT;
    let sold = SOLD_GIB.into_iter().rfind(is_sold_as).unwrap_or(0);
    sold.max(u32::try_from(total_mib / 1024).unwrap_or(u32::MAX).min(DECLARED_MAX_GIB))
}

/// The largest class of which every model fits into this much room on a GPU.
#[must_use]
pub fn reach_of_room_gib(total_mib: u64, room_mib: u64) -> u32 {
    if room_mib > 0 && room_mib >= usable_mib(total_mib) {
        return sold_gib(total_mib);
    }
    u32::try_from(room_mib / 1024).unwrap_or(u32::MAX).min(DECLARED_MAX_GIB)
}

/// Converts GiB, in which people declare sizes, to MiB.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most some hundred GiB, never negative")]
pub fn mib_of_gib(gib: f64) -> u64 {
    (gib.max(0.0) * 1024.0).ceil() as u64
}

/// The memory that a model with this need reserves on a GPU of this size, MiB; more than [`usable_mib`] if it does not
/// fit. A model that declares the size in the data sheet means the GPU rather than its last byte, so it reserves all
/// usable memory.
#[must_use]
pub fn held_of_gpu_mib(need_mib: u64, total_mib: u64) -> u64 {
    if need_mib <= u64::from(sold_gib(total_mib)) * 1024 { need_mib.min(usable_mib(total_mib)) } else { need_mib }
}

/// The memory need of a model, which can differ by GPU model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VramNeed {
    /// The endpoint's declaration, MiB; 0 runs on the CPU.
    pub declared_mib: u64,
    /// The share of any GPU's memory that the model takes, 0 to 1, but at least `declared_mib`. `None` means that it
    /// takes what it needs.
    pub fraction: Option<f64>,
    /// Whether warm-up inputs have shown the whole need, so that a learned value below the declaration applies as well.
    pub is_shown: bool,
    /// Observed needs, MiB, by the GPU model as named by the driver; under [`ANY_KIND`] the least need on any GPU.
    pub learned_mib: BTreeMap<String, u64>,
}

impl VramNeed {
    /// A need of this much on every GPU.
    #[must_use]
    pub fn of_mib(mib: u64) -> Self {
        Self { declared_mib: mib, ..Self::default() }
    }

    /// Whether the model needs a GPU.
    #[must_use]
    pub fn is_of_gpu(&self) -> bool {
        self.declared_mib > 0
    }

    /// The memory that the model reserves on this GPU, MiB; more than [`usable_mib`] if it does not fit. An observed
    /// need on a GPU model takes precedence on that model, and is never more than such a GPU can provide.
    #[must_use]
    pub fn on(&self, gpu: &Gpu) -> u64 {
        if !self.is_of_gpu() {
            return 0;
        }
        let (least_mib, usable_mib) = (self.least_mib(), usable_mib(gpu.vram_mib));
        let least_held_mib = held_of_gpu_mib(least_mib, gpu.vram_mib);
        if let Some(fraction) = self.fraction {
            return least_held_mib.max(share_mib(fraction, gpu.vram_mib).min(usable_mib));
        }
        match self.learned_mib.get(&gpu.name).map(|learned_mib| (*learned_mib).min(usable_mib)) {
            Some(learned_mib) if self.is_shown => learned_mib.max(self.floor_mib()),
            Some(learned_mib) => least_held_mib.max(learned_mib),
            None => least_held_mib,
        }
    }

    /// Whether the model fits into this much room on this GPU.
    #[must_use]
    pub fn fits(&self, gpu: &Gpu, room_mib: u64) -> bool {
        self.on(gpu) <= room_mib
    }

    /// Whether the model fits on this GPU if nothing else is on it.
    #[must_use]
    pub fn fits_empty(&self, gpu: &Gpu) -> bool {
        self.fits(gpu, usable_mib(gpu.vram_mib))
    }

    /// The class of the model's jobs, GiB: the least that it needs on any GPU; `None` if no GPU is large enough.
    #[must_use]
    pub fn class_gib(&self) -> Option<u32> {
        if !self.is_of_gpu() {
            return Some(0);
        }
        let kinds = self.learned_mib.iter().filter(|(kind, _)| *kind != ANY_KIND);
        let seen_mib = kinds.map(|(_, mib)| *mib).min().filter(|_| self.is_shown && self.fraction.is_none());
        let least_mib = seen_mib.map_or(self.least_mib(), |mib| mib.min(self.declared_mib).max(self.floor_mib()));
        // A model that turned out to use no GPU memory still needs a GPU, because it declares one.
        class_of_mib(least_mib.max(1))
    }

    /// The least memory that the model can run with on a GPU without learned values, MiB.
    #[must_use]
    pub fn least_mib(&self) -> u64 {
        self.declared_mib.max(self.floor_mib())
    }

    fn floor_mib(&self) -> u64 {
        self.learned_mib.get(ANY_KIND).copied().unwrap_or(0)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a part of a GPU"
)]
fn share_mib(fraction: f64, total_mib: u64) -> u64 {
    (fraction.clamp(0.0, 1.0) * total_mib as f64).floor() as u64
}

/// The GPU model as used in prices and speeds: its name in the driver without the common prefix, e.g. `RTX 4090` for
/// `NVIDIA GeForce RTX 4090`. A GPU declared by a test has a model by its size. At most 40 characters, because workers
/// can report anything.
#[must_use]
pub fn kind_of_gpu(gpu: &Gpu) -> String {
    if gpu.uuid.starts_with("fake-") {
        return format!("fake {} GiB", sold_gib(gpu.vram_mib));
    }
    let words = gpu.name.split_whitespace().filter(|word| !matches!(*word, "NVIDIA" | "GeForce" | "AMD" | "Radeon"));
    let kind: Vec<&str> = words.collect();
    kind.join(" ").chars().filter(|sign| !sign.is_control() && *sign != ':').take(KIND_MAX).collect()
}

/// The GPU model of a host that computes on its CPU.
pub const KIND_CPU: &str = "CPU";

/// Maximum length of a GPU model, characters.
const KIND_MAX: usize = 40;

/// The GPU model of a host: the model of its first GPU, because most hosts have GPUs of one model.
#[must_use]
pub fn kind_of_gpus(gpus: &[Gpu]) -> String {
    gpus.first().map_or_else(|| KIND_CPU.to_owned(), kind_of_gpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_takes_the_size_that_it_was_sold_with() {
        // A GTX 1660 Ti, RTX 3060, T4, A10 with an old driver, RTX 4090, A40, A100 40 and 80, H200.
        let reported = [6_144, 12_288, 15_360, 22_731, 24_564, 46_068, 40_960, 81_920, 143_771];
        assert_eq!(reported.map(sold_gib), [6, 12, 16, 24, 24, 48, 40, 80, 141]);
        assert_eq!(sold_gib(0), 0);
        assert_eq!(sold_gib(22 * 1024), 22, "a size that no card is sold with");
        assert_eq!(sold_gib(u64::MAX), DECLARED_MAX_GIB);
    }

    #[test]
    fn kinds_are_names_without_what_all_have() {
        let card = |name: &str| Gpu { name: name.to_owned(), ..Gpu::default() };
        assert_eq!(kind_of_gpu(&card("NVIDIA GeForce RTX 4090")), "RTX 4090");
        assert_eq!(kind_of_gpu(&card("NVIDIA H100 80GB HBM3")), "H100 80GB HBM3");
        assert_eq!(kind_of_gpu(&card(&"x:".repeat(100))).len(), KIND_MAX);
        let fake = Gpu { uuid: "fake-0".to_owned(), vram_mib: 24_576, ..Gpu::default() };
        assert_eq!((kind_of_gpu(&fake), kind_of_gpus(&[])), ("fake 24 GiB".to_owned(), KIND_CPU.to_owned()));
    }

    #[test]
    fn what_is_declared_fits_by_the_mebibyte() {
        // An A10 provides 21,877 MiB for models.
        let a10 = 23_028;
        assert_eq!(held_of_gpu_mib(18 * 1024, a10), 18 * 1024);
        assert_eq!(held_of_gpu_mib(24 * 1024, a10), usable_mib(a10), "the whole card");
        assert_eq!(held_of_gpu_mib(25 * 1024, a10), 25 * 1024, "which does not fit");
        assert_eq!(reach_of_room_gib(a10, usable_mib(a10)), 24);
        assert_eq!(reach_of_room_gib(a10, usable_mib(a10) - 1), 21);
        assert_eq!((reach_of_room_gib(a10, 0), reach_of_room_gib(0, 0)), (0, 0));
    }

    #[test]
    fn classes_are_whole_gib() {
        assert_eq!([0.0, 0.1, 18.0, 18.5, 384.0].map(class_of_gib), [Some(0), Some(1), Some(18), Some(19), Some(384)]);
        assert_eq!([-1.0, 384.1, f64::NAN, f64::INFINITY].map(class_of_gib), [None; 4]);
        assert_eq!([0, 1, 10 * 1024, 10 * 1024 + 1].map(class_of_mib), [Some(0), Some(1), Some(10), Some(11)]);
        assert_eq!(class_of_mib(1 << 40), None);
    }

    fn gpu(name: &str, vram_mib: u64) -> Gpu {
        Gpu { name: name.to_owned(), vram_mib, ..Gpu::default() }
    }

    #[test]
    fn what_was_seen_on_one_kind_decides_for_that_kind() {
        let (small, large) = (gpu("NVIDIA GeForce RTX 4090", 24_564), gpu("NVIDIA H200", 143_771));
        let learned = |kind: &str, mib| BTreeMap::from([(kind.to_owned(), mib)]);
        // An engine that takes nine tenths of any GPU, and a margin.
        let engine = VramNeed { learned_mib: learned(&large.name, 135_860), ..VramNeed::of_mib(16 * 1024) };
        assert_eq!((engine.on(&small), engine.class_gib()), (16 * 1024, Some(16)));
        let past = VramNeed { learned_mib: learned(&large.name, 150_000), ..engine.clone() };
        assert_eq!(past.on(&large), usable_mib(large.vram_mib), "never more than such a card can give");
        assert!(past.fits_empty(&large) && !past.fits(&large, 100_000) && past.fits_empty(&small));
        let grown = VramNeed { learned_mib: learned(&small.name, 13_000), ..VramNeed::of_mib(10 * 1024) };
        assert_eq!((grown.on(&small), grown.on(&large)), (13_000, 10 * 1024));
        let shown =
            VramNeed { is_shown: true, learned_mib: learned(&small.name, 9_000), ..VramNeed::of_mib(20 * 1024) };
        assert_eq!((shown.on(&small), shown.on(&large), shown.class_gib()), (9_000, 20 * 1024, Some(9)));
        let outgrown = VramNeed { learned_mib: learned(ANY_KIND, 25 * 1024), ..VramNeed::of_mib(10 * 1024) };
        assert!(!outgrown.fits_empty(&small) && outgrown.fits_empty(&large));
        assert_eq!(outgrown.class_gib(), Some(25));
    }

    #[test]
    fn a_share_of_a_gpu_is_that_of_every_gpu_and_is_never_learned_upwards() {
        let card = gpu("NVIDIA A10", 23_028);
        let engine = VramNeed { fraction: Some(0.9), ..VramNeed::of_mib(12 * 1024) };
        assert_eq!((engine.on(&card), engine.class_gib()), (20_725, Some(12)));
        let seen = VramNeed { learned_mib: BTreeMap::from([(card.name.clone(), 21_800)]), ..engine.clone() };
        assert_eq!(seen.on(&card), 20_725);
        let all = VramNeed { fraction: Some(1.0), ..engine };
        assert_eq!(all.on(&card), usable_mib(card.vram_mib));
        let small = gpu("NVIDIA GeForce GTX 1660 Ti", 6_144);
        assert!(!all.fits_empty(&small), "it needs 12 GiB at the least");
        assert_eq!(VramNeed::default().on(&card), 0);
    }
}
