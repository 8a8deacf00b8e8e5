//! The boot checks: whether a Redis can keep the promises a 202 makes.

use std::collections::HashMap;

use redis::AsyncCommands;

use crate::error::Error;
use crate::keys::Keys;
use crate::scripts::Connection;

/// What survives what (P1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Every accepted job is on disk before its 202.
    Strict,
    /// A process crash loses nothing; a power cut of the Redis host may lose the last 2 s.
    Standard,
    /// Nothing survives a restart of Redis.
    Ephemeral,
}

impl Durability {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Standard => "standard",
            Self::Ephemeral => "ephemeral",
        }
    }
}

/// The facts the verdict rests on.
#[derive(Debug, Default, PartialEq, Eq)]
struct Facts {
    version: (u32, u32),
    maxmemory_bytes: u64,
    eviction: String,
    aof: bool,
    /// `None` when the server does not let us ask.
    fsync: Option<String>,
}

pub(crate) async fn check(connection: &Connection, keys: &Keys, allow_ephemeral: bool) -> Result<Durability, Error> {
    let mut redis = connection.redis();
    let info: String = redis::cmd("INFO").query_async(&mut redis).await.map_err(Error::redis("read INFO"))?;
    settled(&info)?;
    // Managed services forbid CONFIG: then the fsync class stays unknown and counts as the weaker one.
    let fsync: Option<HashMap<String, String>> =
        redis::cmd("CONFIG").arg("GET").arg("appendfsync").query_async(&mut redis).await.ok();
    let facts = facts(&info, fsync.and_then(|mut config| config.remove("appendfsync")));
    let durability = verdict(&facts, allow_ephemeral).map_err(Error::Unfit)?;
    probe(connection, keys).await?;
    Ok(durability)
}

/// A Redis that loads its append-only file has switched that off meanwhile, and says so: what it says then is no setting.
fn settled(info: &str) -> Result<(), Error> {
    match info_field(info, "loading") {
        None | Some("0") => Ok(()),
        Some(_) => {
            Err(Error::Unavailable { step: "read its settings", source: "Redis is still loading what it holds".into() })
        }
    }
}

async fn probe(connection: &Connection, keys: &Keys) -> Result<(), Error> {
    let (mut redis, key, value) = (connection.redis(), keys.probe(), crate::id::nonce());
    let _: () = redis.pset_ex(&key, &value, 60_000).await.map_err(Error::redis("write the probe key"))?;
    let read: String = redis.get(&key).await.map_err(Error::redis("read the probe key back"))?;
    if read == value {
        Ok(())
    } else {
        Err(Error::Unfit("Redis does not give back what was written: is it a replica?".to_owned()))
    }
}

/// One field of an INFO answer.
pub(crate) fn info_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'))
}

fn facts(info: &str, fsync: Option<String>) -> Facts {
    let number = |name| info_field(info, name).and_then(|text| text.parse().ok());
    let mut version =
        info_field(info, "redis_version").unwrap_or_default().split('.').map(|part| part.parse().unwrap_or(0));
    Facts {
        version: (version.next().unwrap_or(0), version.next().unwrap_or(0)),
        maxmemory_bytes: number("maxmemory").unwrap_or(0),
        eviction: info_field(info, "maxmemory_policy").unwrap_or_default().to_owned(),
        aof: info_field(info, "aof_enabled") == Some("1"),
        fsync,
    }
}

fn verdict(facts: &Facts, allow_ephemeral: bool) -> Result<Durability, String> {
    if facts.version < (7, 0) {
        return Err(format!(
            "Redis {}.{} is too old: Stokehold needs 7.0 or newer (or any Valkey)",
            facts.version.0, facts.version.1
        ));
    }
    if facts.eviction != "noeviction" {
        return Err(format!(
            "Redis would evict jobs when memory is short (maxmemory-policy {}). Run: redis-cli CONFIG SET maxmemory-policy noeviction",
            facts.eviction
        ));
    }
    if allow_ephemeral && !facts.aof {
        return Ok(Durability::Ephemeral);
    }
    if facts.maxmemory_bytes == 0 {
        return Err("Redis has no maxmemory, so it would be killed before it could refuse work. Run, for example: redis-cli CONFIG \
                    SET maxmemory 1gb"
            .to_owned());
    }
    if !facts.aof {
        return Err("Redis keeps nothing across a restart (appendonly no). Run: redis-cli CONFIG SET appendonly yes, or start with \
                    --ephemeral to accept losing jobs"
            .to_owned());
    }
    match facts.fsync.as_deref() {
        Some("always") => Ok(Durability::Strict),
        Some("everysec") | None => Ok(Durability::Standard),
        Some(other) => Err(format!(
            "Redis leaves writing to the operating system (appendfsync {other}). Run: redis-cli CONFIG SET appendfsync always"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit() -> Facts {
        Facts {
            version: (7, 0),
            maxmemory_bytes: 1 << 30,
            eviction: "noeviction".to_owned(),
            aof: true,
            fsync: Some("always".to_owned()),
        }
    }

    #[test]
    fn the_class_follows_from_the_fsync_setting() {
        let class = |fsync: Option<&str>| verdict(&Facts { fsync: fsync.map(str::to_owned), ..fit() }, false);
        assert_eq!(class(Some("always")), Ok(Durability::Strict));
        assert_eq!(class(Some("everysec")), Ok(Durability::Standard));
        assert_eq!(class(None), Ok(Durability::Standard));
        assert!(class(Some("no")).is_err());
    }

    #[test]
    fn a_redis_that_could_lose_jobs_is_refused_with_what_to_change() {
        let refused = |facts: Facts| verdict(&facts, false).expect_err("refused");
        assert!(refused(Facts { eviction: "allkeys-lru".to_owned(), ..fit() }).contains("noeviction"));
        assert!(refused(Facts { aof: false, ..fit() }).contains("appendonly yes"));
        assert!(refused(Facts { maxmemory_bytes: 0, ..fit() }).contains("maxmemory 1gb"));
        assert!(refused(Facts { version: (6, 2), ..fit() }).contains("7.0"));
    }

    #[test]
    fn ephemeral_accepts_forgetting_but_never_eviction() {
        let forgetful = Facts { aof: false, maxmemory_bytes: 0, ..fit() };
        assert_eq!(verdict(&forgetful, true), Ok(Durability::Ephemeral));
        assert!(verdict(&Facts { eviction: "allkeys-lru".to_owned(), ..forgetful }, true).is_err());
        assert_eq!(verdict(&fit(), true), Ok(Durability::Strict));
    }

    #[test]
    fn a_redis_that_still_loads_is_asked_again_and_not_judged() {
        let loading = "redis_version:7.0.15\r\nloading:1\r\naof_enabled:0\r\n";
        assert!(matches!(settled(loading), Err(Error::Unavailable { .. })));
        assert!(settled("loading:0\r\naof_enabled:1\r\n").is_ok());
    }

    #[test]
    fn facts_are_read_from_info() {
        let info =
            "# Server\r\nredis_version:7.0.15\r\nmaxmemory:1024\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n";
        assert_eq!(facts(info, Some("always".to_owned())), Facts { maxmemory_bytes: 1024, ..fit() });
    }
}
