//! A simulation that records observations and decisions.

use stokehold_planner::simulate::trace::Job;
use stokehold_planner::simulate::{Outcome, Rules, Scaler, offers, run};
use stokehold_planner::{Observation, Plan, Planner, Policy};
use stokehold_simulator::generate::Shape;

/// Observations and decisions, round by round.
pub(crate) type History = Vec<(Observation, Plan)>;

struct Recorder {
    own: Planner,
    history: History,
}

impl Scaler for Recorder {
    fn name(&self) -> &str {
        "recorded"
    }

    fn plan(&mut self, seen: &Observation) -> Plan {
        let plan = self.own.plan(seen);
        self.history.push((seen.clone(), plan.clone()));
        plan
    }
}

/// The jobs of these hours of a synthetic trace, moved to its start.
pub(crate) fn hours(shape: Shape, seed: u64, from: f64, until: f64) -> Vec<Job> {
    let mut jobs = shape.jobs(seed);
    jobs.retain(|job| (from * 3_600.0..until * 3_600.0).contains(&job.arrival_s));
    jobs.iter_mut().for_each(|job| job.arrival_s -= from * 3_600.0);
    jobs
}

pub(crate) fn simulated(jobs: &[Job], rules: &Rules, policy: &Policy) -> (Outcome, History) {
    let mut recorder = Recorder { own: Planner::new(policy.clone()), history: Vec::new() };
    let (outcome, _) = run(jobs, &offers::default(), rules, &mut recorder, None);
    (outcome, recorder.history)
}
