#![allow(clippy::unwrap_used, reason = "tests")]
use serde_json::json;

use super::*;

const NOW_MS: u64 = 1_000_000_000;

fn lane(priority: Priority, class: u32, waiting: u64, oldest_ms: u64) -> LaneFlow {
    LaneFlow { priority, class, arrived: waiting + 5, started: 5, late: 1, waiting, oldest_ms }
}

fn flow(may_start: Option<u64>, lanes: Vec<LaneFlow>) -> Flow {
    Flow { tenant: "acme".to_owned(), endpoint: "draw".to_owned(), running: 2, may_start, lanes, ..Flow::default() }
}

fn of(flow: Flow) -> Endpoint {
    let new = NewJobs { class: 10, at_once: 64, vram_fraction: Some(0.9) };
    let new_jobs = [("acme/draw".to_owned(), new)].into();
    let demands = [(0, Requirements::default()), (3, Requirements { gpus: 2, ..Requirements::default() })].into();
    let seen = RawState { now_ms: NOW_MS, flows: vec![flow], new_jobs, demands, ..RawState::default() };
    observation(&seen).endpoints.remove(0)
}

#[test]
fn what_limits_keep_back_is_not_for_another_machine() {
    let lanes = || vec![lane(Priority::Interactive, 10, 3, 9_000), lane(Priority::Batch, 10, 40, 90_000)];
    let free = of(flow(None, lanes()));
    assert_eq!([free.work[0].waiting, free.work[1].waiting, free.work[2].waiting], [3, 0, 40]);
    assert_eq!((free.work[2].oldest_s, free.running, free.work[2].arrived), (90.0, 2, 45));
    let held = of(flow(Some(4), lanes()));
    assert_eq!([held.work[0].waiting, held.work[2].waiting], [3, 1], "the urgent ones first");
    assert_eq!(of(flow(Some(0), lanes())).work[0].oldest_s, 0.0);
}

#[test]
fn the_largest_class_that_waits_decides_and_else_that_of_new_jobs() {
    let outgrown = of(flow(None, vec![lane(Priority::Batch, 10, 1, 0), lane(Priority::Batch, 3_024, 1, 0)]));
    assert_eq!((outgrown.vram, outgrown.demands.gpus), (Mib::from_gib(24.0), 2));
    assert_eq!(
        of(flow(None, vec![lane(Priority::Batch, 80, 0, 0)])).vram,
        Mib::from_gib(10.0),
        "nothing of the old one waits"
    );
    assert_eq!((outgrown.at_once, outgrown.vram_fraction), (64, Some(0.9)));
}

fn worker(name: &str, running: u32, seen_ms: u64) -> WorkerRecord {
    serde_json::from_value(json!({
        "worker_id": format!("w_{name}"), "name": name, "release": "", "slots": 4, "joined_ms": NOW_MS - 50_000, "seen_ms": seen_ms,
        "gpus": [{"index": 0, "uuid": "GPU-1", "name": "NVIDIA GeForce RTX 4090", "vram_mib": 24_564}],
        "status": {"running": running, "models": [
            {"tenant": "acme", "name": "draw@3", "state": "busy", "cards": [{"index": 0, "held_mib": 10_240}]},
            {"tenant": "acme", "name": "write@1", "state": "loading"}]},
    }))
    .unwrap()
}

fn record(wanted: Wanted) -> MachineRecord {
    let offer = json!({"id": "77", "provider": "cloud", "kind": "4090 as sold", "host": "box-3", "count": 1, "cards": 1,
        "vram_gib": 24.0, "speed": 1.0, "usd_per_hour": 0.35, "stopped_usd_per_hour": 0.01, "boot_s": 90.0});
    let machine = json!({"id": "m-1", "provider": "cloud", "rental": "9001", "offer": offer, "wanted": wanted,
        "wanted_ms": NOW_MS - 100_000, "is_done": true, "rented_ms": NOW_MS - 100_000, "usd_micros_per_hour": 350_000});
    serde_json::from_value(machine).unwrap()
}

fn machines(record: MachineRecord, workers: Vec<WorkerRecord>) -> Vec<Machine> {
    let machines = [(record.id.clone(), record)].into();
    observation(&RawState { now_ms: NOW_MS, machines, workers, ..RawState::default() }).machines
}

fn phase(record: MachineRecord, workers: Vec<WorkerRecord>) -> Option<Phase> {
    machines(record, workers).first().map(|machine| machine.phase)
}

#[test]
fn a_machine_is_where_its_record_and_its_worker_say() {
    let running = || record(Wanted::Running);
    assert_eq!(phase(running(), vec![]), Some(Phase::Booting));
    assert_eq!(phase(running(), vec![worker("m-1", 0, NOW_MS)]), Some(Phase::Ready));
    assert_eq!(phase(running(), vec![worker("m-1", 0, NOW_MS - 16_000)]), Some(Phase::Lost));
    let before = vec![worker("m-1", 0, NOW_MS - 100_001)];
    assert_eq!(phase(running(), before), Some(Phase::Booting), "one of an earlier life does not count");
    let resumed = MachineRecord { rented_ms: 1, ..running() };
    assert_eq!(phase(resumed, vec![]), Some(Phase::Resuming));
    assert_eq!(phase(record(Wanted::Stopped), vec![]), Some(Phase::Stopped));
    assert_eq!(phase(record(Wanted::Gone), vec![]), None, "it is spoken of no more");
}

