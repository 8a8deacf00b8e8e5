use proptest::prelude::*;
use stokehold_planner::simulate::trace::Priority;

use super::prices::Prices;
use super::*;

const BOOT_S: f64 = 150.0;

fn kind(name: &str, vram_gb: f64, speed: f64, od_usd_h: f64) -> Kind {
    Kind {
        name: name.into(),
        vram_gb,
        speed,
        od_usd_h,
        spot_usd_h: od_usd_h,
        spot_preempt_per_h: 0.0,
        boot_lo_s: 60.0,
        boot_hi_s: 240.0,
        max_count: 64,
    }
}

/// A kind at one dollar per second, so that dollars equal seconds.
fn plain() -> Kind {
    kind("plain", 24.0, 1.0, 3_600.0)
}

fn job(arrival_s: f64, service_s: f64, vram_gb: f64, priority: Priority) -> Job {
    Job { arrival_s, endpoint: "one".into(), service_s, vram_gb, priority }
}

fn interactive(arrival_s: f64, service_s: f64) -> Job {
    job(arrival_s, service_s, 20.0, Priority::Interactive)
}

fn batch(arrival_s: f64, service_s: f64) -> Job {
    job(arrival_s, service_s, 20.0, Priority::Batch)
}

#[track_caller]
fn assert_near(bound: f64, exact: f64, share: f64) {
    assert!(bound <= exact, "{bound} is above {exact}");
    assert!(bound >= exact * share, "{bound} is too far below {exact}");
}

fn bound(jobs: &[Job]) -> f64 {
    lower_bound_usd(jobs, &[plain()], None, true)
}

#[test]
fn no_jobs_cost_nothing() {
    assert_eq!(bound(&[]), 0.0);
    assert_eq!(lower_bound_usd(&[interactive(0.0, 10.0)], &[], None, true), 0.0);
}

#[test]
fn one_job_costs_a_boot_and_its_service() {
    assert_near(bound(&[interactive(100.0, 40.0)]), BOOT_S + 40.0, 0.999);
    assert_near(bound(&[interactive(100.0, 2.0)]), BOOT_S + 2.0, 0.999);
    assert_near(bound(&[batch(100.0, 5_000.0)]), BOOT_S + 5_000.0, 0.999);
}

#[test]
fn a_boot_that_is_not_billed_costs_nothing() {
    assert_near(lower_bound_usd(&[interactive(0.0, 40.0)], &[plain()], None, false), 40.0, 0.999);
}

#[test]
fn a_gap_shorter_than_a_boot_is_bridged() {
    // 30 s of wait on the first job shorten the gap from 60 s to 30 s.
    assert_near(bound(&[interactive(0.0, 40.0), interactive(100.0, 40.0)]), BOOT_S + 110.0, 0.99);
}

#[test]
fn a_gap_longer_than_a_boot_costs_one() {
    assert_near(bound(&[interactive(0.0, 40.0), interactive(400.0, 40.0)]), 2.0 * BOOT_S + 80.0, 0.999);
}

#[test]
fn jobs_that_meet_need_two_machines() {
    assert_near(bound(&[interactive(0.0, 100.0), interactive(0.0, 100.0)]), 2.0 * BOOT_S + 200.0, 0.999);
}

#[test]
fn batch_jobs_wait_for_each_other() {
    assert_near(bound(&[batch(0.0, 40.0), batch(3_000.0, 40.0)]), BOOT_S + 80.0, 0.999);
    assert_near(bound(&[batch(0.0, 40.0), batch(4_000.0, 40.0)]), 2.0 * BOOT_S + 80.0, 0.999);
}

#[test]
fn large_models_need_large_gpus() {
    let kinds = [plain(), kind("large", 80.0, 1.0, 3.0 * 3_600.0)];
    let large = job(0.0, 40.0, 60.0, Priority::Interactive);
    assert_near(lower_bound_usd(std::slice::from_ref(&large), &kinds, None, true), 3.0 * (BOOT_S + 40.0), 0.999);
    let both = [large, interactive(5_000.0, 40.0)];
    assert_near(lower_bound_usd(&both, &kinds, None, true), 4.0 * (BOOT_S + 40.0), 0.999);
    let none = [job(0.0, 40.0, 90.0, Priority::Interactive)];
    assert_eq!(lower_bound_usd(&none, &kinds, None, true), 0.0);
}

