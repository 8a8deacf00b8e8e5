//! Admission of tenants' requests: whether a tenant is enabled, and its request rate. Checked with each request; read
//! from Redis every few seconds.

pub mod audit;
pub(crate) mod audit_routes;
pub(crate) mod auth;
pub(crate) mod limits;
pub(crate) mod routes;
pub(crate) mod scope;
pub(crate) mod shares;
pub(crate) mod storage;
pub mod token;
pub(crate) mod token_last_used;
pub(crate) mod tokens;
pub(crate) mod turns;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;
use stokehold_queue::TokenRecord;
use stokehold_queue::registry::TenantRecord;
use tokio::time::Instant;

use crate::database;
use crate::database::Database;
use crate::error::{Code, Problem};
use crate::server::peer::Address;
use crate::server::rate_limit::{Rate, RateLimits, whole_seconds};

/// Cache time of token and tenant records. Including the time to read one, a revoked token is refused within 5 s.
pub(crate) const CACHE_TTL: Duration = Duration::from_secs(4);

/// Rate of failed authentications from one address: ten at once, then ten a minute.
const FAILURES: Rate = Rate { every: Duration::from_secs(6), burst: 10 };

/// Records of recently verified tokens, by ID. The proof itself is checked with every request.
pub(crate) type TokenCache = Cache<String, Arc<TokenRecord>>;

/// Creates an empty cache of tokens.
pub(crate) fn token_cache() -> TokenCache {
    Cache::builder().max_capacity(10_000).time_to_live(CACHE_TTL).build()
}

/// Cached tenants of this replica, and the rates of their and of unauthenticated requests.
pub(crate) struct Tenants {
    db: Arc<Database>,
    known: Cache<String, Arc<TenantRecord>>,
    requests: RateLimits<String>,
    failures: RateLimits<IpAddr>,
}

impl Tenants {
    pub(crate) fn new(db: Arc<Database>) -> Self {
        Self {
            db,
            known: Cache::builder().max_capacity(10_000).time_to_live(CACHE_TTL).build(),
            requests: RateLimits::new(),
            failures: RateLimits::new(),
        }
    }

    /// Discards the cached record of a tenant that was changed on this replica.
    pub(crate) fn forget(&self, name: &str) {
        self.known.invalidate(name);
    }

    /// Returns a tenant's record, at most a few seconds old.
    pub(crate) async fn get(&self, name: &str) -> Result<Arc<TenantRecord>, database::Error> {
        if let Some(known) = self.known.get(name) {
            return Ok(known);
        }
        let record = Arc::new(self.db.ask("read a tenant", self.db.registry.tenant(name)).await?);
        Ok(self.known.entry_by_ref(name).or_insert(record).into_value())
    }

    /// Admits one request of a tenant.
    pub(crate) async fn admit(&self, name: &str) -> Result<(), Problem> {
        let tenant = self.get(name).await?;
        check_enabled(&tenant)?;
        let Some(most) = tenant.quotas.requests_per_minute else { return Ok(()) };
        let taken = self.requests.take(name.to_owned(), Rate::per_minute(most), Instant::now());
        taken.map_err(|wait| {
            let detail = format!(
                "tenant {name:?} may send {most} requests per minute; nothing was done. Send fewer, or ask the \
                    operator to raise requests_per_minute"
            );
            Problem::new(Code::RateLimited, detail).after(whole_seconds(wait))
        })
    }

    /// The response to a failed authentication. A valid token from the same address is still accepted.
    pub(crate) fn failed_log_in(&self, address: Address, problem: Problem) -> Problem {
        if problem.code() != Code::Unauthorized {
            return problem;
        }
        let counted = address.counted().map(|address| self.failures.take(address, FAILURES, Instant::now()));
        match counted {
            Some(Err(wait)) => {
                let detail =
                    "too many failed authentications from this address; check the token, then retry after the wait";
                Problem::new(Code::RateLimited, detail).after(whole_seconds(wait))
            }
            _ => problem,
        }
    }
}

/// Refuses a request of a disabled tenant.
pub(crate) fn check_enabled(tenant: &TenantRecord) -> Result<(), Problem> {
    if tenant.disabled_ms.is_none() {
        return Ok(());
    }
    let detail = format!("tenant {:?} is disabled; only an operator can enable it", tenant.name);
    Err(Problem::new(Code::TenantDisabled, detail))
}
