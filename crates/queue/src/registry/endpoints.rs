//! Endpoints in the registry: their versions, the versions that new jobs run on, and those that stay loaded.

use std::collections::HashMap;

use redis::AsyncCommands;

use super::deletions::{self, Deletion};
use super::{LIST_MAX, Registry, from_json, readable, to_json};
use crate::clock::now_ms;
use crate::endpoint::{EndpointSpec, EndpointVersion, Traffic};
use crate::error::Error;
use crate::gateway::ModelRef;
use crate::scripts;

/// Maximum number of versions of one endpoint, without deleted ones.
pub const VERSIONS_MAX: usize = 200;

/// Maximum number of a tenant's endpoint names, including deleted endpoints, because their version numbers are not
/// reused.
pub const ENDPOINTS_MAX: usize = LIST_MAX;

/// Size of the record of a deleted version, bytes: its number.
const DELETED_BYTES: u64 = 64;

/// Number of endpoints whose versions are measured per round trip.
const MEASURED_AT_ONCE: usize = 500;

/// Number of endpoints whose versions are read per round trip.
const READ_AT_ONCE: usize = 20;

/// Maximum number of endpoints that stay loaded without jobs: their placement is computed every second.
const FLOORS_MAX: usize = 1_000;

/// Maximum number of such endpoints of one tenant.
const FLOORS_OF_TENANT_MAX: usize = 200;

/// Number of such endpoints that a tenant can have although there are [`FLOORS_MAX`] already.
const FLOORS_RESERVED: usize = 10;

/// Whether a tenant that has `own` of `all` such endpoints may have another.
fn has_room(own: usize, all: usize) -> bool {
    own < FLOORS_RESERVED || own < FLOORS_OF_TENANT_MAX && all < FLOORS_MAX
}

/// The outcome of a deploy.
#[derive(Debug, Clone, PartialEq)]
pub enum Deployed {
    /// The version and the endpoint's traffic.
    Done {
        /// The version.
        version: Box<EndpointVersion>,
        /// The versions that new jobs run on.
        traffic: Traffic,
        /// Whether the deploy added it.
        is_new: bool,
    },
    /// The endpoint has [`VERSIONS_MAX`] versions already.
    TooManyVersions,
    /// The tenant has [`ENDPOINTS_MAX`] endpoint names already, and this is a new one.
    TooManyNames,
    /// Objects of the tenant were deleted since the caller found those of the version. Look for them again.
    Swept,
}

/// The outcome of a deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undeployed {
    /// The deletion, and the objects that the deleted versions named, `<kind>/<SHA-256>`.
    Done(Deletion, Vec<String>),
    /// The endpoint does not exist.
    UnknownEndpoint,
    /// The endpoint has no such version.
    UnknownVersion,
    /// New jobs run on the version.
    HasTraffic,
}

/// The outcome of a change of traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrafficSet {
    /// The traffic after the change.
    Done(Traffic),
    /// The endpoint does not exist.
    UnknownEndpoint,
    /// The endpoint has no such version.
    UnknownVersion,
}

impl Registry {
    /// Adds a version and gives it this percentage of new jobs; the first version gets all. If a version with traffic
    /// has the same spec, that version is returned and none is added, so it is safe to retry a deploy whose outcome is
    /// unknown.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; retry.
    pub async fn deploy(&self, tenant: &str, name: &str, spec: EndpointSpec, percent: u32) -> Result<Deployed, Error> {
        self.deploy_stored(tenant, name, spec, percent, None).await
    }

