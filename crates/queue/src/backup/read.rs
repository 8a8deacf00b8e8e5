//! Reads a queue, one root at a time.
//!
//! SCAN returns every key that exists from its beginning to its end. Values are read in pages, whatever the size of a
//! key. During the read the server blocks writers (CLIENT PAUSE), so that the copy is consistent; the server's count of
//! changes verifies that. The pause expires by itself, even if this process is killed.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use redis::{ErrorKind, Pipeline};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::entry::{Bytes, Content, Entry, Root};
use super::family::{self, Fate};
use crate::connection::{Connection, Location};
use crate::error::Error;
use crate::keys::{Keys, RegistryKeys};
use crate::redis_health::info_field;
use crate::redis_queue::RedisConfig;
use crate::registry::Registry;

/// Number of keys that SCAN examines per call.
const SCAN_COUNT: u32 = 1_000;

/// Number of keys per round trip. Inputs have up to 256 KiB and results 16 KiB, so a reply has at most about 30 MB.
const KEYS_AT_ONCE: usize = 100;

/// Number of members of a key per read. A larger key is read in parts.
const MEMBERS_AT_ONCE: usize = 1_000;

/// The queue to copy.
pub struct Source {
    roots: Vec<(Root, Connection, String)>,
}

/// Time and exactness of the copy of a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Moment {
    /// The root.
    pub root: Root,
    /// Time at which the copy began, Unix milliseconds by Redis's clock.
    pub at_ms: u64,
    /// Duration of the copy, milliseconds.
    pub took_ms: u64,
    /// Whether nothing was written during the copy, so that it is the exact state at that time.
    pub is_exact: bool,
}

impl Source {
    /// Connects to every root: the shards in order, then the registry. The registry comes last so that the copy
    /// contains every endpoint that a job names.
    ///
    /// # Errors
    /// [`Error::Unfit`] if the URL is invalid, [`Error::Unavailable`] if no server answers.
    pub async fn connect(config: &RedisConfig) -> Result<Self, Error> {
        let place = Location::parse(&config.url)?;
        let registry = RegistryKeys::new(&config.prefix);
        let to_registry = Connection::open(&place, registry.root(), config.long_calls).await?;
        let mut roots = Vec::new();
        for number in 0..config.shards {
            let keys = Keys::new(&config.prefix, number);
            let connection = match place.is_one() {
                true => to_registry.clone(),
                false => Connection::open(&place, keys.root(), config.long_calls).await?,
            };
            roots.push((Root::Shard(number), connection, keys.root().to_owned()));
        }
        roots.push((Root::Registry, to_registry, registry.root().to_owned()));
        Ok(Self { roots })
    }

    /// Verifies that the queue is complete.
    ///
    /// # Errors
    /// [`Error::Unfit`] while a backup is being restored into it.
    pub async fn check(&self, config: &RedisConfig) -> Result<(), Error> {
        let Some((_, connection, _)) = self.roots.last() else { return Ok(()) };
        match Registry::new(connection.clone(), &config.prefix).restoring().await? {
            Some(backup) => Err(Error::half(&backup)),
            None => Ok(()),
        }
    }

    /// Passes every key of every root to `sink`. Writers are paused for at most `pause` per root; what is left is
    /// copied while the queue continues. `None` means no pause.
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
            let mut reader = Reader { redis: connection.long(), root: *root, prefix, seen: HashSet::new() };
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

/// The error after a change of server: a SCAN cursor is valid on its own server only, so the rest of the keys is
/// unknown.
fn moved() -> Error {
    let source = "Redis was restarted or replaced during the backup; start it again".into();
    Error::Unavailable { step: "copy a root to its end", source }
}

/// The identity of a server, for comparison.
#[derive(Debug, PartialEq, Eq)]
struct Marks {
    run_id: String,
    /// Number of changes since the last save; `None` if unknown.
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
    /// Pauses writers. `false` if the server does not allow that, e.g. many managed ones.
    async fn pause(&mut self, limit: Duration) -> Result<bool, Error> {
        let mut pause = redis::cmd("CLIENT");
        pause.arg("PAUSE").arg(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)).arg("WRITE");
        match pause.query_async::<()>(&mut self.redis).await {
            Ok(()) => Ok(true),
            Err(error) if error.is_io_error() || error.kind() == ErrorKind::AuthenticationFailed => {
                Err(Error::redis("pause the writers")(error))
            }
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

    /// The name of the key below its root, if it is kept and has not been read yet.
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
            // The key was deleted in the meantime.
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

    /// Reads one key in parts.
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
            // The stream is deleted with its last entry.
            let Ok(values) = self.query(&ask).await else { return Ok(()) };
            let read = |error: redis::ParsingError| Error::redis("read a stream")(error.into());
            let (entries, last) = Kind::stream(values).map_err(read)?;
            let newest = entries.last().map(|(id, _)| id.clone());
            // Only the last part contains the last generated id, because nothing can be added below that id.
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

/// Reads one page of the keys below a root. The cursor is 0 at the start, and again after the last page.
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

/// A pattern that matches exactly the keys below a root. The prefix may contain characters that SCAN treats as
/// wildcards.
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
    /// Parses Redis's name of a type; `None` for a missing key.
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

    /// Adds the command that reads the size.
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

    /// Adds the commands that read the whole value. A list is read in one piece whatever its length, because removals
    /// from its head would shift pages.
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

    /// Number of replies to the commands of [`Kind::read`].
    fn answers(self) -> usize {
        if self == Self::Stream { 2 } else { 1 }
    }

    /// The command that iterates over a large value; empty for a stream.
    fn scan(self) -> &'static str {
        match self {
            Self::Hash => "HSCAN",
            Self::SortedSet => "ZSCAN",
            _ => "SSCAN",
        }
    }

    /// Decodes the content from the replies to [`Kind::read`]; `None` for a key that was deleted in the meantime.
    fn content(self, values: Vec<redis::Value>) -> Result<Option<Content>, redis::ParsingError> {
        use redis::from_redis_value;
        let mut values = values.into_iter();
        let (first, second) = (values.next().unwrap_or(redis::Value::Nil), values.next());
        if self == Self::String {
            return Ok(from_redis_value::<Option<Bytes>>(first)?.map(Content::String));
        }
        if let Some(info) = second {
            let (entries, last) = Self::stream(vec![first, info])?;
            // Scripts delete a stream once it is empty.
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

    /// Decodes the replies of XRANGE and of XINFO STREAM: entries and the last generated id.
    fn stream(values: Vec<redis::Value>) -> Result<StreamPart, redis::ParsingError> {
        use redis::from_redis_value;
        let mut values = values.into_iter();
        let entries = from_redis_value(values.next().unwrap_or(redis::Value::Nil))?;
        let info: HashMap<String, redis::Value> = from_redis_value(values.next().unwrap_or(redis::Value::Nil))?;
        let last = info.get("last-generated-id").cloned().unwrap_or(redis::Value::Nil);
        Ok((entries, from_redis_value(last)?))
    }
}

/// Entries of a stream, and the last id that it generated.
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
