//! Reading a queue, a root at a time.
//!
//! SCAN finds every key that exists from its beginning to its end; values are read in pages, whatever the size of a
//! key. During the read the server blocks writers (CLIENT PAUSE), so that the copy is of one moment; the server's count
//! of changes verifies that. The pause expires by itself, even if this process is killed.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use redis::Pipeline;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::entry::{Bytes, Content, Entry, Root};
use super::family::{self, Fate};
use crate::connection::{Connection, Place};
use crate::error::Error;
use crate::keys::{Keys, RegistryKeys};
use crate::redis_health::info_field;
use crate::redis_queue::RedisConfig;
use crate::registry::Registry;

/// Keys that SCAN looks at a call.
const SCAN_COUNT: u32 = 1_000;

/// Keys read in one round trip: inputs of 256 KiB and results of 16, so at most some 30 MB.
const KEYS_AT_ONCE: usize = 100;

/// Members of a key read at a time; a larger key comes in parts.
const MEMBERS_AT_ONCE: usize = 1_000;

/// The queue to copy.
pub struct Source {
    roots: Vec<(Root, Connection, String)>,
}

/// When a root was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Moment {
    /// Which.
    pub root: Root,
    /// When its copy began, unix milliseconds by Redis's clock.
    pub at_ms: u64,
    /// How long it took.
    pub took_ms: u64,
    /// Whether nothing was written meanwhile: it is the root as it was at that moment.
    pub is_exact: bool,
}

impl Source {
    /// Connects to every root: the shards in order, then the registry, so that it knows each endpoint that a job names.
    ///
    /// # Errors
    /// [`Error::Unfit`] when the URL is none, [`Error::Unavailable`] when nothing answers.
    pub async fn connect(config: &RedisConfig) -> Result<Self, Error> {
        let place = Place::parse(&config.url)?;
        let registry = RegistryKeys::new(&config.prefix);
        let to_registry = Connection::open(&place, registry.root()).await?;
        let mut roots = Vec::new();
        for number in 0..config.shards {
            let keys = Keys::new(&config.prefix, number);
            let connection = match place.is_one() {
                true => to_registry.clone(),
                false => Connection::open(&place, keys.root()).await?,
            };
            roots.push((Root::Shard(number), connection, keys.root().to_owned()));
        }
        roots.push((Root::Registry, to_registry, registry.root().to_owned()));
        Ok(Self { roots })
    }

    /// Whether this is a queue, and not the half of one.
    ///
    /// # Errors
    /// [`Error::Unfit`] when a backup is being restored into it.
    pub async fn check(&self, config: &RedisConfig) -> Result<(), Error> {
        let Some((_, connection, _)) = self.roots.last() else { return Ok(()) };
        match Registry::new(connection.clone(), &config.prefix).restoring().await? {
            Some(backup) => Err(Error::half(&backup)),
            None => Ok(()),
        }
    }

    /// Passes every key of every root to `sink`. Writers are paused meanwhile, at most `pause` per root; the rest is
    /// copied while the queue continues. `None`: no pause.
    ///
    /// # Errors
    /// [`Error::Unavailable`]; the errors of `sink`.
    pub async fn read<E: From<Error>>(
        &self,
        pause: Option<Duration>,
        mut sink: impl FnMut(Entry) -> Result<(), E>,
    ) -> Result<Vec<Moment>, E> {
        let mut moments = Vec::with_capacity(self.roots.len());
        for (root, connection, prefix) in &self.roots {
            let mut reader = Reader { redis: connection.redis(), root: *root, prefix, seen: HashSet::new() };
            let began = Instant::now();
            let paused = match pause {
                Some(limit) => reader.pause(limit).await?,
                None => false,
            };
            let (at_ms, before) = (reader.time().await?, reader.marks().await?);
            let done = reader.all(&mut sink).await;
            let after = reader.marks().await;
            let took = began.elapsed();
            if paused {
                reader.resume().await;
            }
            done?;
            let after = after?;
            if after.run_id != before.run_id {
                return Err(moved().into());
            }
            let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
            let is_exact = before.changes.is_some() && before == after;
            moments.push(Moment { root: *root, at_ms, took_ms, is_exact });
        }
        Ok(moments)
    }
}

/// SCAN's place means nothing on another server: what it had not come to is unknown.
fn moved() -> Error {
    let source = "Redis was restarted or replaced during the backup; start it again".into();
    Error::Unavailable { step: "copy a root to its end", source }
}

/// The identity of a server, to compare.
#[derive(Debug, PartialEq, Eq)]
struct Marks {
    run_id: String,
    /// The number of changes since its last save; `None` if unknown.
    changes: Option<u64>,
}

