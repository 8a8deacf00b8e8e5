//! The number of machines for prompts of an engine that runs 64 of them at once, by the arithmetic of the policy.

use stokehold_planner::observation::Runs;
use stokehold_planner::plan::Reason;
use stokehold_planner::simulate::offers::Kind;
use stokehold_planner::simulate::trace::{Job, Priority};
use stokehold_planner::simulate::{Outcome, Reported, Rules, run};
use stokehold_planner::{Action, Name, Planner, Policy};

use crate::goldens::Morning;

const INTERACTIVE: usize = 0;
const STANDARD: usize = 1;
const BATCH: usize = 2;

/// Machines that the plan needs for this many prompts at once, if runs have taken ten seconds so far. A machine boots
/// within 120 s.
fn needed(prompts: u64, priority: usize, at_once: u32, policy: Policy) -> usize {
    let policy = Policy { max_machines: 1_000, max_usd_per_hour: 1e6, ..policy };
    let mut morning = Morning::new("Prompts.", policy);
    morning.seen.offers.iter_mut().for_each(|offer| offer.count = 1_000);
    morning.seen.endpoints[0].at_once = at_once;
    morning.seen.endpoints[0].runs =
        vec![Runs { kind: "RTX 4090".into(), ended: 500, run_s: 5_000.0, ..Runs::default() }];
    morning.arrive(0, priority, prompts);
    let plan = morning.plan();
    let needs = plan.steps.iter().filter_map(|step| match &step.reason {
        Reason::Work(shortage) => Some(shortage.need),
        _ => None,
    });
    needs.max().unwrap_or(0)
}

/// A prompt takes 10 s of an engine that runs 64 at once, so 1,000 prompts are 1,000 x 10 s / 64 = 156.25 s of one
/// machine, and 10,000 s of one that runs them one by one.
///
/// Interactive, the larger of two numbers, less the tenth that is left to chance (`round_up_from`):
/// - no prompt may queue for more than `queueing_s`, and the runs begun until then end after it:
///   156.25 / (10 + 10) = 7.81;
/// - the backlog at the end of a boot is worked off within `drain_s`. The load over 90 s is 156.25 / 90 = 1.736
///   machines: 1.736 + (156.25 + 1.736 x 120) / 45 = 9.84.
///
/// So 9.74, rounded up: 10 machines. With 64 in place of 156.25 / 1,000 x 64: 629.63 - 0.1, rounded up: 630.
///
/// Standard starts at once: every machine takes 64 at first, 156.25 / 10 = 15.63 less a tenth, rounded up: 16.
///
/// Batch has until an hour from now, less a slow boot (1.6 x 120 s) and `deferred_margin_s` (180 s): 3,228 s. 1,000
/// prompts are 156.25 / (3,228 + 10) = 0.05 machines, which need not start yet. 100,000 are 15,625 / 3,238 = 4.83 less
/// a tenth, rounded up: 5, instead of 1,000,000 / 3,238 = 308.83, 309.
#[test]
fn a_thousand_prompts_need_the_machines_of_the_arithmetic() {
    let usual = Policy::default;
    assert_eq!(needed(1_000, INTERACTIVE, 64, usual()), 10);
    assert_eq!(needed(1_000, INTERACTIVE, 1, usual()), 630);
    assert_eq!(needed(1_000, STANDARD, 64, usual()), 16);
    assert_eq!(needed(1_000, STANDARD, 1, usual()), 1_000);
    assert_eq!(needed(1_000, BATCH, 64, usual()), 0);
    assert_eq!(needed(100_000, BATCH, 64, usual()), 5);
    assert_eq!(needed(100_000, BATCH, 1, usual()), 309);
}

