//! The live loop and the simulator share the decision code: replaying a recorded history yields the same decisions.

use stokehold_planner::simulate::{Rules, replay};
use stokehold_planner::{Action, Planner, Policy};
use stokehold_simulator::generate::Shape;

use crate::recorded::{History, hours, simulated};

/// A busy half hour, as the live loop records it: a line of JSON for each round, read back.
fn history() -> History {
    let jobs = hours(Shape::BusyDay, 4, 9.0, 9.5);
    let (_, history) = simulated(&jobs, &Rules::default(), &Policy::default());
    let lines = history.iter().map(|(seen, plan)| serde_json::json!({"seen": seen, "plan": plan}).to_string());
    lines
        .map(|line| {
            let mut round: serde_json::Value = serde_json::from_str(&line).unwrap();
            let seen = serde_json::from_value(round["seen"].take()).unwrap();
            (seen, serde_json::from_value(round["plan"].take()).unwrap())
        })
        .collect()
}

fn own() -> Planner {
    Planner::new(Policy::default())
}

#[test]
fn a_recorded_history_is_decided_as_it_was() {
    let history = history();
    assert!(history.iter().filter(|(_, plan)| !plan.steps.is_empty()).count() > 3, "something was done");
    let rounds = history.len();
    assert_eq!(replay(history, &mut own()), Ok(rounds));
}

#[test]
fn a_plan_that_was_tampered_with_is_told_with_its_place() {
    let mut history = history();
    let place = history.iter().rposition(|(_, plan)| !plan.steps.is_empty()).unwrap();
    let steps = &mut history[place].1.steps;
    steps[0].action = Action::Release { machine: "m99999".into() };
    let mismatch = replay(history.clone(), &mut own()).unwrap_err();
    assert_eq!((mismatch.round, mismatch.at_s), (place + 1, history[place].0.at_s));
    assert_eq!(mismatch.recorded, history[place].1);
    assert_ne!(mismatch.decided, mismatch.recorded);
    assert!(mismatch.to_string().contains("release m99999"), "{mismatch}");
}

#[test]
fn what_was_seen_otherwise_or_under_other_settings_is_told() {
    let mut history = history();
    assert!(replay(history.clone(), &mut Planner::new(Policy { max_machines: 1, ..Policy::default() })).is_err());
    let place = history.iter().position(|(_, plan)| !plan.steps.is_empty()).unwrap();
    history[place].0.offers.clear();
    assert_eq!(replay(history, &mut own()).unwrap_err().round, place + 1);
}
