//! Numbers of requirement sets. A set contains all requirements of an endpoint on its workers except memory
//! ([`Requirements`]). Its number is part of the class of every job of that endpoint (`capability.rs` of
//! `stokehold-protocol`).
//!
//! Each tenant has a bounded number of sets, and tenants with equal sets share a number. A number becomes free again
//! when no tenant has used it for a while: no submit or deploy has requested it, no job that has not ended is of its
//! class, and no version with traffic has the set.

use std::collections::{BTreeMap, HashMap};

use redis::AsyncCommands;
use serde::Deserialize;

use super::{LIST_MAX, Registry, parsed_traffic, readable, to_json};
use crate::endpoint::EndpointVersion;
use crate::error::Error;
use crate::requirements::Requirements;
use crate::scripts;

/// Maximum number of requirement sets: the capability of every worker is computed for each of them.
pub const REQUIREMENT_SETS_MAX: u32 = 1_000;

/// Maximum number of requirement sets of one tenant.
pub const REQUIREMENT_SETS_OF_TENANT_MAX: u32 = 50;

/// Number of sets that a tenant can have although there are [`REQUIREMENT_SETS_MAX`] already.
const SETS_RESERVED: u32 = 5;

/// Maximum age of the recorded time of a tenant's last use of a set, milliseconds.
const NOTE_EVERY_MS: u64 = 60_000;

/// Maximum number of uses that one sweep checks.
const IDLE_MAX: usize = 1_000;

/// The number of a requirement set, or the reason why it has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequirementNumber {
    /// The number; 0 for the empty set.
    Number(u32),
    /// The tenant has this many sets, which is the limit.
    TenantFull(u32),
    /// The installation has this many sets, which is the limit.
    Full(u32),
}

/// A tenant's use of a requirement set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequirementUse {
    /// The number of the set.
    pub number: u32,
    /// The tenant; `*` for unknown tenants, in a set numbered by the previous release.
    pub tenant: String,
}

impl Registry {
    /// The number of a requirement set of a tenant. Equal sets have the same number. Records that the tenant uses the
    /// set. `deploys`: a version with this set is about to be added, which counts towards the tenant's limit.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; retry.
    pub async fn number_requirements(
        &self,
        tenant: &str,
        demands: &Requirements,
        deploys: bool,
    ) -> Result<RequirementNumber, Error> {
        if demands.ask_nothing() {
            return Ok(RequirementNumber::Number(0));
        }
        let keys = [self.keys.demands(), self.keys.demands_of(), self.keys.demand_users()];
        let mut call = scripts::DEMAND.call(&keys.each_ref().map(String::as_str));
        call.arg(to_json("assign a number to a requirement set", demands)?).arg(tenant);
        call.arg(REQUIREMENT_SETS_MAX).arg(REQUIREMENT_SETS_OF_TENANT_MAX).arg(u8::from(deploys)).arg(NOTE_EVERY_MS);
        call.arg(SETS_RESERVED);
        let (word, number): (String, u32) = self.connection.eval(&scripts::DEMAND, &call).await?;
        Ok(match word.as_str() {
            "number" => RequirementNumber::Number(number),
            "tenant_full" => RequirementNumber::TenantFull(number),
            "full" => RequirementNumber::Full(number),
            _ => return Err(scripts::unexpected(&scripts::DEMAND, &word)),
        })
    }

