//! An autoscaler process of a storm.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use stokehold_planner::observation::Traits;
use stokehold_planner::{Planner, Policy};
use stokehold_queue::registry::{Eta, Notice, Term};

use super::cloud::{self, World};
use super::fleet::Fleet;
use super::planted;
use crate::live::Settings;
use crate::live::collect::Asker;
use crate::live::eta::etas;
use crate::live::notices::Notices;
use crate::live::round::round;
use crate::observe::RawState;
use crate::provider::{Invites, ProviderError};
use crate::providers::Providers;
use crate::providers::vast::Vast;
use crate::rental_ledger::RentalLedger;
use crate::secret::Secret;

/// The state of an autoscaler in memory, which is lost when it is killed.
pub(super) struct Scaler {
    pub(super) holder: String,
    planner: Planner,
    asker: Asker,
    notices: Notices,
    ledger: Box<dyn RentalLedger>,
    providers: Providers,
    settings: Settings,
    /// Notices at the end of the last round.
    pub(super) said: Vec<Notice>,
    pub(super) etas: Vec<Eta>,
    /// State that the last round read.
    pub(super) seen: Option<RawState>,
}

struct Anybody;

impl Invites for Anybody {
    fn invite<'a>(&'a self, _: &'a str, _: &'a Traits) -> BoxFuture<'a, Result<Secret, ProviderError>> {
        Box::pin(async { Ok(Secret::new("jt_storm")) })
    }
}

impl Scaler {
    pub(super) fn new(holder: String, world: &World, policy: &Policy) -> Self {
        let settings = Settings { tick: Duration::from_secs(2), policy: policy.clone(), holder: None };
        let vast =
            Vast::new(cloud::settings(), &settings.policy, "http://gateway", "true".to_owned(), world.cloud.clone());
        let vast = planted::provider(Arc::new(vast.unwrap()), world);
        Self {
            ledger: planted::ledger(world, vast.clone()),
            holder,
            planner: Planner::new(settings.policy.clone()),
            asker: Asker::new(settings.policy.min_credit()),
            notices: Notices::default(),
            providers: std::iter::once(vast).collect(),
            settings,
            said: Vec::new(),
            etas: Vec::new(),
            seen: None,
        }
    }

    /// Runs one round in a term that may already have ended. The state in memory survives unless the round is killed.
    pub(super) async fn round(mut self, world: World, fleet: Fleet, term: Term) -> Self {
        let answers = self.asker.ask(&self.providers, &world.seen(&fleet)).await;
        let poll = planted::poll(&mut self.asker, planted::read(world.seen(&fleet)), answers);
        let clock = world.cloud.clock();
        let executor = self.settings.executor(&*self.ledger, &clock, term, &self.providers, Some(&Anybody));
        let (limits, policy) = (self.settings.limits(), &self.settings.policy);
        let told = &mut self.etas;
        // An error ends the round, which is an expected outcome.
        self.seen =
            round(&executor, &mut self.planner, limits, poll, &mut self.notices, |seen, _| *told = etas(seen, policy))
                .await
                .ok();
        (self.said, _) = self.notices.end_round(clock.now_ms());
        self
    }
}
