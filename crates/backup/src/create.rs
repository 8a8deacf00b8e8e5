//! Creating a backup: copy, seal, upload, and write the manifest last.

use std::path::Path;
use std::time::Duration;

use stokehold_queue::backup::{Census, Entry, Source};
use stokehold_queue::{RedisConfig, now_ms};

use crate::manifest::{Manifest, Told};
use crate::part::PartWriter;
use crate::{BackupId, BackupKeys, Error, Store};

/// What to back up, and where to.
pub struct Creation<'a> {
    /// The queue.
    pub redis: &'a RedisConfig,
    /// Where backups lie.
    pub store: &'a Store,
    /// What they are sealed with.
    pub keys: &'a BackupKeys,
    /// How long writers may be made to wait for each root; `None`: never.
    pub pause: Option<Duration>,
    /// Where sealed parts wait until they are sent; they are deleted afterwards.
    pub scratch: &'a Path,
    /// Called with the number of keys copied so far.
    pub progress: &'a (dyn Fn(u64) + Send + Sync),
}

/// Makes a backup.
///
/// # Errors
/// [`Error::Queue`], [`Error::Objects`] or [`Error::Scratch`]: no backup is there, and what was sent of it goes with the next thinning
/// out.
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
