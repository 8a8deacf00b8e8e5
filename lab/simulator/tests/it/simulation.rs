//! Hours of synthetic traces, simulated with the live decision code.

use stokehold_planner::simulate::Rules;
use stokehold_planner::simulate::trace::{Job, Priority};
use stokehold_planner::{Machine, Name, Observation, Phase, Policy};
use stokehold_simulator::generate::Shape;

use crate::recorded::{History, hours, simulated};

/// A morning hour of each shape; the shortest trace has no more.
fn hour(shape: Shape) -> Vec<Job> {
    let from = if shape == Shape::Rush { 0.0 } else { 9.0 };
    hours(shape, 5, from, from + 1.0)
}

fn rules(shape: Shape) -> Rules {
    Rules { share_gb: shape.settings().share_gb, ..Rules::default() }
}

/// At every observation, every job that has arrived waits, runs or has ended; the simulation ends with the last job.
fn assert_no_job_is_lost(history: &History, jobs: &[Job], told: &str) {
    for (seen, _) in history {
        let sum = |of: &dyn Fn(&stokehold_planner::Endpoint) -> u64| seen.endpoints.iter().map(of).sum::<u64>();
        let arrived = sum(&|endpoint| endpoint.work.iter().map(|work| work.arrived).sum());
        let waiting = sum(&|endpoint| endpoint.work.iter().map(|work| work.waiting).sum());
        let running = sum(&|endpoint| endpoint.running);
        let ended = sum(&|endpoint| endpoint.runs.iter().map(|runs| runs.ended).sum());
        assert_eq!(arrived, waiting + running + ended, "{told} at {}", seen.at_s);
        let held: u64 = seen.machines.iter().map(|machine| machine.running).sum();
        assert_eq!(running, held, "{told} at {}", seen.at_s);
    }
    let (last, _) = history.last().unwrap();
    let arrived: u64 = last.endpoints.iter().flat_map(|endpoint| endpoint.work).map(|work| work.arrived).sum();
    assert_eq!(arrived, jobs.len() as u64, "{told}: all came");
}

#[test]
fn the_same_seed_gives_the_same_outcome() {
    for shape in Shape::ALL {
        let jobs = hour(shape);
        let once = || simulated(&jobs, &rules(shape), &Policy::default()).0;
        assert_eq!(once(), once(), "{}", shape.name());
    }
}

#[test]
fn every_job_is_served() {
    for shape in Shape::ALL {
        let jobs = hour(shape);
        let (outcome, history) = simulated(&jobs, &rules(shape), &Policy::default());
        assert_no_job_is_lost(&history, &jobs, shape.name());
        assert!(outcome.cost_usd > 0.0 && outcome.boots > 0, "{outcome:?}");
    }
}

/// The hourly cost of a machine in this phase, if no resume finds its GPU taken.
fn usd_per_hour(machine: &Machine) -> f64 {
    let price = match machine.phase {
        Phase::Booting | Phase::Ready | Phase::Draining | Phase::Resuming => machine.usd_per_hour,
        Phase::Stopped | Phase::Lost => machine.stopped_usd_per_hour,
    };
    price.usd()
}

#[test]
fn the_bill_is_what_the_machines_that_were_seen_cost() {
    for shape in Shape::ALL {
        let jobs = hour(shape);
        let rules = Rules { resume_taken: 0.0, ..rules(shape) };
        let (outcome, history) = simulated(&jobs, &rules, &Policy::default());
        // A decision applies until the next observation.
        let between = |pair: &[(Observation, _)]| {
            let hours = (pair[1].0.at_s - pair[0].0.at_s) / 3_600.0;
            hours * pair[1].0.machines.iter().map(usd_per_hour).sum::<f64>()
        };
        let usd: f64 = history.windows(2).map(between).sum();
        let off = (usd / outcome.cost_usd - 1.0).abs();
        assert!(off < 0.01, "{}: ${usd} was seen of ${}", shape.name(), outcome.cost_usd);
    }
}

#[test]
fn an_hour_after_the_last_job_nothing_is_on() {
    for shape in Shape::ALL {
        let mut jobs = hour(shape);
        // A job on the next day keeps the simulation going.
        let last_s = 86_400.0;
        jobs.push(Job { arrival_s: last_s, ..jobs[0].clone() });
        let (_, history) = simulated(&jobs, &rules(shape), &Policy::default());
        let began_s = history[0].0.at_s;
        let busy_s = history.iter().map(|(seen, _)| seen).filter(|seen| seen.at_s - began_s < last_s);
        let busy_s = busy_s.filter(|seen| seen.machines.iter().any(|machine| machine.running > 0));
        let ended_s = busy_s.map(|seen| seen.at_s).fold(began_s, f64::max);
        for (seen, _) in &history {
            if seen.at_s > ended_s + 3_600.0 && seen.at_s < began_s + last_s {
                let on = seen.machines.iter().find(|machine| machine.phase != Phase::Stopped);
                assert_eq!(on, None, "{}, {} s after its last job", shape.name(), seen.at_s - ended_s);
            }
        }
    }
}