struct Reader<'a> {
    redis: Connection,
    root: Root,
    prefix: &'a str,
    /// Digests of the keys that were read: SCAN may return one twice.
    seen: HashSet<[u8; 16]>,
}

impl Reader<'_> {
    /// Has writers wait. `false` where that is not allowed, as on many a managed Redis.
    async fn pause(&mut self, limit: Duration) -> Result<bool, Error> {
        let mut pause = redis::cmd("CLIENT");
        pause.arg("PAUSE").arg(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)).arg("WRITE");
        match pause.query_async::<()>(&mut self.redis).await {
            Ok(()) => Ok(true),
            Err(error) if error.is_io_error() => Err(Error::redis("pause the writers")(error)),
            Err(error) => {
                let root = self.root;
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "Redis cannot pause writers: {root} is copied while it changes"
                );
                Ok(false)
            }
        }
    }

    async fn resume(&mut self) {
        if let Err(error) = redis::cmd("CLIENT").arg("UNPAUSE").query_async::<()>(&mut self.redis).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "wait for the pause to end");
        }
    }

    async fn marks(&mut self) -> Result<Marks, Error> {
        let mut ask = redis::cmd("INFO");
        ask.arg("server").arg("persistence");
        let info: String = ask.query_async(&mut self.redis).await.map_err(Error::redis("inspect Redis"))?;
        Ok(Marks {
            run_id: info_field(&info, "run_id").unwrap_or_default().to_owned(),
            changes: info_field(&info, "rdb_changes_since_last_save").and_then(|changes| changes.parse().ok()),
        })
    }

    async fn time(&mut self) -> Result<u64, Error> {
        let (seconds, micros): (u64, u64) =
            redis::cmd("TIME").query_async(&mut self.redis).await.map_err(Error::redis("read the clock of Redis"))?;
        Ok(seconds * 1_000 + micros / 1_000)
    }

    async fn all<E: From<Error>>(&mut self, sink: &mut impl FnMut(Entry) -> Result<(), E>) -> Result<(), E> {
        let mut cursor = 0;
        loop {
            let (next, keys) = scan(&mut self.redis, self.prefix, cursor, SCAN_COUNT).await?;
            let names = keys.into_iter().filter_map(|key| self.wanted(&key)).collect::<Vec<_>>();
            for names in names.chunks(KEYS_AT_ONCE) {
                self.page(names, sink).await?;
            }
            if next == 0 {
                return Ok(());
            }
            cursor = next;
        }
    }

    /// The key's name below the root, if it is kept and was not read before.
    fn wanted(&mut self, key: &[u8]) -> Option<Bytes> {
        let name = key.strip_prefix(self.prefix.as_bytes())?.strip_prefix(b":")?;
        if family::of(self.root, name).is_some_and(|(_, fate)| fate == Fate::Moment) {
            return None;
        }
        let mut digest = [0; 16];
        digest.copy_from_slice(&Sha256::digest(name)[..16]);
        self.seen.insert(digest).then(|| Bytes(name.to_vec()))
    }

    fn key(&self, name: &Bytes) -> Vec<u8> {
        [self.prefix.as_bytes(), b":", &name.0].concat()
    }

    async fn page<E: From<Error>>(
        &mut self,
        names: &[Bytes],
        sink: &mut impl FnMut(Entry) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut ask = redis::pipe();
        for name in names {
            let key = self.key(name);
            ask.cmd("TYPE").arg(&key).cmd("PEXPIRETIME").arg(&key);
        }
        let told: Vec<redis::Value> = self.query(&ask).await?;
        let mut kinds = Vec::with_capacity(names.len());
        for (name, told) in names.iter().zip(told.chunks(2)) {
            let read = |error: redis::ParsingError| Error::redis("read a key's type")(error.into());
            let kind: String = redis::from_redis_value_ref(&told[0]).map_err(read)?;
            let expires: i64 = redis::from_redis_value_ref(&told[1]).map_err(read)?;
            // One that has gone meanwhile.
            let Some(kind) = Kind::of(&kind) else { continue };
            kinds.push((name, kind, u64::try_from(expires).ok()));
        }
        let mut ask = redis::pipe();
        kinds.iter().for_each(|(name, kind, _)| kind.ask(&mut ask, self.key(name)));
        let sizes: Vec<u64> = if kinds.is_empty() { Vec::new() } else { self.query(&ask).await? };
        let (small, large): (Vec<_>, Vec<_>) = kinds.into_iter().zip(sizes).partition(|((_, kind, _), size)| {
            matches!(kind, Kind::String | Kind::List) || *size <= MEMBERS_AT_ONCE as u64
        });
        let mut ask = redis::pipe();
        small.iter().for_each(|((name, kind, _), _)| kind.read(&mut ask, self.key(name)));
        let values: Vec<redis::Value> = if small.is_empty() { Vec::new() } else { self.query(&ask).await? };
        let mut values = values.into_iter();
        for ((name, kind, expires_ms), _) in small {
            let parts: Vec<redis::Value> = values.by_ref().take(kind.answers()).collect();
            if let Some(content) = kind.content(parts).map_err(|error| Error::redis("read a key")(error.into()))? {
                sink(self.entry(name, expires_ms, false, content))?;
            }
        }
        for ((name, kind, expires_ms), _) in large {
            self.large(name, kind, expires_ms, sink).await?;
        }
        Ok(())
    }

    /// One key in parts.
    async fn large<E: From<Error>>(
        &mut self,
        name: &Bytes,
        kind: Kind,
        expires_ms: Option<u64>,
        sink: &mut impl FnMut(Entry) -> Result<(), E>,
    ) -> Result<(), E> {
        let (key, step) = (self.key(name), "read a large key");
        if kind == Kind::Stream {
            return self.stream(name, expires_ms, sink).await;
        }
        let (mut cursor, mut is_more) = (0_u64, false);
        loop {
            let mut ask = redis::cmd(kind.scan());
            ask.arg(&key).arg(cursor).arg("COUNT").arg(MEMBERS_AT_ONCE);
            let (next, members): (u64, Vec<Bytes>) =
                ask.query_async(&mut self.redis).await.map_err(Error::redis(step))?;
            if !members.is_empty() {
                let content = match kind {
                    Kind::Hash => Content::Hash(pairs(members)),
                    Kind::SortedSet => Content::SortedSet(pairs(members)),
                    _ => Content::Set(members),
                };
                sink(self.entry(name, expires_ms, is_more, content))?;
                is_more = true;
            }
            if next == 0 {
                return Ok(());
            }
            cursor = next;
        }
    }

    async fn stream<E: From<Error>>(
        &mut self,
        name: &Bytes,
        expires_ms: Option<u64>,
        sink: &mut impl FnMut(Entry) -> Result<(), E>,
    ) -> Result<(), E> {
        let key = self.key(name);
        let (mut after, mut is_more) = ("-".to_owned(), false);
        loop {
            let mut ask = redis::pipe();
            ask.cmd("XRANGE").arg(&key).arg(&after).arg("+").arg("COUNT").arg(MEMBERS_AT_ONCE);
            ask.cmd("XINFO").arg("STREAM").arg(&key);
            // The stream is gone as a whole once its last entry is.
            let Ok(values) = self.query(&ask).await else { return Ok(()) };
            let read = |error: redis::ParsingError| Error::redis("read a stream")(error.into());
            let (entries, last) = Kind::stream(values).map_err(read)?;
            let newest = entries.last().map(|(id, _)| id.clone());
            // Only the last part says which id was the last one: nothing is added below that.
            let is_last = entries.len() < MEMBERS_AT_ONCE;
            let (Some(last), Some(at)) = (last, newest.or_else(|| is_more.then(Bytes::default))) else { return Ok(()) };
            after = format!("({}", at.text().unwrap_or_default());
            let last = if is_last { last } else { at };
            sink(self.entry(name, expires_ms, is_more, Content::Stream { entries, last }))?;
            if is_last {
                return Ok(());
            }
            is_more = true;
        }
    }

    fn entry(&self, name: &Bytes, expires_ms: Option<u64>, is_more: bool, content: Content) -> Entry {
        Entry { root: self.root, name: name.clone(), expires_ms, is_more, content }
    }

    async fn query<T: redis::FromRedisValue>(&mut self, pipe: &Pipeline) -> Result<T, Error> {
        pipe.query_async(&mut self.redis).await.map_err(Error::redis("read keys"))
    }
}

