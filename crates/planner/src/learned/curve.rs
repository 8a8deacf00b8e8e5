//! Arrival curves: the number of jobs that came within each recent stretch of time. They give the number of machines
//! with which no job queues for too long.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Maximum number of points.
const POINTS_MAX: usize = 512;

/// Arrivals over a recent time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Curve {
    /// Times in unix seconds, and the number of jobs that had come before.
    points: VecDeque<(f64, f64)>,
    total: f64,
}

impl Curve {
    /// Adds the jobs since the last observation and forgets points older than `memory_s`.
    pub(super) fn note(&mut self, now_s: f64, jobs: f64, memory_s: f64) {
        // A moment without arrivals adds nothing to the greatest need of any stretch.
        if jobs > 0.0 {
            self.points.push_back((now_s, self.total));
            self.total += jobs;
        }
        while self.points.len() > POINTS_MAX || self.points.front().is_some_and(|(at_s, _)| now_s - at_s > memory_s) {
            self.points.pop_front();
        }
    }

    /// Machines needed so that a job that takes `job_s` on a `share` of a machine queues for at most `queueing_s`. In
    /// any stretch of length w with A arrivals up to its end, n machines have the time w + queueing_s, and each ends
    /// one more job after that: A job_s share <= n (w + queueing_s + job_s). E.g. 10 jobs of 20 s at once that may
    /// queue for 30 s: 4 machines. (An arrival curve as in Le Boudec and Thiran, "Network Calculus", 2001.)
    #[must_use]
    pub(super) fn machines(&self, now_s: f64, job_s: f64, share: f64, queueing_s: f64) -> f64 {
        let of =
            |(at_s, before): &(f64, f64)| (self.total - before) * job_s * share / (now_s - at_s + queueing_s + job_s);
        self.points.iter().map(of).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_follow_the_densest_stretch() {
        let mut curve = Curve::default();
        curve.note(0.0, 10.0, 600.0);
        assert!((curve.machines(0.0, 20.0, 1.0, 30.0) - 4.0).abs() < 1e-9);
        let later: Vec<f64> = [10.0, 60.0, 300.0].iter().map(|now_s| curve.machines(*now_s, 20.0, 1.0, 30.0)).collect();
        assert!(later.is_sorted_by(|a, b| a > b), "{later:?}: what came is older and older");
        // One job every 10 s of 20 s each: two machines.
        let mut steady = Curve::default();
        (0..200_u32).for_each(|n| steady.note(f64::from(n) * 10.0, 1.0, 1_200.0));
        let machines = steady.machines(1_990.0, 20.0, 1.0, 15.0);
        assert!((1.9..2.0).contains(&machines), "{machines}");
    }

    #[test]
    fn it_forgets_and_stays_small() {
        let mut curve = Curve::default();
        (0..10_000_u32).for_each(|n| curve.note(f64::from(n) * 0.01, 1.0, 600.0));
        assert!(curve.points.len() <= POINTS_MAX);
        curve.note(10_000.0, 0.0, 600.0);
        assert!(curve.machines(10_000.0, 20.0, 1.0, 15.0).abs() < f64::EPSILON);
    }
}
