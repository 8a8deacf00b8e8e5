//! How many leases to hold. A round trip per job is the dearest thing there is, so a worker whose jobs are short leases ahead; one
//! whose jobs are long leases only what it can run, since what waits here could run elsewhere. Jobs that share a process or a call of its
//! handler share a slot as well: each counts as a part of one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

/// Work that is held ahead, at most: what a round trip to a distant gateway takes.
const AHEAD: Duration = Duration::from_millis(50);

/// Leases held ahead, at most.
const AHEAD_MAX: f64 = 100.0;

/// Work that is held ahead where runs take so long, in runs: what so many slots end in that time.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to AHEAD_MAX")]
pub(crate) fn ahead(run_s: f64, slots: u32) -> u32 {
    (f64::from(slots) * AHEAD.as_secs_f64() / run_s.max(1e-6)).min(AHEAD_MAX) as u32
}

/// A slot, in the parts that leases are counted by.
const SLOT: u64 = 1 << 16;

/// How fast the estimate follows: a tenth per job.
const WEIGHT: f64 = 0.1;

/// How long jobs take here, and how many leases are open.
pub(crate) struct Load {
    slots: u32,
    state: Mutex<State>,
    /// A lease counts less, or no more, though its attempt goes on.
    freed: Notify,
}

struct State {
    /// Moving average of a run, seconds.
    run_s: f64,
    /// Runs that it rests on. No more are leased ahead: the first jobs may be others than those that come.
    runs: u32,
    /// Parts of slots that leases take.
    taken: u64,
    /// Jobs that share a slot, as far as the last ones tell; and whether they share a call of their handler.
    batch: u32,
    is_call: bool,
}

impl Load {
    /// Starts pessimistic: nothing is leased ahead until jobs have shown to be short.
    pub(crate) fn new(slots: u32) -> Self {
        Self {
            slots,
            state: Mutex::new(State { run_s: 1.0, runs: 0, taken: 0, batch: 1, is_call: false }),
            freed: Notify::new(),
        }
    }

    /// A lease was granted; it counts until the returned value is dropped.
    pub(crate) fn open(self: &Arc<Self>) -> LeaseSlot {
        self.lock().taken += SLOT;
        LeaseSlot { load: Arc::clone(self), takes: SLOT }
    }

    /// A run, or its part of a call, took so long. The first short one is believed: an average that starts at a second would take a hundred jobs to fall.
    pub(crate) fn ran(&self, took: Duration) {
        let mut state = self.lock();
        let took = took.as_secs_f64();
        state.run_s = if state.run_s >= 1.0 { took } else { state.run_s * (1.0 - WEIGHT) + took * WEIGHT };
        state.runs = state.runs.saturating_add(1);
    }

    /// Leases to hold at the most.
    pub(crate) fn capacity(&self) -> u32 {
        self.slots + self.ahead(&self.lock())
    }

    fn ahead(&self, state: &State) -> u32 {
        ahead(state.run_s, self.slots).min(state.runs)
    }

    /// Whether another end is due within moments: leases are open, and jobs are short.
    pub(crate) fn is_more_to_come(&self) -> bool {
        self.count() > 0 && self.capacity() > self.slots
    }

    /// Slots that leases take, the last one perhaps in part.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.lock().taken.div_ceil(SLOT)).unwrap_or(u32::MAX)
    }

    /// How many more leases to ask for, at most. None until half of what is held ahead is free, so that reports and leases travel in batches
    /// and a slot whose run ends finds the next one here; and where several share a call none until half of all is free, or the first to end
    /// would be asked for alone.
    pub(crate) fn want(&self) -> u32 {
        let state = self.lock();
        let (slots, part) = (u64::from(self.slots) * SLOT, SLOT / u64::from(state.batch));
        let ahead_jobs = u64::from(self.ahead(&state));
        let capacity = slots + ahead_jobs * part;
        let free = capacity.saturating_sub(state.taken) / part;
        let held_ahead = if state.is_call { capacity / part } else { ahead_jobs };
        let is_due = free > 0 && free * 2 >= held_ahead;
        if is_due { u32::try_from(free).unwrap_or(u32::MAX) } else { 0 }
    }

    /// Completes when a lease counts no more though its attempt goes on.
    pub(crate) async fn freed(&self) {
        self.freed.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lease that counts.
pub(crate) struct LeaseSlot {
    load: Arc<Load>,
    /// The part of a slot that it takes; 0 once it counts no more.
    takes: u64,
}

impl LeaseSlot {
    /// The job has waited here for too long: what is leased ahead shrinks to nothing. `true` says that this lease is one too many
    /// and is to go back; it does not count any more.
    pub(crate) fn is_too_many(&mut self) -> bool {
        let mut state = self.load.lock();
        (state.run_s, state.runs) = (1.0, 0);
        if state.taken <= u64::from(self.load.slots) * SLOT {
            return false;
        }
        (state.batch, state.is_call) = (1, false);
        state.taken -= std::mem::take(&mut self.takes);
        true
    }

    /// Its job shares a slot with others, so many in all; `is_call`: in one call of their handler.
    pub(crate) fn shares(&mut self, jobs: u32, is_call: bool) {
        let mut state = self.load.lock();
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

    /// The run is over and only its result is still to be stored: the slot is for another one.
    pub(crate) fn needs_no_slot(&mut self) {
        self.close();
        self.load.freed.notify_one();
    }

    fn close(&mut self) {
        let takes = std::mem::take(&mut self.takes);
        if takes > 0 {
            let mut state = self.load.lock();
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