#[test]
fn the_cheaper_kind_is_taken() {
    let slow = kind("slow", 24.0, 0.5, 1_800.0 * 0.9);
    // 0.45 $/s for 150 s + 80 s.
    assert_near(lower_bound_usd(&[interactive(0.0, 40.0)], &[plain(), slow], None, true), 103.5, 0.99);
}

#[test]
fn jobs_share_a_gpu_by_memory() {
    let part = |gb| job(0.0, 4_000.0, gb, Priority::Batch);
    let shared = |jobs: &[Job]| lower_bound_usd(jobs, &[plain()], Some(24.0), true);
    assert_near(shared(&[part(12.0), part(12.0)]), BOOT_S + 4_000.0, 0.999);
    // The jobs do not fit beside each other. 4,000 s are longer than an hour, so the second job cannot wait for the
    // first.
    assert_near(shared(&[part(14.0), part(14.0)]), 2.0 * BOOT_S + 8_000.0, 0.999);
}

#[test]
fn nonsense_is_survived() {
    let jobs = [
        interactive(f64::NAN, 1.0),
        interactive(0.0, f64::INFINITY),
        interactive(-5.0, 1.0),
        interactive(0.0, 0.0),
        interactive(1e12, 1e-9),
        interactive(1.0, 1e7),
    ];
    let kinds = [plain(), kind("free", 24.0, 1.0, 0.0), kind("stuck", 24.0, 0.0, 1.0), kind("odd", f64::NAN, 1.0, 1.0)];
    for kinds in [&kinds[..1], &kinds[..]] {
        for share_gb in [None, Some(24.0), Some(0.0), Some(f64::NAN)] {
            let bound = lower_bound_usd(&jobs, kinds, share_gb, true);
            assert!(bound.is_finite() && bound >= 0.0, "{bound}");
        }
    }
}

/// The place of a job in a schedule: a machine of a kind, and its start.
#[derive(Debug, Clone, Copy)]
struct Slot {
    kind: usize,
    machine: usize,
    start_s: f64,
}

/// The cost of a schedule, with every machine switched off wherever that is cheaper; `None` if jobs do not fit beside
/// each other.
fn cost(jobs: &[Job], kinds: &[Kind], share_gb: Option<f64>, places: &[Slot]) -> Option<f64> {
    let mut machines: Vec<(usize, usize)> = places.iter().map(|place| (place.kind, place.machine)).collect();
    machines.sort_unstable();
    machines.dedup();
    let mut sum = 0.0;
    for (kind, machine) in machines {
        let of = |place: &Slot| place.kind == kind && place.machine == machine;
        let here = jobs.iter().zip(places).filter(|(_, place)| of(place));
        let mut runs: Vec<(f64, f64, f64)> = here
            .map(|(job, place)| (place.start_s, place.start_s + job.service_s / kinds[kind].speed, job.vram_gb))
            .collect();
        runs.sort_by(|a, b| a.0.total_cmp(&b.0));
        for run in &runs {
            let beside = runs.iter().filter(|other| other.0 <= run.0 && other.1 > run.0 + 1e-9);
            let is_full = match share_gb {
                Some(gb) => beside.map(|other| other.2).sum::<f64>() > gb + 1e-9,
                None => beside.count() > 1,
            };
            if is_full {
                return None;
            }
        }
        let mut billed_s = BOOT_S;
        let mut until_s = runs[0].0;
        for run in runs {
            billed_s += (run.0 - until_s).clamp(0.0, BOOT_S);
            billed_s += (run.1 - until_s.max(run.0)).max(0.0);
            until_s = until_s.max(run.1);
        }
        sum += billed_s * kinds[kind].od_usd_h / 3_600.0;
    }
    Some(sum)
}

