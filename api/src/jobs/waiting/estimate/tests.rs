use super::*;

const USUAL: UsualStart = UsualStart { environment_ms: Some(20_000), weights_ms: Some(5_000), load_ms: 8_000 };

fn line(ahead: u64, run_s: f64) -> Line {
    Line { ahead, work_ms: Some(float(ahead) * run_s * 1_000.0), run_ms: Some(run_s * 1_000.0) }
}

fn card(step: ComingStep, left_s: Option<u64>) -> Coming {
    Coming {
        kind: "RTX 4090".to_owned(),
        cards: 1,
        step,
        since_ms: 95_000,
        left_ms: left_s.map(|seconds| seconds * 1_000),
        is_late: left_s.is_none(),
        slots: 2,
    }
}

fn unschedulable() -> Waiting {
    Waiting::Unschedulable("there are no workers".to_owned())
}

fn busy() -> Waiting {
    Waiting::Busy("every slot is in use".to_owned())
}

/// The reason, the message and the estimate.
fn told(explanation: &Explanation) -> (&'static str, String, Option<u64>) {
    let (reason, message) = match explanation.waiting.clone() {
        Waiting::Unschedulable(why) => ("unschedulable", why),
        Waiting::Busy(why) => ("busy", why),
        Waiting::Behind(why) => ("behind_others", why),
        Waiting::Renting(why) => ("renting", why),
        Waiting::Booting(why) => ("booting", why),
        Waiting::Environment(why) => ("environment", why),
        Waiting::Loading(why) => ("loading", why),
        Waiting::Soon => ("soon", String::new()),
        other => panic!("{other:?}"),
    };
    (reason, message, explanation.estimate_s)
}

#[test]
fn a_ready_job_has_the_first_reason_that_applies() {
    use ComingStep::{Booting, Renting, Resuming};
    let renting = || Some(card(Renting, Some(30)));
    let cases = [
        // The fleet, what comes, the line, the slots; the reason, its message, the estimate in seconds.
        (unschedulable(), None, line(0, 10.0), 0, ("unschedulable", "there are no workers", None)),
        (unschedulable(), renting(), line(0, 10.0), 0, ("renting", "renting an RTX 4090", Some(63))),
        (unschedulable(), renting(), line(1, 10.0), 0, ("renting", "renting an RTX 4090", Some(63))),
        (unschedulable(), renting(), line(6, 10.0), 0, ("renting", "renting an RTX 4090", Some(93))),
        (
            unschedulable(),
            Some(card(Booting, Some(5))),
            line(0, 10.0),
            0,
            ("booting", "an RTX 4090 is booting", Some(38)),
        ),
        (
            unschedulable(),
            Some(card(Booting, None)),
            line(0, 10.0),
            0,
            ("booting", "an RTX 4090 is booting; this takes longer than usual", None),
        ),
        (
            unschedulable(),
            Some(card(Resuming, Some(9))),
            line(0, 10.0),
            0,
            ("booting", "an RTX 4090 that was stopped starts again", Some(42)),
        ),
        // A draining worker has no slots for it.
        (busy(), renting(), line(0, 10.0), 0, ("renting", "renting an RTX 4090", Some(63))),
        (busy(), None, line(0, 10.0), 2, ("busy", "every slot is in use", Some(4))),
        (busy(), None, line(1, 10.0), 1, ("behind_others", "every slot is in use, and 1 job is before it", Some(15))),
        (busy(), None, line(6, 10.0), 2, ("behind_others", "every slot is in use, and 6 jobs are before it", Some(34))),
        // The workers that are here are faster than the new one, or slower.
        (
            busy(),
            renting(),
            line(1, 10.0),
            1,
            ("behind_others", "every slot is in use, and 1 job is before it", Some(15)),
        ),
        (busy(), renting(), line(1, 100.0), 1, ("renting", "renting an RTX 4090", Some(63))),
        (Waiting::Soon, renting(), line(0, 10.0), 1, ("soon", "", None)),
    ];
    for (of_fleet, coming, line, slots, (reason, message, estimate_s)) in cases {
        let case = format!("{of_fleet:?} {coming:?} {line:?} {slots}");
        let explanation = ready(of_fleet, coming.as_ref(), (line, slots), Some(USUAL), (7_000, 100_000));
        assert_eq!(told(&explanation), (reason, message.to_owned(), estimate_s), "{case}");
        assert_eq!(explanation.ahead, (line.ahead > 0).then_some(line.ahead), "{case}");
        let is_coming = ["renting", "booting"].contains(&reason);
        assert_eq!(explanation.phase_s, Some(if is_coming { 5 } else { 7 }), "{case}");
    }
}

