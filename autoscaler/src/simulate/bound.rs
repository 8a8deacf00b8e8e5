//! What nobody can stay below.

mod cuts;
mod demand;
mod grid;
mod prices;
mod program;

use demand::Demand;
use grid::Grid;
use prices::Prices;

use super::offers::Kind;
use super::trace::Job;

/// Slots of the program.
const SLOTS: usize = 16_000;

/// What nobody can stay below who starts every job within its wait target, dollars; see the module.
#[must_use]
pub fn lower_bound_usd(jobs: &[Job], kinds: &[Kind], share_gb: Option<f64>, boot_is_billed: bool) -> f64 {
    on_slots(&Demand::new(jobs, kinds, share_gb, boot_is_billed), SLOTS)
}

/// The bound from a program of about so many slots.
fn on_slots(demand: &Demand, slots: usize) -> f64 {
    if demand.works.is_empty() {
        return 0.0;
    }
    let grid = Grid::new(demand, slots);
    let cuts = cuts::find(demand, &grid);
    let value = |mut prices: Prices| {
        prices.repair(demand, &grid, &cuts);
        prices.value_usd(demand, &grid, &cuts)
    };
    let flat = value(Prices::flat(demand, &grid, cuts.len()));
    let solved = program::solve(demand, &grid, &cuts).map_or(0.0, value);
    [flat, solved].into_iter().filter(|usd| usd.is_finite()).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests;
