//! Settings of a market.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use stokehold_vast::Scope;

/// API key that a market with default settings accepts.
pub const KEY: &str = "fake-vast-key";

/// Settings of a market. Money is in dollars, as on the wire.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Number of random machines with 1 to 8 GPUs.
    pub machines: u32,
    /// Machines with given properties, in addition to the random ones.
    pub listings: Vec<Listing>,
    /// API keys.
    pub keys: Vec<Key>,
    /// Initial credit, dollars.
    pub credit_usd: f64,
    /// Whether the account has a payment card. Without one, instances are deleted when the credit is exhausted.
    pub has_payment_card: bool,
    /// Maximum number of offers in a response, whatever the request asks for.
    pub search_cap: usize,
    /// Whether searches get the default filters: verified, rentable and not rented.
    pub applies_default_filters: bool,
    /// Whether calls that come too soon are refused.
    pub limits_calls: bool,
    /// Whether a refused call restarts the interval.
    pub refused_calls_count: bool,
    /// Maximum number of searches per day (UTC).
    pub searches_per_day: Option<u32>,
    /// Range of times from a rent to a running container, seconds.
    pub boot_s: (f64, f64),
    /// Range of times from a start to a running container if the image is present, seconds.
    pub restart_s: (f64, f64),
    /// Time from a stop request to the stop, seconds.
    pub stop_s: f64,
    /// Size of the image that is received before the first start, GB.
    pub image_gb: f64,
    /// Maximum time for which a destroyed instance is still charged for, seconds.
    pub bills_after_destroy_s: f64,
    /// Rate at which other customers bid for the GPUs of an interruptible instance, per hour.
    pub rivals_per_hour: f64,
    /// Average share by which they exceed the minimum bid.
    pub rival_margin: f64,
    /// Average time for which they keep the GPUs, seconds.
    pub taken_s: f64,
    /// Rate at which other customers rent GPUs of a machine, per hour.
    pub rented_per_machine_hour: f64,
    /// Probability that the GPUs of a stopped instance are rented at once.
    pub stopped_cards_taken: f64,
    /// Status of the response to a start that is queued.
    pub queued_start_status: u16,
    /// Number of calls that are kept.
    pub log_calls: usize,
    /// Whether every change of an instance is kept.
    pub keeps_history: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            machines: 150,
            listings: Vec::new(),
            keys: vec![Key::all(KEY)],
            credit_usd: 100.0,
            has_payment_card: true,
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
    /// A market without external events: no other customers, no rate limits, boots of constant length.
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

/// A machine with given properties. Prices are per GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Listing {
    /// Name of a kind of GPU, as in the table of kinds.
    pub gpu_name: String,
    /// Number of GPUs.
    pub num_gpus: u32,
    /// On-demand price, dollars per hour.
    pub usd_per_hour: f64,
    /// Minimum bid, dollars per hour.
    pub min_bid_usd_per_hour: f64,
    /// Price of storage, dollars per GB and month.
    pub storage_cost: f64,
    /// Price of received data, dollars per GB.
    pub inet_down_cost: f64,
    /// Price of sent data, dollars per GB.
    pub inet_up_cost: f64,
    /// Download rate, Mbit/s.
    pub inet_down: f64,
    /// Reliability, 0 to 1.
    pub reliability: f64,
    /// Remaining time of the listing, seconds.
    pub duration_s: f64,
    /// Whether the host is verified.
    pub is_verified: bool,
    /// Whether the host is in a data center.
    pub is_datacenter: bool,
    /// Location: `Region, CC`.
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

/// API key of the account.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// The key, as sent after `Bearer`.
    pub key: String,
    /// Permissions.
    pub scopes: BTreeSet<Scope>,
}

impl Key {
    /// Creates a key with all permissions.
    #[must_use]
    pub fn all(key: &str) -> Self {
        use Scope::{BillingRead, InstanceRead, InstanceWrite, Misc, UserRead};
        Self { key: key.into(), scopes: [Misc, InstanceRead, InstanceWrite, UserRead, BillingRead].into() }
    }
}
