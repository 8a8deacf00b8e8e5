//! The request that rents a machine, and its outcome. It is sent once: an offer that was taken by a request without a
//! response looks like one that another customer took.

use serde_json::{Map, Value, json};
use stokehold_units::UsdMicros;
use stokehold_vast::{field, path, state};

use super::api::{Error, Object, request};
use super::error::{ErrorResponse, number};
use super::settings::VastSettings;
use super::transport::{Method, Request};
use crate::provider::{Order, ProviderError};

/// Maximum size of the start script with its interpreter, bytes.
const SCRIPT_MAX: usize = 4_048;

/// Interpreter of the start script.
const SHELL: &str = "/bin/sh";

/// Maximum number of characters of a label.
const LABEL_MAX: usize = 60;

/// Range of bids that Vast.ai accepts, millionths of a dollar per hour.
const PRICES: std::ops::RangeInclusive<u64> = 1_000..=128_000_000;

/// Parameters of every rent.
#[derive(Debug, Clone)]
pub(super) struct RentTemplate {
    image: String,
    disk_gb: f64,
    script: String,
    gateway_url: String,
    /// The URL of Vast.ai; empty for the default of the machine.
    vast_url: String,
    /// Package indexes; empty for the default of the worker.
    package_indexes: String,
    prefix: String,
}

/// The start script is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the start script of rented machines has {0} characters; Vast.ai accepts {SCRIPT_MAX}")]
pub struct TooLong(usize);

impl RentTemplate {
    /// `gateway_url`: the address at which workers reach the gateway, unless the settings override it.
    pub(super) fn new(settings: &VastSettings, gateway_url: &str, bootstrap: String) -> Result<Self, TooLong> {
        let length = SHELL.len() + "-c".len() + bootstrap.len();
        if length > SCRIPT_MAX {
            return Err(TooLong(length));
        }
        let own = settings.gateway_url.trim_end_matches('/');
        Ok(Self {
            image: settings.image.trim().to_owned(),
            disk_gb: settings.disk_gb,
            script: bootstrap,
            gateway_url: if own.is_empty() { gateway_url.trim_end_matches('/') } else { own }.to_owned(),
            vast_url: Some(settings.base_url())
                .filter(|url| *url != stokehold_vast::URL)
                .unwrap_or_default()
                .to_owned(),
            package_indexes: settings.package_indexes.trim().to_owned(),
            prefix: format!("stoke-{}:", settings.namespace),
        })
    }

    /// Prefix of the labels of this namespace.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Label of a machine's ID.
    pub(super) fn label(&self, id: &str) -> Result<String, ProviderError> {
        let label = format!("{}{id}", self.prefix);
        if id.is_empty() || label.chars().count() >= LABEL_MAX {
            return Err(ProviderError::Refused(format!("{label:?} is not a valid label")));
        }
        Ok(label)
    }

    /// Builds the request of an order.
    pub(super) fn request(&self, order: &Order) -> Result<Request, ProviderError> {
        let offer = &order.offer;
        let Ok(ask) = offer.id.parse::<u64>() else {
            return Err(ProviderError::Vanished(format!("{} is not an offer ID of Vast.ai", offer.id)));
        };
        let price = match order.bid_usd_per_hour {
            // A bid covers the GPUs; the disk is charged in addition.
            Some(price) => Some(bid(price - offer.stopped_usd_per_hour.unwrap_or_default())?),
            None => None,
        };
        let body = json!({
            "client_id": "me",
            "image": self.image,
            "disk": self.disk_gb,
            "price": price,
            "label": self.label(&order.label)?,
            "env": self.env(order),
            (field::RUNTYPE): "args",
            (field::ONSTART): SHELL,
            "args": ["-c", self.script],
            "user": "root",
            (field::TARGET_STATE): state::RUNNING,
            (field::CANCEL_UNAVAIL): true,
            "force": false,
        });
        Ok(request(Method::Put, path::ask(ask), Some(body)))
    }

    fn env(&self, order: &Order) -> Map<String, Value> {
        let mut env = Map::new();
        let mut set = |name: &str, value: &str| drop(env.insert(name.to_owned(), Value::from(value)));
        set("STOKE_GATEWAY_URL", &self.gateway_url);
        set("STOKE_JOIN_TOKEN", order.join_token.expose());
        set("STOKE_WORKER_NAME", &order.label);
        if !self.package_indexes.is_empty() {
            set("STOKE_PACKAGE_INDEXES", &self.package_indexes);
        }
        if !self.vast_url.is_empty() {
            set("STOKE_VAST_URL", &self.vast_url);
        }
        env
    }
}

/// The bid in dollars, if Vast.ai accepts such a bid.
pub(super) fn bid(price: UsdMicros) -> Result<f64, ProviderError> {
    if PRICES.contains(&price.micros()) {
        Ok(price.usd())
    } else {
        Err(ProviderError::Refused(format!("Vast.ai does not accept a bid of ${price:.6} per hour")))
    }
}

/// Returns the ID of the instance, or the failure.
pub(super) fn outcome(answer: Result<Object, Error>, order: &Order) -> Result<String, ProviderError> {
    let answer = answer.and_then(|answer| {
        let contract = number(answer.get(field::NEW_CONTRACT));
        contract
            .ok_or_else(|| ErrorResponse::unreadable("rented, but the response lacks the ID of the instance").into())
    });
    let failure = match answer {
        Ok(contract) => return Ok(contract.to_string()),
        Err(error) => ProviderError::from(error),
    };
    let token = order.join_token.expose();
    let hush = |why: String| if token.is_empty() { why } else { why.replace(token, "(secret)") };
    Err(match failure {
        ProviderError::Refused(why) => ProviderError::Refused(hush(why)),
        ProviderError::Vanished(why) => ProviderError::Vanished(hush(why)),
        ProviderError::Unknown(why) => ProviderError::Unknown(hush(why)),
        ProviderError::Made { rental, why } => ProviderError::Made { rental, why: hush(why) },
    })
}
