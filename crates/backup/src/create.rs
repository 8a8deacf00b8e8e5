//! Creating a backup: copy, seal, upload, and write the manifest last.

use std::path::Path;
use std::time::Duration;

use stokehold_queue::backup::{Census, Entry, Source};
use stokehold_queue::{RedisConfig, now_ms};

use crate::manifest::{Manifest, Told};
use crate::part::PartWriter;
use crate::{BackupId, BackupKeys, Error, Store};

/// Source and destination of a backup.
pub struct Creation<'a> {
    /// The queue.
    pub redis: &'a RedisConfig,
    /// The store of backups.
    pub store: &'a Store,
    /// The keys that seal them.
    pub keys: &'a BackupKeys,
    /// How long writers may be blocked for each root; `None` = never.
    pub pause: Option<Duration>,
    /// The folder for sealed parts until they are uploaded; they are deleted afterwards.
    pub scratch: &'a Path,
    /// Called with the number of keys copied so far.
    pub progress: &'a (dyn Fn(u64) + Send + Sync),
}

/// Creates a backup.
///
/// # Errors
/// [`Error::Queue`], [`Error::Objects`] or [`Error::Scratch`]: no backup was created. The next cleanup deletes the
/// parts that were uploaded.
pub async fn create(creation: Creation<'_>) -> Result<Manifest, Error> {
    let Creation { redis, store, keys, pause, scratch, progress } = creation;
    let source = Source::connect(redis).await?;
    store.ensure().await?;
    let (began_ms, key) = (now_ms(), keys.current());
    let id = BackupId::new(began_ms);
    let folder = tempfile::tempdir_in(scratch).map_err(|source| Error::Scratch { step: "make room for", source })?;
    let (mut census, mut writer) = (Census::default(), PartWriter::new(id.as_str(), &key, folder.path()));
    source.check(redis).await?;
    let sink = |entry: Entry| {
        census.note(&entry);
        progress(census.keys);
        writer.push(&entry)
    };
    let moments = source.read(pause, sink).await?;
    let parts = writer.end()?;
    store.send(&id, &parts, folder.path()).await?;
    let told = Told { id: id.to_string(), began_ms, ended_ms: now_ms(), shards: redis.shards, moments, census, parts };
    let manifest = Manifest::sealed(told, &key)?;
    store.finish(&id, &manifest).await?;
    Ok(manifest)
}
