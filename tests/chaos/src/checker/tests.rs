//! Tests of each invariant on tiny histories written by hand: one that satisfies it, and one for each way to break it.

use serde_json::{Value, json};

use super::*;

/// A history that satisfies every invariant: two jobs of one submit, one run each, a hook, a cancel, a batch of one
/// line.
fn good() -> Vec<Value> {
    let attempt = |n: u32, outcome: &str| {
        json!({"attempt": n, "fence": format!("{n}.ab"), "worker_id": "w_1", "leased_ms": 1_000 * n, "queued_ms": 10,
            "ended_ms": 1_000 * n + 500, "outcome": outcome})
    };
    let last = |tag: &str, run: &str, attempts: Vec<Value>| {
        json!({"state": "succeeded", "tenant": "a", "tag": tag, "priority": "standard", "attempt": attempts.len(), "run": run,
            "attempts": attempts, "hook": true})
    };
    vec![
        json!({"f": "plan", "v": {"seed": 1, "max_attempts": 3, "max_infra_attempts": 10, "poison_crashes": 3, "lease_ms": 3_000,
            "accept_in_ms": 500, "refuse_in_ms": 1_000, "in_time_percent": 99, "tries_max": 2, "faults": {"kill_worker": 1}}}),
        json!({"f": "submit", "type": "invoke", "key": "k", "v": {"tenant": "a", "jobs": 2}}),
        json!({"f": "submit", "type": "info", "key": "k", "v": {"ms": 900, "status": 503}}),
        json!({"f": "submit", "type": "invoke", "key": "k", "v": {"tenant": "a", "jobs": 2}}),
        json!({"f": "submit", "key": "k", "v": {"ids": ["j1", "j2"], "ms": 20}}),
        json!({"f": "batch_submit", "type": "invoke", "key": "b", "v": {"tenant": "a", "jobs": 1}}),
        json!({"f": "batch_submit", "key": "b", "v": {"ids": ["batch_1"], "ms": 20}}),
        json!({"f": "submit", "type": "invoke", "key": "c", "v": {"tenant": "a", "jobs": 1}}),
        json!({"f": "submit", "key": "c", "v": {"ids": ["j3"], "ms": 20}}),
        json!({"f": "cancel", "type": "invoke", "job": "j3"}),
        json!({"f": "cancel", "job": "j3"}),
        json!({"f": "poll", "job": "j1", "v": {"state": "queued", "attempts": 0, "t0": 10}}),
        json!({"f": "run_start", "job": "j1", "attempt": 1, "v": {"run": "r1", "tag": "k#0"}}),
        json!({"f": "fault", "v": {"kind": "kill_worker", "worker_id": "w_1", "wall_ms": 1_200, "runs_at_stake": 1}}),
        json!({"f": "run_start", "job": "j1", "attempt": 2, "v": {"run": "r2", "tag": "k#0"}}),
        json!({"f": "run_end", "job": "j1", "attempt": 2, "v": {"run": "r2"}}),
        json!({"f": "run_start", "job": "j2", "attempt": 1, "v": {"run": "r3", "tag": "k#1"}}),
        json!({"f": "run_end", "job": "j2", "attempt": 1, "v": {"run": "r3"}}),
        json!({"f": "run_start", "job": "l1", "attempt": 1, "v": {"run": "r4", "tag": "b#0"}}),
        json!({"f": "run_end", "job": "l1", "attempt": 1, "v": {"run": "r4"}}),
        json!({"f": "runner_check", "v": {"worker": "worker-1", "left": 0}}),
        json!({"f": "poll", "job": "j1", "v": {"state": "succeeded", "run": "r2", "attempts": 2, "t0": 190}}),
        json!({"f": "poll", "job": "j1", "v": {"state": "succeeded", "run": "r2", "attempts": 2, "t0": 1_000_000}}),
        json!({"f": "hook_recv", "key": "m1", "v": {"type": "job.completed", "subject": "j1", "state": "succeeded", "run": "r2",
            "verified": true, "answered": 204}}),
        json!({"f": "hook_recv", "key": "m2", "v": {"type": "job.completed", "subject": "j2", "state": "succeeded", "run": "r3",
            "verified": true, "answered": 204}}),
        json!({"f": "cross", "job": "j1", "v": {"status": 404}}),
        json!({"f": "list", "v": {"tenant": "a", "ids": ["j1"]}}),
        json!({"f": "batch_poll", "key": "batch_1", "v": {"state": "running", "counts": {"accepted": 1, "succeeded": 0, "failed": 0,
            "cancelled": 0, "expired": 0, "open": 1}}}),
        json!({"f": "heal"}),
        json!({"f": "drain", "v": {"ms": 100, "limit_ms": 1_000}}),
        json!({"f": "final_batch", "key": "batch_1", "v": {"state": "completed", "hook": false, "counts": {"accepted": 1, "succeeded": 1,
            "failed": 0, "cancelled": 0, "expired": 0, "open": 0}, "lines": [{"tag": "b#0", "job": "l1", "state": "succeeded",
            "run": "r4"}]}}),
        json!({"f": "scrape", "p": "api-0", "v": {"submitted": 4, "committed": 3}}),
        json!({"f": "final", "job": "j1", "v": last("k#0", "r2", vec![attempt(1, "lost"), attempt(2, "succeeded")])}),
        json!({"f": "final", "job": "j2", "v": last("k#1", "r3", vec![attempt(1, "succeeded")])}),
        json!({"f": "final", "job": "j3", "v": {"state": "cancelled", "tenant": "a", "tag": "c#0", "priority": "interactive",
            "attempts": [{"attempt": 1, "fence": "1.cd", "leased_ms": 900, "queued_ms": 5, "ended_ms": 910, "outcome": "cancelled"}],
            "attempt": 1}}),
        json!({"f": "final_redis", "v": {"left": [], "leases": 0, "scheduled": 0, "ready": 0, "streams": 0, "deadlines": 0,
            "baseline_bytes": 1_000, "after_bytes": 1_010}}),
        json!({"f": "canaries", "v": {"files": 9, "secrets": 5, "leaks": []}}),
    ]
}

