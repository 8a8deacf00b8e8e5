//! An instance rented for an endpoint is leased its jobs: for every known kind of GPU, the autoscaler's check of an
//! offer and the gateway's check of the worker that joins from it agree.

use proptest::prelude::*;
use stokehold_planner::Offer;
use stokehold_planner::observation::Traits;
use stokehold_planner::snapshot::Needs;
use stokehold_protocol::gateway::Gpu;
use stokehold_protocol::gpus::{KINDS, Kind};
use stokehold_protocol::requirements::{self, Requirements, SandboxLevel, Trust, Version};
use stokehold_protocol::vram::{VramNeed, mib_of_gib, sold_gib};
use stokehold_units::Mib;

/// Words that people write into `gpu_models`.
const WORDS: [&str; 16] = [
    "A10",
    "A100",
    "a100",
    "rtx 4090",
    "RTX 4090",
    "RTX-4090",
    "H100",
    "H100 SXM",
    "H200",
    "L40",
    "L40S",
    "RTX 6000 Ada",
    "RTX 6000Ada",
    "A100-SXM4-80GB",
    "T4",
    "3090",
];

fn version(major: u32, minor: u32) -> Version {
    format!("{major}.{minor}").parse().unwrap()
}

fn some_demands() -> impl Strategy<Value = Requirements> {
    let words = proptest::sample::subsequence(WORDS.to_vec(), 0..3);
    let capability = proptest::option::of((7u32..10, 0u32..10).prop_map(|(major, minor)| version(major, minor)));
    let cuda = proptest::option::of((11u32..14, 0u32..9).prop_map(|(major, minor)| version(major, minor)));
    let trust = prop_oneof![Just(Trust::Community), Just(Trust::Datacenter), Just(Trust::Owned)];
    let regions = prop_oneof![Just(vec![]), Just(vec!["eu".to_owned()]), Just(vec!["us".to_owned(), "eu".to_owned()])];
    (words, capability, cuda, trust, regions, 1u32..5).prop_map(
        |(words, min_compute_capability, min_cuda, min_trust, regions, gpus)| Requirements {
            gpus,
            gpu_models: words.into_iter().map(str::to_owned).collect(),
            min_compute_capability,
            min_cuda,
            regions,
            min_trust,
            min_sandbox: SandboxLevel::L0,
        },
    )
}

fn offer(kind: &Kind, cards: u32, traits: Traits) -> Offer {
    serde_json::from_value(serde_json::json!({
        "id": "1", "provider": "market", "kind": kind.market.unwrap_or(kind.name), "count": 1, "cards": cards,
        "vram_gib": sold_gib(kind.reported_mib), "speed": 1.0, "usd_per_hour": 1.0, "boot_s": 60.0, "traits": traits,
    }))
    .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn what_is_rented_is_what_would_lease(
        demands in some_demands(),
        which in 0..KINDS.len(),
        cards in 1u32..5,
        gib in 1u32..200,
        capability in (7u32..10, 0u32..10),
        cuda in (11u32..14, 0u32..9),
        trust in prop_oneof![Just(Trust::Community), Just(Trust::Datacenter), Just(Trust::Owned)],
        region in prop_oneof![Just("eu"), Just("us"), Just("")],
    ) {
        let kind = &KINDS[which];
        let (capability, cuda) = (version(capability.0, capability.1), version(cuda.0, cuda.1));
        let traits = Traits { compute_capability: Some(capability), cuda: Some(cuda), region: region.to_owned(), trust, sandbox: SandboxLevel::L0 };
        let needs = Needs { vram: Mib::from_gib(f64::from(gib)), demands: demands.clone() };
        let is_rented = needs.are_met_by_offer(&offer(kind, cards, traits));

        let gpu = |index| Gpu {
            index,
            name: format!("NVIDIA {}", kind.name),
            vram_mib: kind.reported_mib,
            compute_capability: Some(capability.to_string()),
            ..Gpu::default()
        };
        let gpus: Vec<Gpu> = (0..cards).map(gpu).collect();
        let worker = requirements::Offer { gpus: &gpus, cuda: Some(cuda), region, trust, sandbox: SandboxLevel::L0 };
        let need = VramNeed::of_mib(mib_of_gib(f64::from(gib)));
        let able = gpus.iter().filter(|gpu| demands.is_met_by(gpu) && need.fits_empty(gpu)).count();
        let would_lease = demands.refusal(&worker).is_none() && able >= demands.gpus as usize;
        prop_assert_eq!(is_rented, would_lease, "{} x {:?} for {} GiB and {:?}", cards, kind, gib, demands);
    }
}

#[test]
fn a_model_is_matched_by_whole_words_in_any_case() {
    let of = |name: &str| KINDS.iter().find(|kind| kind.market.unwrap_or(kind.name) == name).unwrap();
    let wants = |model: &str| Needs {
        vram: Mib::from_gib(20.0),
        demands: Requirements {
            gpu_models: vec![model.to_owned()],
            min_trust: Trust::Community,
            ..Requirements::default()
        },
    };
    let is_rented = |model: &str, name: &str| wants(model).are_met_by_offer(&offer(of(name), 1, Traits::default()));
    assert!(!is_rented("A10", "A100 SXM4") && is_rented("A10", "A10") && is_rented("a100", "A100 SXM4"));
    assert!(is_rented("rtx 4090", "RTX 4090") && is_rented("RTX 6000 Ada", "RTX 6000Ada"));
}

#[test]
fn every_kind_that_has_a_price_is_in_the_table_of_kinds() {
    for line in include_str!("../../../../lab/fake-vast/src/kinds.csv").lines().skip(1) {
        let (name, rest) = line.split_once(',').unwrap();
        let reported_mib: u64 = rest.split(',').next().unwrap().parse().unwrap();
        let kind = KINDS.iter().find(|kind| kind.market.unwrap_or(kind.name) == name);
        assert!(kind.is_some_and(|kind| sold_gib(reported_mib) >= kind.sold_gib), "{name}");
    }
}
