//! Scaling rules of other systems, for comparison: each with its default settings, and with tuned ones.
//!
//! All of them count machines of one kind, as their originals do. They rent the offer with the lowest price for its
//! speed that holds every waiting endpoint, and ignore models, prices over time and boot times.

mod fleet;
mod keda;
mod kpa;
mod load_target;
#[cfg(test)]
mod made_up;
mod queue_delay;
mod r#static;
mod step;
mod window;

pub use fleet::Fleet;
pub use keda::Keda;
pub use kpa::Kpa;
pub use load_target::LoadTarget;
pub use queue_delay::QueueDelay;
pub use r#static::Static;
pub use step::Step;

use stokehold_planner::Observation;
use stokehold_planner::simulate::Scaler;

/// The names that [`named`] accepts; `N` in `static-N` is a number of machines.
pub const NAMES: [&str; 10] = [
    "static-N",
    "step",
    "keda",
    "keda-tuned",
    "kpa",
    "kpa-tuned",
    "queue-delay",
    "queue-delay-tuned",
    "load-target",
    "load-target-tuned",
];

/// The baseline of this name, renting for this fleet.
#[must_use]
pub fn named(name: &str, fleet: Fleet) -> Option<Box<dyn Scaler>> {
    Some(match name {
        "step" => Box::new(Step::new(fleet)),
        "keda" => Box::new(Keda::new(fleet)),
        "keda-tuned" => Box::new(Keda::tuned(fleet)),
        "kpa" => Box::new(Kpa::new(fleet)),
        "kpa-tuned" => Box::new(Kpa::tuned(fleet)),
        "queue-delay" => Box::new(QueueDelay::new(fleet)),
        "queue-delay-tuned" => Box::new(QueueDelay::tuned(fleet)),
        "load-target" => Box::new(LoadTarget::new(fleet)),
        "load-target-tuned" => Box::new(LoadTarget::tuned(fleet)),
        _ => Box::new(Static::new(name.strip_prefix("static-")?.parse().ok()?, fleet)),
    })
}

/// Number of jobs that wait or run. Either number alone can be 0 while there is work.
fn total(seen: &Observation) -> f64 {
    seen.endpoints.iter().map(|endpoint| endpoint.running as f64).sum::<f64>() + waiting(seen)
}

/// Number of jobs that wait.
fn waiting(seen: &Observation) -> f64 {
    seen.endpoints.iter().flat_map(|endpoint| &endpoint.work).map(|work| work.waiting as f64).sum()
}

/// The number of machines, rounded up; 0 for NaN.
fn whole(machines: f64) -> usize {
    // A quotient that should be whole may be slightly higher because of rounding.
    (machines - 1e-9).ceil() as usize
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::made_up::*;
    use super::*;
    use stokehold_planner::{Action, Machine, Phase, Plan};

    const PHASES: [Phase; 6] =
        [Phase::Booting, Phase::Ready, Phase::Draining, Phase::Stopped, Phase::Resuming, Phase::Lost];

    /// Asserts that each machine has at most one step, that no machine with jobs is given up, and that each step is
    /// valid in the machine's phase.
    fn assert_is_sound(plan: &Plan, machines: &[Machine], name: &str) {
        let mut named = BTreeSet::new();
        for step in &plan.steps {
            let (id, phases): (_, &[Phase]) = match &step.action {
                Action::Rent { .. } => continue,
                Action::Resume { machine } => (machine, &[Phase::Stopped]),
                Action::Undrain { machine } => (machine, &[Phase::Draining]),
                Action::Drain { machine } => (machine, &[Phase::Ready]),
                Action::Stop { machine } => (machine, &[Phase::Ready, Phase::Draining]),
                Action::Release { machine } => {
                    (machine, &[Phase::Ready, Phase::Draining, Phase::Stopped, Phase::Resuming])
                }
            };
            let machine = machines.iter().find(|machine| machine.id == *id).expect("it is there");
            let gives_up = matches!(step.action, Action::Stop { .. } | Action::Release { .. });
            assert!(phases.contains(&machine.phase), "{name}: {step:?} of {:?}", machine.phase);
            assert!(!(gives_up && machine.running > 0), "{name}: {step:?} holds {} jobs", machine.running);
            assert!(named.insert(id.clone()), "{name}: {id} is named twice");
        }
    }

    proptest! {
        #[test]
        fn no_baseline_gives_back_a_machine_that_holds_jobs(
            looks in proptest::collection::vec(
                (0..60u64, 0..9u64, proptest::collection::vec((0..6usize, 0..3u64), 0..8)), 1..20
            )
        ) {
            for name in NAMES {
                let mut scaler = named(&name.replace('N', "3"), Fleet::cheapest()).expect("it is listed");
                for (n, (waiting, running, machines)) in looks.iter().enumerate() {
                    let machine = |(n, (phase, jobs)): (usize, &(usize, u64))| {
                        let is_in_use = matches!(PHASES[*phase], Phase::Ready | Phase::Draining);
                        with(&format!("m{n}"), PHASES[*phase], if is_in_use { *jobs } else { 0 })
                    };
                    let machines: Vec<Machine> = machines.iter().enumerate().map(machine).collect();
                    let plan = scaler.plan(&seen(n as f64 * 7.0, *waiting, *running, machines.clone()));
                    assert_is_sound(&plan, &machines, name);
                }
            }
        }
    }

    #[test]
    fn every_name_is_a_baseline() {
        for name in NAMES {
            let name = name.replace('N', "3");
            assert_eq!(named(&name, Fleet::cheapest()).expect("it is listed").name(), name);
        }
        for name in ["static-", "static-x", "static", "", "hpa"] {
            assert!(named(name, Fleet::cheapest()).is_none(), "{name}");
        }
    }

    #[test]
    fn every_baseline_serves_what_waits_and_gives_all_back() {
        for name in NAMES.into_iter().skip(1) {
            let mut scaler = named(name, Fleet::cheapest()).expect("it is listed");
            let rented = (0..24).flat_map(|n| scaler.plan(&seen(f64::from(n) * 5.0, 20, 0, vec![])).steps).count();
            assert!(rented > 0, "{name} rents nothing for 20 jobs");
            let given = |n: u32| scaler.plan(&seen(f64::from(n) * 5.0, 0, 0, vec![idle("a"), idle("b")])).steps;
            let given: Vec<_> = (24..600).flat_map(given).collect();
            assert!(!given.is_empty(), "{name} keeps two machines for no jobs");
        }
    }

    #[test]
    fn whole_machines_cover_a_part() {
        assert_eq!([0.0, 0.1, 3.0, 0.3 / 0.1, f64::NAN, -1.0].map(whole), [0, 1, 3, 3, 0, 0]);
    }
}
