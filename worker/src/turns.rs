//! Turns of runs at a runner. A runner with `max` concurrent runs gets a few more if runs are short, so that it never
//! waits between runs; these wait in its inbox. Slots count the processes that run something on this worker: all runs
//! of one process share a slot.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use crate::load::ahead;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};

/// Maximum amount of work in a runner's inbox: it can neither move to another worker nor be preempted.
const AHEAD: Duration = Duration::from_millis(10);

/// Maximum number of runs in a runner's inbox.
const AHEAD_MAX: f64 = 64.0;

/// Weight of a new run in the moving average.
const WEIGHT: f64 = 0.1;

/// The slots of a worker.
pub(crate) struct Slots {
    count: usize,
    free: Arc<Semaphore>,
    /// Number of runs that wait for a slot.
    wanted: AtomicU32,
    /// Slots that are set aside for additional models that are being loaded.
    planned: AtomicUsize,
}

/// The turns of one runner.
pub(crate) struct Turns {
    max: usize,
    /// Number of runs in one batched call.
    batch: usize,
    slots: Arc<Slots>,
    state: Mutex<State>,
    /// Notified when a slot of this runner may serve another run.
    given_back: Notify,
}

struct State {
    /// Number of turns given out.
    taken: usize,
    /// Number of these that no longer wait for a slot.
    passed: usize,
    /// Maximum number of concurrent calls at present, if the process takes fewer than `max`.
    limit: Option<usize>,
    waiting: VecDeque<oneshot::Sender<Turn>>,
    permits: Vec<OwnedSemaphorePermit>,
    /// Moving average of a run, or its share of a batched call, in seconds.
    run_s: f64,
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turns").field("max", &self.max).field("batch", &self.batch).finish_non_exhaustive()
    }
}

/// The right to send one run to the runner, until dropped.
pub(crate) struct Turn {
    turns: Arc<Turns>,
    passed: bool,
}

impl Slots {
    pub(crate) fn new(slots: u32) -> Arc<Self> {
        Arc::new(Self {
            count: slots as usize,
            free: Arc::new(Semaphore::new(slots as usize)),
            wanted: AtomicU32::new(0),
            planned: AtomicUsize::new(0),
        })
    }

    /// Sets aside up to `most` free slots for models to load. Returns their number.
    pub(crate) fn plan(&self, most: usize) -> usize {
        let mut planned = 0;
        let _ = self.planned.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |before| {
            planned = self.free.available_permits().saturating_sub(before).min(most);
            Some(before + planned)
        });
        planned
    }

    /// Returns the slots of models that are loaded or will not be.
    pub(crate) fn planned(&self, models: usize) {
        self.planned.fetch_sub(models, Ordering::SeqCst);
    }

    /// Number of slots.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Waits for a free slot; never `None` while the worker runs.
    async fn acquire(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(slot) = Arc::clone(&self.free).try_acquire_owned() {
            return Some(slot);
        }
        let wanted = Wanted::new(&self.wanted);
        let slot = Arc::clone(&self.free).acquire_owned().await;
        drop(wanted);
        slot.ok()
    }
}

/// Counts a waiter until dropped.
struct Wanted<'a>(&'a AtomicU32);

