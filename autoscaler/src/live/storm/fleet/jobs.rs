//! Waiting, running and ended jobs.

use std::collections::VecDeque;

use stokehold_queue::vram::sold_gib;

use super::{Endpoint, RUN_MS};

#[derive(Clone, Copy)]
pub(super) struct Job {
    endpoint: usize,
    since_ms: u64,
}

impl Job {
    pub(super) fn since_ms(self) -> u64 {
        self.since_ms
    }
}

/// The jobs that a machine runs, one per GPU, with the time of their end.
pub(super) struct Slots {
    pub(super) cards: usize,
    pub(super) held: Vec<(Job, u64)>,
}

impl Slots {
    pub(super) fn of(cards: usize) -> Self {
        Self { cards: cards.max(1), held: Vec::new() }
    }
}

/// The jobs of one endpoint.
#[derive(Clone, Default)]
pub(super) struct Lane {
    pub(super) waiting: VecDeque<Job>,
    pub(super) arrived: u64,
    pub(super) started: u64,
    pub(super) ended: u64,
    pub(super) running: u64,
    longest_wait_ms: u64,
}

#[derive(Default)]
pub(super) struct Jobs {
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) lanes: Vec<Lane>,
    pub(super) lost: usize,
}

impl Jobs {
    pub(super) fn of(endpoints: &[Endpoint]) -> Self {
        Self { endpoints: endpoints.to_vec(), lanes: vec![Lane::default(); endpoints.len()], lost: 0 }
    }

    pub(super) fn submit(&mut self, endpoint: usize, jobs: usize, now_ms: u64) {
        let lane = &mut self.lanes[endpoint];
        lane.arrived += jobs as u64;
        lane.waiting.extend(std::iter::repeat_n(Job { endpoint, since_ms: now_ms }, jobs));
    }

    pub(super) fn waiting(&self, endpoint: usize) -> usize {
        self.lanes[endpoint].waiting.len()
    }

    pub(super) fn ended(&self, endpoint: usize) -> u64 {
        self.lanes[endpoint].ended
    }

    pub(super) fn longest_wait_ms(&mut self, endpoint: usize) -> u64 {
        std::mem::take(&mut self.lanes[endpoint].longest_wait_ms)
    }

    pub(super) fn call_off(&mut self) {
        for lane in &mut self.lanes {
            lane.started += lane.waiting.len() as u64;
            lane.waiting.clear();
        }
    }

    /// Ends the jobs that are complete.
    pub(super) fn end(&mut self, slots: &mut Slots, now_ms: u64) {
        slots.held.retain(|(job, ends_ms)| {
            let is_over = *ends_ms <= now_ms;
            if is_over {
                self.lanes[job.endpoint].ended += 1;
                self.lanes[job.endpoint].running -= 1;
            }
            !is_over
        });
    }

    /// Starts the most urgent waiting jobs that fit on the GPUs, the oldest first.
    pub(super) fn take(&mut self, slots: &mut Slots, card_mb: u64, now_ms: u64) {
        let class = sold_gib(card_mb);
        while slots.held.len() < slots.cards {
            let fits = |n: &usize| self.endpoints[*n].class <= class && !self.lanes[*n].waiting.is_empty();
            let of = |n: &usize| (self.endpoints[*n].priority.digit(), self.lanes[*n].waiting[0].since_ms);
            let Some(next) = (0..self.lanes.len()).filter(fits).min_by_key(of) else { return };
            let lane = &mut self.lanes[next];
            let Some(job) = lane.waiting.pop_front() else { return };
            lane.started += 1;
            lane.running += 1;
            lane.longest_wait_ms = lane.longest_wait_ms.max(now_ms - job.since_ms);
            slots.held.push((job, now_ms + RUN_MS));
        }
    }

    /// Requeues the jobs of a machine that is gone.
    pub(super) fn put_back(&mut self, slots: &mut Slots) {
        self.lost += slots.held.len();
        for (job, _) in slots.held.drain(..) {
            let lane = &mut self.lanes[job.endpoint];
            lane.running -= 1;
            // The job counts as a new arrival, because it starts again.
            lane.arrived += 1;
            lane.waiting.push_front(job);
        }
    }
}
