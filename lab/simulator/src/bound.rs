//! A proven lower bound, in dollars, of the cost of any policy that starts every job of a trace in time.
//!
//! # The bounded schedules
//!
//! All arrivals are known in advance. A job `j` that arrives at `a`, with `s` seconds of service and a wait target of
//! `T`, starts at some time in `[a, a + T]` on a machine of some kind `k` that holds it, and has that machine for the
//! next `s / speed_k` seconds. On a GPU, one job runs at a time, or jobs whose memory fits side by side. Machines are
//! whole, are rented on demand without a limit to their number, and cost `price_k (on + boot_k)` for each time they are
//! on: `boot_k` is the mean boot, 0 where boots are not billed. Models load in no time. A policy that may miss some
//! targets, or that rents interruptible machines, can stay below.
//!
//! # The program
//!
//! With a column `x[k, I] >= 0` for each kind and each interval in which a machine of it may be on, and starts `y[j, k,
//! t]`:
//!
//! ```text
//! minimise    sum over k, I of price_k (|I| + boot_k) x[k, I]
//! such that   each job starts once, in time:             sum over k, t of y[j, k, t] = 1
//!             for each slot and class c of memory:       share_j weighted work that runs there, of jobs of class c and above
//!                                                          <= sum over k that hold c of speed_k |I in the slot| x[k, I]
//!             for each cut (slots W, weights w, need m): sum over k and I that have a slot of W of w_k x[k, I] >= m
//! ```
//!
//! It relaxes the schedules above: machines and jobs may be split, and within a slot work may be anywhere. The cuts
//! recover a part of what that loses. Each states a property of whole machines (`cuts`), e.g. that one is on at some
//! time between a job's arrival and its latest end, or that three are on at some time in a burst. Without them the
//! bound of quiet traces is half as large. Likewise, a job's share of a GPU is the share that no other job can use
//! beside it (`packing`).
//!
//! # Proof
//!
//! By duality any prices `p >= 0` for work in each slot, by class, and `u >= 0` for each cut give the bound
//!
//! ```text
//! sum over j of share_j  min over k, start of  speed_k (integral of p from start to start + s / speed_k)   +   sum over cuts of m u
//! ```
//!
//! if at these prices no machine can earn more than it costs: `speed_k (integral of p over I) + sum over cuts seen in I
//! of w_k u <= price_k (|I| + boot_k)` for every `k` and `I`. `prices` checks that with a recursion over the slots that
//! covers all intervals, and lowers prices where it does not hold. So the source of the prices does not matter:
//! `program` takes them from an interior-point solver that works on a compact form of the program, and any result of
//! it gives a bound, at worst a weak one. Without a result, the bound is the cost of the work at the cheapest price per
//! second. Everything is deterministic; slots are as fine as the time limit allows.
//!
//! Against a mixed-integer solver on parts of the reference traces: with one kind it comes to 97 to 99 % of the optimum
//! of the same program with whole machines; with several kinds to 97 to 99 % of the bound that the solver had proven
//! after minutes, and to at least 85 % of the optimum, since a part of a slow machine is not a machine.

mod cuts;
mod demand;
mod grid;
mod packing;
mod prices;
mod program;
mod work;

use demand::Demand;
use grid::Grid;
use stokehold_planner::simulate::offers::Kind;
use stokehold_planner::simulate::trace::Job;

/// Maximum number of columns of the program plus twice its cuts: a size that is solved in about ten seconds.
const SIZE: usize = 190_000;

/// Maximum number of slots, however few columns they have.
const SLOTS: usize = 32_000;

/// A lower bound of the cost of any policy that starts every job within its wait target, dollars; see the module.
///
/// `share_gb`: jobs run side by side on a GPU while their `vram_gb` sum to at most this, each at the GPU's full
/// speed; `None`: one at a time. Jobs that no kind can hold are left out.
#[must_use]
pub fn lower_bound_usd(jobs: &[Job], kinds: &[Kind], share_gb: Option<f64>, boot_is_billed: bool) -> f64 {
    on_slots(&Demand::new(jobs, kinds, share_gb, boot_is_billed), SLOTS)
}

/// The bound from a program with about `slots` slots at most.
fn on_slots(demand: &Demand, slots: usize) -> f64 {
    let least = demand.least_usd();
    let columns = program::columns_per_slot(demand).max(1);
    let mut grid = Grid::new(demand, slots.min(SIZE / columns).max(1));
    if grid.slots() == 0 {
        return least;
    }
    let mut cuts = cuts::find(demand, &grid);
    while grid.slots() * columns + 2 * cuts.len() > SIZE && grid.slots() > 1_000 {
        grid = Grid::new(demand, grid.slots() * 3 / 4);
        cuts = cuts::find(demand, &grid);
    }
    let Some(mut prices) = program::solve(demand, &grid, &cuts) else {
        return least;
    };
    prices.repair(demand, &grid, &cuts);
    let value_usd = prices.value_usd(demand, &grid, &cuts);
    if value_usd.is_finite() { value_usd.max(least) } else { least }
}

#[cfg(test)]
mod tests;
