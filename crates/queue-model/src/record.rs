//! One job and the data that the queue stores with it.

use std::collections::{BTreeSet, HashSet, VecDeque};

use serde_json::value::RawValue;
use stokehold_protocol::gateway::JobMessage;
use stokehold_protocol::id::Fence;
use stokehold_protocol::job::{Job, JobResult, JobState, NewJob};
use stokehold_queue::budgets::Running;
use stokehold_queue::queue::{KeptEvent, KeptOutputs, OUTPUTS_BYTES_KEPT, OUTPUTS_KEPT};

use super::EVENTS_KEPT;

/// The place of a queued job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Position {
    Front,
    Lane,
    /// The job is in the queue of its concurrency key.
    Key,
    /// The job is in no lane: it runs, or its deadline has passed and `expire` has not processed it yet.
    Nowhere,
}

pub(super) struct Record {
    pub(super) job: Job,
    pub(super) attempt: u32,
    pub(super) fence: Option<Fence>,
    pub(super) settled: u64,
    pub(super) place: Position,
    /// Order of arrival.
    pub(super) arrival: f64,
    pub(super) start_by_ms: Option<u64>,
    pub(super) ready_ms: u64,
    pub(super) charged: f64,
    pub(super) waits: i64,
    /// The result. It is hidden until the job has succeeded, because steps may have to allow it first.
    pub(super) result: Option<JobResult>,
    /// The fence of the attempt whose result steps had to allow.
    pub(super) won: Option<Fence>,
    pub(super) failures: u32,
    pub(super) lost: u32,
    pub(super) oom: u32,
    pub(super) crashes: u32,
    /// The workers on which the job crashed.
    pub(super) crashed: BTreeSet<String>,
    pub(super) events: VecDeque<KeptEvent>,
    pub(super) outputs: VecDeque<KeptOutputs>,
    pub(super) event_count: u64,
    pub(super) watchers: HashSet<String>,
}

impl Record {
    pub(super) fn new(job: NewJob) -> Self {
        Self {
            start_by_ms: job.spec.start_by_ms,
            job: Job {
                id: job.id,
                spec: job.spec,
                input: job.input,
                state: JobState::Queued,
                attempts: Vec::new(),
                result: None,
                held: None,
                error: None,
                progress: None,
                oom_events: 0,
                run_after_ms: None,
                ended_ms: None,
                steps: Vec::new(),
                revision: String::new(),
            },
            attempt: 0,
            fence: None,
            settled: 0,
            place: Position::Nowhere,
            arrival: 0.0,
            ready_ms: 0,
            charged: 0.0,
            waits: 0,
            result: None,
            won: None,
            failures: 0,
            lost: 0,
            oom: 0,
            crashes: 0,
            crashed: BTreeSet::new(),
            events: VecDeque::new(),
            outputs: VecDeque::new(),
            event_count: 0,
            watchers: job.watcher.into_iter().collect(),
        }
    }

    pub(super) fn keep_event(&mut self, message: JobMessage) {
        self.event_count += 1;
        // Zero-padded, so that ids sort as text the way they sort as numbers.
        let id = format!("{:020}", self.event_count);
        self.events.push_back(KeptEvent { id, attempt: self.attempt, message });
        if self.events.len() > EVENTS_KEPT {
            self.events.pop_front();
        }
    }

    /// Stores outputs, like `store_outputs` of `lua/event.lua`.
    pub(super) fn keep_outputs(&mut self, index: u64, values: Vec<Box<RawValue>>, at_ms: u64) {
        let end = |kept: &KeptOutputs| (kept.attempt, kept.index + (kept.values.len() as u64).max(1));
        let new = KeptOutputs { attempt: self.attempt, index, values, at_ms };
        if self.outputs.back().is_some_and(|last| end(last) >= end(&new)) {
            return;
        }
        self.outputs.push_back(new);
        // Approximately the size of the array of texts that Redis stores, if it is not compressed.
        let size = |kept: &KeptOutputs| kept.values.iter().map(|value| value.get().len() + 3).sum::<usize>();
        let mut bytes: usize = self.outputs.iter().map(size).sum();
        while self.outputs.len() > OUTPUTS_KEPT || (bytes > OUTPUTS_BYTES_KEPT && self.outputs.len() > 1) {
            bytes -= self.outputs.pop_front().as_ref().map_or(0, size);
        }
    }

    /// Whether `fence` gives the right to end the running attempt.
    pub(super) fn holds(&self, fence: &Fence) -> bool {
        self.job.state == JobState::Running && self.fence.as_ref() == Some(fence)
    }

    pub(super) fn fence_counter(&self) -> u64 {
        self.fence.as_ref().map_or(0, Fence::counter)
    }

    /// Increments the fence, so that the previous lease becomes invalid.
    pub(super) fn bump_fence(&mut self) {
        self.fence = Some(Fence((self.fence_counter() + 1).to_string()));
    }

    pub(super) fn revision(&self) -> String {
        format!("{}#{}", self.fence.as_ref().map_or("", |fence| &fence.0), self.settled)
    }

    /// The running attempt, if there is one.
    pub(super) fn running(&self) -> Option<Running> {
        let attempt = self.job.attempts.last().filter(|_| self.job.state == JobState::Running)?;
        let spec = &self.job.spec;
        Some(Running {
            id: self.job.id,
            fence: self.fence.clone()?,
            tenant: spec.tenant.clone(),
            endpoint: spec.endpoint.clone(),
            batch: spec.batch.as_ref().map(|line| line.id.clone()),
            worker_id: attempt.worker_id.clone(),
            leased_ms: attempt.leased_ms,
        })
    }

    /// The job as callers see it.
    pub(super) fn shown(&self) -> Job {
        let result = self.result.clone().filter(|_| self.job.state == JobState::Succeeded);
        let held = self.result.clone().filter(|_| self.job.state == JobState::Blocked);
        Job { result, held, revision: self.revision(), ..self.job.clone() }
    }
}
