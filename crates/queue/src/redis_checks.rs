//! The boot checks: whether a Redis provides the durability that a 202 promises.

use std::collections::HashMap;

use redis::{AsyncCommands, FromRedisValue, RedisResult, Value};

use crate::connection::{Connection, is_reply};
use crate::error::Error;
use crate::keys::Keys;
use crate::redis_health::{info_field, replicas_of};

/// Durability classes: which failures accepted jobs survive (P1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Every accepted job is on disk before its 202.
    Strict,
    /// A process crash loses nothing; a power failure of the Redis host may lose the last 2 s.
    Standard,
    /// Nothing survives a restart of Redis. No configuration selects this class; only `--ephemeral` accepts it.
    #[serde(skip)]
    Ephemeral,
}

impl Durability {
    /// The name of the class.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Standard => "standard",
            Self::Ephemeral => "ephemeral",
        }
    }
}

/// The requirements of a deployment on its Redis.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) class: Durability,
    /// Whether a Redis that loses its data is accepted.
    pub(crate) ephemeral: bool,
    /// Number of replicas that must have acknowledged a write before the reply; `None`: the durability class decides.
    pub(crate) replicas_to_wait: Option<u32>,
}

/// The durability of a Redis that has passed the boot checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisChecks {
    /// The effective class.
    pub durability: Durability,
    /// Number of replicas that acknowledge a write before the reply.
    pub replicas_to_wait: u32,
    /// Settings that could not be verified, and recommendations.
    pub notes: Vec<String>,
}

/// The facts that the verdict is based on.
#[derive(Debug, Default, PartialEq, Eq)]
struct Facts {
    version: (u32, u32),
    maxmemory_bytes: u64,
    eviction: String,
    aof: bool,
    replicas: u32,
    /// `None`, like in the following fields, if the server does not allow reading its settings.
    fsync: Option<String>,
    min_replicas_to_write: Option<u32>,
}

pub(crate) async fn check(connection: &Connection, keys: &Keys, wanted: Wanted) -> Result<RedisChecks, Error> {
    let mut redis = connection.redis();
    let info: String = redis::cmd("INFO").query_async(&mut redis).await.map_err(Error::redis("read INFO"))?;
    settled(&info)?;
    let facts = facts(&info, &settings(connection).await?);
    let mut fitness = verdict(&facts, wanted).map_err(Error::Unfit)?;
    match probe(connection, keys).await {
        // Redis rejects writes at present. The API starts anyway: it serves reads, and its sweeper frees memory.
        Err(Error::Closed(why)) => fitness.notes.push(format!("{why}: new jobs are refused until that changes")),
        probed => probed?,
    }
    Ok(fitness)
}

/// The settings from CONFIG; empty on managed services, which forbid the command.
async fn settings(connection: &Connection) -> Result<HashMap<String, String>, Error> {
    let mut ask = redis::cmd("CONFIG");
    ask.arg("GET").arg("appendfsync").arg("min-replicas-to-write");
    let answer: RedisResult<Value> = ask.query_async(&mut connection.redis()).await;
    match answer {
        Ok(settings) => HashMap::from_redis_value(settings).map_err(|error| Error::redis("read CONFIG")(error.into())),
        Err(error) if is_reply(&error) => Ok(HashMap::new()),
        Err(error) => Err(Error::redis("read CONFIG")(error)),
    }
}

/// Fails while Redis loads its append-only file: it switches the file off meanwhile and reports that instead of the
/// configured setting.
fn settled(info: &str) -> Result<(), Error> {
    match info_field(info, "loading") {
        None | Some("0") => Ok(()),
        Some(_) => Err(Error::Unavailable {
            step: "read the settings of Redis",
            source: "Redis is still loading its data".into(),
        }),
    }
}

/// Writes a unique key: replicas that start together must not read each other's.
async fn probe(connection: &Connection, keys: &Keys) -> Result<(), Error> {
    let value = crate::id::nonce();
    let (mut redis, key) = (connection.redis(), keys.probe(&value));
    let _: () = redis.pset_ex(&key, &value, 60_000).await.map_err(Error::redis("write the probe key"))?;
    let read: Option<String> = redis.get_del(&key).await.map_err(Error::redis("read the probe key back"))?;
    if read.as_ref() == Some(&value) {
        Ok(())
    } else {
        Err(Error::Unfit("Redis does not return the value that was written; check whether it is a replica".to_owned()))
    }
}

