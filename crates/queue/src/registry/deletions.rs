//! Deletions of versions: the record that is kept until their jobs have ended, and the stored objects (packages and
//! weights) that only deleted versions named.
//!
//! The script that deletes a version notes its objects as orphans. A sweep claims orphans first, then reads all
//! versions of the tenant, and deletes those that none names. A deploy reads how often objects of its tenant
//! were deleted, finds its objects in the object store, and is refused if that number has changed or if one of them is
//! claimed. So no version can be added between the check and the deletion of an object that it names.

use std::collections::{BTreeMap, HashMap};

use redis::AsyncCommands;
use serde::{Deserialize, Serialize};

use super::{Registry, from_json, readable, to_json};
use crate::endpoint::EndpointSpec;
use crate::error::Error;
use crate::scripts;

/// Maximum number of orphans in one list.
const ORPHANS_MAX: isize = 1_000;

/// A deletion of versions of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deletion {
    /// Id of the record.
    pub id: String,
    /// The tenant.
    pub tenant: String,
    /// The endpoint.
    pub endpoint: String,
    /// Numbers of the deleted versions.
    pub versions: Vec<u32>,
    /// Whether the endpoint was deleted.
    pub is_whole: bool,
    /// Time of the deletion, Unix milliseconds.
    pub at_ms: u64,
    /// Whether its jobs have been ended once.
    #[serde(default)]
    pub is_followed: bool,
}

/// Claimed objects, see `sweep_claim.lua`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    score: String,
    /// The objects, `<kind>/<SHA-256>`.
    pub objects: Vec<String>,
}

/// The objects that a spec names, `<kind>/<SHA-256>`, and their sizes in bytes.
pub(super) fn objects_of(spec: &EndpointSpec) -> Vec<(String, u64)> {
    let package = (format!("packages/{}", spec.package_sha256), spec.package_size_bytes);
    let uploaded = spec.weights.iter().filter(|weight| weight.url.is_none());
    let weights = uploaded.map(|weight| (format!("weights/{}", weight.sha256), weight.size_bytes));
    std::iter::once(package).chain(weights).collect()
}

/// The part of a version that names its objects.
#[derive(Deserialize)]
struct Named {
    version: u32,
    package_sha256: String,
    package_size_bytes: u64,
    #[serde(default)]
    weights: Vec<crate::endpoint::Weight>,
}

