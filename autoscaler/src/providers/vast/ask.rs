//! Rows of a search: parsing, checking and converting them to offers. The units of Vast.ai occur only here.

use serde_json::Value;
use stokehold_planner::observation::{Offer, Traits};
use stokehold_queue::requirements::{SandboxLevel, Trust};
use stokehold_queue::vram::sold_gib;
use stokehold_units::{Mib, UsdMicros};
use stokehold_vast::field;

use super::NAME;
use super::settings::OfferFilter;

/// Billing period of storage, hours: a month of 30 days.
const MONTH_H: f64 = 720.0;

/// Duration of a boot without the download of the image, seconds: creating the container, unpacking and starting the
/// worker.
const BOOT_S: f64 = 60.0;

/// Maximum rate at which registries send, megabits per second, regardless of the rate that a host advertises.
const IMAGE_MBIT_MAX: f64 = 1_000.0;

/// Assumed number of times per hour that an interruptible machine is outbid, until it is measured.
const LOSSES_PER_HOUR: f64 = 0.3;

/// DLPerf of an RTX 4090.
const DLPERF_4090: f64 = 99.0;

/// Kinds whose speed is known better, by prefix; 1.0 is an RTX 4090.
const SPEEDS: [(&str, f64); 8] = [
    ("RTX 4090", 1.0),
    ("RTX 3090", 0.55),
    ("RTX 5090", 1.4),
    ("L40S", 1.0),
    ("A100", 0.9),
    ("H100", 2.0),
    ("H200", 2.4),
    ("RTX PRO 6000", 1.8),
];

/// Row of a search.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ask {
    pub(super) id: u64,
    pub(super) machine_id: u64,
    /// $/h for all GPUs.
    dph_base: f64,
    /// $/h as searched for, which orders the pages.
    pub(super) dph_total: f64,
    /// $/h for all GPUs.
    min_bid: Option<f64>,
    /// $ per GB and month.
    storage_cost: f64,
    gpu_name: String,
    num_gpus: u32,
    gpu_ids: Vec<u64>,
    /// MB per GPU.
    gpu_ram: u64,
    /// Mbit/s.
    inet_down: f64,
    /// $ per GB.
    inet_down_cost: f64,
    reliability: f64,
    /// Seconds.
    duration: f64,
    cuda_max_good: f64,
    compute_cap: f64,
    disk_space: f64,
    dlperf: Option<f64>,
    geolocation: String,
    is_datacenter: bool,
    is_verified: bool,
    is_rentable: bool,
    is_external: bool,
}

/// Parses a row; `None` if it lacks members that an offer needs.
pub(super) fn ask(row: &Value) -> Option<Ask> {
    // Numbers are sometimes sent as text.
    let number = |name: &str| {
        let value = row.get(name)?;
        let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())?;
        (number.is_finite() && number >= 0.0).then_some(number)
    };
    let whole = |name: &str| row.get(name).and_then(Value::as_u64);
    let text = |name: &str| row.get(name).and_then(Value::as_str).map(str::trim);
    let is = |name: &str| row.get(name).and_then(Value::as_bool);
    let num_gpus = u32::try_from(whole(field::NUM_GPUS)?).ok().filter(|cards| (1..=64).contains(cards))?;
    let gpu_name = text(field::GPU_NAME).filter(|name| !name.is_empty() && name.len() <= 64)?;
    let gpu_ids = row.get(field::GPU_IDS).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    Some(Ask {
        id: whole("id").or_else(|| whole(field::ASK_CONTRACT_ID))?,
        machine_id: whole(field::MACHINE_ID)?,
        dph_base: number(field::DPH_BASE)?,
        dph_total: number(field::DPH_TOTAL)?,
        min_bid: number(field::MIN_BID),
        storage_cost: number(field::STORAGE_COST)?,
        gpu_name: gpu_name.to_owned(),
        num_gpus,
        gpu_ids: gpu_ids.iter().take(64).map(Value::as_u64).collect::<Option<_>>()?,
        gpu_ram: whole_of(number(field::GPU_RAM)?),
        inet_down: number(field::INET_DOWN).unwrap_or(0.0),
        inet_down_cost: number(field::INET_DOWN_COST)?,
        reliability: number("reliability").or_else(|| number(field::RELIABILITY2))?,
        duration: number("duration").unwrap_or(0.0),
        cuda_max_good: number(field::CUDA_MAX_GOOD).unwrap_or(0.0),
        compute_cap: number(field::COMPUTE_CAP).unwrap_or(0.0),
        disk_space: number(field::DISK_SPACE).unwrap_or(0.0),
        dlperf: number(field::DLPERF),
        geolocation: text(field::GEOLOCATION).unwrap_or_default().to_owned(),
        is_datacenter: whole(field::HOSTING_TYPE) == Some(1),
        is_verified: text("verification") == Some("verified"),
        is_rentable: is(field::RENTABLE) == Some(true) && is("rented") != Some(true),
        is_external: is("external") == Some(true),
    })
}

