use proptest::prelude::*;

use super::*;

const START: u64 = 1_800_000_000_000;

fn cron(expression: &str) -> Cron {
    Cron::parse(expression, "Europe/Berlin").ok().unwrap()
}

fn first(cron: &Cron) -> u64 {
    cron.next_after(START).unwrap()
}

#[test]
fn a_tick_runs_on_time_and_not_before() {
    let cron = cron("* * * * * *");
    let due = first(&cron);
    let early = plan(&cron, due, due - 1, Missed::RunOnce, 60_000);
    assert_eq!(early, Plan { run: vec![], next: Some(due), missed: 0 });
    let now = plan(&cron, due, due, Missed::Skip, 60_000);
    assert_eq!(now, Plan { run: vec![due], next: Some(due + 1_000), missed: 0 });
    let late = plan(&cron, due, due + 2_500, Missed::Skip, 60_000);
    assert_eq!(late, Plan { run: vec![due, due + 1_000, due + 2_000], next: Some(due + 3_000), missed: 0 });
}

#[test]
fn missed_ticks_go_by_the_policy() {
    let cron = cron("* * * * *");
    let due = first(&cron);
    let minute = |n: u64| due + n * 60_000;
    // Ten minutes later, to the second: two ticks are within 90 seconds.
    let of = |policy| plan(&cron, due, minute(10), policy, 90_000);
    assert_eq!(of(Missed::Skip), Plan { run: vec![minute(9), minute(10)], next: Some(minute(11)), missed: 9 });
    assert_eq!(
        of(Missed::RunOnce),
        Plan { run: vec![minute(8), minute(9), minute(10)], next: Some(minute(11)), missed: 8 }
    );
    assert_eq!(of(Missed::RunAll), Plan { run: (0..=10).map(minute).collect(), next: Some(minute(11)), missed: 0 });
}

#[test]
fn missed_ticks_without_a_fresh_one_leave_the_next_to_come() {
    let cron = cron("0 3 * * *");
    let due = first(&cron);
    let now = due + 50 * 3_600_000;
    let day = 24 * 3_600_000;
    assert_eq!(plan(&cron, due, now, Missed::Skip, 60_000), Plan { run: vec![], next: Some(due + 3 * day), missed: 3 });
    assert_eq!(
        plan(&cron, due, now, Missed::RunOnce, 60_000),
        Plan { run: vec![due + 2 * day], next: Some(due + 3 * day), missed: 2 }
    );
}

#[test]
fn a_long_outage_is_bounded_in_what_runs_and_in_the_work_of_planning() {
    let cron = cron("* * * * * *");
    let due = first(&cron);
    let now = due + 30 * 24 * 3_600_000;
    let all = plan(&cron, due, now, Missed::RunAll, 60_000);
    assert_eq!(all.run.len(), RUN_MAX);
    assert_eq!(all.run[0], now - 60_000 - 1_000 * MISSED_MAX as u64);
    assert_eq!(all.missed, MISSED_MAX as u64);
    let once = plan(&cron, due, now, Missed::RunOnce, 60_000);
    assert_eq!((once.run[0], once.run.len()), (now - 61_000, 62));
}

proptest! {
    /// Compares a plan with the definition, tick by tick.
    #[test]
    fn a_plan_is_what_the_definition_says(
        shape in 0usize..5, lateness in 0u64..4_000_000, grace in 1u64..4_000, policy in 0usize..3,
    ) {
        let cron = cron(SHAPES[shape]);
        let policy = POLICIES[policy];
        let (due, grace_ms) = (first(&cron), grace * 1_000);
        let now = due + lateness;
        let ticks: Vec<u64> =
            std::iter::successors(Some(due), |tick| cron.next_after(*tick)).take_while(|tick| *tick <= now).collect();
        let (stale, fresh): (Vec<u64>, Vec<u64>) = ticks.iter().partition(|tick| now - **tick > grace_ms);
        let kept = match policy {
            Missed::Skip => 0,
            Missed::RunOnce => stale.len().min(1),
            Missed::RunAll => stale.len().min(MISSED_MAX),
        };
        let wanted: Vec<u64> = stale[stale.len() - kept..].iter().chain(&fresh).copied().collect();
        let plan = plan(&cron, due, now, policy, grace_ms);
        prop_assert_eq!(&plan.run[..], &wanted[..wanted.len().min(RUN_MAX)]);
        prop_assert_eq!(plan.missed, (stale.len() - kept).min(MISSED_MAX) as u64);
        let after = wanted.get(RUN_MAX).copied().or_else(|| cron.next_after(now));
        prop_assert_eq!(plan.next, after);
    }

    /// Plans at arbitrary times: each tick runs once, in order, and all of them when all should.
    #[test]
    fn plan_after_plan_neither_loses_nor_doubles_a_tick(
        shape in 0usize..5, pauses in prop::collection::vec(0u64..200_000, 1..30), policy in 0usize..3,
    ) {
        let cron = cron(SHAPES[shape]);
        let policy = POLICIES[policy];
        let begin = first(&cron);
        let (mut due, mut now, mut ran) = (begin, begin, Vec::new());
        for pause in pauses {
            now += pause;
            // Repeats until nothing is due, like the loop.
            while due <= now {
                let plan = plan(&cron, due, now, policy, 60_000);
                ran.extend(plan.run);
                due = plan.next.unwrap();
            }
        }
        prop_assert!(ran.is_sorted_by(|a, b| a < b));
        prop_assert!(due > now);
        if policy == Missed::RunAll {
            let all: Vec<u64> =
                std::iter::successors(Some(begin), |tick| cron.next_after(*tick)).take_while(|t| *t <= now).collect();
            prop_assert_eq!(ran, all);
        }
    }
}

const SHAPES: [&str; 5] = ["*/7 * * * * *", "* * * * *", "*/5 * * * *", "10,40 */2 * * *", "30 2 * * *"];
const POLICIES: [Missed; 3] = [Missed::Skip, Missed::RunOnce, Missed::RunAll];