/// One page of the keys below a root; 0 to begin, and when there are no more.
pub(super) async fn scan(
    redis: &mut Connection,
    root: &str,
    cursor: u64,
    count: u32,
) -> Result<(u64, Vec<Vec<u8>>), Error> {
    let mut scan = redis::cmd("SCAN");
    scan.arg(cursor).arg("MATCH").arg(pattern(root)).arg("COUNT").arg(count);
    scan.query_async(redis).await.map_err(Error::redis("scan the keys"))
}

/// Matches the keys below a root and no others: a prefix may hold what SCAN takes for a wildcard.
fn pattern(root: &str) -> String {
    let mut pattern = String::with_capacity(root.len() + 2);
    for letter in root.chars() {
        if matches!(letter, '*' | '?' | '[' | ']' | '\\' | '^') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern + ":*"
}

fn pairs(flat: Vec<Bytes>) -> Vec<(Bytes, Bytes)> {
    let mut flat = flat.into_iter();
    std::iter::from_fn(|| Some((flat.next()?, flat.next()?))).collect()
}

/// A key's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    String,
    Hash,
    List,
    Set,
    SortedSet,
    Stream,
}

impl Kind {
    /// Redis's word for the type; `None` for a missing key.
    fn of(word: &str) -> Option<Self> {
        match word {
            "string" => Some(Self::String),
            "hash" => Some(Self::Hash),
            "list" => Some(Self::List),
            "set" => Some(Self::Set),
            "zset" => Some(Self::SortedSet),
            "stream" => Some(Self::Stream),
            _ => None,
        }
    }

