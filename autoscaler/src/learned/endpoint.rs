//! What is remembered of one endpoint.

use std::collections::{BTreeMap, VecDeque};

use super::means::{Mean, fade};
use crate::name::Name;
use crate::observation::Endpoint;
use crate::snapshot::KindLearned;

/// Runs that an estimate rests on, at most.
const RUNS_MAX: f64 = 50.0;
/// Arrivals fade within this time where it is asked what is in demand lately.
const LATELY_S: f64 = 1_200.0;
/// Moments at which deferrable jobs came, at most; closer ones are put together.
const MOMENTS_MAX: usize = 1_024;

/// What is remembered of one endpoint.
#[derive(Debug, Clone)]
pub(super) struct Memory {
    pub(super) name: Name,
    /// Seconds of a run on a machine of speed 1.
    run_s: Mean,
    /// By kind: runs that had ended, and the seconds they had taken.
    runs: BTreeMap<Name, (u64, f64)>,
    arrived: [u64; 3],
    /// Interactive and deferrable arrivals, fading.
    pub(super) lately: (f64, f64),
    /// Of standard and of batch: when jobs came, and how many had come by then.
    came: [VecDeque<(f64, u64)>; 2],
}

/// What has come since the last look.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct New {
    pub(super) interactive: u64,
    pub(super) deferrable: u64,
}

impl Memory {
    pub(super) fn new(name: Name, run_prior_s: f64) -> Self {
        Self {
            name,
            run_s: Mean::prior(run_prior_s, 0.0),
            runs: BTreeMap::new(),
            arrived: [0; 3],
            lately: (0.0, 0.0),
            came: Default::default(),
        }
    }

    /// Seconds of a run on a machine of speed 1.
    pub(super) fn run_s(&self) -> f64 {
        self.run_s.get()
    }

    /// Whether any run has ended.
    pub(super) fn has_run(&self) -> bool {
        self.run_s.is_seen()
    }

    /// Looks at it again, after so many seconds.
    pub(super) fn note(
        &mut self,
        seen: &Endpoint,
        now_s: f64,
        since_s: f64,
        kinds: &BTreeMap<Name, KindLearned>,
    ) -> New {
        for runs in &seen.runs {
            let (ended, run_s) = self.runs.get(&runs.kind).copied().unwrap_or_default();
            if runs.ended > ended {
                let count = (runs.ended - ended) as f64;
                let speed = kinds.get(&runs.kind).map_or(1.0, |kind| kind.speed);
                self.run_s.note((runs.run_s - run_s).max(0.0) * speed / count, count, RUNS_MAX);
            }
            if runs.ended != ended {
                self.runs.insert(runs.kind.clone(), (runs.ended, runs.run_s));
            }
        }
        let arrived = seen.work.map(|work| work.arrived);
        let new = |n: usize| arrived[n].saturating_sub(self.arrived[n]);
        let came = New { interactive: new(0), deferrable: new(1) + new(2) };
        self.lately.0 = fade(self.lately.0, since_s, LATELY_S) + came.interactive as f64;
        self.lately.1 = fade(self.lately.1, since_s, LATELY_S) + came.deferrable as f64;
        for (n, moments) in (1..).zip(&mut self.came) {
            let (total, waiting) = (arrived[n], seen.work[n].waiting);
            if total > self.arrived[n] {
                if moments.len() == MOMENTS_MAX {
                    // The later moment stands for both: its jobs are then thought to have come later, and the earlier ones are counted by their age.
                    moments.pop_back();
                }
                moments.push_back((now_s, total));
            }
            let gone = total.saturating_sub(waiting);
            while moments.front().is_some_and(|(_, upto)| *upto <= gone) {
                moments.pop_front();
            }
            // Of jobs that came before this process looked, the age of the oldest is known.
            if moments.is_empty() && waiting > 0 {
                moments.push_back((now_s - seen.work[n].oldest_s, total));
            }
        }
        self.arrived = arrived;
        came
    }

    /// The deferrable jobs that wait, the oldest first: since when, and how many. `n`: 1 is standard, 2 is batch.
    pub(super) fn waiting<'a>(&'a self, seen: &Endpoint, n: usize) -> impl Iterator<Item = (f64, u64)> + 'a {
        let mut gone = seen.work[n].arrived.saturating_sub(seen.work[n].waiting);
        self.came[n - 1].iter().map(move |(at_s, upto)| {
            let jobs = upto.saturating_sub(gone);
            gone = *upto;
            (*at_s, jobs)
        })
    }
}