/// The same sum with other targets. Interactive, 1,000 prompts: with `queueing_s` 2, 156.25 / 12 = 13.02 - 0.1, which
/// is more than 9.84; with `drain_s` 150 as well as 40 s to queue, 156.25 / 50 = 3.13, and 1.736 + 364.58 / 150 = 4.17
/// - 0.1. Batch within 1,200 s leaves 1,200 - 372 = 828 s for 100,000 prompts: 15,625 / 838 = 18.65 - 0.1.
///
/// 64 prompts fit into one process: 10 / 20 = 0.5 machines, or 0.11 + 23.33 / 45 = 0.63; 65 need no second machine,
/// because one of them may queue.
#[test]
fn other_targets_change_the_number_as_the_arithmetic_does() {
    let policy =
        |queueing_s, drain_s, batch_target_s| Policy { queueing_s, drain_s, batch_target_s, ..Policy::default() };
    assert_eq!(needed(1_000, INTERACTIVE, 64, policy(2.0, 45.0, 3_600.0)), 13);
    assert_eq!(needed(1_000, INTERACTIVE, 64, policy(40.0, 150.0, 3_600.0)), 5);
    assert_eq!(needed(100_000, BATCH, 64, policy(10.0, 45.0, 1_200.0)), 19);
    assert_eq!([64, 65].map(|prompts| needed(prompts, INTERACTIVE, 64, Policy::default())), [1, 1]);
}

/// The number of machines that are rented for these jobs in a simulation. All boots take 120 s.
fn rented(jobs: &[Job], max_concurrency: u32, run_prior_s: f64) -> (usize, Outcome) {
    let kind = Kind {
        name: Name::from("RTX_4090"),
        vram_gb: 24.0,
        speed: 1.0,
        od_usd_h: 0.4,
        spot_usd_h: 0.28,
        spot_preempt_per_h: 0.3,
        boot_lo_s: 120.0,
        boot_hi_s: 120.0,
        max_count: 1_000,
    };
    let policy = Policy { max_machines: 1_000, max_usd_per_hour: 1e6, run_prior_s, ..Policy::default() };
    let (done, rents) = std::sync::mpsc::channel();
    let mut scaler = Reported::new(Box::new(Planner::new(policy)), move |_, step| {
        if matches!(step.action, Action::Rent { .. }) {
            done.send(()).unwrap();
        }
    });
    let rules = Rules { max_concurrency, ..Rules::default() };
    let (outcome, _) = run(jobs, &[kind], &rules, &mut scaler, None);
    (rents.try_iter().count(), outcome)
}

fn prompt(arrival_s: f64, service_s: f64) -> Job {
    Job { arrival_s, endpoint: "chat".into(), service_s, vram_gb: 20.0, priority: Priority::Interactive }
}

/// The ten machines of [`a_thousand_prompts_need_the_machines_of_the_arithmetic`] are all that are ever rented. They
/// take 640 prompts when they have booted (120 s) and loaded the model (29 s), and the other 360 ten seconds later.
#[test]
fn a_simulated_fleet_is_as_large_as_the_arithmetic_says_and_no_larger_later() {
    let jobs = vec![prompt(0.0, 10.0); 1_000];
    let (shared, outcome) = rented(&jobs, 64, 10.0);
    assert_eq!(shared, 10);
    assert!((outcome.wait_s.interactive.p50 - 149.0).abs() < 1e-6, "{outcome:?}");
    assert!((outcome.wait_s.interactive.p99 - 159.0).abs() < 1e-6, "{outcome:?}");
    let (alone, _) = rented(&jobs, 1, 10.0);
    assert!(alone >= 32 * shared, "{alone} machines where each runs one prompt at a time");
}

/// A second machine could not make a job start earlier that needs one.
#[test]
fn one_long_job_gets_one_machine() {
    let (machines, _) = rented(&[prompt(0.0, 600.0)], 1, 600.0);
    assert_eq!(machines, 1);
    let (machines, _) = rented(&vec![prompt(0.0, 600.0); 64], 64, 600.0);
    assert_eq!(machines, 1, "they all fit into one process");
}