#[test]
fn what_is_unknown_has_no_estimate() {
    let estimate = |line, coming: Option<Coming>, usual| {
        ready(busy(), coming.as_ref(), (line, 1), usual, (1_000, 100_000)).estimate_s
    };
    let never_ran = Line { ahead: 3, work_ms: None, run_ms: None };
    assert_eq!(estimate(never_ran, None, None), None);
    let coming = || Some(card(ComingStep::Renting, Some(30)));
    let crowded = ready(unschedulable(), coming().as_ref(), (never_ran, 0), None, (1_000, 100_000));
    assert_eq!(crowded.estimate_s, None, "the jobs before it take its slots for an unknown time");
    let first = ready(unschedulable(), coming().as_ref(), (Line::default(), 0), None, (1_000, 100_000));
    assert_eq!(first.estimate_s, Some(40), "30 s to boot and 10 s assumed for a model that was never loaded");
}

#[test]
fn an_estimate_that_has_passed_is_not_shown() {
    let waited = |waited_ms| ready(busy(), None, (line(0, 10.0), 1), None, (waited_ms, 100_000)).estimate_s;
    assert_eq!((waited(29_000), waited(31_000)), (Some(5), None));
    let behind = ready(busy(), None, (line(1, 10.0), 1), None, (31_000, 100_000));
    assert_eq!(behind.estimate_s, Some(15), "it has waited for others until now");
}

#[test]
fn a_leased_job_waits_for_the_rest_of_its_start() {
    let cases = [
        (StartPhase::Environment, 4_000, ("environment", "building the environment", Some(29))),
        (StartPhase::Environment, 25_000, ("environment", "building the environment", Some(13))),
        (
            StartPhase::Environment,
            31_000,
            ("environment", "building the environment; this takes longer than usual", None),
        ),
        (StartPhase::Weights, 1_000, ("loading", "downloading the weights", Some(12))),
        (StartPhase::Gpu, 90_000, ("busy", "its worker waits for room on a GPU", None)),
        (StartPhase::Loading, 2_500, ("loading", "loading the model", Some(6))),
        (StartPhase::Loading, 8_000, ("loading", "loading the model", Some(1))),
        (StartPhase::Loading, 20_000, ("loading", "loading the model; this takes longer than usual", None)),
    ];
    for (phase, phase_ms, (reason, message, estimate_s)) in cases {
        let explanation = starting(phase, phase_ms, Some(USUAL));
        assert_eq!(told(&explanation), (reason, message.to_owned(), estimate_s), "{phase:?} {phase_ms}");
        assert_eq!(explanation.phase_s, Some(phase_ms / 1_000));
    }
    let first = |phase_ms| starting(StartPhase::Loading, phase_ms, None);
    assert_eq!(told(&first(2_500)), ("loading", "loading the model".to_owned(), Some(8)), "10 s are assumed");
    assert_eq!(told(&first(12_500)), ("loading", "loading the model".to_owned(), None), "nothing is usual yet");
    let built = UsualStart { environment_ms: None, ..USUAL };
    let explanation = starting(StartPhase::Environment, 1_500, Some(built));
    assert_eq!(told(&explanation), ("environment", "building the environment".to_owned(), Some(22)));
}
