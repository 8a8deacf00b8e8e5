//! Endpoint versions as a submit needs them, ready to validate inputs with.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jsonschema::{PatternOptions, Validator};
use moka::sync::Cache;
use rand::Rng as _;
use serde_json::Value;
use stokehold_queue::Registry;
use stokehold_queue::demands::Demands;
use stokehold_queue::endpoint::{EndpointVersion, Traffic};

use crate::error::{Code, Problem};
use crate::patience::Patience;

/// A deploy on another replica is seen after this long at the latest; one on this replica at once.
const CURRENT_FOR: Duration = Duration::from_secs(1);

const DEPLOYED_MAX: u64 = 1_000;
const DEPLOYED_IDLE: Duration = Duration::from_secs(600);

/// A compiled pattern may take this much memory.
const PATTERN_BYTES: usize = 1 << 20;

/// What a version was seen to need of a card is looked up again after this long.
const NEED_FOR: Duration = Duration::from_secs(5);

/// One version with its schema compiled.
pub(crate) struct Deployed {
    pub(crate) version: EndpointVersion,
    /// The class of card that jobs submitted now are for.
    pub(crate) vram_class_gib: u32,
    /// The number of its demands.
    pub(crate) demands: u32,
    pub(crate) input: Validator,
    /// When what it needs is to be looked up again; never for what runs on the CPU.
    pub(crate) need_until: Option<Instant>,
}

/// Looked-up versions, bounded.
pub(crate) struct Catalog {
    registry: Registry,
    patience: Patience,
    traffic: Cache<(String, String), Traffic>,
    deployed: Cache<(String, String, u32), Arc<Deployed>>,
}

impl Catalog {
    pub(crate) fn new(registry: Registry, patience: Patience) -> Self {
        Self {
            registry,
            patience,
            traffic: Cache::builder().max_capacity(100_000).time_to_live(CURRENT_FOR).build(),
            deployed: Cache::builder().max_capacity(DEPLOYED_MAX).time_to_idle(DEPLOYED_IDLE).build(),
        }
    }

    /// The version asked for, or the current one.
    pub(crate) async fn resolve(
        &self,
        tenant: &str,
        name: &str,
        version: Option<u32>,
    ) -> Result<Arc<Deployed>, Problem> {
        let number = match version {
            Some(version) => version,
            None => match self.traffic(tenant, name).await? {
                Some(traffic) => traffic.pick(rand::rng().random_range(0..100)),
                None => return Err(unknown_endpoint(name)),
            },
        };
        let key = (tenant.to_owned(), name.to_owned(), number);
        if let Some(deployed) = self.deployed.get(&key)
            && deployed.need_until.is_none_or(|until| Instant::now() < until)
        {
            return Ok(deployed);
        }
        let found = self.patience.ask("read an endpoint", self.registry.endpoint(tenant, name, Some(number))).await?;
        let Some(found) = found else { return Err(self.unknown_version(tenant, name, number).await?) };
        let needs_card = found.spec.vram_gib > 0.0;
        let seen_mib = if needs_card { self.seen_mib(tenant, name, number).await? } else { None };
        let need_until = needs_card.then(|| Instant::now() + NEED_FOR);
        let demands = self.number(&found.spec.demands).await?;
        let deployed = Arc::new(compile(found, seen_mib, demands, need_until)?);
        self.deployed.insert(key, deployed.clone());
        Ok(deployed)
    }

    /// Which versions new jobs run on.
    async fn traffic(&self, tenant: &str, name: &str) -> Result<Option<Traffic>, Problem> {
        let key = (tenant.to_owned(), name.to_owned());
        if let Some(traffic) = self.traffic.get(&key) {
            return Ok(Some(traffic));
        }
        let found = self.patience.ask("read an endpoint", self.registry.traffic(tenant, name)).await?;
        // Only if absent: a deploy that crossed this look knows better.
        Ok(found.map(|found| self.traffic.entry(key).or_insert(found).into_value()))
    }

    /// What it was seen to need of whatever card, at the most.
    async fn seen_mib(&self, tenant: &str, name: &str, version: u32) -> Result<Option<u64>, Problem> {
        let needs = self.patience.ask("read what a version needs", self.registry.needs(tenant, name, version)).await?;
        Ok(needs.into_values().max())
    }

    /// The number of a set of demands.
    pub(crate) async fn number(&self, demands: &Demands) -> Result<u32, Problem> {
        let number = self.patience.ask("number demands", self.registry.number_demands(demands)).await?;
        number.ok_or_else(|| {
            Problem::new(
                Code::InvalidRequest,
                "there are too many different demands already (gpu_models, min_compute_capability, min_cuda, regions, min_trust): use those of \
                 another endpoint",
            )
        })
    }

    /// It was just seen to need more: the next submit looks it up.
    pub(crate) fn learned_now(&self, tenant: &str, name: &str, version: u32) {
        self.deployed.invalidate(&(tenant.to_owned(), name.to_owned(), version));
    }

    /// A deploy, or a change of traffic, on this replica: from here on it holds.
    pub(crate) fn routed_now(&self, tenant: &str, name: &str, traffic: Traffic) {
        self.traffic.insert((tenant.to_owned(), name.to_owned()), traffic);
    }

    /// What is missing: the endpoint, or only this version of it.
    async fn unknown_version(&self, tenant: &str, name: &str, version: u32) -> Result<Problem, Problem> {
        Ok(match self.traffic(tenant, name).await? {
            Some(traffic) => Problem::new(
                Code::UnknownVersion,
                format!("endpoint {name:?} has no version {version}; the current one is {}", traffic.current),
            ),
            None => unknown_endpoint(name),
        })
    }
}

fn unknown_endpoint(name: &str) -> Problem {
    Problem::new(
        Code::UnknownEndpoint,
        format!("there is no endpoint {name:?}; deploy it with `stoke deploy`, or see GET /v1/endpoints"),
    )
}

fn compile(
    version: EndpointVersion,
    seen_mib: Option<u64>,
    demands: u32,
    need_until: Option<Instant>,
) -> Result<Deployed, Problem> {
    let broken = |why: &str| {
        tracing::error!(endpoint = version.name, version = version.version, why, "a deployed version cannot be used");
        Problem::new(Code::Internal, "this version of the endpoint cannot be used any more; deploy it again")
    };
    let input = validator(&version.spec.input_schema).map_err(|why| broken(&why))?;
    let class = version.spec.vram_class_gib(seen_mib);
    let vram_class_gib = class.ok_or_else(|| broken("it wants more VRAM than any card has"))?;
    Ok(Deployed { version, vram_class_gib, demands, input, need_until })
}

/// Compiles a schema. It fetches nothing, and its patterns run in linear time.
pub(crate) fn validator(schema: &Value) -> Result<Validator, String> {
    jsonschema::options()
        .offline()
        .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_BYTES))
        .build(schema)
        .map_err(|error| format!("{}: {error}", error.instance_path()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_fetches_nothing_and_backtracks_never() {
        assert!(validator(&json!({"$ref": "https://example.org/schema.json"})).is_err());
        assert!(validator(&json!({"$ref": "file:///etc/passwd"})).is_err());
        assert!(validator(&json!({"type": "strange"})).is_err());
        let evil = validator(&json!({"type": "string", "pattern": "^(a+)+$"})).unwrap();
        assert!(!evil.is_valid(&json!(format!("{}!", "a".repeat(100_000)))));
    }
}
