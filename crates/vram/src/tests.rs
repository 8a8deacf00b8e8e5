use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

pub(super) fn ledger(sizes_mib: &[u64]) -> Ledger {
    Ledger::new(&gpus(sizes_mib), false)
}

/// A ledger that treats memory as free only once a reading confirms it.
fn looked_at(sizes_mib: &[u64]) -> Ledger {
    Ledger::new(&gpus(sizes_mib), true)
}

fn gpus(sizes_mib: &[u64]) -> Vec<Gpu> {
    (0..).zip(sizes_mib).map(|(index, vram_mib)| Gpu { index, vram_mib: *vram_mib, ..Gpu::default() }).collect()
}

fn part(ledger: &Ledger, mib: u64) -> Option<Reservation> {
    ledger.reserve(&Need::part(mib), &ALL)
}

/// All GPUs of a ledger in these tests.
pub(super) const ALL: [u32; 4] = [0, 1, 2, 3];

fn reach_gib(ledger: &Ledger, idle: &[Ticket]) -> u32 {
    ledger.reach(idle).iter().map(|gpu| gpu.reach_gib).max().unwrap_or(0)
}

fn idle(reservation: &Reservation, value: f64) -> Idle {
    Idle { ticket: reservation.ticket, value }
}

/// A reservation used by the process group with this number.
fn owned(ledger: &Ledger, mib: u64, group: u32) -> Reservation {
    let reservation = part(ledger, mib).unwrap();
    reservation.belongs_to(group);
    reservation
}

fn sheet(ledger: &Ledger) -> Vec<Line> {
    ledger.lock().gpus.iter().map(GpuAccount::line).collect()
}

fn held(ledger: &Ledger) -> Vec<u64> {
    sheet(ledger).iter().map(|line| line.held_mib).collect()
}

const GIB: u64 = 1024;

#[test]
fn ten_and_twenty_never_share_a_gpu_of_twenty_four_and_ten_and_twelve_do() {
    let ledger = ledger(&[24 * GIB]);
    let ten = part(&ledger, 10 * GIB);
    assert!(ten.is_some());
    assert!(part(&ledger, 20 * GIB).is_none());
    let twelve = part(&ledger, 12 * GIB);
    assert!(twelve.is_some());
}

#[test]
fn a_model_goes_on_the_gpu_it_fits_best() {
    let ledger = ledger(&[81_920, 24_576]);
    let gpus = |reservation: &Option<Reservation>| reservation.as_ref().map(|reservation| reservation.gpus[0]);
    let small = part(&ledger, 20_000);
    assert_eq!(gpus(&small), Some(1));
    let large = part(&ledger, 20_000);
    assert_eq!(gpus(&large), Some(0), "the small GPU is full");
    assert_eq!(gpus(&part(&ledger, 70_000)), None);
    drop(large);
    assert_eq!(gpus(&part(&ledger, 70_000)), Some(0));
}

#[test]
fn reach_is_the_class_of_the_largest_room_and_counts_what_can_be_evicted() {
    assert_eq!(reach_gib(&ledger(&[]), &[]), 0);
    let ledger = ledger(&[24_564, 81_559]);
    assert_eq!(reach_gib(&ledger, &[]), 80, "a GPU reports a little less than its name says");
    let reservation = part(&ledger, 60_000).unwrap();
    assert_eq!(reach_gib(&ledger, &[]), 24);
    assert_eq!(reach_gib(&ledger, &[reservation.ticket]), 80);
    ledger.set_open(0, false);
    assert_eq!(reach_gib(&ledger, &[]), 17, "the large GPU has 17 GiB left, the small one takes nothing");
}

