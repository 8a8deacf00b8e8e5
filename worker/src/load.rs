//! Decides how many leases to have. A round trip per job is expensive, so a worker with short jobs leases ahead; one
//! with long jobs leases only what it can run, since waiting jobs could run elsewhere. Jobs that share a process or a
//! batched call share a slot: each counts as a part of one.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Maximum amount of work leased ahead: a round trip to a distant gateway.
const AHEAD: Duration = Duration::from_millis(50);

/// Maximum number of leases ahead.
const AHEAD_MAX: f64 = 100.0;

/// Number of runs to lease ahead, if runs take `run_s`: those that the slots finish within [`AHEAD`].
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to AHEAD_MAX")]
pub(crate) fn ahead(run_s: f64, slots: u32) -> u32 {
    (f64::from(slots) * AHEAD.as_secs_f64() / run_s.max(1e-6)).min(AHEAD_MAX) as u32
}

/// Number of parts that a slot is divided into.
const SLOT: u64 = 1 << 16;

/// Weight of a new run in the moving average.
const WEIGHT: f64 = 0.1;

/// Average duration of runs, and the number of slots in use.
pub(crate) struct Load {
    slots: u32,
    state: Mutex<State>,
    /// Notified when a running attempt frees its slot or a part of it.
    freed: Notify,
}

struct State {
    /// Moving average of a run, seconds.
    run_s: f64,
    /// Number of runs in the average, which limits the leases ahead: the first jobs may differ from later ones.
    runs: u32,
    /// Slot parts in use.
    taken: u64,
    /// Number of jobs that share a slot, according to the last ones, and whether they share a batched call.
    batch: u32,
    is_call: bool,
}

impl Load {
    /// Leases nothing ahead until jobs have proved to be short.
    pub(crate) fn new(slots: u32) -> Self {
        Self {
            slots,
            state: Mutex::new(State { run_s: 1.0, runs: 0, taken: 0, batch: 1, is_call: false }),
            freed: Notify::new(),
        }
    }

    /// Counts a granted lease until the returned value is dropped.
    pub(crate) fn open(self: &Arc<Self>) -> LeaseSlot {
        self.state.lock().taken += SLOT;
        LeaseSlot { load: Arc::clone(self), takes: SLOT }
    }

    /// Records the duration of a run, or its share of a batched call. The first short run replaces the average: an
    /// average that starts at a second would take a hundred jobs to fall.
    pub(crate) fn ran(&self, took: Duration) {
        let mut state = self.state.lock();
        let took = took.as_secs_f64();
        state.run_s = if state.run_s >= 1.0 { took } else { state.run_s * (1.0 - WEIGHT) + took * WEIGHT };
        state.runs = state.runs.saturating_add(1);
    }

    /// Maximum number of leases.
    pub(crate) fn capacity(&self) -> u32 {
        self.slots + self.ahead(&self.state.lock())
    }

    fn ahead(&self, state: &State) -> u32 {
        ahead(state.run_s, self.slots).min(state.runs)
    }

    /// Whether another result is expected soon: there are leases and jobs are short.
    pub(crate) fn is_more_to_come(&self) -> bool {
        self.count() > 0 && self.capacity() > self.slots
    }

    /// Number of slots in use, rounded up.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.state.lock().taken.div_ceil(SLOT)).unwrap_or(u32::MAX)
    }

    /// Maximum number of leases to request now. 0 until half of the leases ahead are free, so that reports and leases
    /// travel in batches while each finished slot finds its next job here. With batched calls, 0 until half of
    /// everything is free, so that the first job to end is not replaced alone.
    pub(crate) fn want(&self) -> u32 {
        let state = self.state.lock();
        let (slots, part) = (u64::from(self.slots) * SLOT, SLOT / u64::from(state.batch));
        let ahead_jobs = u64::from(self.ahead(&state));
        let capacity = slots + ahead_jobs * part;
        let free = capacity.saturating_sub(state.taken) / part;
        let held_ahead = if state.is_call { capacity / part } else { ahead_jobs };
        let is_due = free > 0 && free * 2 >= held_ahead;
        if is_due { u32::try_from(free).unwrap_or(u32::MAX) } else { 0 }
    }

    /// Completes when a running attempt frees its slot or a part of it.
    pub(crate) async fn freed(&self) {
        self.freed.notified().await;
    }
}

/// The slot, or part of one, that a lease occupies.
pub(crate) struct LeaseSlot {
    load: Arc<Load>,
    /// Slot parts in use; 0 once freed.
    takes: u64,
}