/// Numbers and dates the events of a hand-written history: one every 10 ns.
fn events(history: Vec<Value>) -> Vec<Event> {
    let dated = (1..).zip(history).map(|(i, mut event)| {
        let members = event.as_object_mut().unwrap();
        members.insert("i".to_owned(), i.into());
        members.entry("t").or_insert_with(|| (i * 10).into());
        members.entry("p").or_insert_with(|| "someone".into());
        members.entry("type").or_insert_with(|| "ok".into());
        serde_json::from_value(event).unwrap()
    });
    dated.collect()
}

fn broken(history: Vec<Value>) -> Vec<&'static str> {
    let verdicts = check(&events(history));
    verdicts.into_iter().filter(|verdict| verdict.outcome == Outcome::Broken).map(|verdict| verdict.id).collect()
}

/// The good history with one event changed: the `n`th of its `f`.
fn changed(f: &str, n: usize, change: impl FnOnce(&mut Value)) -> Vec<Value> {
    let mut history = good();
    let event = history.iter_mut().filter(|event| event["f"] == f).nth(n).expect("the good history has it");
    change(event);
    history
}

fn without(f: &str, n: usize) -> Vec<Value> {
    let mut history = good();
    let at = history.iter().enumerate().filter(|(_, event)| event["f"] == f).nth(n).expect("the good history has it").0;
    history.remove(at);
    history
}

fn with(event: Value) -> Vec<Value> {
    let mut history = good();
    history.push(event);
    history
}

#[track_caller]
fn breaks(id: &str, history: Vec<Value>) {
    let broken = broken(history);
    assert!(broken.contains(&id), "{id} is not among {broken:?}");
}

#[test]
fn a_good_history_keeps_every_invariant_and_exercises_it() {
    for verdict in check(&events(good())) {
        let expected = if ["I16", "I17"].contains(&verdict.id) { Outcome::NotApplicable } else { Outcome::Holds };
        assert_eq!(verdict.outcome, expected, "{}: {:?}", verdict.id, verdict.told);
    }
}