#[test]
fn a_model_that_is_particular_about_its_gpu_gets_no_other() {
    let ledger = ledger(&[24_576, 49_152]);
    assert_eq!(ledger.reserve(&Need::part(20_000), &[1]).map(|part| part.gpus.clone()), Some(vec![1]));
    let _part = ledger.reserve(&Need::part(40_000), &ALL).unwrap();
    assert!(ledger.reserve(&Need::part(20_000), &[1]).is_none(), "the other one has room");
    assert!(ledger.could_hold(&Need::part(40_000), &[1]) && !ledger.could_hold(&Need::part(40_000), &[0]));
    assert_eq!(ledger.largest_mib(1, &[0]), 24_576 - 24_576 / 20);
    let reach: Vec<_> = ledger.reach(&[]).iter().map(|gpu| (gpu.index, gpu.reach_gib)).collect();
    assert_eq!(reach, [(0, 24), (1, 6)]);
}

#[test]
fn the_measured_peak_and_a_margin_replace_what_was_declared() {
    let ledger = ledger(&[24_576]);
    let model = owned(&ledger, 20_000, 7);
    assert_eq!(ledger.settle(model.ticket), 20_000, "nothing was seen of it");
    ledger.observe(0, 8_000, Some(&[(7, 5_000), (7, 3_000)]));
    ledger.observe(0, 3_000, Some(&[(7, 3_000)]));
    assert_eq!(ledger.settle(model.ticket), 8_400);
    assert!(part(&ledger, 14_000).is_some());
}

#[test]
fn a_model_that_grows_is_raised_as_far_as_there_is_room_and_the_rest_is_told() {
    let ledger = ledger(&[24_576]);
    let _models = (owned(&ledger, 4_000, 7), owned(&ledger, 12_000, 8));
    let seen = |mib| [(7, mib), (8, 12_000)];
    assert_eq!(ledger.observe(0, 18_000, Some(&seen(6_000))), Verdict::default());
    assert_eq!(held(&ledger), [18_000]);
    let usable = 24_576 - 24_576 / 20;
    assert_eq!(ledger.observe(0, 24_000, Some(&seen(12_000))), Verdict { short_mib: 24_000 - usable, stuck_mib: 0 });
    assert_eq!(held(&ledger), [usable]);
}

#[test]
fn what_others_use_beyond_the_reserve_is_not_there() {
    let ledger = ledger(&[24_576]);
    ledger.observe(0, 1_000, Some(&[]));
    assert!(part(&ledger, 23_000).is_some(), "the reserve is there for it");
    ledger.observe(0, 11_228, Some(&[]));
    assert!(part(&ledger, 13_349).is_none());
    assert!(part(&ledger, 13_348).is_some());
    ledger.observe(0, 0, Some(&[]));
    assert!(part(&ledger, 23_000).is_some());
}

#[test]
fn where_processes_cannot_be_told_apart_holders_are_believed_to_use_what_they_hold() {
    let ledger = ledger(&[24_576]);
    let model = part(&ledger, 10_000).unwrap();
    assert_eq!(ledger.observe(0, 9_000, None), Verdict::default());
    assert_eq!(sheet(&ledger)[0].foreign_mib, 0);
    assert_eq!(ledger.settle(model.ticket), 10_000);
    ledger.observe(0, 15_000, None);
    assert_eq!(sheet(&ledger)[0].foreign_mib, 5_000);
}

#[test]
fn what_a_dead_process_held_is_free_when_the_gpu_says_so() {
    let gpus = [Gpu { vram_mib: 24_576, ..Gpu::default() }];
    let ledger = Ledger::new(&gpus, true);
    let model = owned(&ledger, 10_000, 7);
    ledger.observe(0, 10_300, Some(&[(7, 10_000)]));
    drop(model);
    assert!(part(&ledger, 20_000).is_none());
    assert!(ledger.is_about_to_fit(&Need::part(20_000), &ALL) && !ledger.is_about_to_fit(&Need::part(25_000), &ALL));
    ledger.observe(0, 10_300, Some(&[]));
    assert!(part(&ledger, 20_000).is_none(), "the driver has not cleared it yet");
    ledger.observe(0, 350, Some(&[]));
    assert!(part(&ledger, 20_000).is_some());
    assert!(!ledger.is_about_to_fit(&Need::part(20_000), &ALL));
    drop(part(&ledger, 1_000));
    assert!(part(&ledger, 23_000).is_some(), "one that never had a process has used nothing");
}