impl Ask {
    /// Whether the row meets the requirements. Not every filter is honored, and hosts may have to be avoided since.
    pub(super) fn meets(&self, requirements: &OfferFilter) -> bool {
        self.is_rentable
            && !self.is_external
            && (self.is_verified || !requirements.verified_only)
            && (self.is_datacenter || !requirements.datacenter_only)
            && (requirements.kinds.is_empty() || requirements.kinds.contains(&self.gpu_name))
            && self.reliability >= requirements.min_reliability
            && self.cuda_max_good >= requirements.min_cuda
            && self.compute_cap >= requirements.min_compute_cap
            && self.inet_down >= requirements.min_inet_down_mbit
            && self.duration >= requirements.min_duration_s
            && self.disk_space >= requirements.disk_gb
            && self.dph_base + self.storage_usd_per_hour(requirements) <= requirements.max_usd_per_hour
    }

    /// Converts the row to an offer. `bid`: the same row in a search for interruptible machines.
    pub(super) fn offer(&self, bid: Option<&Self>, requirements: &OfferFilter) -> Offer {
        let storage = self.storage_usd_per_hour(requirements);
        let stopped = UsdMicros::from_usd(storage);
        // In such a search the base price is the minimum bid.
        let min_bid = bid.map(|bid| bid.min_bid.unwrap_or(0.0).max(bid.dph_base));
        let image_mbit = self.inet_down.clamp(1.0, IMAGE_MBIT_MAX);
        Offer {
            id: self.id.to_string().into(),
            provider: NAME.into(),
            kind: self.gpu_name.as_str().into(),
            host: host(self.machine_id).into(),
            count: 1,
            cards: self.num_gpus,
            gpu_ids: self.gpu_ids.clone(),
            vram: Mib::from_gib(f64::from(sold_gib(self.gpu_ram))),
            slots: 0,
            speed: self.speed(),
            usd_per_hour: UsdMicros::from_usd(self.dph_base + storage),
            // A bid that is rounded down would be too low.
            min_bid_usd_per_hour: min_bid.map(|min_bid| UsdMicros::from_usd_up(min_bid) + stopped),
            losses_per_hour: LOSSES_PER_HOUR,
            stopped_usd_per_hour: Some(stopped),
            boot_s: BOOT_S + requirements.image_gb * 8_000.0 / image_mbit,
            inbound_usd_per_gb: UsdMicros::from_usd(self.inet_down_cost),
            inbound_mbit_per_s: self.inet_down,
            reliability: self.reliability.min(1.0),
            listed_for_s: Some(self.duration),
            traits: Traits {
                compute_capability: (self.compute_cap > 0.0)
                    .then(|| {
                        let cap = whole_of(self.compute_cap);
                        format!("{}.{}", cap / 100, cap % 100 / 10).parse().ok()
                    })
                    .flatten(),
                cuda: (self.cuda_max_good > 0.0).then(|| format!("{:.1}", self.cuda_max_good).parse().ok()).flatten(),
                region: country(&self.geolocation),
                trust: if self.is_datacenter { Trust::Datacenter } else { Trust::Community },
                sandbox: SandboxLevel::default(),
            },
            is_owned: false,
        }
    }

