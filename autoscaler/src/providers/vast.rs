//! `vast`: machines rented at Vast.ai. Responses are trusted only as far as they can be: lists may lack machines,
//! errors may leave machines behind, and a request without a response may have been carried out.

mod api;
mod ask;
mod error;
mod instances;
mod money;
mod offers;
mod pace;
mod rent;
#[cfg(test)]
mod scripted;
mod settings;
#[cfg(test)]
mod tests;
pub mod transport;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stokehold_planner::Policy;
use stokehold_planner::observation::Offer;
use stokehold_planner::snapshot::Needs;

use futures::future::BoxFuture;
use serde_json::json;
use stokehold_units::UsdMicros;
use stokehold_vast::{path, state};

use self::api::{Api, Error, request};
use self::error::ErrorKind;
use self::instances::Listed;
use self::offers::{Class, Market};
use self::pace::Endpoint;
use self::rent::RentTemplate;
use self::settings::OfferFilter;
use self::transport::{Method, Transport};
use crate::provider::{Charge, Order, Provider, ProviderError, Rental};
use crate::sync::lock;

pub use self::api::NO_CREDIT;
pub use self::rent::TooLong;
pub use self::settings::VastSettings;

/// Name of the provider.
pub const NAME: &str = "vast";

/// Timeout of a call, longer than the timeouts of its parts.
const CALL_LIMIT: Duration = Duration::from_secs(60);

/// Time until lists are reliable: a new rental may be missing at first, and a released one may still be listed.
const SETTLES_AFTER: Duration = Duration::from_secs(90);

/// Machines at Vast.ai.
pub struct Vast {
    api: Api,
    settings: VastSettings,
    requirements: OfferFilter,
    template: RentTemplate,
    listed: tokio::sync::Mutex<Listed>,
    market: tokio::sync::Mutex<Market>,
    /// IDs of hosts to avoid.
    avoided: Mutex<BTreeSet<u64>>,
    /// Classes to search for.
    classes: Mutex<Vec<Class>>,
    /// Number of requested changes. A list from before the last change is outdated.
    changes: AtomicU64,
    settles_after: Duration,
}

impl Vast {
    /// `gateway_url`: URL of the gateway for workers, unless the settings override it. `bootstrap`: start script of
    /// rented machines.
    ///
    /// # Errors
    /// [`TooLong`] if the script is too long.
    pub fn new(
        settings: VastSettings,
        policy: &Policy,
        gateway_url: &str,
        bootstrap: String,
        transport: Arc<dyn Transport>,
    ) -> Result<Self, TooLong> {
        Ok(Self {
            api: Api::new(transport, settings.api_key.clone()),
            requirements: OfferFilter::new(&settings, policy),
            template: RentTemplate::new(&settings, gateway_url, bootstrap)?,
            settings,
            listed: tokio::sync::Mutex::default(),
            market: tokio::sync::Mutex::default(),
            avoided: Mutex::default(),
            classes: Mutex::new(Class::all(&[])),
            changes: AtomicU64::new(0),
            settles_after: SETTLES_AFTER,
        })
    }

    /// Sets the time after a rental until lists are reliable; default: 90 s. A machine that lists lack after this time
    /// counts as gone, so a shorter time is only for a market whose lists have no delay.
    #[must_use]
    pub fn settling_after(mut self, settles_after: Duration) -> Self {
        self.settles_after = settles_after;
        self
    }

    async fn set_state(&self, rental: &str, state: &str) -> Result<(), ProviderError> {
        let asked = request(Method::Put, instance(rental)?, Some(json!({"state": state})));
        self.change(Endpoint::State, asked).await?;
        Ok(())
    }

    /// Requests an idempotent change.
    async fn change(&self, endpoint: Endpoint, asked: transport::Request) -> Result<(), Error> {
        let answer = self.api.again(endpoint, asked).await;
        self.has_changed();
        answer.map(drop)
    }