#[test]
fn an_empty_history_proves_nothing() {
    let verdicts = check(&[]);
    assert!(verdicts.iter().all(|verdict| verdict.outcome != Outcome::Holds));
    assert_eq!(verdicts.len(), 27);
}

#[test]
fn i1_a_job_that_is_gone_or_open_is_lost() {
    breaks("I1", without("final", 1));
    breaks("I1", changed("final", 1, |event| event["v"]["state"] = "running".into()));
    breaks("I1", without("final_batch", 0));
    breaks("I1", changed("final_batch", 0, |event| event["v"]["lines"] = json!([])));
}

#[test]
fn i2_a_job_that_nobody_asked_for_comes_from_nowhere() {
    breaks("I2", changed("final", 1, |event| event["v"]["tag"] = "k#2".into()));
    breaks("I2", changed("final", 1, |event| event["v"]["tenant"] = "b".into()));
    breaks("I2", changed("final_batch", 0, |event| event["v"]["lines"][0]["tag"] = "b#1".into()));
}

#[test]
fn i3_a_second_end_is_seen_by_whoever_reads_later() {
    breaks("I3", changed("poll", 2, |event| event["v"]["run"] = "r1".into()));
    breaks("I3", changed("poll", 2, |event| event["v"]["state"] = "failed".into()));
    breaks("I3", changed("final", 0, |event| event["v"]["run"] = "r1".into()));
    breaks("I3", changed("hook_recv", 0, |event| event["v"]["state"] = "failed".into()));
    breaks(
        "I3",
        changed("final_batch", 0, |event| {
            let again = event["v"]["lines"][0].clone();
            event["v"]["lines"].as_array_mut().unwrap().push(again);
        }),
    );
    // A read that began before the end was known may return the earlier state.
    assert!(
        broken(changed("poll", 2, |event| *event =
            json!({"f": "poll", "job": "j1", "v": {"state": "running", "attempts": 2, "t0": 5}})))
        .is_empty()
    );
}

#[test]
fn i4_two_commits_or_one_under_an_old_fence() {
    breaks("I4", changed("final", 0, |event| event["v"]["attempts"][0]["outcome"] = "succeeded".into()));
    breaks(
        "I4",
        changed("final", 0, |event| {
            event["v"]["attempts"][0]["outcome"] = "succeeded".into();
            event["v"]["attempts"][1]["outcome"] = "lost".into();
        }),
    );
    breaks("I4", changed("hook_recv", 0, |event| event["v"]["run"] = "r1".into()));
}

#[test]
fn i5_a_result_without_its_run_or_its_object() {
    breaks("I5", changed("final", 0, |event| event["v"]["run"] = "r9".into()));
    breaks("I5", changed("final", 0, |event| event["v"]["run"] = "r1".into()));
    breaks("I5", changed("final", 1, |event| event["v"]["run"] = "r2".into()));
    breaks("I5", without("run_end", 0));
    breaks("I5", changed("final", 1, |event| event["v"]["object"] = "not there".into()));
    breaks("I5", changed("final_batch", 0, |event| event["v"]["lines"][0]["run"] = "r3".into()));
}

#[test]
fn i6_a_key_with_two_answers_or_two_jobs() {
    breaks("I6", with(json!({"f": "submit", "key": "k", "v": {"ids": ["j1", "j9"], "ms": 1}})));
    breaks("I6", changed("final", 1, |event| event["v"]["tag"] = "k#0".into()));
}

#[test]
fn i7_more_attempts_than_allowed_or_an_end_without_a_reason() {
    breaks("I7", changed("final", 0, |event| event["v"]["failures"] = 4.into()));
    breaks("I7", changed("final", 0, |event| event["v"]["lost"] = 11.into()));
    breaks("I7", changed("final", 0, |event| event["v"]["attempt"] = 1.into()));
    breaks("I7", changed("final", 1, |event| event["v"]["state"] = "failed".into()));
    breaks("I7", changed("final", 1, |event| event["v"]["state"] = "cancelled".into()));
    breaks("I7", changed("final", 1, |event| event["v"]["fails"] = true.into()));
}