    /// Price of the disk, which is charged in every state.
    fn storage_usd_per_hour(&self, requirements: &OfferFilter) -> f64 {
        self.storage_cost * requirements.disk_gb / MONTH_H
    }

    /// Speed derived from DLPerf. DLPerf spreads kinds further apart than models do: 2.0 for an RTX 5090, which is 1.4
    /// times as fast, and 0.45 for an RTX 3090, which is 0.55. To the power of 0.6 they are 1.5 and 0.62.
    fn speed(&self) -> f64 {
        let known = SPEEDS.iter().find(|(kind, _)| self.gpu_name.starts_with(kind)).map(|(_, speed)| *speed);
        let measured = self.dlperf.filter(|dlperf| *dlperf > 0.0);
        let guessed = measured.map(|dlperf| (dlperf / f64::from(self.num_gpus) / DLPERF_4090).powf(0.6));
        known.or(guessed.map(|speed| speed.clamp(0.05, 5.0))).unwrap_or(1.0)
    }
}

/// Name of a host, as it is remembered.
pub(super) fn host(machine_id: u64) -> String {
    format!("machine {machine_id}")
}

/// Number of the host of that name.
pub(super) fn machine_id(host: &str) -> Option<u64> {
    host.strip_prefix("machine ")?.parse().ok()
}

/// Country code, e.g. `pl` of `Poland, PL` and of `, PL`.
fn country(geolocation: &str) -> String {
    let code = geolocation.rsplit(',').next().unwrap_or_default().trim().to_lowercase();
    if code.len() == 2 && code.bytes().all(|byte| byte.is_ascii_lowercase()) { code } else { String::new() }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "never negative, and saturates")]
