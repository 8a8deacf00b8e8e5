//! What a market is like.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use stokehold_vast::Scope;

/// The key that an untouched market takes.
pub const KEY: &str = "fake-vast-key";

/// What a market is like. Money is in dollars here, as on the wire.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Seeded boxes of 1 to 8 cards.
    pub machines: u32,
    /// Boxes that are as said, beside the seeded ones.
    pub listings: Vec<Listing>,
    /// Who may call.
    pub keys: Vec<Key>,
    /// What the account has at first.
    pub credit_usd: f64,
    /// Without a card on file what is stopped for want of credit is deleted.
    pub has_card: bool,
    /// At most so many offers in an answer, whatever the call says.
    pub search_cap: usize,
    /// Verified, rentable and not rented are asked for where a search does not speak of them.
    pub applies_default_filters: bool,
    /// Calls that come too soon are refused.
    pub limits_calls: bool,
    /// A refused call makes the next one wait anew.
    pub refused_calls_count: bool,
    /// So many searches a UTC day.
    pub searches_per_day: Option<u32>,
    /// From the acceptance to running, at least and at most.
    pub boot_s: (f64, f64),
    /// From a start to running, where the image is there.
    pub restart_s: (f64, f64),
    /// From a stop to stopped.
    pub stop_s: f64,
    /// What is received before the first start.
    pub image_gb: f64,
    /// What is still charged after a destroy: drawn between none and this.
    pub bills_after_destroy_s: f64,
    /// How often somebody else bids on the cards of an interruptible.
    pub rivals_per_hour: f64,
    /// By what share of the least bid they exceed it, on average.
    pub rival_margin: f64,
    /// For how long, on average, whoever took cards keeps them.
    pub taken_s: f64,
    /// How often somebody else rents at a box.
    pub rented_per_machine_hour: f64,
    /// The chance that a stopped instance's cards are taken at once.
    pub stopped_cards_taken: f64,
    /// The HTTP status of a start that is queued.
    pub queued_start_status: u16,
    /// So many calls are remembered.
    pub log_calls: usize,
    /// Every change of an instance is kept, for who reckons after.
    pub keeps_history: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            machines: 150,
            listings: Vec::new(),
            keys: vec![Key::all(KEY)],
            credit_usd: 100.0,
            has_card: true,
            search_cap: 64,
            applies_default_filters: true,
            limits_calls: true,
            refused_calls_count: false,
            searches_per_day: None,
            boot_s: (45.0, 240.0),
            restart_s: (5.0, 20.0),
            stop_s: 2.0,
            image_gb: 6.0,
            bills_after_destroy_s: 0.0,
            rivals_per_hour: 0.3,
            rival_margin: 0.25,
            taken_s: 7200.0,
            rented_per_machine_hour: 0.05,
            stopped_cards_taken: 0.3,
            queued_start_status: 200,
            log_calls: 10_000,
            keeps_history: false,
        }
    }
}

impl Settings {
    /// A market in which nothing happens that nobody asked for: no rivals, no other renters, no limits, boots of one length.
    #[must_use]
    pub fn calm() -> Self {
        Self {
            limits_calls: false,
            boot_s: (60.0, 60.0),
            restart_s: (10.0, 10.0),
            rivals_per_hour: 0.0,
            rented_per_machine_hour: 0.0,
            stopped_cards_taken: 0.0,
            ..Self::default()
        }
    }
}

/// One box as it is said to be. Prices are for one card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Listing {
    /// A name of the table of kinds.
    pub gpu_name: String,
    /// Cards in it.
    pub num_gpus: u32,
    /// On demand, dollars an hour.
    pub usd_per_hour: f64,
    /// The least bid, dollars an hour.
    pub min_bid_usd_per_hour: f64,
    /// Dollars per GB and month.
    pub storage_cost: f64,
    /// Dollars per GB received.
    pub inet_down_cost: f64,
    /// Dollars per GB sent.
    pub inet_up_cost: f64,
    /// Megabit a second received.
    pub inet_down: f64,
    /// Between 0 and 1.
    pub reliability: f64,
    /// For how long it is listed.
    pub duration_s: f64,
    /// Whether its host is verified.
    pub is_verified: bool,
    /// Whether it stands in a data centre.
    pub is_datacenter: bool,
    /// `Region, CC`.
    pub geolocation: String,
}

impl Default for Listing {
    fn default() -> Self {
        Self {
            gpu_name: "RTX 4090".into(),
            num_gpus: 1,
            usd_per_hour: 0.4,
            min_bid_usd_per_hour: 0.2,
            storage_cost: 0.2,
            inet_down_cost: 0.002,
            inet_up_cost: 0.004,
            inet_down: 900.0,
            reliability: 0.995,
            duration_s: 30.0 * 86_400.0,
            is_verified: true,
            is_datacenter: false,
            geolocation: "Sweden, SE".into(),
        }
    }
}

/// A key of the account.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// What stands behind `Bearer`.
    pub key: String,
    /// What it may do.
    pub scopes: BTreeSet<Scope>,
}

impl Key {
    /// One that may do everything.
    #[must_use]
    pub fn all(key: &str) -> Self {
        use Scope::{BillingRead, InstanceRead, InstanceWrite, Misc, UserRead};
        Self { key: key.into(), scopes: [Misc, InstanceRead, InstanceWrite, UserRead, BillingRead].into() }
    }
}