    /// Like [`Registry::deploy`], for a caller that has found the objects of the version in the object store after it
    /// read `swept` ([`Registry::swept`]): adds no version whose objects may have been deleted since.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; retry.
    pub async fn deploy_stored(
        &self,
        tenant: &str,
        name: &str,
        spec: EndpointSpec,
        percent: u32,
        swept: Option<u64>,
    ) -> Result<Deployed, Error> {
        let objects = deletions::objects_of(&spec);
        let spec = to_json("deploy", &spec)?;
        let keys = [
            &self.keys.versions(tenant, name),
            &self.keys.endpoints(tenant),
            &self.keys.deleted(tenant),
            &self.keys.sweeps(tenant),
        ];
        let mut call = scripts::DEPLOY.call(&keys.map(String::as_str));
        call.arg(name).arg(now_ms()).arg(spec).arg(percent).arg(VERSIONS_MAX).arg(ENDPOINTS_MAX);
        call.arg(swept.map_or_else(String::new, |swept| swept.to_string()));
        for (object, _) in objects {
            call.arg(object);
        }
        let (pointer, version, outcome): (String, String, String) =
            self.connection.eval(&scripts::DEPLOY, &call).await?;
        match outcome.as_str() {
            "versions" => Ok(Deployed::TooManyVersions),
            "names" => Ok(Deployed::TooManyNames),
            "swept" => Ok(Deployed::Swept),
            outcome => Ok(Deployed::Done {
                version: Box::new(from_json("deploy", &version)?),
                traffic: parsed(&pointer)?,
                is_new: outcome == "new",
            }),
        }
    }

    /// Deletes a version without traffic; without `version`, the endpoint with all its versions, its setting to stay
    /// loaded and its learned memory needs. The numbers of deleted versions are not reused. Jobs that were submitted to
    /// a deleted version cannot run any more: the deletion is recorded until they have been ended.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; a retry may report that it no longer exists.
    pub async fn undeploy(&self, tenant: &str, name: &str, version: Option<u32>) -> Result<Undeployed, Error> {
        let keys = [
            &self.keys.versions(tenant, name),
            &self.keys.endpoints(tenant),
            &self.keys.deleted(tenant),
            &self.keys.floors(),
            &self.keys.needs(tenant, name),
            &self.keys.deletions(),
            &self.keys.orphans(),
        ];
        let mut call = scripts::UNDEPLOY.call(&keys.map(String::as_str));
        call.arg(tenant).arg(name).arg(version.map_or_else(String::new, |version| version.to_string()));
        let mut reply: Vec<String> = self.connection.eval(&scripts::UNDEPLOY, &call).await?;
        Ok(match reply.first().map(String::as_str) {
            Some("ok") if reply.len() > 1 => {
                let objects = reply.split_off(2);
                let mut deletion: Deletion = from_json("delete an endpoint", &reply[1])?;
                deletion.versions.sort_unstable();
                Undeployed::Done(deletion, objects)
            }
            Some("has_traffic") => Undeployed::HasTraffic,
            Some("unknown_version") => Undeployed::UnknownVersion,
            Some("unknown_endpoint") => Undeployed::UnknownEndpoint,
            _ => return Err(scripts::unexpected(&scripts::UNDEPLOY, &reply)),
        })
    }

