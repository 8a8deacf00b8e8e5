//! Machines: their GPUs, their prices, and who uses each GPU.

use serde_json::{Map, Value};

use crate::draw::Draw;
use crate::fields::{OF_INSTANCES, OF_QUOTES, text_without};
use crate::kinds::{KINDS, Kind};
use crate::money::nano_usd;
use crate::offers;
use crate::settings::Listing;
use crate::time::ms;

/// User of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// An instance of this account.
    Instance(u64),
    /// Another customer, until the scheduled release with this number.
    Other(u64),
}

/// GPUs of a machine that are offered together.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// Index of the first GPU.
    pub(crate) start: usize,
    pub(crate) size: usize,
    /// ID of the offer while it is listed.
    pub(crate) ask: Option<u64>,
    /// Fields of the offer that do not change while it is listed.
    pub(crate) row: Map<String, Value>,
    /// The same as JSON without braces and without the fields of a quote.
    pub(crate) offer_text: String,
    /// The same as JSON without braces and without the fields of an instance.
    pub(crate) instance_text: String,
}

/// A machine.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) id: u64,
    pub(crate) host_id: u64,
    pub(crate) kind: &'static Kind,
    pub(crate) gpu_ids: Vec<u64>,
    pub(crate) holders: Vec<Option<Holder>>,
    pub(crate) blocks: Vec<Block>,
    /// Price of a GPU, nano-dollars per hour.
    pub(crate) price: u64,
    /// Minimum bid for a GPU, nano-dollars per hour.
    pub(crate) min_bid: u64,
    /// Price of storage, nano-dollars per GB and month.
    pub(crate) storage: u64,
    /// Price of received data, nano-dollars per GB.
    pub(crate) down: u64,
    /// Price of sent data, nano-dollars per GB.
    pub(crate) up: u64,
    pub(crate) inet_down: f64,
    pub(crate) inet_up: f64,
    pub(crate) disk_gb: f64,
    pub(crate) reliability: f64,
    pub(crate) verification: &'static str,
    pub(crate) is_datacenter: bool,
    pub(crate) geolocation: String,
    pub(crate) ip: String,
    pub(crate) ports: u64,
    pub(crate) end_ms: u64,
    /// Whether the host is connected.
    pub(crate) is_up: bool,
}

const COUNTS: [(usize, f64); 4] = [(1, 0.42), (2, 0.24), (4, 0.21), (8, 0.13)];
const STORAGE: [f64; 9] = [0.0, 0.1, 0.133_333_333, 0.15, 0.2, 0.2, 0.29, 0.4, 0.93];
const TRAFFIC: [f64; 9] =
    [0.0, 0.0, 0.001_302_083, 0.002_002, 0.002_604_167, 0.003_906_25, 0.013_020_833, 0.02, 0.039_062_5];
const DOWN_MBIT: [f64; 9] = [40.0, 400.0, 640.0, 785.0, 938.0, 1800.0, 4234.0, 7274.0, 9152.0];
const UP_MBIT: [f64; 9] = [15.0, 144.0, 400.0, 655.0, 919.0, 1600.0, 2877.0, 5854.0, 7947.0];
const DISK_GB: [f64; 7] = [60.0, 276.0, 584.0, 1270.0, 2734.0, 4925.0, 11_899.0];
const PLACES: [&str; 14] = [
    "California, US",
    ", US",
    "Texas, US",
    "Washington, US",
    "Quebec, CA",
    "Sweden, SE",
    "Poland, PL",
    "Czechia, CZ",
    "United Kingdom, GB",
    "Germany, DE",
    "Norway, NO",
    "Japan, JP",
    "China, CN",
    "Bulgaria, BG",
];
const HOUR_S: f64 = 3600.0;

impl Machine {
    /// Draws a machine like those of the market.
    pub(crate) fn drawn(id: u64, now_ms: u64, draw: &mut Draw) -> Self {
        let weights: Vec<f64> = KINDS.iter().map(|kind| kind.count.sqrt()).collect();
        let kind = &KINDS[draw.weighted(&weights)];
        let counts: Vec<f64> = COUNTS.iter().map(|(_, weight)| *weight).collect();
        let count = COUNTS[draw.weighted(&counts)].0;
        let price = asked(kind, draw);
        let share = match draw.whole(0, 99) {
            0..5 => draw.between(1.02, 1.1),
            5..15 => 1.0,
            _ => draw.between(0.35, 0.8),
        };
        let reliability = 1.0 - 10_f64.powf(-draw.between(1.2, 3.6));
        let verification = ["verified", "unverified", "deverified"][draw.weighted(&[0.75, 0.2, 0.05])];
        let duration_s = if draw.chance(0.08) {
            draw.between(HOUR_S, 12.0 * HOUR_S)
        } else {
            12.0 * HOUR_S * 360_f64.powf(draw.between(0.0, 1.0))
        };
        let listing = Listing {
            gpu_name: kind.gpu_name.into(),
            num_gpus: 0,
            usd_per_hour: price,
            min_bid_usd_per_hour: (price * share * 1e6).round() / 1e6,
            storage_cost: draw.of_table(&STORAGE),
            inet_down_cost: draw.of_table(&TRAFFIC),
            inet_up_cost: draw.of_table(&TRAFFIC),
            inet_down: (draw.of_table(&DOWN_MBIT) * 10.0).round() / 10.0,
            reliability: (reliability * 1e7).round() / 1e7,
            duration_s,
            is_verified: true,
            is_datacenter: draw.chance(0.15),
            geolocation: (*draw.pick(&PLACES)).into(),
        };
        let mut machine = Self::of(id, kind, count, &listing, now_ms, draw);
        machine.verification = verification;
        if draw.chance(0.05) {
            machine.ports = 0;
        }
        machine.describe(draw);
        machine
    }