#[test]
fn a_machine_is_as_its_worker_tells() {
    let [machine] = &machines(record(Wanted::Running), vec![worker("m-1", 1, NOW_MS)])[..] else { panic!() };
    assert_eq!((&*machine.kind, machine.vram, machine.slots, machine.running), ("RTX 4090", Mib::from_gib(24.0), 4, 1));
    assert_eq!(
        (machine.running_vram, machine.idle_since_s, machine.usd_per_hour),
        (Mib::from_gib(10.0), None, 350_000.into())
    );
    assert_eq!(machine.resident, ["acme/draw".into()], "what is loading is not there yet");
    let draining = MachineRecord { drained_ms: Some(NOW_MS - 1_000), ..record(Wanted::Running) };
    let [machine] = &machines(draining, vec![worker("m-1", 0, NOW_MS - 500)])[..] else { panic!() };
    assert_eq!((machine.phase, machine.running), (Phase::Draining, 1), "it may have been given one just now");
}

#[test]
fn a_machine_whose_offer_cannot_be_read_is_seen_paid_for_and_said() {
    let damaged = || MachineRecord {
        offer: json!({"id": "77", "provider": "cloud", "kind": ["RTX 4090"], "host": "box-3"}),
        stopped_usd_micros_per_hour: 10_000,
        ..record(Wanted::Running)
    };
    let [machine] = &machines(damaged(), vec![])[..] else { panic!("it is gone from the plan") };
    assert_eq!((machine.phase, machine.usd_per_hour, &*machine.host), (Phase::Booting, 350_000.into(), "box-3"));
    let [machine] = &machines(damaged(), vec![worker("m-1", 0, NOW_MS)])[..] else { panic!() };
    assert_eq!(
        (machine.phase, machine.vram, machine.cards),
        (Phase::Ready, Mib::from_gib(24.0), 1),
        "its worker says what it is"
    );
    assert!(machine.idle_since_s.is_some() && machine.can_stop, "it is given up as others are");
    let seen =
        |machine: MachineRecord| RawState { machines: [(machine.id.clone(), machine)].into(), ..RawState::default() };
    assert_eq!(unread(&seen(damaged())), ["m-1"]);
    assert_eq!(unread(&seen(record(Wanted::Running))), [""; 0]);
    assert_eq!(unread(&seen(MachineRecord { wanted: Wanted::Gone, ..damaged() })), [""; 0]);
}

#[test]
fn when_all_fall_silent_at_once_it_may_be_the_gateway() {
    let other = MachineRecord { id: "m-2".to_owned(), ..record(Wanted::Running) };
    let gateway_unreachable = |machines: &[MachineRecord], workers: Vec<WorkerRecord>| {
        let machines = machines.iter().map(|machine| (machine.id.clone(), machine.clone())).collect();
        RawState { now_ms: NOW_MS, machines, workers, ..RawState::default() }.is_gateway_unreachable()
    };
    let both = [record(Wanted::Running), other];
    let silent = |name, s: u64| worker(name, 0, NOW_MS - s * 1_000);
    assert!(gateway_unreachable(&both, vec![silent("m-1", 80), silent("m-2", 90)]));
    assert!(!gateway_unreachable(&both, vec![silent("m-1", 80), silent("m-2", 1)]), "one is heard");
    assert!(!gateway_unreachable(&both, vec![]), "nobody has ever been heard");
    assert!(gateway_unreachable(&both[..1], vec![silent("m-1", 30)]));
    let old = [MachineRecord { wanted_ms: 1, ..record(Wanted::Running) }];
    assert!(gateway_unreachable(&old, vec![silent("m-1", 110)]), "a restart may take so long");
    assert!(!gateway_unreachable(&old, vec![silent("m-1", 121)]), "it is likelier to be the one that is gone");
    assert!(!gateway_unreachable(&[], vec![silent("desk", 30)]), "none of ours");
}

#[test]
fn silence_that_is_ours_is_held_against_nobody_who_was_there() {
    let at = |silent_s: u64, pause: Option<Pause>| {
        let workers = vec![worker("m-1", 0, NOW_MS - silent_s * 1_000)];
        let machines = [("m-1".to_owned(), record(Wanted::Running))].into();
        let seen = RawState { now_ms: NOW_MS, machines, workers, pause, ..RawState::default() };
        (observation(&seen).machines[0].phase, seen.is_paused())
    };
    let pause = |until_ms| Some(Pause { from_ms: NOW_MS - 40_000, until_ms });
    assert_eq!(at(45, None), (Phase::Lost, false));
    assert_eq!(at(45, pause(NOW_MS + 1)), (Phase::Ready, true), "it may come back yet");
    assert_eq!(at(45, pause(NOW_MS)), (Phase::Lost, false), "it has not");
    assert_eq!(at(60, pause(NOW_MS + 1)), (Phase::Lost, true), "it was gone before");
}

#[test]
fn a_worker_that_somebody_else_started_is_a_machine_too() {
    let seen = RawState { now_ms: NOW_MS, workers: vec![worker("desk", 0, NOW_MS)], ..RawState::default() };
    let [machine] = &observation(&seen).machines[..] else { panic!() };
    assert_eq!((&*machine.provider, &*machine.id, machine.phase), (JOINED, "w_desk", Phase::Ready));
}

#[test]
fn offers_of_hosts_that_are_left_alone_are_not_there() {
    let offer: Offer = serde_json::from_value(record(Wanted::Running).offer).unwrap();
    let seen = |host: &str, until_ms| RawState {
        now_ms: NOW_MS,
        offers: vec![offer.clone()],
        cooldowns: [(host.to_owned(), until_ms)].into(),
        ..RawState::default()
    };
    let left = |host, until_ms| observation(&seen(host, until_ms)).offers.len();
    assert_eq!(
        [left("box-3", NOW_MS + 1), left("77", NOW_MS + 1), left("box-3", NOW_MS), left("x", NOW_MS + 1)],
        [0, 0, 1, 1]
    );
}