/// The cheapest schedule found by changing single jobs according to these random numbers.
fn descend(jobs: &[Job], kinds: &[Kind], share_gb: Option<f64>, numbers: &[(u16, u16, u16)]) -> f64 {
    let able: Vec<usize> = (0..kinds.len()).filter(|kind| kinds[*kind].vram_gb >= 80.0).collect();
    let mut places: Vec<Slot> =
        jobs.iter().enumerate().map(|(machine, job)| Slot { kind: able[0], machine, start_s: job.arrival_s }).collect();
    let mut best = cost(jobs, kinds, share_gb, &places).expect("a machine for each job");
    for (which, place, start) in numbers {
        let index = usize::from(*which) % jobs.len();
        let job = &jobs[index];
        let kind = usize::from(*place) % kinds.len();
        if kinds[kind].vram_gb < job.vram_gb {
            continue;
        }
        let duration_s = job.service_s / kinds[kind].speed;
        let end_s = |other: usize| places[other].start_s + jobs[other].service_s / kinds[places[other].kind].speed;
        let other = usize::from(start / 5) % jobs.len();
        let latest_s = job.arrival_s + job.priority.target_s();
        let start_s = match start % 5 {
            0 => job.arrival_s,
            1 => latest_s,
            2 => end_s(other),
            3 => places[other].start_s - duration_s,
            _ => places[other].start_s,
        };
        let mut changed = places.clone();
        changed[index] = Slot {
            kind,
            machine: usize::from(place / 16) % jobs.len(),
            start_s: start_s.clamp(job.arrival_s, latest_s),
        };
        if let Some(now) = cost(jobs, kinds, share_gb, &changed).filter(|now| *now <= best) {
            (best, places) = (now, changed);
        }
    }
    best
}

fn any_job() -> impl Strategy<Value = Job> {
    let vram_gb = prop_oneof![Just(2.0), Just(8.0), Just(12.0), Just(14.0), Just(24.0)];
    let service_s = prop_oneof![0.1..20.0, 10.0..90.0, 50.0..6_000.0];
    let arrival_s = prop_oneof![0.0..40.0, 0.0..900.0];
    (arrival_s, service_s, vram_gb, any::<bool>()).prop_map(|(arrival_s, service_s, vram_gb, is_batch)| {
        let priority = if is_batch { Priority::Batch } else { Priority::Interactive };
        job(arrival_s, service_s, vram_gb, priority)
    })
}

/// Kinds of different prices and sizes.
fn any_kinds() -> impl Strategy<Value = Vec<Kind>> {
    let all = [
        kind("able", 80.0, 0.9, 2.0 * 3_600.0),
        kind("plain", 24.0, 1.0, 3_600.0),
        kind("slow", 24.0, 0.55, 0.62 * 3_600.0),
        kind("small", 8.0, 0.8, 0.5 * 3_600.0),
    ];
    (1..=all.len()).prop_map(move |count| all[..count].to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// The bound is below the cost of every schedule, for any number of slots and any prices from the solver.
    #[test]
    fn no_schedule_is_cheaper(
        jobs in prop::collection::vec(any_job(), 1..8),
        numbers in prop::collection::vec(any::<(u16, u16, u16)>(), 1_500),
        is_shared in any::<bool>(),
        kinds in any_kinds(),
        slots in 4_usize..400,
        prices in prop::collection::vec(0.0..4.0, 64),
    ) {
        let share_gb = is_shared.then_some(24.0);
        let cheapest = descend(&jobs, &kinds, share_gb, &numbers);
        let demand = Demand::new(&jobs, &kinds, share_gb, true);
        let bound = on_slots(&demand, slots);
        prop_assert!(bound <= cheapest * (1.0 + 1e-9), "{bound} is above {cheapest}");
        prop_assert!(bound > 0.0);

        let grid = Grid::new(&demand, slots);
        let cuts = cuts::find(&demand, &grid);
        let mut any = prices.iter().copied().cycle();
        let mut drawn = Prices {
            work: (0..demand.classes).map(|_| any.by_ref().take(grid.slots()).collect()).collect(),
            cuts: any.by_ref().take(cuts.len()).map(|price| 50.0 * price).collect(),
        };
        drawn.repair(&demand, &grid, &cuts);
        let value = drawn.value_usd(&demand, &grid, &cuts);
        prop_assert!(value <= cheapest * (1.0 + 1e-9), "{value} of any prices is above {cheapest}");
        let quick = drawn.value_within(&demand, &grid, &cuts, 0.0);
        prop_assert!(quick <= value * (1.0 + 1e-9), "in few steps {quick} instead of {value}");
    }
}