fn facts(info: &str, settings: &HashMap<String, String>) -> Facts {
    let number = |name| info_field(info, name).and_then(|text| text.parse().ok());
    let mut version =
        info_field(info, "redis_version").unwrap_or_default().split('.').map(|part| part.parse().unwrap_or(0));
    Facts {
        version: (version.next().unwrap_or(0), version.next().unwrap_or(0)),
        maxmemory_bytes: number("maxmemory").unwrap_or(0),
        eviction: info_field(info, "maxmemory_policy").unwrap_or_default().to_owned(),
        aof: info_field(info, "aof_enabled") == Some("1"),
        replicas: replicas_of(info),
        fsync: settings.get("appendfsync").cloned(),
        min_replicas_to_write: settings.get("min-replicas-to-write").and_then(|text| text.parse().ok()),
    }
}

fn verdict(facts: &Facts, wanted: Wanted) -> Result<RedisChecks, String> {
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
    if wanted.ephemeral && !facts.aof {
        let replicas_to_wait = wanted.replicas_to_wait.unwrap_or(0);
        return Ok(RedisChecks { durability: Durability::Ephemeral, replicas_to_wait, notes: Vec::new() });
    }
    if facts.maxmemory_bytes == 0 {
        return Err("Redis has no maxmemory, so it would be killed before it could refuse work. Run, for example: \
            redis-cli CONFIG SET maxmemory 1gb"
            .to_owned());
    }
    if !facts.aof {
        return Err(
            "Redis loses everything at a restart (appendonly no). Run: redis-cli CONFIG SET appendonly yes, or \
            start with --ephemeral to accept losing jobs"
                .to_owned(),
        );
    }
    let mut notes = Vec::new();
    match (wanted.class, facts.fsync.as_deref()) {
        (_, Some("always")) | (Durability::Standard | Durability::Ephemeral, Some("everysec")) => {}
        (Durability::Strict, None) => {
            return Err("the appendfsync setting of Redis cannot be read (CONFIG is forbidden), so durability \
                \"strict\" cannot be checked. Set durability = \"standard\" (STOKE_DURABILITY=standard)"
                .to_owned());
        }
        (_, None) => notes.push("appendfsync cannot be read (CONFIG is forbidden): assuming everysec".to_owned()),
        (Durability::Strict, Some(fsync)) => {
            return Err(format!(
                "Redis acknowledges writes before they are on disk (appendfsync {fsync}), but durability is \
                    \"strict\". Run: redis-cli CONFIG SET appendfsync always, or set durability = \"standard\" \
                    (STOKE_DURABILITY=standard) to accept losing the last 2 s in a power cut"
            ));
        }
        (_, Some(fsync)) => {
            return Err(format!(
                "Redis leaves flushing to the operating system (appendfsync {fsync}). Run: redis-cli CONFIG SET appendfsync everysec"
            ));
        }
    }
    let strict_with_replicas = wanted.class == Durability::Strict && facts.replicas > 0;
    let replicas_to_wait = wanted.replicas_to_wait.unwrap_or(u32::from(strict_with_replicas));
    if facts.replicas < replicas_to_wait {
        notes.push(format!(
            "{replicas_to_wait} replicas are required and {} are in sync: nothing is accepted until then",
            facts.replicas
        ));
    }
    if facts.replicas > 0 && facts.min_replicas_to_write == Some(0) {
        notes.push(
            "a primary without replicas keeps accepting writes. Recommended: redis-cli CONFIG SET \
                min-replicas-to-write 1 min-replicas-max-lag 10"
                .to_owned(),
        );
    }
    if facts.replicas > 0 && replicas_to_wait == 0 {
        notes.push("writes do not wait for replicas: a failover loses what the replicas have not received".to_owned());
    }
    Ok(RedisChecks { durability: wanted.class, replicas_to_wait, notes })
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
            replicas: 0,
            fsync: Some("always".to_owned()),
            min_replicas_to_write: Some(0),
        }
    }

    fn wanted(class: Durability) -> Wanted {
        Wanted { class, ephemeral: false, replicas_to_wait: None }
    }

    const STRICT: Wanted = Wanted { class: Durability::Strict, ephemeral: false, replicas_to_wait: None };

    #[test]
    fn a_class_is_in_force_only_where_the_fsync_setting_keeps_it() {
        let verdict = |class, fsync: Option<&str>| {
            let facts = Facts { fsync: fsync.map(str::to_owned), ..fit() };
            verdict(&facts, wanted(class)).map(|fitness| (fitness.durability, fitness.notes.len()))
        };
        let (strict, standard) = (Durability::Strict, Durability::Standard);
        assert_eq!(verdict(strict, Some("always")), Ok((strict, 0)));
        assert!(verdict(strict, Some("everysec")).unwrap_err().contains("CONFIG SET appendfsync always"));
        assert!(verdict(strict, Some("no")).is_err());
        assert!(verdict(strict, None).unwrap_err().contains("STOKE_DURABILITY=standard"));
        assert_eq!(verdict(standard, Some("always")), Ok((standard, 0)));
        assert_eq!(verdict(standard, Some("everysec")), Ok((standard, 0)));
        assert_eq!(verdict(standard, None), Ok((standard, 1)), "what is assumed is said");
        assert!(verdict(standard, Some("no")).unwrap_err().contains("CONFIG SET appendfsync everysec"));
    }

    #[test]
    fn strict_waits_for_a_replica_where_there_is_one() {
        let waits = |replicas, wanted| verdict(&Facts { replicas, ..fit() }, wanted).unwrap().replicas_to_wait;
        assert_eq!([0, 1, 2].map(|replicas| waits(replicas, STRICT)), [0, 1, 1]);
        assert_eq!(waits(2, wanted(Durability::Standard)), 0);
        assert_eq!(waits(2, Wanted { replicas_to_wait: Some(2), ..STRICT }), 2);
        assert_eq!(waits(2, Wanted { replicas_to_wait: Some(0), ..STRICT }), 0);
    }

    #[test]
    fn what_would_be_better_is_said() {
        let notes = |facts: Facts, wanted| verdict(&facts, wanted).unwrap().notes.join("\n");
        let replicated = || Facts { replicas: 1, ..fit() };
        assert!(notes(replicated(), STRICT).contains("min-replicas-to-write 1"));
        assert_eq!(notes(Facts { min_replicas_to_write: Some(1), ..replicated() }, STRICT), "");
        assert!(notes(replicated(), wanted(Durability::Standard)).contains("failover"));
        assert!(notes(fit(), Wanted { replicas_to_wait: Some(1), ..STRICT }).contains("nothing is accepted"));
    }

    #[test]
    fn a_redis_that_could_lose_jobs_is_refused_with_what_to_change() {
        let refused = |facts: Facts| verdict(&facts, STRICT).expect_err("refused");
        assert!(refused(Facts { eviction: "allkeys-lru".to_owned(), ..fit() }).contains("noeviction"));
        assert!(refused(Facts { aof: false, ..fit() }).contains("appendonly yes"));
        assert!(refused(Facts { maxmemory_bytes: 0, ..fit() }).contains("maxmemory 1gb"));
        assert!(refused(Facts { version: (6, 2), ..fit() }).contains("7.0"));
    }

    #[test]
    fn ephemeral_accepts_forgetting_but_never_eviction() {
        let forgetful = || Facts { aof: false, maxmemory_bytes: 0, ..fit() };
        let careless = Wanted { ephemeral: true, ..STRICT };
        let class = |facts| verdict(&facts, careless).map(|fitness| fitness.durability);
        assert_eq!(class(forgetful()), Ok(Durability::Ephemeral));
        assert!(class(Facts { eviction: "allkeys-lru".to_owned(), ..forgetful() }).is_err());
        assert_eq!(class(fit()), Ok(Durability::Strict));
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
        let settings = [("appendfsync", "always"), ("min-replicas-to-write", "0")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        assert_eq!(facts(info, &settings), Facts { maxmemory_bytes: 1024, ..fit() });
    }
}