impl Registry {
    /// How often objects of a tenant were deleted.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn swept(&self, tenant: &str) -> Result<u64, Error> {
        let swept: Option<u64> = self
            .connection
            .redis()
            .hget(self.keys.sweeps(tenant), "swept")
            .await
            .map_err(Error::redis("read how often objects were deleted"))?;
        Ok(swept.unwrap_or(0))
    }

    /// The objects that a tenant's versions name, and their sizes in bytes.
    ///
    /// # Errors
    /// [`Error::Unavailable`]; [`Error::Corrupt`] if a version cannot be read, because it may name any object.
    pub async fn named_objects(&self, tenant: &str) -> Result<BTreeMap<String, u64>, Error> {
        let mut found = BTreeMap::new();
        self.read_named(tenant, |_, _, named| found.extend(named)).await?;
        Ok(found)
    }

    /// Like [`Registry::named_objects`], but only the objects that no version names except those for which `goes`
    /// holds, by the name of the endpoint and the number.
    ///
    /// # Errors
    /// See [`Registry::named_objects`].
    pub async fn named_only_by(
        &self,
        tenant: &str,
        goes: impl Fn(&str, u32) -> bool,
    ) -> Result<BTreeMap<String, u64>, Error> {
        let (mut gone, mut staying) = (BTreeMap::new(), BTreeMap::new());
        let read = |name: &str, version, named| {
            let group = if goes(name, version) { &mut gone } else { &mut staying };
            group.extend(named);
        };
        self.read_named(tenant, read).await?;
        gone.retain(|object, _| !staying.contains_key(object));
        Ok(gone)
    }

    /// Passes the name of the endpoint, the number and the named objects of every version to `read`.
    async fn read_named(&self, tenant: &str, mut read: impl FnMut(&str, u32, Vec<(String, u64)>)) -> Result<(), Error> {
        let step = "read which objects versions name";
        let read = |name: &str, text: &str| {
            let named: Named = from_json(step, text)?;
            let package = (format!("packages/{}", named.package_sha256), named.package_size_bytes);
            let uploaded = named.weights.into_iter().filter(|weight| weight.url.is_none());
            let weights = uploaded.map(|weight| (format!("weights/{}", weight.sha256), weight.size_bytes));
            read(name, named.version, std::iter::once(package).chain(weights).collect());
            Ok(())
        };
        self.read_versions(tenant, step, read).await
    }

    /// The orphans that are due, the oldest first, by tenant; at most 1,000.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn orphans(&self, now_ms: u64) -> Result<BTreeMap<String, Vec<String>>, Error> {
        let members: Vec<String> = self
            .connection
            .redis()
            .zrangebyscore_limit(self.keys.orphans(), "-inf", now_ms, 0, ORPHANS_MAX)
            .await
            .map_err(Error::redis("list objects of deleted versions"))?;
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (tenant, object) in members.iter().filter_map(|member| member.split_once('/')) {
            found.entry(tenant.to_owned()).or_default().push(object.to_owned());
        }
        Ok(found)
    }

    /// Claims those of these orphans of a tenant that are due, for `ms`.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: they may be claimed until then.
    pub async fn claim_orphans(&self, tenant: &str, objects: &[String], ms: u64) -> Result<Claim, Error> {
        let mut call = scripts::SWEEP_CLAIM.call(&[&self.keys.orphans(), &self.keys.sweeps(tenant)]);
        call.arg(tenant).arg(ms).arg(objects);
        let mut reply: Vec<String> = self.connection.eval(&scripts::SWEEP_CLAIM, &call).await?;
        if reply.is_empty() {
            return Err(scripts::unexpected(&scripts::SWEEP_CLAIM, &reply));
        }
        let objects = reply.split_off(1);
        Ok(Claim { score: reply.remove(0), objects })
    }

    /// Ends a claim. `deleted`: some of its objects were deleted; the others are named by versions.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: safe to retry. The claim ends by itself.
    pub async fn end_claim(&self, tenant: &str, claim: &Claim, deleted: bool) -> Result<(), Error> {
        let mut call = scripts::SWEEP_END.call(&[&self.keys.orphans(), &self.keys.sweeps(tenant)]);
        call.arg(tenant).arg(&claim.score).arg(u8::from(deleted)).arg(&claim.objects);
        let _: Vec<String> = self.connection.eval(&scripts::SWEEP_END, &call).await?;
        Ok(())
    }

    /// Defers the deletion of an object by `ms`, because a deploy is about to name it. `false` if it is being deleted.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: safe to retry.
    pub async fn keep_object(&self, tenant: &str, object: &str, ms: u64) -> Result<bool, Error> {
        let mut call = scripts::SWEEP_KEEP.call(&[&self.keys.orphans(), &self.keys.sweeps(tenant)]);
        call.arg(tenant).arg(object).arg(ms);
        let (word,): (String,) = self.connection.eval(&scripts::SWEEP_KEEP, &call).await?;
        Ok(word == "kept")
    }

    /// The deletions whose record has not been removed.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn deletions(&self) -> Result<Vec<Deletion>, Error> {
        let step = "list deletions";
        let all: HashMap<String, String> =
            self.connection.redis().hgetall(self.keys.deletions()).await.map_err(Error::redis(step))?;
        Ok(all.values().filter_map(|text| readable(step, text)).collect())
    }

    /// Records that the jobs of a deletion have been ended once.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: safe to retry.
    pub async fn follow_deletion(&self, deletion: &Deletion) -> Result<(), Error> {
        let text = to_json("store a deletion", &Deletion { is_followed: true, ..deletion.clone() })?;
        let stored = self.connection.redis().hset(self.keys.deletions(), &deletion.id, text).await;
        stored.map_err(Error::redis("store a deletion"))
    }

    /// Removes the record of a deletion.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: safe to retry.
    pub async fn end_deletion(&self, id: &str) -> Result<(), Error> {
        let removed = self.connection.redis().hdel(self.keys.deletions(), id).await;
        removed.map_err(Error::redis("remove the record of a deletion"))
    }
}
