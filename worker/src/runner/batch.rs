//! Groups runs into batched calls of the handler. Pure.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use stokehold_wire::Control;

/// A run that waits for its call: its number, its start message and its input.
pub(super) type Waiting = (u64, Control, Box<RawValue>);

/// Runs that wait for the next call.
pub(super) struct Batch {
    size_max: usize,
    wait_max: Duration,
    waiting: VecDeque<(Waiting, Instant)>,
}

impl Batch {
    pub(super) fn new(size_max: u32, wait_max: Duration) -> Self {
        Self { size_max: size_max.max(1) as usize, wait_max, waiting: VecDeque::new() }
    }

    /// Whether a call takes more than one run.
    pub(super) fn is_on(&self) -> bool {
        self.size_max > 1
    }

    pub(super) fn push(&mut self, run: Waiting, now: Instant) {
        self.waiting.push_back((run, now));
    }

    /// Removes a run. `false` if it does not wait here.
    pub(super) fn remove(&mut self, number: u64) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|((other, _, _), _)| *other != number);
        self.waiting.len() < before
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// When the next call is due: immediately if it is full, else when its first run has waited long enough.
    pub(super) fn due(&self) -> Option<Instant> {
        let (_, since) = self.waiting.front()?;
        Some(if self.waiting.len() >= self.size_max { *since } else { *since + self.wait_max })
    }

    /// The runs of the next call once it is due; each start message contains the number of runs that follow.
    pub(super) fn take(&mut self, now: Instant) -> Vec<Waiting> {
        if self.due().is_none_or(|due| now < due) {
            return Vec::new();
        }
        let mut follow = self.waiting.len().min(self.size_max) as u32;
        let mut call = Vec::with_capacity(follow as usize);
        while follow > 0
            && let Some(((number, mut control, input), _)) = self.waiting.pop_front()
        {
            follow -= 1;
            if let Control::Run { more, .. } = &mut control {
                *more = follow;
            }
            call.push((number, control, input));
        }
        call
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use super::*;

    fn run(number: u64) -> Waiting {
        let (job, scratch) = (String::new(), String::new());
        let (files, traceparent) = (BTreeMap::new(), None);
        let control = Control::Run { run: number, job, attempt: 1, scratch, files, more: 0, traceparent };
        (number, control, RawValue::from_string("{}".to_owned()).unwrap())
    }

    /// Each run's number, and the announced number of following runs.
    fn call(batch: &mut Batch, now: Instant) -> Vec<(u64, u32)> {
        let more =
            |control: &Control| if let Control::Run { more, .. } = control { *more } else { panic!("{control:?}") };
        batch.take(now).iter().map(|(number, control, _)| (*number, more(control))).collect()
    }

    #[test]
    fn a_full_call_goes_at_once_and_another_when_its_first_run_has_waited() {
        let (start, wait) = (Instant::now(), Duration::from_millis(5));
        let mut batch = Batch::new(3, wait);
        assert_eq!(batch.due(), None);
        for number in 1..=4 {
            batch.push(run(number), start);
        }
        assert_eq!(call(&mut batch, start), [(1, 2), (2, 1), (3, 0)]);
        assert_eq!(call(&mut batch, start), []);
        batch.push(run(5), start + wait / 2);
        assert_eq!(batch.due(), Some(start + wait), "the later one does not begin the wait anew");
        assert_eq!(call(&mut batch, start + wait), [(4, 1), (5, 0)]);
    }

    #[test]
    fn without_a_wait_goes_what_is_there() {
        let now = Instant::now();
        let mut batch = Batch::new(16, Duration::ZERO);
        batch.push(run(1), now);
        batch.push(run(2), now);
        assert!(batch.remove(1) && !batch.remove(1));
        assert_eq!(call(&mut batch, now), [(2, 0)]);
        assert_eq!(batch.len(), 0);
    }
}
