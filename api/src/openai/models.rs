//! The endpoints that speak the API of OpenAI, and their other names.

use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;

use super::route::speaks;
use crate::database::{self, Database};

/// Longest time until the other names of a deploy on another replica are known here. A deploy on this replica takes
/// effect at once.
const LISTED_FOR: Duration = Duration::from_secs(5);

/// Maximum number of cached models.
const LISTED_MAX: u64 = 100_000;

/// The models of all tenants, as far as they were asked for lately.
pub(crate) struct Models {
    db: Arc<Database>,
    listed: Cache<String, Arc<[Listed]>>,
}

/// A name under which an endpoint is found.
pub(super) struct Listed {
    pub(super) model: String,
    pub(super) endpoint: String,
    pub(super) created_s: u64,
}

impl Models {
    pub(crate) fn new(db: Arc<Database>) -> Self {
        let listed = Cache::builder()
            .weigher(|_, models: &Arc<[Listed]>| u32::try_from(models.len()).unwrap_or(u32::MAX).saturating_add(1))
            .max_capacity(LISTED_MAX)
            .time_to_live(LISTED_FOR)
            .build();
        Self { db, listed }
    }

    /// Discards a tenant's models after one of its endpoints has changed on this replica.
    pub(crate) fn changed_now(&self, tenant: &str) {
        self.listed.invalidate(tenant);
    }

    /// The endpoint with this other name. If several have it, the first by name.
    pub(super) async fn endpoint(&self, tenant: &str, model: &str) -> Result<Option<String>, database::Error> {
        let listed = self.of(tenant).await?;
        Ok(listed.iter().find(|listed| listed.model == model).map(|listed| listed.endpoint.clone()))
    }

    /// The models of a tenant: for each endpoint, by name, its own name and then the others.
    pub(super) async fn of(&self, tenant: &str) -> Result<Arc<[Listed]>, database::Error> {
        if let Some(listed) = self.listed.get(tenant) {
            return Ok(listed);
        }
        let endpoints = self.db.ask("list endpoints", self.db.registry.endpoints(tenant)).await?;
        let mut listed: Vec<Listed> = Vec::new();
        for endpoint in endpoints.iter().filter(|endpoint| speaks(&endpoint.spec)) {
            let names = std::iter::once(&endpoint.name).chain(&endpoint.spec.openai_models);
            listed.extend(names.map(|model| Listed {
                model: model.clone(),
                endpoint: endpoint.name.clone(),
                created_s: endpoint.created_ms / 1000,
            }));
        }
        let listed: Arc<[Listed]> = listed.into();
        self.listed.insert(tenant.to_owned(), listed.clone());
        Ok(listed)
    }
}