#[test]
fn i8_leases_that_overlap_or_are_left() {
    breaks("I8", changed("final", 0, |event| event["v"]["attempts"][0]["ended_ms"] = 2_001.into()));
    for place in ["leases", "scheduled", "ready", "streams", "deadlines"] {
        breaks("I8", changed("final_redis", 0, |event| event["v"][place] = 1.into()));
    }
}

#[test]
fn i9_a_fence_that_does_not_grow_or_an_attempt_that_is_started_twice() {
    breaks("I9", changed("final", 0, |event| event["v"]["attempts"][1]["fence"] = "1.ab".into()));
    breaks("I9", with(json!({"f": "run_start", "job": "j1", "attempt": 2, "v": {"run": "r7", "tag": "k#0"}})));
}

#[test]
fn i10_a_cancelled_job_that_runs_or_ends_otherwise() {
    breaks("I10", changed("final", 2, |event| event["v"]["state"] = "succeeded".into()));
    breaks(
        "I10",
        with(
            json!({"t": 6_000_000_000_u64, "f": "run_start", "job": "j3", "attempt": 1, "v": {"run": "r8", "tag": "c#0"}}),
        ),
    );
    breaks("I10", with(json!({"f": "poll", "job": "j3", "v": {"state": "queued", "t0": 1_000}})));
}

#[test]
fn i11_sums_that_do_not_add_up_or_differ_from_the_files() {
    breaks("I11", changed("batch_poll", 0, |event| event["v"]["counts"]["open"] = 0.into()));
    breaks("I11", changed("batch_poll", 0, |event| event["v"]["seen"] = 1.into()));
    breaks(
        "I11",
        changed("final_batch", 0, |event| {
            event["v"]["counts"]["succeeded"] = 2.into();
            event["v"]["counts"]["accepted"] = 2.into();
        }),
    );
    let told = |id: &str| {
        json!({"f": "hook_recv", "key": id, "v": {"type": "batch.completed", "subject": "batch_1",
        "state": "completed", "verified": true, "answered": 204}})
    };
    let mut twice = good();
    twice.extend([told("m8"), told("m9")]);
    breaks("I11", twice);
}

#[test]
fn i12_an_end_that_nobody_was_told_or_that_does_not_verify() {
    breaks("I12", without("hook_recv", 1));
    breaks("I12", changed("hook_recv", 1, |event| event["v"]["answered"] = 503.into()));
    breaks("I12", changed("hook_recv", 1, |event| event["v"]["verified"] = false.into()));
    breaks(
        "I12",
        with(
            json!({"f": "hook_recv", "key": "m7", "v": {"type": "job.completed", "subject": "j2", "state": "succeeded",
        "run": "r3", "verified": true, "answered": 204}}),
        ),
    );
    let mut given_up = without("hook_recv", 1);
    given_up.push(json!({"f": "final_hook", "v": {"state": "exhausted", "subject": "j2"}}));
    assert!(broken(given_up).is_empty(), "given up after all tries");
}

#[test]
fn i13_a_hook_that_is_not_true() {
    breaks("I13", changed("hook_recv", 1, |event| event["v"]["state"] = "running".into()));
    breaks("I13", changed("hook_recv", 1, |event| event["v"]["subject"] = "j9".into()));
}

#[test]
fn i14_a_runner_that_outlives_its_worker() {
    breaks("I14", changed("runner_check", 0, |event| event["v"]["left"] = 1.into()));
}

#[test]
fn i15_a_tenant_that_sees_anothers() {
    breaks("I15", changed("cross", 0, |event| event["v"]["status"] = 403.into()));
    breaks("I15", changed("list", 0, |event| event["v"]["tenant"] = "b".into()));
}

