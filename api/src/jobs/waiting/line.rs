//! The jobs that start before a waiting one. Pure.

use std::collections::{BTreeMap, HashMap};

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

/// Jobs that take turns as one: those of one tenant, in one class.
struct Group {
    jobs: u64,
    work_ms: f64,
    is_known: bool,
}

/// Number and work of the jobs that start before the one at this place:
///
/// - those before it in its lane, and all of higher priority,
/// - of each other lane of its tenant and class, as many as are before it in its own, because the lanes of a tenant take
///   turns,
/// - of each other tenant or class with its priority, as many as of its own tenant and class, because they take turns.
///
/// Only lanes count whose jobs the same workers could run (`shares`). Jobs of lower priority are left out: a few of them
/// start now and then.
///
/// Example: third in its lane, with 10 interactive jobs, and another tenant with two lanes of 100 jobs of its priority:
/// 2 + 10 + 3.
pub(super) fn before(place: &LanePlace, lanes: &Lanes, shares: impl Fn((u32, u32), (u32, u32)) -> bool) -> Line {
    let Some(own) = parts_of_lane(&place.lane) else { return Line::default() };
    let class = |class: u32| {
        let (demands, class_gib) = capability::parts_of(class);
        (class_gib, demands)
    };
    let run_ms = |tenant: &str, endpoint: &str| lanes.runs_ms.get(&format!("{tenant}:{endpoint}")).copied();
    let own_run_ms = run_ms(own.tenant, own.endpoint);
    let (mut higher, mut same) = (Group::new(), Group::new());
    same.add(place.ahead, own_run_ms);
    let mut others: BTreeMap<(u32, &str), Group> = BTreeMap::new();
    for depth in lanes.depths.iter().filter(|depth| depth.lane != place.lane) {
        let Some(other) = parts_of_lane(&depth.lane) else { continue };
        // A lower digit is a higher priority.
        let order = other.priority.digit().cmp(&own.priority.digit());
        if order.is_gt() || !shares(class(own.class), class(other.class)) {
            continue;
        }
        let other_run_ms = run_ms(other.tenant, other.endpoint);
        if order.is_lt() {
            higher.add(depth.jobs, other_run_ms);
        } else if (other.class, other.tenant) == (own.class, own.tenant) {
            same.add(depth.jobs.min(place.ahead.saturating_add(1)), other_run_ms);
        } else {
            others.entry((other.class, other.tenant)).or_insert_with(Group::new).add(depth.jobs, other_run_ms);
        }
    }
    let turns = same.jobs.saturating_add(1);
    let all = [higher, same].into_iter().chain(others.into_values().map(|group| group.first(turns)));
    let mut line = Line { ahead: 0, work_ms: Some(0.0), run_ms: own_run_ms };
    for group in all {
        line.ahead = line.ahead.saturating_add(group.jobs);
        line.work_ms = line.work_ms.filter(|_| group.is_known).map(|work_ms| work_ms + group.work_ms);
    }
    line
}

impl Group {
    fn new() -> Self {
        Self { jobs: 0, work_ms: 0.0, is_known: true }
    }

    fn add(&mut self, jobs: u64, run_ms: Option<f64>) {
        self.jobs = self.jobs.saturating_add(jobs);
        self.work_ms += float(jobs) * run_ms.unwrap_or(0.0);
        self.is_known &= jobs == 0 || run_ms.is_some();
    }

    /// The first of these jobs, with their share of the work: lanes take turns, so they are mixed.
    fn first(self, jobs: u64) -> Self {
        if self.jobs <= jobs {
            return self;
        }
        Self { jobs, work_ms: self.work_ms * float(jobs) / float(self.jobs), ..self }
    }
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
    fn another_tenant_takes_turns_as_one_and_so_does_another_class() {
        let of_tenants = lanes(&[(OWN, 50), ("1:0:zoo:write", 100), ("1:0:zoo:draw", 100), ("1:0:zoo:film", 100)]);
        assert_eq!(before_third(&of_tenants).ahead, 5, "three of zoo, whatever its number of lanes");
        let of_own = lanes(&[(OWN, 50), ("1:0:acme:write", 100), ("1:0:acme:film", 1), ("1:0:zoo:write", 100)]);
        assert_eq!(before_third(&of_own).ahead, 13, "2 + 3 + 1 of its own tenant, then 7 of the other one");
        let of_classes = lanes(&[(OWN, 50), ("1:24:acme:draw", 100), ("1:24:zoo:write", 2)]);
        let line = before_third(&of_classes);
        assert_eq!((line.ahead, line.work_ms), (7, Some(11_000.0)));
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
