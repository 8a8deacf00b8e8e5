//! One more machine for each job that has waited for too long, and one less when a machine has been idle, like on
//! serverless platforms.

use std::collections::{BTreeMap, VecDeque};

use stokehold_planner::observation::Work;
use stokehold_planner::plan::Baseline;
use stokehold_planner::simulate::Scaler;
use stokehold_planner::{Action, Name, Observation, Plan};

use super::fleet::{Fleet, Steps, idle_s, is_coming, is_up};

/// Waiting time after which a job has waited for too long, seconds.
const DELAY_S: f64 = 4.0;

/// Adds a machine for each job that has waited for more than 4 s, unless a machine is already starting for it. Releases
/// a machine that has been idle for some time.
#[derive(Debug, Clone)]
pub struct QueueDelay {
    name: &'static str,
    fleet: Fleet,
    idle_s: f64,
    least: usize,
    /// Number of arrived jobs at times in the last few seconds, by endpoint and priority.
    arrived: BTreeMap<(Name, usize), VecDeque<(f64, u64)>>,
}

impl QueueDelay {
    /// The default settings: released after 5 s of idle time, scale to zero.
    #[must_use]
    pub fn new(fleet: Fleet) -> Self {
        Self { name: "queue-delay", fleet, idle_s: 5.0, least: 0, arrived: BTreeMap::new() }
    }

    /// Released after 300 s of idle time, at least one machine.
    #[must_use]
    pub fn tuned(fleet: Fleet) -> Self {
        Self { name: "queue-delay-tuned", fleet, idle_s: 300.0, least: 1, arrived: BTreeMap::new() }
    }

    /// Number of jobs that have waited for too long. The oldest jobs start first, so the waiting jobs beyond those that
    /// arrived recently are late.
    fn late(&mut self, seen: &Observation) -> usize {
        let mut late = 0;
        for endpoint in &seen.endpoints {
            for (priority, work) in endpoint.work.iter().enumerate() {
                let past = self.arrived.entry((endpoint.name.clone(), priority)).or_default();
                late += late_of(past, work, seen.at_s);
            }
        }
        self.arrived.retain(|_, past| past.back().is_some_and(|(then_s, _)| *then_s >= seen.at_s));
        usize::try_from(late).unwrap_or(usize::MAX)
    }

    /// Releases the machines that have been idle for long enough, the longest first, down to the minimum.
    fn release(&self, seen: &Observation) -> Plan {
        let mut steps = Steps::new(Baseline::Idle);
        let up = seen.machines.iter().filter(|machine| is_up(machine, seen.at_s)).count();
        let idle = seen.machines.iter().filter_map(|machine| Some((idle_s(machine, seen.at_s)?, &machine.id)));
        let mut idle: Vec<(f64, &Name)> = idle.filter(|(idle_s, _)| *idle_s >= self.idle_s).collect();
        idle.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(other.1)));
        let goes = idle.into_iter().take(up.saturating_sub(self.least));
        goes.for_each(|(_, id)| steps.push(Action::Release { machine: id.clone() }));
        steps.tidy(seen, 0);
        steps.plan
    }
}

fn late_of(past: &mut VecDeque<(f64, u64)>, work: &Work, at_s: f64) -> u64 {
    past.push_back((at_s, work.arrived));
    // Keep the newest entry that is old enough.
    while past.get(1).is_some_and(|(then_s, _)| at_s - then_s >= DELAY_S) {
        past.pop_front();
    }
    let lately = past.front().map_or(0, |(_, then)| work.arrived.saturating_sub(*then));
    // At the first poll, only the wait of the oldest job is known.
    let known = u64::from(work.waiting > 0 && work.oldest_s > DELAY_S);
    let is_known = past.front().is_some_and(|(then_s, _)| at_s - then_s >= DELAY_S);
    if is_known { work.waiting.saturating_sub(lately).max(known) } else { known }
}

impl Scaler for QueueDelay {
    fn name(&self) -> &str {
        self.name
    }

    fn plan(&mut self, seen: &Observation) -> Plan {
        let late = self.late(seen);
        let coming = seen.machines.iter().filter(|machine| is_coming(machine, seen.at_s)).count();
        let up = seen.machines.iter().filter(|machine| is_up(machine, seen.at_s)).count();
        let more = late.saturating_sub(coming).max(self.least.saturating_sub(up));
        if more > 0 {
            return self.fleet.more(seen, more, Baseline::Waited { jobs: late, limit_s: DELAY_S });
        }
        self.release(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::super::made_up::*;
    use super::*;
    use stokehold_planner::Phase;

    fn waiting(at_s: f64, arrived: u64, waiting: u64, oldest_s: f64) -> Observation {
        with_work(at_s, Work { arrived, waiting, oldest_s, ..Work::default() }, vec![])
    }

    #[test]
    fn a_job_is_late_after_four_seconds() {
        let mut scaler = QueueDelay::new(Fleet::cheapest());
        let at = [(0.0, 3, 3, 0.0), (2.0, 5, 5, 2.0), (4.0, 6, 6, 4.0), (6.0, 6, 5, 6.0), (9.0, 6, 5, 9.0)];
        let late = at.map(|(at_s, arrived, wait, oldest_s)| scaler.late(&waiting(at_s, arrived, wait, oldest_s)));
        // The first three are late at 4 s. At 6 s one of five has started, and one is not late yet.
        assert_eq!(late, [0, 0, 3, 4, 5]);
    }

    #[test]
    fn a_first_look_knows_of_the_oldest() {
        assert_eq!(QueueDelay::new(Fleet::cheapest()).late(&waiting(100.0, 50, 9, 60.0)), 1);
    }

    #[test]
    fn machines_that_are_coming_are_for_late_jobs() {
        let mut scaler = QueueDelay::new(Fleet::cheapest());
        scaler.plan(&waiting(0.0, 3, 3, 0.0));
        let mut later = waiting(5.0, 3, 3, 5.0);
        assert_eq!(change(&scaler.clone().plan(&later)), 3);
        later.machines = vec![with("a", Phase::Booting, 0), with("b", Phase::Booting, 0)];
        assert_eq!(change(&scaler.plan(&later)), 1);
    }

    #[test]
    fn idle_machines_go_and_tuned_one_stays() {
        let machines = vec![idle("a"), idle("b"), with("c", Phase::Ready, 1)];
        let at = |scaler: &mut QueueDelay, at_s| said(&scaler.plan(&seen(at_s, 0, 1, machines.clone())));
        let (mut plain, mut tuned) = (QueueDelay::new(Fleet::cheapest()), QueueDelay::tuned(Fleet::cheapest()));
        assert_eq!(at(&mut plain, 5.5), "");
        assert_eq!(at(&mut plain, 6.0), "release a, release b");
        assert_eq!(at(&mut tuned, 300.0), "");
        assert_eq!(at(&mut tuned, 302.0), "release a, release b");
        assert_eq!(said(&tuned.plan(&seen(302.0, 0, 0, vec![idle("a"), idle("b")]))), "release a");
        assert_eq!(said(&tuned.plan(&seen(303.0, 0, 0, vec![]))), "rent fast");
    }
}