    fn has_changed(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    async fn start(&self, rental: &str) -> Result<(), ProviderError> {
        let asked = request(Method::Put, instance(rental)?, Some(json!({"state": state::RUNNING})));
        match self.change(Endpoint::State, asked).await {
            // The instance would start, and cost money, at a later time when it is not needed.
            Err(error) if error.kind() == Some(ErrorKind::Queued) => {
                let why = error.to_string();
                match self.set_state(rental, state::STOPPED).await {
                    Ok(()) => Err(ProviderError::Vanished(why)),
                    Err(failure) => Err(ProviderError::Unknown(format!("{why}; stopping it again failed: {failure}"))),
                }
            }
            answer => Ok(answer?),
        }
    }

    async fn destroy(&self, rental: &str) -> Result<(), ProviderError> {
        match self.change(Endpoint::Destroy, request(Method::Delete, instance(rental)?, Some(json!({})))).await {
            Err(error) if error.kind() == Some(ErrorKind::NoSuchInstance) => Ok(()),
            answer => Ok(answer?),
        }
    }
}

fn id_of(rental: &str) -> Result<u64, ProviderError> {
    rental.parse().map_err(|_| ProviderError::Refused(format!("{rental:?} is not an instance ID of Vast.ai")))
}

fn instance(rental: &str) -> Result<String, ProviderError> {
    Ok(path::instance(id_of(rental)?))
}

impl Provider for Vast {
    fn name(&self) -> &'static str {
        NAME
    }

    fn offers(&self) -> BoxFuture<'_, Result<Vec<Offer>, ProviderError>> {
        Box::pin(async {
            let avoided = lock(&self.avoided).clone();
            let classes = lock(&self.classes).clone();
            let mut offers = self.market.lock().await.offers(&self.api, &self.requirements, &classes, &avoided).await?;
            offers.retain(|offer| ask::machine_id(&offer.host).is_none_or(|id| !avoided.contains(&id)));
            Ok(offers)
        })
    }

    fn rentals(&self) -> BoxFuture<'_, Result<Option<Vec<Rental>>, ProviderError>> {
        Box::pin(async {
            let mut listed = self.listed.lock().await;
            let changes = self.changes.load(Ordering::Relaxed);
            let rentals = listed.rentals(&self.api, self.template.prefix(), changes).await;
            // After any error, the existing instances are unknown.
            rentals.map(Some).map_err(|error| ProviderError::Unknown(error.to_string()))
        })
    }

    fn rent<'a>(&'a self, order: &'a Order) -> BoxFuture<'a, Result<String, ProviderError>> {
        Box::pin(async {
            let asked = self.template.request(order)?;
            let answer = self.api.once(Endpoint::Rent, asked).await;
            self.has_changed();
            rent::outcome(answer, order)
        })
    }

    fn price<'a>(&'a self, rental: &'a str) -> BoxFuture<'a, Result<Option<UsdMicros>, ProviderError>> {
        Box::pin(async {
            let mut asked = request(Method::Get, instance(rental)?, None);
            asked.query.push(("owner", "me".to_owned()));
            let answer = self.api.once(Endpoint::Show, asked).await?;
            Ok(answer.get("instances").and_then(instances::usd_per_hour))
        })
    }

    fn stop<'a>(&'a self, rental: &'a str) -> BoxFuture<'a, Result<(), ProviderError>> {
        Box::pin(self.set_state(rental, state::STOPPED))
    }

    fn resume<'a>(&'a self, rental: &'a str) -> BoxFuture<'a, Result<(), ProviderError>> {
        Box::pin(self.start(rental))
    }

    fn release<'a>(&'a self, rental: &'a str) -> BoxFuture<'a, Result<(), ProviderError>> {
        Box::pin(self.destroy(rental))
    }

    fn charges(&self, since_s: u64) -> BoxFuture<'_, Result<Option<Vec<Charge>>, ProviderError>> {
        Box::pin(async move { Ok(Some(money::charges(&self.api, self.template.prefix(), since_s).await?)) })
    }

    fn charges_boots(&self) -> bool {
        false
    }

    fn credit(&self) -> BoxFuture<'_, Result<Option<UsdMicros>, ProviderError>> {
        Box::pin(async { Ok(Some(money::credit(&self.api).await?)) })
    }

    fn charges_settle_after(&self) -> Duration {
        Duration::from_secs(self.settings.charges_settle_s)
    }

    fn call_limit(&self) -> Duration {
        CALL_LIMIT
    }

    fn join_limit(&self) -> Duration {
        self.settings.join_limit()
    }

    fn settles_after(&self) -> Duration {
        self.settles_after
    }

    fn avoid(&self, hosts: &BTreeSet<String>) {
        let boxes = hosts.iter().filter_map(|host| ask::machine_id(host)).collect();
        *lock(&self.avoided) = boxes;
    }

    fn look_for(&self, needs: &[Needs]) {
        *lock(&self.classes) = Class::all(needs);
    }

    fn takes_join_token(&self) -> bool {
        true
    }
}
