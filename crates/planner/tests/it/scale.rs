//! A large observation is decided like any other; `benches/decide.rs` measures the time.

use stokehold_planner::{Action, Observer, Policy, Snapshot, decide};

use crate::large;

#[test]
fn a_thousand_endpoints_and_thousands_of_offers_are_decided_about() {
    let policy = Policy { max_machines: 10_000, max_usd_per_hour: 1e6, ..Policy::default() };
    let (mut observer, mut seen) = (Observer::new(&policy), large::observation());
    for _ in 0..2 {
        let learned = observer.note(&seen);
        assert!(learned.groups.len() > 5, "{} groups", learned.groups.len());
        let plan = decide(&Snapshot { seen: &seen, learned }, &policy);
        let rents = plan.steps.iter().filter(|step| matches!(step.action, Action::Rent { .. })).count();
        assert!(rents > 50, "{rents} are rented, of {} steps", plan.steps.len());
        large::go_on(&mut seen);
    }
}