impl<'a> Wanted<'a> {
    fn new(count: &'a AtomicU32) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Turns {
    /// Turns of a runner with `max` concurrent calls of up to `batch` runs each.
    pub(crate) fn new(max: u32, batch: u32, slots: Arc<Slots>) -> Arc<Self> {
        // Send nothing ahead until runs have proved to be short.
        let state =
            State { taken: 0, passed: 0, limit: None, waiting: VecDeque::new(), permits: Vec::new(), run_s: 1.0 };
        let (max, batch) = (max.max(1) as usize, batch.max(1) as usize);
        Arc::new(Self { max, batch, slots, state: Mutex::new(state), given_back: Notify::new() })
    }

    /// Waits for a turn, in order of arrival, and for a slot if the process has none.
    pub(crate) async fn take(self: &Arc<Self>) -> Option<Turn> {
        let waiting = {
            let mut state = self.state.lock();
            if state.waiting.is_empty() && state.taken < self.open(&state) {
                state.taken += 1;
                None
            } else {
                let (sender, receiver) = oneshot::channel();
                state.waiting.push_back(sender);
                Some(receiver)
            }
        };
        let mut turn = match waiting {
            None => Turn { turns: Arc::clone(self), passed: false },
            Some(receiver) => receiver.await.ok()?,
        };
        let mut slot = None;
        loop {
            // Register for the notification before checking, so that none is missed.
            let given_back = self.given_back.notified();
            tokio::pin!(given_back);
            given_back.as_mut().enable();
            if self.pass(slot.take()) {
                turn.passed = true;
                return Some(turn);
            }
            tokio::select! {
                free = self.slots.acquire() => slot = Some(free?),
                // Otherwise two runners that each wait for another slot could withhold the slots of their ended runs
                // from each other forever.
                () = given_back => {}
            }
        }
    }

    /// Lets a turn through if its process has a slot.
    fn pass(&self, slot: Option<OwnedSemaphorePermit>) -> bool {
        let mut state = self.state.lock();
        state.permits.extend(slot);
        let passes = state.permits.len() >= Self::slots_of(state.passed + 1);
        state.passed += usize::from(passes);
        passes
    }

    /// Number of slots for this many runs: all runs of a process share one.
    const fn slots_of(runs: usize) -> usize {
        if runs > 0 { 1 } else { 0 }
    }

    /// Records the duration of a run, or its share of a batched call. The first short run replaces the average.
    pub(crate) fn ran(&self, took: Duration) {
        let mut state = self.state.lock();
        let took = took.as_secs_f64();
        state.run_s = if state.run_s >= 1.0 { took } else { state.run_s * (1.0 - WEIGHT) + took * WEIGHT };
    }

    /// Sets how many calls the process takes at once from now on; `None`: as many as its endpoint declares. Runs that
    /// have begun continue.
    pub(crate) fn limit(self: &Arc<Self>, calls: Option<u32>) {
        let mut state = self.state.lock();
        state.limit = calls.map(|calls| calls.max(1) as usize).filter(|calls| *calls < self.max);
        let next = self.take_next(&mut state);
        drop(state);
        self.hand_out(next);
    }

    /// Maximum number of runs, including those leased ahead: none while the process takes fewer runs than its endpoint
    /// declares, so that the others wait in the queue, where priorities count.
    pub(crate) fn capacity(&self) -> usize {
        let state = self.state.lock();
        match state.limit {
            Some(calls) => calls * self.batch,
            None => self.max * self.batch + ahead(state.run_s, 1) as usize,
        }
    }

    /// Number of runs that the process takes at once.
    pub(crate) fn at_once(&self) -> usize {
        self.state.lock().limit.unwrap_or(self.max) * self.batch
    }

    /// Number of turns available now.
    fn open(&self, state: &State) -> usize {
        if let Some(calls) = state.limit {
            return calls * self.batch;
        }
        // Other models wait for a slot, and runs sent ahead would delay them.
        if self.slots.wanted.load(Ordering::Relaxed) > 0 {
            return self.max * self.batch;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to AHEAD_MAX")]
        let ahead = (AHEAD.as_secs_f64() / state.run_s.max(1e-6)).min(AHEAD_MAX) as usize;
        self.max * self.batch + ahead
    }

    fn give_back(self: &Arc<Self>, passed: bool) {
        let mut state = self.state.lock();
        state.taken -= 1;
        state.passed -= usize::from(passed);
        let spare = if state.permits.len() > Self::slots_of(state.taken) { state.permits.pop() } else { None };
        let next = self.take_next(&mut state);
        drop(state);
        drop(spare);
        self.given_back.notify_waiters();
        self.hand_out(next);
    }

    /// Takes the turns that are available for those that wait longest.
    fn take_next(&self, state: &mut State) -> Vec<oneshot::Sender<Turn>> {
        let mut next = Vec::new();
        while state.taken < self.open(state) {
            let Some(waiting) = state.waiting.pop_front() else { break };
            if !waiting.is_closed() {
                state.taken += 1;
                next.push(waiting);
            }
        }
        next
    }

    fn hand_out(self: &Arc<Self>, next: Vec<oneshot::Sender<Turn>>) {
        for waiting in next {
            // A cancelled waiter drops its turn, which gives it back.
            let _ = waiting.send(Turn { turns: Arc::clone(self), passed: false });
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.give_back(self.passed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures::FutureExt;

    use super::*;

    fn now(turns: &Arc<Turns>) -> Option<Turn> {
        turns.take().now_or_never().flatten()
    }

    #[tokio::test]
    async fn runs_that_are_not_short_take_turns_one_by_one_in_order() {
        let turns = Turns::new(1, 1, Slots::new(2));
        let first = now(&turns).unwrap();
        let mut second = Box::pin(turns.take());
        let mut third = Box::pin(turns.take());
        assert!((&mut second).now_or_never().is_none());
        assert!((&mut third).now_or_never().is_none());
        drop(first);
        assert!((&mut third).now_or_never().is_none(), "the second came before");
        let second = second.await.unwrap();
        drop(second);
        assert!(third.now_or_never().is_some());
    }

    #[tokio::test]
    async fn short_runs_are_handed_over_ahead_and_share_the_slot() {
        let slots = Slots::new(1);
        let turns = Turns::new(1, 1, Arc::clone(&slots));
        turns.ran(Duration::from_micros(10));
        let taken: Vec<Turn> = (0..65).map(|_| now(&turns).unwrap()).collect();
        assert!(now(&turns).is_none(), "one runs and 64 wait in the inbox");
        assert_eq!(slots.free.available_permits(), 0);
        drop(taken);
        assert_eq!(slots.free.available_permits(), 1);
        assert_eq!(turns.state.lock().taken, 0);
    }

    #[tokio::test]
    async fn nothing_is_handed_over_ahead_while_another_model_waits_for_a_slot() {
        let slots = Slots::new(1);
        let (turns, other) = (Turns::new(1, 1, Arc::clone(&slots)), Turns::new(1, 1, Arc::clone(&slots)));
        turns.ran(Duration::from_micros(10));
        let (first, second) = (now(&turns).unwrap(), now(&turns).unwrap());
        let mut waits = Box::pin(other.take());
        assert!((&mut waits).now_or_never().is_none());
        assert!(now(&turns).is_none());
        drop((first, second));
        assert!(waits.now_or_never().is_some(), "its turn comes when what was handed over has run");
    }

    #[tokio::test]
    async fn the_runs_of_a_process_share_a_slot_until_the_last_has_ended() {
        let slots = Slots::new(1);
        let (turns, other) = (Turns::new(64, 1, Arc::clone(&slots)), Turns::new(64, 1, Arc::clone(&slots)));
        let mut taken: Vec<Turn> = (0..64).map(|_| now(&turns).unwrap()).collect();
        assert!(now(&turns).is_none(), "it takes no more at once");
        let mut others = Box::pin(other.take());
        assert!((&mut others).now_or_never().is_none(), "the slot is taken");
        let last = taken.pop();
        drop(taken);
        assert!((&mut others).now_or_never().is_none(), "one of them runs still");
        drop(last);
        drop(others.now_or_never().unwrap().unwrap());
        assert_eq!(slots.free.available_permits(), 1);
    }

    #[tokio::test]
    async fn the_runs_of_a_call_share_a_slot() {
        let slots = Slots::new(2);
        let turns = Turns::new(1, 16, Arc::clone(&slots));
        let taken: Vec<Turn> = (0..16).map(|_| now(&turns).unwrap()).collect();
        assert!(now(&turns).is_none(), "the call is full");
        assert_eq!(slots.free.available_permits(), 1);
        drop(taken);
        assert_eq!(slots.free.available_permits(), 2);
    }

    #[tokio::test]
    async fn a_process_that_is_full_takes_fewer_runs_until_it_has_room_again() {
        let turns = Turns::new(64, 1, Slots::new(1));
        turns.ran(Duration::from_micros(10));
        let mut taken: Vec<Turn> = (0..4).map(|_| now(&turns).unwrap()).collect();
        turns.limit(Some(3));
        assert_eq!((turns.at_once(), turns.capacity()), (3, 3), "and nothing is leased ahead");
        let mut fourth = Box::pin(turns.take());
        let mut fifth = Box::pin(turns.take());
        taken.pop();
        assert!((&mut fourth).now_or_never().is_none(), "three run");
        taken.pop();
        let fourth = (&mut fourth).now_or_never().flatten().unwrap();
        assert!((&mut fifth).now_or_never().is_none());
        turns.limit(Some(4));
        assert!(fifth.now_or_never().is_some(), "without the end of a run");
        drop((fourth, taken));
        turns.limit(Some(64));
        assert!(turns.at_once() == 64 && turns.capacity() > 64, "as declared");
        turns.limit(Some(0));
        assert_eq!(turns.at_once(), 1);
    }

    #[tokio::test]
    async fn who_stops_waiting_costs_nobody_a_turn() {
        let turns = Turns::new(1, 1, Slots::new(1));
        let first = now(&turns).unwrap();
        let mut gone = Box::pin(turns.take());
        assert!((&mut gone).now_or_never().is_none());
        drop(gone);
        drop(first);
        assert!(now(&turns).is_some());
    }
}