#[test]
fn a_claimed_gpu_takes_nobody_else_and_is_had_once_it_is_empty() {
    let ledger = ledger(&[24_576, 12_288]);
    let small = part(&ledger, 14_000).unwrap();
    let claim = ledger.claim(&Need::part(20_000), &ALL, &Arc::default()).unwrap();
    assert_eq!((claim.gpus.as_slice(), small.gpus.as_slice()), (&[0][..], &[0][..]));
    assert!(ledger.claim(&Need::part(20_000), &ALL, &Arc::default()).is_none(), "of two who want it one has it");
    assert!(part(&ledger, 5_000).is_some_and(|other| other.gpus == [1]));
    assert!(part(&ledger, 12_500).is_none());
    assert!(ledger.reserve_claimed(&claim, &Need::part(20_000)).is_none(), "somebody is there yet");
    drop(small);
    let large = ledger.reserve_claimed(&claim, &Need::part(20_000)).unwrap();
    drop(claim);
    assert!(part(&ledger, 3_000).is_some_and(|other| other.gpus == [0]), "the rest is for everybody again");
    drop(large);
}

#[test]
fn the_least_valuable_make_way_and_none_for_nothing() {
    let ledger = ledger(&[24_576, 24_576]);
    let held: Vec<Reservation> = [12_000, 10_000, 11_000, 11_500].map(|mib| part(&ledger, mib).unwrap()).into();
    assert_eq!(held.iter().map(|one| one.gpus[0]).collect::<Vec<_>>(), [0, 0, 1, 1]);
    let all: Vec<Idle> = held.iter().zip([5.0, 1.0, 2.0, 3.0]).map(|(one, value)| idle(one, value)).collect();
    assert_eq!(ledger.victims(&Need::part(9_000), &ALL, &all), Some(vec![held[1].ticket]));
    assert_eq!(
        ledger.victims(&Need::part(22_000), &ALL, &all),
        Some(vec![held[2].ticket, held[3].ticket]),
        "5 is less than 6"
    );
    assert_eq!(ledger.victims(&Need::part(9_000), &ALL, &[]), None);
    assert_eq!(ledger.victims(&Need::part(30_000), &ALL, &all), None);
    assert_eq!(ledger.victims(&Need::part(500), &ALL, &all), Some(vec![]), "there is room");
}

#[test]
fn a_model_of_several_gpus_has_each_for_itself() {
    let ledger = ledger(&[24_576, 24_576, 49_152]);
    let pair = &Need::of_mib(8_000, 2);
    let small = ledger.reserve(&Need::part(4_000), &[1]).unwrap();
    let whole: Vec<u32> = ledger.reach(&[]).iter().map(|gpu| gpu.whole_gib).collect();
    assert_eq!(whole, [24, 0, 48], "somebody is on the second");
    let held = ledger.reserve(pair, &ALL).unwrap();
    assert_eq!(held.gpus, [0, 2]);
    assert!(ledger.reserve(pair, &ALL).is_none());
    assert!(ledger.reserve(&Need::part(1_000), &[0, 2]).is_none(), "they are its own, though it takes little of them");
    held.belongs_to(7);
    for gpu in [0, 2] {
        ledger.observe(gpu, 9_000, Some(&[(7, 9_000)]));
    }
    assert_eq!(ledger.held(held.ticket).iter().map(|on| on.held_mib).collect::<Vec<_>>(), [9_000, 9_000], "it grew");
    assert_eq!(ledger.need_mib(held.ticket), Some(9_450), "of each");
    assert_eq!(ledger.largest_mib(2, &ALL), ledger.largest_mib(1, &[0]));
    assert!(ledger.could_hold(&Need::of_mib(20_000, 3), &ALL));
    assert!(!ledger.could_hold(&Need::of_mib(40_000, 2), &ALL));
    let idle = [idle(&held, 9.0), idle(&small, 1.0)];
    assert_eq!(ledger.victims(&Need::part(10_000), &[0], &idle), Some(vec![held.ticket]));
    assert_eq!(ledger.victims(&Need::of_mib(8_000, 3), &ALL, &idle), Some(vec![small.ticket, held.ticket]));
    drop(held);
    let claim = ledger.claim(&Need::of_mib(8_000, 3), &ALL, &Arc::default()).unwrap();
    assert!(ledger.reserve_claimed(&claim, &Need::of_mib(8_000, 3)).is_none(), "the small one is there yet");
    drop(small);
    assert!(ledger.reserve_claimed(&claim, &Need::of_mib(8_000, 3)).is_some());
}