    /// Asks how large it is.
    fn ask(self, pipe: &mut Pipeline, key: Vec<u8>) {
        let size = match self {
            Self::String => "STRLEN",
            Self::Hash => "HLEN",
            Self::List => "LLEN",
            Self::Set => "SCARD",
            Self::SortedSet => "ZCARD",
            Self::Stream => "XLEN",
        };
        pipe.cmd(size).arg(key);
    }

    /// Asks for the whole of it. A list comes in one piece however long: what is taken from its head meanwhile would shift its pages.
    fn read(self, pipe: &mut Pipeline, key: Vec<u8>) {
        match self {
            Self::String => pipe.get(key),
            Self::Hash => pipe.hgetall(key),
            Self::List => pipe.lrange(key, 0, -1),
            Self::Set => pipe.smembers(key),
            Self::SortedSet => pipe.zrange_withscores(key, 0, -1),
            Self::Stream => {
                pipe.cmd("XRANGE").arg(&key).arg("-").arg("+");
                pipe.cmd("XINFO").arg("STREAM").arg(key)
            }
        };
    }

    /// How many answers [`Kind::read`] has.
    fn answers(self) -> usize {
        if self == Self::Stream { 2 } else { 1 }
    }

    /// The command that goes through a large one; a stream has none.
    fn scan(self) -> &'static str {
        match self {
            Self::Hash => "HSCAN",
            Self::SortedSet => "ZSCAN",
            _ => "SSCAN",
        }
    }

    /// The content from the answers of [`Kind::read`]; `None` for a key that was deleted meanwhile.
    fn content(self, values: Vec<redis::Value>) -> Result<Option<Content>, redis::ParsingError> {
        use redis::from_redis_value;
        let mut values = values.into_iter();
        let (first, second) = (values.next().unwrap_or(redis::Value::Nil), values.next());
        if self == Self::String {
            return Ok(from_redis_value::<Option<Bytes>>(first)?.map(Content::String));
        }
        if let Some(info) = second {
            let (entries, last) = Self::stream(vec![first, info])?;
            // What holds nothing is deleted by its scripts.
            return Ok(last.filter(|_| !entries.is_empty()).map(|last| Content::Stream { entries, last }));
        }
        let members: Vec<Bytes> = from_redis_value(first)?;
        Ok((!members.is_empty()).then(|| match self {
            Self::Hash => Content::Hash(pairs(members)),
            Self::SortedSet => Content::SortedSet(pairs(members)),
            Self::Set => Content::Set(members),
            _ => Content::List(members),
        }))
    }

    /// The answers of XRANGE and of XINFO STREAM: entries, and the last id that was given.
    fn stream(values: Vec<redis::Value>) -> Result<StreamPart, redis::ParsingError> {
        use redis::from_redis_value;
        let mut values = values.into_iter();
        let entries = from_redis_value(values.next().unwrap_or(redis::Value::Nil))?;
        let info: HashMap<String, redis::Value> = from_redis_value(values.next().unwrap_or(redis::Value::Nil))?;
        let last = info.get("last-generated-id").cloned().unwrap_or(redis::Value::Nil);
        Ok((entries, from_redis_value(last)?))
    }
}

/// Entries of a stream, and the last id that it gave.
type StreamPart = (Vec<(Bytes, Vec<Bytes>)>, Option<Bytes>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_matches_itself_alone() {
        assert_eq!(pattern("{stoke:0}"), "{stoke:0}:*");
        assert_eq!(pattern("{a*[b]:0}"), "{a\\*\\[b\\]:0}:*");
    }
}