    /// Creates a machine from a listing.
    pub(crate) fn listed(id: u64, listing: &Listing, kind: &'static Kind, now_ms: u64, draw: &mut Draw) -> Self {
        let count = listing.num_gpus.clamp(1, 16) as usize;
        let mut machine = Self::of(id, kind, count, listing, now_ms, draw);
        machine.disk_gb = 2000.0;
        machine.describe(draw);
        machine
    }

    fn of(id: u64, kind: &'static Kind, count: usize, listing: &Listing, now_ms: u64, draw: &mut Draw) -> Self {
        let first_gpu = id * 16;
        Self {
            id,
            host_id: draw.whole(10_000, 700_000),
            kind,
            gpu_ids: (0..count as u64).map(|index| first_gpu + index).collect(),
            holders: vec![None; count],
            blocks: blocks(count),
            price: nano_usd(listing.usd_per_hour),
            min_bid: nano_usd(listing.min_bid_usd_per_hour),
            storage: nano_usd(listing.storage_cost),
            down: nano_usd(listing.inet_down_cost),
            up: nano_usd(listing.inet_up_cost),
            inet_down: listing.inet_down,
            inet_up: (draw.of_table(&UP_MBIT) * 10.0).round() / 10.0,
            disk_gb: draw.of_table(&DISK_GB).round(),
            reliability: listing.reliability,
            verification: if listing.is_verified { "verified" } else { "unverified" },
            is_datacenter: listing.is_datacenter,
            geolocation: listing.geolocation.clone(),
            // Some carry stray blanks.
            ip: format!("192.0.2.{}{}", draw.whole(1, 254), if draw.chance(0.05) { " " } else { "" }),
            ports: draw.whole(16, 16_000),
            end_ms: now_ms + ms(listing.duration_s),
            is_up: true,
        }
    }

    /// Writes the fields of its offers that do not change.
    fn describe(&mut self, draw: &mut Draw) {
        let traits = offers::Traits::drawn(self, draw);
        let rows: Vec<_> = self.blocks.iter().map(|block| offers::row(self, block, &traits, draw)).collect();
        for (block, row) in self.blocks.iter_mut().zip(rows) {
            block.offer_text = text_without(&row, &OF_QUOTES);
            block.instance_text = text_without(&row, &OF_INSTANCES);
            block.row = row;
        }
    }

    /// Lists the machine again, at another price, for some more days.
    pub(crate) fn renew(&mut self, now_ms: u64, draw: &mut Draw) {
        self.price = nano_usd(asked(self.kind, draw));
        self.min_bid = self.price / 100 * draw.whole(40, 80);
        self.end_ms = now_ms + ms(draw.between(1.0, 60.0) * 24.0 * HOUR_S);
        self.describe(draw);
    }

    /// Whether all GPUs of a block are free.
    pub(crate) fn is_free(&self, start: usize, size: usize) -> bool {
        self.holders[start..start + size].iter().all(Option::is_none)
    }

    pub(crate) fn hold(&mut self, start: usize, size: usize, holder: Option<Holder>) {
        self.holders[start..start + size].fill(holder);
    }
}

/// Blocks of 1, 2, 4 and 8 GPUs from the first GPU on, and the whole machine.
fn blocks(count: usize) -> Vec<Block> {
    let sizes = [1, 2, 4, 8].into_iter().filter(|size| *size < count).chain([count]);
    let starts = |size: usize| (0..=count - size).step_by(size).map(move |start| (start, size));
    sizes
        .flat_map(starts)
        .map(|(start, size)| Block {
            start,
            size,
            ask: None,
            row: Map::new(),
            offer_text: String::new(),
            instance_text: String::new(),
        })
        .collect()
}

/// Price of a host in whole cents plus the provider's margin.
fn asked(kind: &Kind, draw: &mut Draw) -> f64 {
    let list = draw.spread(kind.price_p10, kind.price_median, kind.price_p90);
    (list * 75.0).round().max(1.0) / 75.0
}