/// Events on GPUs.
#[derive(Debug, Clone)]
enum Step {
    /// A model loads: memory per GPU, and number of GPUs.
    Load(u64, usize),
    Unload(Index),
    /// The holder's process exits, and the driver has not freed its memory yet.
    Crash(Index),
    /// The driver has freed the memory of exited processes.
    Clear,
    /// A large model that finds no room claims a GPU for itself.
    Claim(u64),
    Grow(Index, u64),
    Settle(Index),
    Foreign(Index, u64),
    Toggle(Index),
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<Index>;
    prop_oneof![
        4 => (1..100_000_u64, prop_oneof![4 => Just(1_usize), 1 => 2..4_usize]).prop_map(|(mib, gpus)| Step::Load(mib, gpus)),
        2 => index().prop_map(Step::Unload),
        1 => index().prop_map(Step::Crash),
        1 => Just(Step::Clear),
        1 => (1..200_000_u64).prop_map(Step::Claim),
        3 => (index(), 1..100_000_u64).prop_map(|(who, mib)| Step::Grow(who, mib)),
        1 => index().prop_map(Step::Settle),
        1 => (index(), 0..50_000_u64).prop_map(|(gpu, mib)| Step::Foreign(gpu, mib)),
        1 => index().prop_map(Step::Toggle),
    ]
}