#[test]
fn where_nobody_may_be_idle_for_long_a_burst_leaves_nothing_behind() {
    // Three hundred jobs of two seconds at once, for four models, then a straggler every fifteen seconds for a while;
    // on the next day one more.
    let job = |arrival_s: f64, n: u32| Job {
        arrival_s,
        endpoint: Name::from(format!("m{}", n % 4)),
        service_s: 2.0,
        vram_gb: [6.0, 10.0, 20.0, 40.0][n as usize % 4],
        priority: Priority::Interactive,
    };
    let mut jobs: Vec<Job> = (0..300).map(|n| job(0.0, n)).collect();
    jobs.extend((0..40_u32).map(|n| job(600.0 + 15.0 * f64::from(n), n)));
    jobs.push(job(86_400.0, 0));
    for most_idle_s in [20.0, 0.0] {
        let policy = Policy { max_idle_s: Some(most_idle_s), may_stop: false, ..Policy::default() };
        let (outcome, history) = simulated(&jobs, &Rules::default(), &policy);
        assert_no_job_is_lost(&history, &jobs, "a burst");
        let began_s = history[0].0.at_s;
        // Seconds for which a machine was on, from the burst until the stragglers, and from the last of them until the
        // next day.
        let on_until = |from_s: f64, until_s: f64| {
            let seen =
                history.iter().map(|(seen, _)| seen).filter(|seen| (from_s..until_s).contains(&(seen.at_s - began_s)));
            let on = seen.filter(|seen| !seen.machines.is_empty()).map(|seen| seen.at_s - began_s);
            on.fold(from_s, f64::max)
        };
        let busy_until = |until_s: f64| {
            let seen = history.iter().map(|(seen, _)| seen).filter(|seen| seen.at_s - began_s < until_s);
            let busy = seen.filter(|seen| seen.machines.iter().any(|machine| machine.running > 0));
            busy.map(|seen| seen.at_s - began_s).fold(0.0, f64::max)
        };
        for (from_s, until_s) in [(0.0, 600.0), (1_200.0, 86_400.0)] {
            let (on_s, busy_s) = (on_until(from_s, until_s), busy_until(until_s));
            assert!(on_s < busy_s + 60.0, "busy until {busy_s}, on until {on_s}");
        }
        let most = history.iter().filter(|(seen, _)| seen.at_s - began_s > 700.0).map(|(seen, _)| seen.machines.len());
        assert!(most.max().unwrap() < 5, "stragglers do not ask for the {} boots of the burst", outcome.boots);
    }
}

#[test]
fn models_side_by_side_never_take_more_than_a_gpu_has() {
    let jobs = hours(Shape::Tasks, 5, 0.0, 24.0);
    let share_gb = Shape::Tasks.settings().share_gb.unwrap();
    let (_, history) = simulated(&jobs, &rules(Shape::Tasks), &Policy::default());
    let most =
        |of: &dyn Fn(&Machine) -> f64| history.iter().flat_map(|(seen, _)| &seen.machines).map(of).fold(0.0, f64::max);
    let most_gb = most(&|machine| machine.running_vram.gib());
    assert!(most_gb <= share_gb + 1e-6, "{most_gb} of {share_gb} GB");
    assert!(most(&|machine| machine.running as f64) > 1.0, "some did run side by side");
    let (_, history) = simulated(&hour(Shape::BusyDay), &Rules::default(), &Policy::default());
    let alone = history.iter().flat_map(|(seen, _)| &seen.machines).all(|machine| machine.running <= 1);
    assert!(alone, "one at a time computes where cards are not shared");
}

#[test]
fn jobs_of_machines_that_are_taken_away_end_elsewhere() {
    // Batch only, so that interruptible machines suffice; they are lost twice an hour, at a fifth of the price.
    let jobs = hours(Shape::Tasks, 5, 0.0, 24.0);
    let rules = Rules { has_interruptible: true, interruptible: Some((0.2, 2.0)), ..rules(Shape::Tasks) };
    let (outcome, history) = simulated(&jobs, &rules, &Policy { may_bid: true, ..Policy::default() });
    assert!(outcome.losses > 0, "{outcome:?}");
    assert_no_job_is_lost(&history, &jobs, "tasks");
}
