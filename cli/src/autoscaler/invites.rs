//! Join tokens of rented instances: one per instance, created when the instance is rented.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use stokehold_api::token::{TokenKey, for_machine};
use stokehold_autoscaler::provider::{Invites, ProviderError};
use stokehold_autoscaler::providers::Providers;
use stokehold_autoscaler::secret::Secret;
use stokehold_planner::observation::Traits;
use stokehold_queue::Registry;

use crate::dev::secrets::TENANT;

/// Creates join tokens for rented instances.
pub(crate) struct Invitations {
    registry: Registry,
    key: TokenKey,
}

impl Invitations {
    /// Creates invitations. `key` is the API's token key; tokens are stored in the API's registry.
    pub(crate) fn new(registry: Registry, key: TokenKey) -> Self {
        Self { registry, key }
    }

    async fn make(&self, machine: &str, traits: &Traits) -> Result<Secret, ProviderError> {
        // Called before the instance is rented.
        let refused = |why: String| ProviderError::Refused(format!("cannot create a join token for it: {why}"));
        let whose = (traits.trust, traits.region.as_str());
        let made = for_machine(machine, TENANT, whose, &self.key);
        let (record, token) = made.map_err(|error| refused(error.to_string()))?;
        self.registry.put_token(&record).await.map_err(|error| refused(error.to_string()))?;
        Ok(Secret::new(token.expose()))
    }
}

impl Invites for Invitations {
    fn invite<'a>(&'a self, machine: &'a str, traits: &'a Traits) -> BoxFuture<'a, Result<Secret, ProviderError>> {
        self.make(machine, traits).boxed()
    }
}

/// Parses the token key if one of the providers needs join tokens.
pub(super) fn key(providers: &Providers, token_key: &Secret) -> Result<Option<TokenKey>> {
    let Some(provider) = providers.iter().find(|provider| provider.takes_join_token()) else { return Ok(None) };
    ensure!(
        !token_key.expose().is_empty(),
        "set STOKE_TOKEN_KEY to the API's token_key: it signs the join tokens of {} machines",
        provider.name()
    );
    token_key.expose().parse().map(Some).context("STOKE_TOKEN_KEY is not a valid token key")
}

/// Wraps [`Invitations`] for the autoscaler.
pub(super) fn with(registry: Registry, key: TokenKey) -> Arc<dyn Invites> {
    Arc::new(Invitations::new(registry, key))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use stokehold_autoscaler::provider::{Order, Provider, Rental};
    use stokehold_planner::Offer;
    use stokehold_queue::requirements::Trust;
    use stokehold_queue::{RedisConfig, RedisQueue, TokenKind};
    use stokehold_tests::redis_server::RedisServer;

    use super::*;

    /// A provider whose instances need join tokens.
    struct Cloud;

    impl Provider for Cloud {
        fn name(&self) -> &'static str {
            "cloud"
        }
        fn offers(&self) -> BoxFuture<'_, Result<Vec<Offer>, ProviderError>> {
            async { Ok(Vec::new()) }.boxed()
        }
        fn rentals(&self) -> BoxFuture<'_, Result<Option<Vec<Rental>>, ProviderError>> {
            async { Ok(None) }.boxed()
        }
        fn rent<'a>(&'a self, _: &'a Order) -> BoxFuture<'a, Result<String, ProviderError>> {
            async { Err(ProviderError::Refused("none".to_owned())) }.boxed()
        }
        fn stop<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), ProviderError>> {
            async { Ok(()) }.boxed()
        }
        fn resume<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), ProviderError>> {
            async { Ok(()) }.boxed()
        }
        fn release<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), ProviderError>> {
            async { Ok(()) }.boxed()
        }
        fn join_limit(&self) -> Duration {
            Duration::from_secs(1)
        }
        fn takes_join_token(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_key_is_asked_for_only_where_a_provider_takes_join_tokens() {
        let (none, cloud) = (Providers::default(), Providers::from_iter([Arc::new(Cloud) as Arc<dyn Provider>]));
        assert!(key(&none, &Secret::default()).unwrap().is_none());
        let missing = key(&cloud, &Secret::default()).unwrap_err().to_string();
        assert!(missing.contains("STOKE_TOKEN_KEY") && missing.contains("cloud"), "{missing}");
        assert!(key(&cloud, &Secret::new("short")).is_err());
        assert!(key(&cloud, &Secret::new("ab".repeat(32))).unwrap().is_some());
    }

    #[tokio::test]
    async fn a_machine_is_given_a_token_of_its_own_that_the_api_knows() {
        let folder = tempfile::tempdir().unwrap();
        let server = RedisServer::start(folder.path(), &[]);
        let config = RedisConfig { url: server.url(), ..RedisConfig::default() };
        let registry = RedisQueue::connect(config).await.unwrap().registry();
        let invites = with(registry.clone(), TokenKey::generate().unwrap());
        let traits = Traits { trust: Trust::Community, region: "eu".to_owned(), ..Traits::default() };
        let token = invites.invite("m-1", &traits).await.unwrap();
        let known = registry.tokens().await.unwrap();
        assert_eq!(token.expose().split('_').nth(1), Some(known[0].id.as_str()));
        assert_eq!((known[0].kind, known[0].tenant.as_str(), known[0].single_use), (TokenKind::Join, TENANT, true));
        assert_eq!((known[0].trust, known[0].region.as_str()), (Trust::Community, "eu"));
        assert_eq!(known[0].machine.as_deref(), Some("m-1"));
        assert!(!format!("{token:?}").contains(token.expose()));
    }
}