impl LeaseSlot {
    /// Handles a job that has waited too long: stops leasing ahead. `true` if this lease exceeds the slots and must be
    /// released; it no longer counts.
    pub(crate) fn is_too_many(&mut self) -> bool {
        let mut state = self.load.state.lock();
        (state.run_s, state.runs) = (1.0, 0);
        if state.taken <= u64::from(self.load.slots) * SLOT {
            return false;
        }
        (state.batch, state.is_call) = (1, false);
        state.taken -= std::mem::take(&mut self.takes);
        true
    }

    /// Records that `jobs` jobs share a slot. `is_call`: whether they share a batched call.
    pub(crate) fn shares(&mut self, jobs: u32, is_call: bool) {
        let mut state = self.load.state.lock();
        (state.batch, state.is_call) = (jobs.max(1), is_call);
        let part = SLOT / u64::from(jobs.max(1));
        let spare = self.takes.saturating_sub(part);
        state.taken -= spare;
        self.takes -= spare;
        drop(state);
        if spare > 0 {
            self.load.freed.notify_one();
        }
    }

    /// Frees the slot after the run, while its result is being stored.
    pub(crate) fn needs_no_slot(&mut self) {
        self.close();
        self.load.freed.notify_one();
    }

    fn close(&mut self) {
        let takes = std::mem::take(&mut self.takes);
        if takes > 0 {
            let mut state = self.load.state.lock();
            state.taken = state.taken.saturating_sub(takes);
        }
    }
}

impl Drop for LeaseSlot {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_jobs_are_leased_ahead_and_long_ones_are_not() {
        let load = Load::new(2);
        assert_eq!(load.capacity(), 2);
        load.ran(Duration::from_micros(100));
        assert_eq!(load.capacity(), 3, "no more than have run");
        for _ in 0..100 {
            load.ran(Duration::from_micros(100));
        }
        assert_eq!(load.capacity(), 102);
        for _ in 0..100 {
            load.ran(Duration::from_millis(10));
        }
        assert_eq!(load.capacity(), 12);
        load.ran(Duration::from_secs(100));
        assert_eq!(load.capacity(), 2);
    }

    #[test]
    fn the_next_job_is_here_before_a_slot_is_free() {
        let load = Arc::new(Load::new(8));
        let mut leases: Vec<LeaseSlot> = (0..8).map(|_| load.open()).collect();
        assert_eq!(load.want(), 0, "runs of a second are not leased ahead");
        for _ in 0..8 {
            load.ran(Duration::from_millis(100));
        }
        assert_eq!(load.want(), 4, "what 8 slots end in 50 ms");
        leases.extend((0..4).map(|_| load.open()));
        assert_eq!(load.want(), 0);
        leases.pop();
        assert_eq!(load.want(), 0, "not one by one");
        leases.pop();
        assert_eq!(load.want(), 2, "while every slot has a job");
    }

    #[test]
    fn jobs_that_share_a_slot_are_asked_for_together() {
        let load = Arc::new(Load::new(2));
        assert_eq!(load.want(), 2);
        let share = |load: &Arc<Load>| {
            let mut lease = load.open();
            lease.shares(16, true);
            lease
        };
        let first = share(&load);
        assert_eq!(load.want(), 31);
        let others: Vec<LeaseSlot> = (0..31).map(|_| share(&load)).collect();
        assert_eq!((load.count(), load.want()), (2, 0));
        drop(first);
        assert_eq!(load.want(), 0, "not one by one");
        drop(others);
        let mut alone = load.open();
        alone.shares(1, false);
        assert_eq!(load.want(), 1, "the last job shared with nobody");
    }

    #[test]
    fn a_process_that_takes_many_runs_at_once_is_filled_one_by_one() {
        let load = Arc::new(Load::new(1));
        let mut first = load.open();
        first.shares(64, false);
        assert_eq!(load.want(), 63);
        let mut others: Vec<LeaseSlot> = (0..63)
            .map(|_| {
                let mut lease = load.open();
                lease.shares(64, false);
                lease
            })
            .collect();
        assert_eq!((load.count(), load.want()), (1, 0));
        others.pop();
        assert_eq!(load.want(), 1, "prompts of ten seconds do not wait for half of the others");
        drop(first);
    }

    #[test]
    fn only_what_no_slot_is_there_for_is_given_back() {
        let load = Arc::new(Load::new(2));
        let mut leases: Vec<LeaseSlot> = (0..4).map(|_| load.open()).collect();
        let given_back: Vec<bool> = leases.iter_mut().map(LeaseSlot::is_too_many).collect();
        assert_eq!(given_back, [true, true, false, false]);
        assert_eq!(load.count(), 2);
        drop(leases);
        assert_eq!(load.count(), 0);
    }
}
