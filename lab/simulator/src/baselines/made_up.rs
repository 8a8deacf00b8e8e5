//! Observations for tests.

use stokehold_planner::observation::{Runs, Work};
use stokehold_planner::{Action, Endpoint, Machine, Observation, Offer, Phase, Plan};
use stokehold_units::{Mib, UsdMicros};

/// An observation of one endpoint of 8 GB with these numbers of jobs, all of which arrived since the last poll.
pub(super) fn seen(at_s: f64, waiting: u64, running: u64, machines: Vec<Machine>) -> Observation {
    let work = Work { arrived: waiting + running, waiting, started: running, ..Work::default() };
    let endpoint = Endpoint {
        name: "a".into(),
        vram: Mib::from_gib(8.0),
        demands: Default::default(),
        work: [work, Work::default(), Work::default()],
        running,
        at_once: 1,
        vram_fraction: None,
        runs: vec![Runs { kind: "card".into(), ended: 10, run_s: 100.0, ..Runs::default() }],
    };
    let offers = vec![
        offer("card", 24.0, 1.0, 0.40, 64),
        offer("fast", 32.0, 1.4, 0.51, 3),
        offer("large", 80.0, 0.9, 0.87, 64),
    ];
    Observation { at_s, endpoints: vec![endpoint], machines, offers }
}

/// The same observation without jobs, and with this work of the first priority.
pub(super) fn with_work(at_s: f64, work: Work, machines: Vec<Machine>) -> Observation {
    let mut seen = seen(at_s, 0, 0, machines);
    seen.endpoints[0].work[0] = work;
    seen
}

fn offer(id: &str, vram_gib: f64, speed: f64, usd_per_hour: f64, count: u32) -> Offer {
    Offer {
        id: id.into(),
        provider: "made-up".into(),
        kind: id.into(),
        host: "".into(),
        count,
        cards: 1,
        gpu_ids: vec![],
        vram: Mib::from_gib(vram_gib),
        slots: 1,
        speed,
        usd_per_hour: UsdMicros::from_usd(usd_per_hour),
        min_bid_usd_per_hour: None,
        losses_per_hour: 0.0,
        stopped_usd_per_hour: Some(10_000.into()),
        boot_s: 150.0,
        inbound_usd_per_gb: UsdMicros::ZERO,
        inbound_mbit_per_s: 0.0,
        reliability: 1.0,
        listed_for_s: None,
        traits: Default::default(),
        is_owned: false,
    }
}

/// A machine that has been in this phase since the start and has this number of jobs.
pub(super) fn with(id: &str, phase: Phase, running: u64) -> Machine {
    Machine {
        id: id.into(),
        provider: "made-up".into(),
        kind: "card".into(),
        host: "".into(),
        phase,
        since_s: 0.0,
        rented_s: 0.0,
        usd_per_hour: 400_000.into(),
        stopped_usd_per_hour: 10_000.into(),
        is_interruptible: false,
        can_stop: true,
        cards: 1,
        vram: Mib::from_gib(24.0),
        slots: 1,
        traits: Default::default(),
        running,
        running_vram: Mib::ZERO,
        idle_since_s: None,
        resident: vec![],
        on_disk: vec![],
    }
}

/// A machine that has been idle for long.
pub(super) fn idle(id: &str) -> Machine {
    Machine {
        idle_since_s: Some(f64::from(id.bytes().next().unwrap_or_default()) / 100.0),
        ..with(id, Phase::Ready, 0)
    }
}

/// `count` machines that run one job each.
pub(super) fn busy(count: usize) -> Vec<Machine> {
    (0..count).map(|n| with(&format!("m{n:02}"), Phase::Ready, 1)).collect()
}

/// Formats a plan in one line.
pub(super) fn said(plan: &Plan) -> String {
    let step = |action: &Action| match action {
        Action::Rent { offer, .. } => format!("rent {offer}"),
        Action::Resume { machine } => format!("resume {machine}"),
        Action::Drain { machine } => format!("drain {machine}"),
        Action::Undrain { machine } => format!("undrain {machine}"),
        Action::Stop { machine } => format!("stop {machine}"),
        Action::Release { machine } => format!("release {machine}"),
    };
    plan.steps.iter().map(|each| step(&each.action)).collect::<Vec<_>>().join(", ")
}

/// Number of machines that a plan adds, minus the number that it gives up.
pub(super) fn change(plan: &Plan) -> i64 {
    let of = |action: &Action| match action {
        Action::Rent { .. } | Action::Resume { .. } | Action::Undrain { .. } => 1,
        Action::Drain { .. } | Action::Stop { .. } | Action::Release { .. } => -1,
    };
    plan.steps.iter().map(|each| of(&each.action)).sum()
}
