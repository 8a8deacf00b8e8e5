//! Kinds of GPU and their market prices.

use std::sync::LazyLock;

/// A kind of GPU. Prices are on-demand dollars per hour, observed on the whole market on 2025-12-07.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) gpu_name: &'static str,
    pub(crate) gpu_ram_mb: u64,
    /// Compute capability times 100.
    pub(crate) compute_cap: u64,
    pub(crate) dlperf: f64,
    pub(crate) tflops: f64,
    pub(crate) memory_gb_per_s: f64,
    pub(crate) watts: f64,
    pub(crate) price_p10: f64,
    pub(crate) price_median: f64,
    pub(crate) price_p90: f64,
    /// Number of GPUs on the market.
    pub(crate) count: f64,
}

/// All kinds, the most common first.
pub(crate) static KINDS: LazyLock<Vec<Kind>> =
    LazyLock::new(|| include_str!("kinds.csv").lines().skip(1).filter_map(kind).collect());

fn kind(line: &'static str) -> Option<Kind> {
    let cells: Vec<&'static str> = line.split(',').collect();
    let number = |index: usize| cells.get(index)?.parse::<f64>().ok();
    Some(Kind {
        gpu_name: cells.first()?,
        gpu_ram_mb: cells.get(1)?.parse().ok()?,
        compute_cap: cells.get(2)?.parse().ok()?,
        dlperf: number(3)?,
        tflops: number(4)?,
        memory_gb_per_s: number(5)?,
        watts: number(6)?,
        price_p10: number(7)?,
        price_median: number(8)?,
        price_p90: number(9)?,
        count: number(10)?,
    })
}

/// The kind with this name.
pub(crate) fn named(gpu_name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.gpu_name == gpu_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_read() {
        assert_eq!(KINDS.len(), include_str!("kinds.csv").lines().count() - 1);
        assert!(KINDS.iter().all(|kind| kind.price_p10 <= kind.price_median && kind.price_median <= kind.price_p90));
        assert_eq!(named("RTX 4090").map(|kind| kind.compute_cap), Some(890));
    }
}
