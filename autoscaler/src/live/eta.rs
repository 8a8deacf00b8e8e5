//! Estimated time until the waiting work is done, with the current and booting machines and without new jobs. Pure.

use std::collections::BTreeMap;

use stokehold_planner::Policy;
use stokehold_planner::observation::{Endpoint, Machine, Observation, Phase};
use stokehold_planner::snapshot::{Learned, Needs};
use stokehold_queue::registry::Eta;

/// Average remainder of a run in progress, as a share of it.
const LEFT_OF_RUN: f64 = 0.5;

/// Estimates for every endpoint and priority with waiting jobs. On machines that endpoints share, higher priorities go
/// first.
pub(crate) fn etas(seen: &Observation, policy: &Policy) -> Vec<Eta> {
    let mut etas = Vec::new();
    for endpoint in &seen.endpoints {
        for priority in 0..endpoint.work.len() {
            if endpoint.work[priority].waiting > 0 {
                etas.push(Eta {
                    endpoint: endpoint.name.to_string(),
                    priority: u8::try_from(priority).unwrap_or(u8::MAX),
                    seconds: seconds(seen, policy, endpoint, priority),
                });
            }
        }
    }
    etas
}

/// Expected boots by kind of GPU, and the expected resume, seconds. The resume is unknown before the first observation.
pub(crate) fn boots(learned: &Learned) -> (BTreeMap<String, u64>, Option<u64>) {
    let boots = learned.kinds.iter().filter(|(_, kind)| kind.boot_s > 0.0);
    let boots = boots.map(|(name, kind)| (name.to_string(), whole(kind.boot_s))).collect();
    (boots, (learned.resume_s > 0.0).then(|| whole(learned.resume_s)))
}

fn seconds(seen: &Observation, policy: &Policy, endpoint: &Endpoint, priority: usize) -> Option<u64> {
    let needs = needs(endpoint);
    let works = |machine: &&Machine| match machine.phase {
        Phase::Booting | Phase::Ready | Phase::Resuming => needs.are_met_by(machine),
        Phase::Draining | Phase::Stopped | Phase::Lost => false,
    };
    let machines: Vec<&Machine> = seen.machines.iter().filter(works).collect();
    let processes = |machine: &Machine| {
        // A third of a machine three times is one machine.
        (f64::from(needs.at_once(machine.cards)) / endpoint.share(machine.vram, machine.slots) + 1e-6).floor()
    };
    let at_once: f64 = machines.iter().map(|machine| processes(machine)).sum();
    if at_once < 1.0 {
        return None;
    }
    // Jobs that these machines may lease before.
    let shares = |other: &&Endpoint| machines.iter().any(|machine| self::needs(other).are_met_by(machine));
    let work_s = seen.endpoints.iter().filter(shares).map(|other| work_s(other, priority, policy)).sum::<f64>();
    let boots = machines.iter().all(|machine| machine.phase != Phase::Ready);
    let boot_s = if boots { policy.boot_deadline_s / 10.0 } else { 0.0 };
    Some(whole(boot_s + work_s / at_once))
}

/// Slot seconds of an endpoint's jobs of this and of higher priorities.
fn work_s(endpoint: &Endpoint, priority: usize, policy: &Policy) -> f64 {
    let (ended, ran_s) = endpoint.runs.iter().fold((0, 0.0), |(n, s), runs| (n + runs.ended, s + runs.run_s));
    let run_s = if ended > 0 { ran_s / count(ended) } else { policy.run_prior_s };
    let run_s = run_s / f64::from(endpoint.at_once.max(1));
    let waiting: u64 = endpoint.work[..=priority].iter().map(|work| work.waiting).sum();
    run_s * (count(waiting) + LEFT_OF_RUN * count(endpoint.running))
}

fn needs(endpoint: &Endpoint) -> Needs {
    Needs { vram: endpoint.vram, demands: endpoint.demands.clone() }
}

#[expect(clippy::cast_precision_loss, reason = "far less than 2^53")]
fn count(jobs: u64) -> f64 {
    jobs as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds, never negative")]
fn whole(seconds: f64) -> u64 {
    seconds.ceil() as u64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    fn seen(machines: u32, interactive: u64, batch: u64) -> Observation {
        let machine = |n: u32| {
            json!({"id": format!("m-{n}"), "provider": "cloud", "kind": "RTX 4090", "phase": "ready", "since_s": 0.0, "rented_s": 0.0,
                "usd_per_hour": 0.4, "cards": 1, "vram_gib": 24.0, "slots": 1, "running": 0})
        };
        let work = |waiting| json!({"arrived": waiting, "waiting": waiting, "oldest_s": 0.0, "started": 0, "late": 0});
        serde_json::from_value(json!({
            "at_s": 0.0, "offers": [], "machines": (0..machines).map(machine).collect::<Vec<_>>(),
            "endpoints": [{"name": "acme/draw", "vram_gib": 10.0, "work": [work(interactive), work(0), work(batch)], "running": 0,
                "runs": [{"kind": "RTX 4090", "ended": 10, "run_s": 20.0}]}],
        }))
        .unwrap()
    }

    fn etas_of(seen: &Observation) -> Vec<(u8, Option<u64>)> {
        etas(seen, &Policy::default()).into_iter().map(|eta| (eta.priority, eta.seconds)).collect()
    }

    #[test]
    fn what_waits_is_done_by_the_machines_there_are_the_urgent_first() {
        assert_eq!(etas_of(&seen(2, 10, 90)), [(0, Some(10)), (2, Some(100))]);
        assert_eq!(etas_of(&seen(1, 10, 90)), [(0, Some(20)), (2, Some(200))], "half as many take twice as long");
        assert_eq!(etas_of(&seen(0, 1, 0)), [(0, None)], "there is nobody");
        assert_eq!(etas_of(&seen(1, 0, 0)), []);
    }

    #[test]
    fn boots_are_known_by_kind_and_a_resume_once_something_was_seen() {
        assert_eq!(boots(&Learned::default()), (BTreeMap::new(), None));
        let kind = |boot_s| stokehold_planner::snapshot::KindLearned { speed: 1.0, boot_s, losses_per_hour: 0.0 };
        let kinds = [("RTX 4090".into(), kind(41.2)), ("H100".into(), kind(0.0))].into();
        let learned = Learned { kinds, resume_s: 29.5, ..Learned::default() };
        assert_eq!(boots(&learned), ([("RTX 4090".to_owned(), 42)].into(), Some(30)));
    }
}