    /// Every requirement set that has a number, by number; the first is the empty set. A set that this release cannot
    /// read is left out, so this replica offers its jobs to no worker.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn demands(&self) -> Result<BTreeMap<u32, Requirements>, Error> {
        let numbers: HashMap<String, u32> = self
            .connection
            .redis()
            .hgetall(self.keys.demands())
            .await
            .map_err(Error::redis("read the requirement sets"))?;
        let mut all = BTreeMap::from([(0, Requirements::default())]);
        for (text, number) in numbers {
            match serde_json::from_str::<Requirements>(&text) {
                Ok(demands) if is_unused(&demands) => {}
                Ok(demands) => drop(all.insert(number, demands)),
                Err(error) => tracing::error!(number, %error, "a requirement set cannot be read; its jobs wait"),
            }
        }
        Ok(all)
    }

    /// The requirement sets that count toward a tenant's limit, by number.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn requirements_of(&self, tenant: &str) -> Result<BTreeMap<u32, Requirements>, Error> {
        let own: Vec<u32> = self
            .connection
            .redis()
            .smembers(format!("{}:{tenant}", self.keys.demands_of()))
            .await
            .map_err(Error::redis("read the requirement sets of a tenant"))?;
        let mut all = self.demands().await?;
        all.retain(|number, _| own.contains(number));
        Ok(all)
    }

    /// The requirements of each version of a tenant, as `name@version`.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn requirements_by_version(&self, tenant: &str) -> Result<Vec<(String, Requirements)>, Error> {
        #[derive(Deserialize)]
        struct Requiring {
            version: u32,
            #[serde(default)]
            demands: Requirements,
        }
        let (step, mut found) = ("read the requirements of versions", Vec::new());
        let read = |name: &str, text: &str| {
            let requiring: Option<Requiring> = readable(step, text);
            found.extend(requiring.map(|one| (name.to_owned(), one.version, one.demands)));
            Ok(())
        };
        self.read_versions(tenant, step, read).await?;
        found.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
        Ok(found.into_iter().map(|(name, version, demands)| (format!("{name}@{version}"), demands)).collect())
    }

    /// Ends a tenant's use of a requirement set, until a submit or a deploy needs the set again. The set keeps its
    /// number until the use has been idle as long as any other ([`Registry::free_requirements`]): replicas may submit
    /// jobs with the number for a minute.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: safe to retry.
    pub async fn drop_requirements(&self, tenant: &str, number: u32) -> Result<(), Error> {
        let own = format!("{}:{tenant}", self.keys.demands_of());
        let removed = self.connection.redis().srem(own, number).await;
        removed.map_err(Error::redis("delete a requirement set"))
    }

    /// The uses that have not been recorded again for `idle_ms`, at most 1,000, and the corresponding time, Unix
    /// milliseconds.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn idle_requirements(&self, idle_ms: u64) -> Result<(Vec<RequirementUse>, u64), Error> {
        let mut call = scripts::DEMAND_IDLE.call(&[&self.keys.demands(), &self.keys.demand_users()]);
        call.arg(idle_ms).arg(IDLE_MAX);
        let reply: Vec<String> = self.connection.eval(&scripts::DEMAND_IDLE, &call).await?;
        let unexpected = || scripts::unexpected(&scripts::DEMAND_IDLE, &reply);
        let (cutoff, uses) = reply.split_first().ok_or_else(unexpected)?;
        let read = |pair: &[String]| {
            let [number, tenant] = pair else { return None };
            Some(RequirementUse { number: number.parse().ok()?, tenant: tenant.clone() })
        };
        Ok((uses.chunks(2).filter_map(read).collect(), cutoff.parse().map_err(|_| unexpected())?))
    }

    /// Records that these uses continue.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: safe to retry.
    pub async fn keep_requirements(&self, uses: &[RequirementUse]) -> Result<(), Error> {
        for uses in uses.chunks(IDLE_MAX) {
            let mut call = scripts::DEMAND_KEEP.call(&[&self.keys.demand_users(), &self.keys.demands_of()]);
            for one in uses {
                call.arg(one.number).arg(&one.tenant);
            }
            let _: Vec<String> = self.connection.eval(&scripts::DEMAND_KEEP, &call).await?;
        }
        Ok(())
    }

    /// Ends the uses that have not been recorded since `cutoff_ms`. Returns how many sets lost their last use, so that
    /// their number is free again.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: safe to retry.
    pub async fn free_requirements(&self, uses: &[RequirementUse], cutoff_ms: u64) -> Result<u32, Error> {
        let mut freed = 0;
        for uses in uses.chunks(IDLE_MAX) {
            let keys = [self.keys.demands(), self.keys.demand_users(), self.keys.demands_of()];
            let mut call = scripts::DEMAND_FREE.call(&keys.each_ref().map(String::as_str));
            call.arg(cutoff_ms);
            for one in uses {
                call.arg(one.number).arg(&one.tenant);
            }
            let (more,): (u32,) = self.connection.eval(&scripts::DEMAND_FREE, &call).await?;
            freed += more;
        }
        Ok(freed)
    }

    /// The requirement sets of a tenant's versions with traffic.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn routed_demands(&self, tenant: &str) -> Result<Vec<Requirements>, Error> {
        let (mut redis, step) = (self.connection.redis(), "read the versions with traffic");
        let pointers: HashMap<String, String> =
            redis.hgetall(self.keys.endpoints(tenant)).await.map_err(Error::redis(step))?;
        let mut pipe = redis::pipe();
        for (name, pointer) in pointers.iter().take(LIST_MAX) {
            let Ok(traffic) = parsed_traffic(pointer) else { continue };
            for (version, _) in traffic.parts() {
                pipe.hget(self.keys.versions(tenant, name), version);
            }
        }
        if pipe.is_empty() {
            return Ok(Vec::new());
        }
        let texts: Vec<Option<String>> = pipe.query_async(&mut redis).await.map_err(Error::redis(step))?;
        let versions = texts.iter().flatten().filter_map(|text| readable::<EndpointVersion>(step, text));
        Ok(versions.map(|version| version.spec.demands).collect())
    }
}

/// Whether this is the marker of an unused number (demand.lua). No tenant can request such a set: a region's name has
/// no control character.
fn is_unused(demands: &Requirements) -> bool {
    demands.regions.iter().any(|region| region.starts_with('\0'))
}