#[test]
fn i18_what_is_left_behind() {
    breaks("I18", changed("final_redis", 0, |event| event["v"]["left"] = json!(["{stoke:0}:running"])));
    breaks("I18", changed("final_redis", 0, |event| event["v"]["after_bytes"] = 9_000.into()));
}

#[test]
fn i19_work_that_overtakes_what_is_urgent() {
    let waits = |leased_ms: u64| {
        changed("final", 2, |event| {
            event["v"]["attempts"][0]["leased_ms"] = leased_ms.into();
            event["v"]["attempts"][0]["queued_ms"] = (leased_ms - 900).into();
        })
    };
    breaks("I19", waits(2_500));
    assert!(broken(waits(1_950)).is_empty(), "the other lease came within the first second");
}

#[test]
fn i20_a_view_that_goes_back() {
    let again = |v: Value| with(json!({"t": 2_000_000, "f": "poll", "job": "j1", "v": v}));
    breaks("I20", again(json!({"state": "succeeded", "run": "r2", "attempts": 1, "t0": 1_900_000})));
    breaks("I20", again(json!({"state": "running", "attempts": 2, "t0": 1_900_000})));
}

#[test]
fn i21_answers_that_come_too_late() {
    breaks("I21", changed("submit", 3, |event| event["v"]["ms"] = 501.into()));
    breaks("I21", changed("submit", 1, |event| event["v"]["ms"] = 1_001.into()));
}

#[test]
fn i22_more_waste_than_faults_explain_and_hasty_reaps() {
    breaks("I22", changed("fault", 0, |event| event["v"]["runs_at_stake"] = 0.into()));
    breaks("I22", changed("fault", 0, |event| event["v"]["redis_up_wall_ms"] = 1_400.into()));
    assert!(
        broken(changed("fault", 0, |event| event["v"]["redis_up_wall_ms"] = 1_600.into())).is_empty(),
        "taken back before it went"
    );
}

#[test]
fn i23_a_fault_that_did_not_land() {
    breaks("I23", changed("fault", 0, |event| event["type"] = "fail".into()));
}

#[test]
fn i24_a_drain_that_does_not_end() {
    breaks("I24", changed("drain", 0, |event| event["v"]["ms"] = 1_001.into()));
    breaks("I24", changed("drain", 0, |event| event["type"] = "fail".into()));
}

#[test]
fn i25_a_secret_in_a_log() {
    breaks("I25", changed("canaries", 0, |event| event["v"]["leaks"] = json!(["the join token in worker.log"])));
    breaks("I25", changed("canaries", 0, |event| event["v"]["files"] = 0.into()));
}

#[test]
fn i27_a_submit_that_was_tried_more_often_than_a_client_does() {
    breaks("I27", changed("plan", 0, |event| event["v"]["tries_max"] = 1.into()));
}

#[test]
fn i26_metrics_that_count_more_than_happened() {
    breaks("I26", changed("scrape", 0, |event| event["v"]["submitted"] = 5.into()));
    breaks("I26", changed("scrape", 0, |event| event["v"]["committed"] = 0.into()));
    let mut restarted = good();
    restarted.push(json!({"f": "scrape", "p": "api-0", "v": {"submitted": 1, "committed": 0}}));
    breaks("I26", restarted);
}

#[test]
fn figures_are_those_of_the_history() {
    let measures = measure(&events(good()));
    assert_eq!((measures.jobs, measures.lost, measures.runs, measures.wasted), (4, 0, 4, 1));
    assert_eq!((measures.reclaimed, measures.reclaim_p99_ms), (1, Some(300)));
    assert_eq!(measures.ended["succeeded"], 3);

    let away = json!({"f": "fault", "v": {"kind": "kill_redis", "wall_ms": 1_250, "redis_up_wall_ms": 1_400}});
    assert_eq!(measure(&events(with(away))).reclaim_p99_ms, Some(100), "without Redis nothing can be taken back");
    let before = json!({"f": "fault", "v": {"kind": "pause_redis", "wall_ms": 900, "ms": 200}});
    assert_eq!(measure(&events(with(before))).reclaim_p99_ms, Some(300));
}