/// A reading as from NVML: live processes one by one, exited ones only in the sum.
fn look(ledger: &Ledger, held: &[(Reservation, u64)], foreign: &[u64], dead: &[u64]) {
    for (gpu, (foreign, dead)) in foreign.iter().zip(dead).enumerate() {
        let gpu = u32::try_from(gpu).unwrap();
        let here = held.iter().filter(|(one, _)| one.gpus.contains(&gpu));
        let seen: Vec<(u32, u64)> = here.map(|(one, seen)| (u32::try_from(one.ticket).unwrap(), *seen)).collect();
        let seen = [seen, vec![(u32::MAX, *foreign)]].concat();
        ledger.observe(gpu, seen.iter().map(|(_, mib)| mib).sum::<u64>() + dead, Some(&seen));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    /// Random sequences of loads, growth, exits, crashes and foreign use. Reservations never exceed the memory of a
    /// GPU, every need that fits is accepted, and the chosen victims are sufficient. A large model that claims a GPU
    /// gets it once the others have left. No reservation remains at the end.
    #[test]
    fn what_is_held_never_exceeds_a_gpu(sizes_mib in vec(1_000..200_000_u64, 1..4), steps in vec(step(), 1..100)) {
        let ledger = looked_at(&sizes_mib);
        let mut held: Vec<(Reservation, u64)> = Vec::new();
        let mut foreign: Vec<u64> = vec![0; sizes_mib.len()];
        let mut dead: Vec<u64> = vec![0; sizes_mib.len()];
        for step in steps {
            match step {
                Step::Load(mib, gpus) => {
                    let need = &Need::of_mib(mib, gpus);
                    let has_room = |gpu: &&GpuAccount| gpu.free_for_mib(need, &[]) >= gpu.asked_mib(need);
                    let fits = ledger.lock().gpus.iter().filter(has_room).count() >= gpus;
                    let reservation = ledger.reserve(need, &ALL);
                    prop_assert_eq!(reservation.is_some(), fits);
                    if reservation.is_none() {
                        let all: Vec<Idle> = held.iter().map(|(one, seen)| idle(one, *seen as f64)).collect();
                        if let Some(victims) = ledger.victims(need, &ALL, &all) {
                            // A model that has outgrown its reservation takes memory that becomes free. While the
                            // memory of a former holder is not freed, it cannot be distinguished from that of other
                            // programs.
                            let is_short = |(one, seen): &(Reservation, u64)| ledger.held(one.ticket).iter().any(|on| *seen > on.held_mib);
                            let is_late = held.iter().any(is_short) || dead.iter().any(|mib| *mib > 0);
                            held.retain(|(one, _)| !victims.contains(&one.ticket));
                            look(&ledger, &held, &foreign, &dead);
                            let reservation = ledger.reserve(need, &ALL);
                            prop_assert!(reservation.is_some() || is_late, "the victims were enough");
                            held.extend(reservation.map(|one| (one, 0)));
                        }
                    } else {
                        held.extend(reservation.map(|one| (one, 0)));
                    }
                    if let Some((one, _)) = held.last() {
                        one.belongs_to(u32::try_from(one.ticket).unwrap());
                    }
                }
                Step::Unload(who) if !held.is_empty() => drop(held.swap_remove(who.index(held.len()))),
                Step::Crash(who) if !held.is_empty() => {
                    let (reservation, seen) = held.swap_remove(who.index(held.len()));
                    reservation.gpus.iter().for_each(|gpu| dead[*gpu as usize] += seen);
                }
                Step::Clear => dead.fill(0),
                Step::Claim(mib) => {
                    if let Some(claim) = ledger.claim(&Need::part(mib), &ALL, &Arc::default()) {
                        prop_assert!(part(&ledger, 1).is_none_or(|other| other.gpus[0] != claim.gpus[0]), "it is claimed");
                        let gpu = claim.gpus[0];
                        held.retain(|(one, _)| !one.gpus.contains(&gpu));
                        (dead[gpu as usize], foreign[gpu as usize]) = (0, 0);
                        look(&ledger, &held, &foreign, &dead);
                        let reservation = ledger.reserve_claimed(&claim, &Need::part(mib));
                        prop_assert!(reservation.is_some(), "the GPU is empty, and large enough");
                        held.extend(reservation.map(|one| (one, 0)));
                    }
                    if let Some((one, _)) = held.last() {
                        one.belongs_to(u32::try_from(one.ticket).unwrap());
                    }
                }
                Step::Grow(who, mib) if !held.is_empty() => {
                    let who = who.index(held.len());
                    held[who].1 = mib;
                }
                Step::Settle(who) if !held.is_empty() => {
                    ledger.settle(held[who.index(held.len())].0.ticket);
                }
                Step::Foreign(gpu, mib) => {
                    let gpu = gpu.index(foreign.len());
                    foreign[gpu] = mib;
                }
                Step::Toggle(gpu) => {
                    let gpu = gpu.index(sizes_mib.len());
                    ledger.set_open(u32::try_from(gpu).unwrap(), held.len().is_multiple_of(2));
                }
                Step::Unload(_) | Step::Crash(_) | Step::Grow(..) | Step::Settle(_) => {}
            }
            look(&ledger, &held, &foreign, &dead);
            for (line, gpu) in sheet(&ledger).iter().zip(&ledger.lock().gpus) {
                prop_assert!(line.held_mib <= gpu.usable_mib());
                let several = held.iter().find(|(one, _)| one.gpus.len() > 1 && one.gpus.contains(&gpu.index));
                prop_assert!(several.is_none() || held.iter().filter(|(one, _)| one.gpus.contains(&gpu.index)).count() == 1);
            }
        }
        held.clear();
        dead.fill(0);
        look(&ledger, &held, &foreign, &dead);
        prop_assert!(sheet(&ledger).iter().all(|line| line.held_mib == 0));
    }
}