    /// The versions that new jobs run on; `None` for an endpoint that does not exist.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn traffic(&self, tenant: &str, name: &str) -> Result<Option<Traffic>, Error> {
        let mut redis = self.connection.redis();
        let pointer: Option<String> =
            redis.hget(self.keys.endpoints(tenant), name).await.map_err(Error::redis("read an endpoint"))?;
        pointer.map(|pointer| parsed(&pointer)).transpose()
    }

    /// Routes this percentage of new jobs to this version, and the rest to the current one; with 100 it becomes the
    /// current version. Jobs that were submitted before keep their version.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; retry.
    pub async fn set_traffic(&self, tenant: &str, name: &str, version: u32, percent: u32) -> Result<TrafficSet, Error> {
        let mut call = scripts::TRAFFIC.call(&[&self.keys.versions(tenant, name), &self.keys.endpoints(tenant)]);
        call.arg(name).arg(version).arg(percent);
        let (outcome, pointer): (String, String) = self.connection.eval(&scripts::TRAFFIC, &call).await?;
        Ok(match outcome.as_str() {
            "ok" => TrafficSet::Done(parsed(&pointer)?),
            "unknown_version" => TrafficSet::UnknownVersion,
            _ => TrafficSet::UnknownEndpoint,
        })
    }

    /// A version; the current one if `version` is `None`.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn endpoint(
        &self,
        tenant: &str,
        name: &str,
        version: Option<u32>,
    ) -> Result<Option<EndpointVersion>, Error> {
        let version = match version {
            Some(version) => version,
            None => match self.traffic(tenant, name).await? {
                Some(traffic) => traffic.current,
                None => return Ok(None),
            },
        };
        let mut redis = self.connection.redis();
        let text: Option<String> =
            redis.hget(self.keys.versions(tenant, name), version).await.map_err(Error::redis("read a version"))?;
        text.filter(|text| !text.is_empty()).map(|text| from_json("read a version", &text)).transpose()
    }

    /// Sets how many workers keep this version loaded without jobs; other versions are not kept; 0 keeps none. `false`
    /// if there are already too many such endpoints, of the tenant or in total; then nothing changed.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; retry.
    pub async fn set_floor(&self, tenant: &str, name: &str, version: u32, workers: u32) -> Result<bool, Error> {
        let (key, field) = (self.keys.floors(), format!("{tenant}:{name}"));
        let mut redis = self.connection.redis();
        let step = Error::redis("set how many workers keep a model loaded");
        if workers == 0 {
            let _: u32 = redis.hdel(key, field).await.map_err(step)?;
            return Ok(true);
        }
        // Two concurrent calls can exceed the limit by one, which is harmless.
        let known: Vec<String> = redis.hkeys(&key).await.map_err(&step)?;
        let of_tenant = |other: &&String| other.split_once(':').is_some_and(|(owner, _)| owner == tenant);
        if !known.contains(&field) && !has_room(known.iter().filter(of_tenant).count(), known.len()) {
            return Ok(false);
        }
        let _: u32 = redis.hset(key, field, format!("{version} {workers}")).await.map_err(step)?;
        Ok(true)
    }

    /// The models to keep loaded without jobs, and on how many workers.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn floors(&self) -> Result<Vec<(ModelRef, u32)>, Error> {
        let step = Error::redis("read which models must stay loaded");
        let all: HashMap<String, String> = self.connection.redis().hgetall(self.keys.floors()).await.map_err(step)?;
        let parsed = |(field, text): (String, String)| {
            let ((tenant, endpoint), (version, workers)) = (field.split_once(':')?, text.split_once(' ')?);
            let (tenant, endpoint) = (tenant.to_owned(), endpoint.to_owned());
            Some((ModelRef { tenant, endpoint, version: version.parse().ok()? }, workers.parse().ok()?))
        };
        Ok(all.into_iter().filter_map(parsed).collect())
    }

    /// Every version, newest first.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn versions(&self, tenant: &str, name: &str) -> Result<Vec<EndpointVersion>, Error> {
        let texts: Vec<String> = self
            .connection
            .redis()
            .hvals(self.keys.versions(tenant, name))
            .await
            .map_err(Error::redis("list versions"))?;
        let mut versions: Vec<EndpointVersion> =
            texts.iter().filter(|text| !text.is_empty()).filter_map(|text| readable("list versions", text)).collect();
        versions.sort_by_key(|version| std::cmp::Reverse(version.version));
        Ok(versions)
    }

    /// Passes the name of the endpoint and the record of every version of a tenant to `read`, a few endpoints at a time.
    pub(super) async fn read_versions(
        &self,
        tenant: &str,
        step: &'static str,
        mut read: impl FnMut(&str, &str) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut redis = self.connection.long();
        let names: Vec<String> = redis.hkeys(self.keys.endpoints(tenant)).await.map_err(Error::redis(step))?;
        for names in names.chunks(READ_AT_ONCE) {
            let mut pipe = redis::pipe();
            for name in names {
                pipe.hvals(self.keys.versions(tenant, name));
            }
            let texts: Vec<Vec<String>> = pipe.query_async(&mut redis).await.map_err(Error::redis(step))?;
            for (name, texts) in names.iter().zip(&texts) {
                texts.iter().filter(|text| !text.is_empty()).try_for_each(|text| read(name, text))?;
            }
        }
        Ok(())
    }

    /// Size of the versions of all of a tenant's endpoints, including deleted ones, bytes.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn version_bytes(&self, tenant: &str) -> Result<u64, Error> {
        let step = "measure versions";
        let mut redis = self.connection.redis();
        let names: Vec<String> = redis.hkeys(self.keys.endpoints(tenant)).await.map_err(Error::redis(step))?;
        let deleted: Vec<u64> = redis.hvals(self.keys.deleted(tenant)).await.map_err(Error::redis(step))?;
        let mut sum: u64 = deleted.iter().map(|versions| versions.saturating_mul(DELETED_BYTES)).sum();
        let keys: Vec<String> = names.iter().map(|name| self.keys.versions(tenant, name)).collect();
        for keys in keys.chunks(MEASURED_AT_ONCE) {
            let mut pipe = redis::pipe();
            for key in keys {
                pipe.hkeys(key);
            }
            let numbers: Vec<Vec<String>> = pipe.query_async(&mut redis).await.map_err(Error::redis(step))?;
            let fields: Vec<(&String, &String)> =
                keys.iter().zip(&numbers).flat_map(|(key, numbers)| numbers.iter().map(move |n| (key, n))).collect();
            for fields in fields.chunks(MEASURED_AT_ONCE) {
                let mut pipe = redis::pipe();
                for (key, number) in fields {
                    pipe.cmd("HSTRLEN").arg(key).arg(number);
                }
                let lengths: Vec<u64> = pipe.query_async(&mut redis).await.map_err(Error::redis(step))?;
                sum += lengths.iter().sum::<u64>();
            }
        }
        Ok(sum)
    }

    /// The current version of every endpoint, by name.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn endpoints(&self, tenant: &str) -> Result<Vec<EndpointVersion>, Error> {
        self.pointed_to(tenant, |traffic| vec![traffic.current]).await
    }

    /// The versions of every endpoint that receive new jobs, by name.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn served(&self, tenant: &str) -> Result<Vec<EndpointVersion>, Error> {
        self.pointed_to(tenant, |traffic| traffic.parts().map(|(version, _)| version).collect()).await
    }

    async fn pointed_to(&self, tenant: &str, of: impl Fn(&Traffic) -> Vec<u32>) -> Result<Vec<EndpointVersion>, Error> {
        let mut redis = self.connection.redis();
        let current: HashMap<String, String> =
            redis.hgetall(self.keys.endpoints(tenant)).await.map_err(Error::redis("list endpoints"))?;
        if current.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipe = redis::pipe();
        for (name, pointer) in current.iter().take(LIST_MAX) {
            match parsed(pointer) {
                Ok(traffic) => {
                    for version in of(&traffic) {
                        pipe.hget(self.keys.versions(tenant, name), version);
                    }
                }
                Err(error) => {
                    tracing::error!(endpoint = name, %error, "an endpoint cannot be read; leaving it out of a list")
                }
            }
        }
        if pipe.is_empty() {
            return Ok(Vec::new());
        }
        let texts: Vec<Option<String>> = pipe.query_async(&mut redis).await.map_err(Error::redis("list endpoints"))?;
        let mut endpoints: Vec<EndpointVersion> =
            texts.iter().flatten().filter_map(|text| readable("list endpoints", text)).collect();
        endpoints.sort_by(|a, b| (&a.name, a.version).cmp(&(&b.name, b.version)));
        Ok(endpoints)
    }
}

pub(super) fn parsed(pointer: &str) -> Result<Traffic, Error> {
    let corrupt =
        || Error::Corrupt { key: "endpoints".to_owned(), why: format!("{pointer:?} does not name a version") };
    pointer.parse().map_err(|_| corrupt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_tenant_leaves_the_others_floors() {
        assert!(has_room(0, 0) && has_room(199, 199) && !has_room(200, 200));
        assert!(has_room(10, 999) && !has_room(10, 1_000));
        assert!(has_room(9, 1_000) && has_room(0, 5_000));
    }
}