fn whole_of(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::settings::tests::settings;
    use super::*;
    use stokehold_planner::Policy;

    /// Rows as sent by Vast.ai.
    pub(in super::super) fn rows(search: &str) -> Vec<Value> {
        let all: Value = serde_json::from_str(include_str!("testdata/offers.json")).unwrap();
        all[search].as_array().unwrap().clone()
    }

    pub(in super::super) fn requirements() -> OfferFilter {
        OfferFilter { disk_gb: 40.0, ..OfferFilter::new(&settings(), &Policy { may_bid: true, ..Policy::default() }) }
    }

    fn row(search: &str, id: u64) -> Value {
        rows(search).into_iter().find(|row| row["id"] == id).unwrap()
    }

    #[test]
    fn a_row_is_an_offer_in_our_units() {
        let offer = ask(&row("ondemand", 45_603_753)).unwrap().offer(None, &requirements());
        assert_eq!((&*offer.id, &*offer.kind, &*offer.host), ("45603753", "RTX 3090", "machine 21486"));
        assert_eq!((offer.cards, &offer.gpu_ids[..], offer.vram.gib(), offer.speed), (1, &[76_387][..], 24.0, 0.55));
        let storage = 40.0 * 0.1333333333333333 / 720.0;
        assert_eq!(offer.usd_per_hour, UsdMicros::from_usd(0.2 + storage), "{offer:?}");
        assert_eq!(offer.stopped_usd_per_hour, Some(UsdMicros::from_usd(storage)));
        assert_eq!((offer.min_bid_usd_per_hour, offer.inbound_usd_per_gb), (None, 8_789.into()));
        assert_eq!((offer.inbound_mbit_per_s, offer.reliability), (893.2, 0.9982436));
        assert!((offer.boot_s - (60.0 + 32_000.0 / 893.2)).abs() < 1e-9 && offer.listed_for_s.unwrap() > 600_000.0);
        let Traits { compute_capability, cuda, region, trust, .. } = &offer.traits;
        assert_eq!((compute_capability.unwrap().to_string(), cuda.unwrap().to_string()), ("8.6".into(), "12.4".into()));
        assert_eq!((region.as_str(), *trust), ("pl", Trust::Community));
    }

    #[test]
    fn a_bid_is_for_the_whole_offer_and_may_be_above_the_price() {
        let both = |id| {
            let on_demand = ask(&row("ondemand", id)).unwrap();
            on_demand.offer(Some(&on_demand.clone()), &requirements())
        };
        let dear = both(50_761_692);
        assert!(dear.min_bid_usd_per_hour.unwrap() > dear.usd_per_hour, "1.25 of 1.20");
        let four = ask(&row("bid", 52_216_316)).unwrap();
        let offer = four.offer(Some(&four), &requirements());
        let storage = offer.stopped_usd_per_hour.unwrap();
        assert_eq!(offer.min_bid_usd_per_hour.unwrap() - storage, 533_334.into());
        assert_eq!((offer.cards, offer.gpu_ids.len(), offer.vram.gib(), offer.speed), (4, 4, 80.0, 0.9));
        let h100 = ask(&row("bid", 31_183_491)).unwrap().offer(None, &requirements());
        assert_eq!((h100.traits.trust, h100.traits.region.as_str()), (Trust::Datacenter, "cz"));
        assert!(h100.inbound_usd_per_gb > 36_000.into());
        let v100 = ask(&row("ondemand", 38_450_985)).unwrap().offer(None, &requirements());
        assert!((0.4..0.5).contains(&v100.speed), "{}", v100.speed);
    }

    #[test]
    fn every_wish_is_looked_at_again() {
        let good = row("ondemand", 45_603_753);
        assert!(ask(&good).unwrap().meets(&requirements()));
        let but = |member: &str, value: Value| {
            let mut row = good.clone();
            row[member] = value;
            ask(&row).unwrap().meets(&requirements())
        };
        for (member, value) in [
            ("rentable", json!(false)),
            ("rentable", json!(null)),
            ("rented", json!(true)),
            ("external", json!(true)),
            ("verification", json!("deverified")),
            ("reliability", json!(0.94)),
            ("cuda_max_good", json!(12.2)),
            ("compute_cap", json!(700)),
            ("inet_down", json!(100)),
            ("duration", json!(11_751.8)),
            ("disk_space", json!(33.25)),
            ("dph_base", json!(101.0)),
        ] {
            assert!(!but(member, value.clone()), "{member} {value}");
        }
        assert!(!ask(&good).unwrap().meets(&OfferFilter { datacenter_only: true, ..requirements() }));
        assert!(!ask(&good).unwrap().meets(&OfferFilter { kinds: vec!["RTX 4090".to_owned()], ..requirements() }));
        assert!(ask(&good).unwrap().meets(&OfferFilter { kinds: vec!["RTX 3090".to_owned()], ..requirements() }));
    }

    #[test]
    fn a_row_that_lacks_what_matters_is_none() {
        let good = row("ondemand", 45_603_753);
        for member in ["machine_id", "num_gpus", "gpu_name", "gpu_ram", "dph_base", "storage_cost", "inet_down_cost"] {
            for value in [json!(null), json!([]), json!(-1)] {
                let mut row = good.clone();
                row[member] = value.clone();
                assert_eq!(ask(&row), None, "{member} {value}");
            }
        }
        assert_eq!([json!(null), json!([]), json!("x"), json!({})].map(|row| ask(&row)), [None, None, None, None]);
    }

    #[test]
    fn countries_are_two_letters() {
        let told = ["Poland, PL", ", US", "US", "", "Somewhere", "a, b, DE "].map(country);
        assert_eq!(told, ["pl", "us", "us", "", "", "de"]);
        assert_eq!((machine_id(&host(7)), machine_id("box-3")), (Some(7), None));
    }

    proptest! {
        #[test]
        fn no_value_is_too_strange(
            member in prop::sample::select(vec!["gpu_ram", "compute_cap", "cuda_max_good", "dlperf", "gpu_ids", "geolocation"]),
            value in prop_oneof![any::<f64>().prop_map(|n| json!(n)), ".{0,20}".prop_map(|t| json!(t)), any::<i64>().prop_map(|n| json!(n))],
        ) {
            let mut row = row("ondemand", 45_603_753);
            row[member] = value;
            if let Some(ask) = ask(&row) {
                let offer = ask.offer(Some(&ask), &requirements());
                prop_assert!(offer.usd_per_hour >= UsdMicros::ZERO && offer.speed.is_finite() && offer.boot_s.is_finite());
            }
        }
    }
}
