//! The jobs that start before a waiting one. Pure.

use std::collections::HashMap;

use stokehold_queue::queue::LaneDepth;
use stokehold_queue::{LanePlace, capability};

use super::estimate::Line;
use crate::jobs::lanes::parts_of_lane;

/// The lanes with ready jobs, and the expected slot time of a run of each endpoint (`<tenant>:<endpoint>`),
/// milliseconds.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    pub(crate) depths: Vec<LaneDepth>,
    pub(crate) runs_ms: HashMap<String, f64>,
}

/// Number and work of the jobs that start before the one at this place: those before it in its lane; all jobs of higher
/// priority; and of each other lane with its priority as many as are before it in its own, because the lanes take
/// turns. Only lanes count whose jobs the same workers could run (`shares`). Jobs of lower priority are left out: a few
/// of them start now and then.
///
/// Example: third in its lane, with 10 interactive jobs and a lane of 100 other jobs of its priority: 2 + 10 + 3.
pub(super) fn before(place: &LanePlace, lanes: &Lanes, shares: impl Fn((u32, u32), (u32, u32)) -> bool) -> Line {
    let Some(own) = parts_of_lane(&place.lane) else { return Line::default() };
    let class = |class: u32| {
        let (demands, class_gib) = capability::parts_of(class);
        (class_gib, demands)
    };
    let run_ms = |tenant: &str, endpoint: &str| lanes.runs_ms.get(&format!("{tenant}:{endpoint}")).copied();
    let own_run_ms = run_ms(own.tenant, own.endpoint);
    let mut line = Line { run_ms: own_run_ms, ..Line::default() };
    let mut work_ms = Some(0.0);
    let mut add = |jobs: u64, run_ms: Option<f64>| {
        line.ahead = line.ahead.saturating_add(jobs);
        if jobs > 0 {
            work_ms = work_ms.zip(run_ms).map(|(work_ms, run_ms)| work_ms + float(jobs) * run_ms);
        }
    };
    add(place.ahead, own_run_ms);
    for depth in lanes.depths.iter().filter(|depth| depth.lane != place.lane) {
        let Some(other) = parts_of_lane(&depth.lane) else { continue };
        // A lower digit is a higher priority.
        if other.priority.digit() > own.priority.digit() || !shares(class(own.class), class(other.class)) {
            continue;
        }
        let is_higher = other.priority.digit() < own.priority.digit();
        let jobs = if is_higher { depth.jobs } else { depth.jobs.min(place.ahead.saturating_add(1)) };
        add(jobs, run_ms(other.tenant, other.endpoint));
    }
    line.work_ms = work_ms;
    line
}

#[expect(clippy::cast_precision_loss, reason = "far less than 2^53")]
fn float(jobs: u64) -> f64 {
    jobs as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "1:0:acme:draw";

    fn lanes(depths: &[(&str, u64)]) -> Lanes {
        let depths =
            depths.iter().map(|(lane, jobs)| LaneDepth { lane: (*lane).to_owned(), jobs: *jobs, since_ms: None });
        let runs = [("acme:draw", 2_000.0), ("zoo:write", 500.0)];
        let runs_ms = runs.map(|(endpoint, ms)| (endpoint.to_owned(), ms)).into();
        Lanes { depths: depths.collect(), runs_ms }
    }

    fn before_third(lanes: &Lanes) -> Line {
        before(&LanePlace { lane: OWN.to_owned(), ahead: 2 }, lanes, |_, _| true)
    }

    #[test]
    fn lanes_of_the_same_priority_take_turns_and_higher_ones_go_first() {
        let all = lanes(&[(OWN, 50), ("0:0:zoo:write", 10), ("1:0:zoo:write", 100), ("2:0:zoo:write", 1_000)]);
        let line = before_third(&all);
        assert_eq!(line, Line { ahead: 15, work_ms: Some(10_500.0), run_ms: Some(2_000.0) });
        let few = before_third(&lanes(&[(OWN, 50), ("1:0:zoo:write", 1)]));
        assert_eq!((few.ahead, few.work_ms), (3, Some(4_500.0)));
    }

    #[test]
    fn an_endpoint_that_has_never_run_makes_the_work_unknown() {
        let line = before_third(&lanes(&[(OWN, 50), ("0:0:zoo:film", 1)]));
        assert_eq!((line.ahead, line.work_ms), (3, None));
    }

    #[test]
    fn lanes_of_other_workers_do_not_count() {
        let all = lanes(&[(OWN, 50), ("0:24:zoo:write", 10)]);
        let place = LanePlace { lane: OWN.to_owned(), ahead: 2 };
        assert_eq!(before(&place, &all, |one, other| one == other).ahead, 2);
    }
}
