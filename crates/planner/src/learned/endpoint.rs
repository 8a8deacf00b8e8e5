//! Statistics of one endpoint.

use std::collections::{BTreeMap, VecDeque};

use super::means::{Mean, fade};
use crate::name::Name;
use crate::observation::Endpoint;
use crate::snapshot::KindLearned;

/// Maximum number of runs that an estimate is based on.
const RUNS_MAX: f64 = 50.0;
/// Minimum number of runs on each of two kinds of GPU for a comparison of their speeds, and the minimum deviation from
/// the expected speed.
const SURE: f64 = 200.0;
const FAR: f64 = 1.25;
/// Time constant of the recent demand, seconds.
const LATELY_S: f64 = 1_200.0;
/// Maximum number of recorded arrival times of deferrable jobs; close ones are merged.
const MOMENTS_MAX: usize = 1_024;

/// Statistics of one endpoint.
#[derive(Debug, Clone)]
pub(super) struct Memory {
    pub(super) name: Name,
    /// Duration of a run on a machine of speed 1, seconds.
    run_s: Mean,
    /// Jobs that share a process, and so its part of a machine.
    pub(super) at_once: f64,
    /// Ended runs and their total duration, by kind of GPU.
    runs: BTreeMap<Name, (u64, f64)>,
    /// Duration of a run in seconds, by kind of GPU.
    on: BTreeMap<Name, Mean>,
    /// Factor by which the endpoint ran faster on a kind of GPU than its speed predicts. Factors near 1 are left out.
    pub(super) faster: BTreeMap<Name, f64>,
    arrived: [u64; 3],
    /// Recent interactive and deferrable arrivals, fading.
    pub(super) lately: (f64, f64),
    /// Arrival times of standard and of batch jobs, with the number of jobs that had come by then.
    came: [VecDeque<(f64, u64)>; 2],
}

/// Arrivals since the last observation.
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
            at_once: 1.0,
            runs: BTreeMap::new(),
            on: BTreeMap::new(),
            faster: BTreeMap::new(),
            arrived: [0; 3],
            lately: (0.0, 0.0),
            came: Default::default(),
        }
    }

    /// Duration of a run on a machine of speed 1, seconds. While it lasts, `at_once - 1` others run in its process.
    pub(super) fn run_s(&self) -> f64 {
        self.run_s.get()
    }

    /// Learns from an observation, this many seconds after the previous one.
    pub(super) fn note(
        &mut self,
        seen: &Endpoint,
        now_s: f64,
        since_s: f64,
        kinds: &BTreeMap<Name, KindLearned>,
    ) -> New {
        self.at_once = f64::from(seen.at_once.max(1));
        for runs in &seen.runs {
            let (ended, run_s) = self.runs.get(&runs.kind).copied().unwrap_or_default();
            if runs.ended > ended {
                let count = (runs.ended - ended) as f64;
                let speed = kinds.get(&runs.kind).map_or(1.0, |kind| kind.speed);
                let mean_s = (runs.run_s - run_s).max(0.0) / count;
                self.run_s.note(mean_s * speed * self.faster.get(&runs.kind).unwrap_or(&1.0), count, RUNS_MAX);
                self.on.entry(runs.kind.clone()).or_default().note(mean_s, count, SURE * 5.0);
                self.compare(&runs.kind, kinds);
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
                    // The later time replaces the earlier one, so that the earlier jobs count as later.
                    moments.pop_back();
                }
                moments.push_back((now_s, total));
            }
            let gone = total.saturating_sub(waiting);
            while moments.front().is_some_and(|(_, upto)| *upto <= gone) {
                moments.pop_front();
            }
            // For jobs that arrived before the first observation, only the age of the oldest is known.
            if moments.is_empty() && waiting > 0 {
                moments.push_back((now_s - seen.work[n].oldest_s, total));
            }
        }
        self.arrived = arrived;
        came
    }

    /// Compares the speed of a kind of GPU for this endpoint with the other kinds that it ran on.
    fn compare(&mut self, kind: &Name, kinds: &BTreeMap<Name, KindLearned>) {
        let assumed = |kind: &Name| kinds.get(kind).map_or(1.0, |kind| kind.speed);
        let others = self.on.iter().filter(|(other, mean)| *other != kind && mean.weight() >= SURE);
        // Duration of a run at speed 1 according to the other kinds.
        let (runs, work_s) = others.fold((0.0, 0.0), |(runs, work_s), (other, mean)| {
            (runs + mean.weight(), work_s + mean.weight() * mean.get() * assumed(other))
        });
        let Some(here) = self.on.get(kind).filter(|mean| mean.weight() >= SURE && mean.get() > 0.0 && runs > 0.0)
        else {
            return;
        };
        let faster = work_s / runs / (here.get() * assumed(kind));
        if (1.0 / FAR..=FAR).contains(&faster) {
            self.faster.remove(kind);
        } else {
            self.faster.insert(kind.clone(), faster.clamp(0.1, 10.0));
        }
    }

    /// Waiting deferrable jobs, the oldest first: the time of arrival and their number. `n`: 1 is standard, 2 is batch.
    pub(super) fn waiting<'a>(&'a self, seen: &Endpoint, n: usize) -> impl Iterator<Item = (f64, u64)> + 'a {
        let mut gone = seen.work[n].arrived.saturating_sub(seen.work[n].waiting);
        self.came[n - 1].iter().map(move |(at_s, upto)| {
            let jobs = upto.saturating_sub(gone);
            gone = *upto;
            (*at_s, jobs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::{Runs, Work};

    /// The learned factor of B relative to its assumed speed, after `count` runs of this many seconds there. B is
    /// assumed to be twice as fast as A, where a run takes 20 s.
    fn faster_on_b(count: u64, seconds: f64) -> Option<f64> {
        let assumed = |speed| KindLearned { speed, boot_s: 150.0, losses_per_hour: 0.0 };
        let kinds = BTreeMap::from([("A".into(), assumed(1.0)), ("B".into(), assumed(2.0))]);
        let runs = |kind: &str, seconds: f64| Runs {
            kind: kind.into(),
            ended: count,
            run_s: count as f64 * seconds,
            ..Runs::default()
        };
        let seen = Endpoint {
            name: "e".into(),
            vram: stokehold_units::Mib::from_gib(8.0),
            demands: Default::default(),
            work: [Work::default(); 3],
            running: 0,
            at_once: 1,
            vram_fraction: None,
            runs: vec![runs("A", 20.0), runs("B", seconds)],
        };
        let mut memory = Memory::new("e".into(), 10.0);
        memory.note(&seen, 0.0, 0.0, &kinds);
        memory.faster.get(&Name::from("B")).copied()
    }

    #[test]
    fn a_kind_that_is_not_as_fast_as_is_said_is_found_out() {
        assert_eq!(faster_on_b(1_000, 10.0), None, "it is as fast as is said");
        assert_eq!(faster_on_b(1_000, 11.0), None, "about");
        assert_eq!(faster_on_b(100, 20.0), None, "that may be chance");
        let slower = faster_on_b(1_000, 20.0).expect("it is no faster than A");
        assert!((slower - 0.5).abs() < 1e-9, "{slower}");
    }
}
