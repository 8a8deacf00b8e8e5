//! Selection of a schedule's ticks that run now. Pure.

use stokehold_queue::schedules::Missed;

use super::cron::Cron;

/// Maximum number of ticks that one plan runs; the rest is left to the next one.
pub(crate) const RUN_MAX: usize = 100;

/// Maximum number of missed ticks that run with `run_all`; the latest ones run.
pub(crate) const MISSED_MAX: usize = 1_000;

/// The actions for a due schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The ticks to run, oldest first, Unix milliseconds.
    pub(crate) run: Vec<u64>,
    /// The first tick after those: due later, or left for the next plan. `None` when there is none.
    pub(crate) next: Option<u64>,
    /// Ticks that will not run, counted up to [`MISSED_MAX`].
    pub(crate) missed: u64,
}

/// Plans for a schedule whose next tick is at `due_ms`, as of `now_ms`. A tick that is more than `grace_ms` late is
/// missed, and `policy` decides on missed ticks; all others run.
pub(crate) fn plan(cron: &Cron, due_ms: u64, now_ms: u64, policy: Missed, grace_ms: u64) -> Plan {
    let fresh_from = now_ms.saturating_sub(grace_ms);
    let start = match policy {
        _ if due_ms >= fresh_from => Some(due_ms),
        Missed::Skip => cron.next_after(fresh_from - 1),
        Missed::RunOnce => Some(last_of(cron, due_ms, fresh_from, 1)),
        Missed::RunAll => Some(last_of(cron, due_ms, fresh_from, MISSED_MAX)),
    };
    let dropped_to = start.unwrap_or(u64::MAX).min(fresh_from);
    let missed = if due_ms < dropped_to { count(cron, due_ms - 1, dropped_to, MISSED_MAX) } else { 0 };
    let (mut run, mut next) = (Vec::new(), start);
    while let Some(tick) = next.filter(|tick| *tick <= now_ms && run.len() < RUN_MAX) {
        run.push(tick);
        next = cron.next_after(tick);
    }
    Plan { run, next, missed: missed as u64 }
}

/// Number of ticks after `after_ms` and before `before_ms`, counted up to `max`.
fn count(cron: &Cron, after_ms: u64, before_ms: u64, max: usize) -> usize {
    let ticks = std::iter::successors(cron.next_after(after_ms), |tick| cron.next_after(*tick));
    ticks.take_while(|tick| *tick < before_ms).take(max).count()
}

/// The first of the last `n` ticks before `before_ms`, or `due_ms`, a tick itself, when there are fewer from there on.
/// Found by bisection, because an outage of days may have millions of ticks.
fn last_of(cron: &Cron, due_ms: u64, before_ms: u64, n: usize) -> u64 {
    let (mut enough, mut few) = (due_ms.saturating_sub(1), before_ms);
    if count(cron, enough, before_ms, n) < n {
        return due_ms;
    }
    while few - enough > 1 {
        let middle = enough + (few - enough) / 2;
        if count(cron, middle, before_ms, n) >= n { enough = middle } else { few = middle }
    }
    cron.next_after(enough).unwrap_or(due_ms)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
