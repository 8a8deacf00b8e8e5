//! A GPU as read by its worker, and the table of known GPU models. GPUs that are not in the table work as well: their
//! capacity follows from the memory that they report (see [`crate::vram`]).

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// One GPU, as read by the worker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// The NVML index.
    pub index: u32,
    /// The NVML UUID.
    pub uuid: String,
    /// Model name.
    pub name: String,
    /// Total memory, MiB.
    pub vram_mib: u64,
    /// The CUDA compute capability, e.g. `8.9`.
    #[serde(default)]
    pub compute_capability: Option<String>,
    /// Whether the GPU is partitioned into instances (MIG).
    #[serde(default)]
    pub is_mig: bool,
}

/// One GPU model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kind {
    /// Name in the driver, without `NVIDIA`, e.g. `Tesla V100-SXM2-32GB`.
    pub name: &'static str,
    /// Name at Vast.ai, if different.
    pub market: Option<&'static str>,
    /// The memory in its data sheet, GiB.
    pub sold_gib: u32,
    /// The memory that it reports, MiB. ECC and firmware take up to 7.5 % of the memory in the data sheet.
    pub reported_mib: u64,
    /// The source of `reported_mib`: `offers` (Vast.ai's list of offers), `nvidia-smi` or `rocm-smi`.
    pub source: &'static str,
}

/// Every known model, in the order of the table.
pub static KINDS: LazyLock<Vec<Kind>> =
    LazyLock::new(|| include_str!("gpus.csv").lines().skip(1).filter_map(kind).collect());

fn kind(line: &'static str) -> Option<Kind> {
    let mut fields = line.split(',');
    Some(Kind {
        name: fields.next()?,
        market: fields.next().filter(|market| !market.is_empty()),
        sold_gib: fields.next()?.parse().ok()?,
        reported_mib: fields.next()?.parse().ok()?,
        source: fields.next()?,
    })
}

/// Whether a GPU is of a model. `name` is its name in the driver or a provider's list; `model` is an entry of an
/// endpoint's `gpu_models`. The words of the model must occur in the name consecutively, regardless of case: `NVIDIA
/// A100-SXM4-80GB` is an `A100` and not an `A10`. Either name matches a model with two names: `RTX 6000Ada` is an `RTX
/// 6000 Ada`.
#[must_use]
pub fn is_model(name: &str, model: &str) -> bool {
    let wanted = words(model);
    if wanted.is_empty() {
        return false;
    }
    let has = |name: &str| words(name).windows(wanted.len()).any(|part| part == wanted);
    has(name) || other_names(name).any(has)
}

/// The other names of the same model in the table, if `name` is in it.
fn other_names(name: &str) -> impl Iterator<Item = &'static str> {
    let words_of_name = words(name);
    let is_it = move |other: &str| {
        let other = words(other);
        // Drivers put the vendor before the name in the table.
        !other.is_empty() && words_of_name.ends_with(&other)
    };
    let same = KINDS.iter().filter(move |kind| is_it(kind.name) || kind.market.is_some_and(&is_it));
    same.flat_map(|kind| [Some(kind.name), kind.market].into_iter().flatten())
}

fn words(text: &str) -> Vec<String> {
    let split = text.split(|sign: char| !sign.is_alphanumeric()).filter(|word| !word.is_empty());
    split.map(str::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::fmt::Write as _;
    use std::path::Path;

    use super::*;
    use crate::vram::{class_of_gib, held_of_gpu_mib, reach_of_room_gib, sold_gib, usable_mib};

    #[test]
    fn every_line_of_the_table_is_read() {
        assert_eq!(KINDS.len(), include_str!("gpus.csv").lines().count() - 1);
        assert!(KINDS.iter().all(|kind| ["offers", "nvidia-smi", "rocm-smi"].contains(&kind.source)));
    }

    #[test]
    fn a_model_is_known_by_its_words_and_by_either_of_its_names() {
        for (name, model, is) in [
            ("NVIDIA GeForce RTX 4090", "RTX 4090", true),
            ("NVIDIA GeForce RTX 4090", "rtx-4090", true),
            ("RTX 4090", "rtx 4090", true),
            ("RTX 4090", "GeForce RTX 4090", true),
            ("NVIDIA A100-SXM4-80GB", "A100", true),
            ("A100 SXM4", "a100", true),
            ("A100 SXM4", "A10", false),
            ("A100 SXM4", "A100-SXM4-80GB", true),
            ("NVIDIA A100-SXM4-80GB", "A100 SXM4", true),
            ("NVIDIA A100-SXM4-80GB", "A10", false),
            ("NVIDIA A100-SXM4-80GB", "A100 80GB", false),
            ("RTX 6000Ada", "RTX 6000 Ada", true),
            ("NVIDIA RTX 6000 Ada Generation", "RTX 6000Ada", true),
            ("RTX 4070S Ti", "RTX 4070 Ti SUPER", true),
            ("H100 SXM", "H100", true),
            ("NVIDIA H100 80GB HBM3", "H100 SXM", true),
            ("H100 SXM", "H200", false),
            ("NVIDIA H200", "", false),
            ("", "H200", false),
        ] {
            assert_eq!(is_model(name, model), is, "{name} {model}");
        }
    }

    /// An endpoint that declares the size in the data sheet is placed on that GPU model, reserves all of it, and leaves
    /// no room for others.
    #[test]
    fn a_model_of_the_size_that_was_sold_has_each_kind_of_gpu_for_itself() {
        for kind in KINDS.iter() {
            let (total_mib, sold_mib) = (kind.reported_mib, u64::from(kind.sold_gib) * 1024);
            let usable_mib = usable_mib(total_mib);
            let class = class_of_gib(f64::from(kind.sold_gib)).unwrap();
            assert!(reach_of_room_gib(total_mib, usable_mib) >= class, "{}: it is placed", kind.name);
            assert_eq!(held_of_gpu_mib(sold_mib, total_mib), usable_mib, "{}: it holds all", kind.name);
            assert_eq!(reach_of_room_gib(total_mib, 0), 0, "{}: nobody else is there", kind.name);
            // With a quarter of the GPU in use, the endpoint does not fit, but one as large as the rest does.
            let room_mib = usable_mib - usable_mib / 4;
            assert!(reach_of_room_gib(total_mib, room_mib) < class, "{}", kind.name);
            let rest = reach_of_room_gib(total_mib, room_mib);
            assert!(held_of_gpu_mib(u64::from(rest) * 1024, total_mib) <= room_mib, "{}", kind.name);
            // The size never rounds up to that of the next larger model.
            assert!(u64::from(sold_gib(total_mib)) * 1024 * 92 <= total_mib * 100, "{}", kind.name);
        }
    }

    /// Compares `docs/reference/gpu-kinds.md` with the table; `BLESS=1` writes it.
    #[test]
    fn the_documented_table_is_this_one() {
        let mut text = include_str!("gpus.md").to_owned();
        for kind in KINDS.iter() {
            let market = kind.market.unwrap_or(kind.name);
            let (usable, index) = (usable_mib(kind.reported_mib), sold_gib(kind.reported_mib));
            let Kind { name, sold_gib, reported_mib, source, .. } = kind;
            writeln!(text, "| {name} | {market} | {sold_gib} | {reported_mib} | {usable} | {index} | {source} |")
                .unwrap();
        }
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/gpu-kinds.md");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let documented = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(documented == text, "docs/reference/gpu-kinds.md is out of date: run `make bless`");
    }
}
