//! A large observation: 1,000 endpoints with several sets of requirements, 500 machines, 3,000 offers, and more work
//! than machines.

use stokehold_planner::observation::{Traits, Work};
use stokehold_planner::{Endpoint, Machine, Observation, Offer, Phase};
use stokehold_protocol::requirements::Requirements;
use stokehold_units::{Mib, UsdMicros};

const NOW_S: f64 = 1_700_000_000.0;
const KINDS: [(&str, f64, f64, f64); 6] = [
    ("RTX 3090", 24.0, 0.55, 0.25),
    ("RTX 4090", 24.0, 1.0, 0.40),
    ("RTX 5090", 32.0, 1.4, 0.51),
    ("L40S", 48.0, 1.0, 0.60),
    ("A100 80GB", 80.0, 0.9, 0.87),
    ("H100", 80.0, 2.0, 1.93),
];

pub(crate) fn observation() -> Observation {
    Observation {
        at_s: NOW_S,
        endpoints: (0..1_000).map(endpoint).collect(),
        machines: (0..500).map(machine).collect(),
        offers: (0..3_000).map(offer).collect(),
    }
}

/// Two seconds later: a fifth of the endpoints have more work.
pub(crate) fn go_on(seen: &mut Observation) {
    seen.at_s += 2.0;
    let (round, count) = ((seen.at_s - NOW_S) / 2.0, seen.endpoints.len());
    let is_due = |place: usize| (place as f64 + round) % 5.0 < 0.5;
    for place in (0..count).filter(|place| is_due(*place)) {
        for work in &mut seen.endpoints[place].work {
            (work.arrived, work.started, work.oldest_s) = (work.arrived + 1, work.started + 1, 20.0);
        }
    }
}

fn endpoint(number: usize) -> Endpoint {
    let mut demands = Requirements::default();
    match number % 10 {
        7 => demands.regions = vec!["eu".to_owned()],
        8 => demands.gpus = 2,
        9 => demands.gpu_models = vec!["H100".to_owned()],
        _ => {}
    }
    let waiting = Work { arrived: 2, waiting: 2, oldest_s: 5.0, ..Work::default() };
    Endpoint {
        name: format!("tenant{}/endpoint{number:04}", number % 50).into(),
        vram: Mib::from_gib([8.0, 20.0, 30.0, 44.0, 70.0][number % 5]),
        demands,
        work: [waiting; 3],
        running: 1,
        at_once: 1,
        vram_fraction: None,
        runs: Vec::new(),
    }
}

fn machine(number: usize) -> Machine {
    let (kind, vram_gib, _, usd_per_hour) = KINDS[number % KINDS.len()];
    let phase = match number % 25 {
        0..=3 => Phase::Booting,
        4..=6 => Phase::Stopped,
        7 => Phase::Resuming,
        8 => Phase::Draining,
        _ => Phase::Ready,
    };
    let running = u64::from(matches!(phase, Phase::Ready | Phase::Draining) && !number.is_multiple_of(3));
    Machine {
        id: format!("m{number:05}").into(),
        provider: "market".into(),
        kind: kind.into(),
        host: format!("host{}", number % 400).into(),
        phase,
        since_s: NOW_S - (number % 30) as f64,
        rented_s: NOW_S - 3_600.0,
        usd_per_hour: UsdMicros::from_usd(usd_per_hour),
        stopped_usd_per_hour: 10_000.into(),
        is_interruptible: number.is_multiple_of(4),
        can_stop: number.is_multiple_of(2),
        cards: 1 + u32::from(number.is_multiple_of(7)),
        vram: Mib::from_gib(vram_gib),
        slots: 1,
        traits: traits(number),
        running,
        running_vram: Mib::ZERO,
        idle_since_s: (phase == Phase::Ready && running == 0).then_some(NOW_S - (number % 9) as f64),
        resident: Vec::new(),
        on_disk: Vec::new(),
    }
}

fn offer(number: usize) -> Offer {
    let (kind, vram_gib, speed, usd_per_hour) = KINDS[number % KINDS.len()];
    let cards = [1, 1, 2, 4][number % 4];
    let first = (number % 3) as u64 * 2;
    Offer {
        id: format!("offer{number:05}").into(),
        provider: "market".into(),
        kind: kind.into(),
        host: format!("host{}", number / 4).into(),
        count: 1,
        cards,
        gpu_ids: (first..first + u64::from(cards)).collect(),
        vram: Mib::from_gib(vram_gib),
        slots: 1,
        speed,
        usd_per_hour: UsdMicros::from_usd(f64::from(cards) * usd_per_hour * (1.0 + (number % 97) as f64 / 200.0)),
        min_bid_usd_per_hour: (number.is_multiple_of(2)).then_some(UsdMicros::from_usd(usd_per_hour * 0.6)),
        losses_per_hour: 0.3,
        stopped_usd_per_hour: Some(10_000.into()),
        boot_s: 120.0,
        inbound_usd_per_gb: 1_000.into(),
        inbound_mbit_per_s: 900.0,
        reliability: 0.9 + (number % 11) as f64 / 100.0,
        listed_for_s: (number.is_multiple_of(5)).then_some(40_000.0),
        traits: traits(number),
        is_owned: false,
    }
}

fn traits(number: usize) -> Traits {
    Traits { region: ["eu", "us", "asia"][number % 3].to_owned(), ..Traits::default() }
}
