//! The store of backups: one folder per backup below a prefix of a bucket.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use stokehold_objects::Objects;

use crate::manifest::{MANIFEST_BYTES_MAX, Manifest, Part};
use crate::part::{self, SEALED_BYTES_MAX};
use crate::{BackupId, Error, retention};

/// Name of the manifest. It is written last, so a folder without one is incomplete.
const MANIFEST: &str = "manifest.json";

/// Concurrent requests.
const AT_ONCE: usize = 8;

/// The most backups that one cleanup deletes. Usually it deletes one for each new one; if the clock is years ahead,
/// this bounds the loss.
const DELETED_AT_ONCE_MAX: usize = 10;

/// The most objects of a listing.
const PAGE: u32 = 1_000;

/// A prefix of a bucket.
#[derive(Debug, Clone)]
pub struct Store {
    objects: Objects,
    /// Empty or with a slash at the end.
    prefix: String,
}

/// A folder of the store.
#[derive(Debug)]
pub struct Listed {
    /// Its name.
    pub id: BackupId,
    /// The manifest; `None` for an incomplete backup, which is in progress or was interrupted.
    pub manifest: Option<Manifest>,
    /// Why the manifest cannot be read: a later release wrote it, or it is damaged.
    pub unreadable: Option<String>,
}

impl Listed {
    fn is_half(&self) -> bool {
        self.manifest.is_none() && self.unreadable.is_none()
    }
}

impl Store {
    /// A store below `prefix` of this bucket.
    #[must_use]
    pub fn new(objects: Objects, prefix: &str) -> Self {
        let prefix = prefix.trim_matches('/');
        Self { objects, prefix: if prefix.is_empty() { String::new() } else { format!("{prefix}/") } }
    }

    /// Creates the bucket unless it is there.
    ///
    /// # Errors
    /// [`Error::Objects`].
    pub async fn ensure(&self) -> Result<(), Error> {
        Ok(self.objects.ensure_bucket().await?)
    }

    /// All backups, the oldest first.
    ///
    /// # Errors
    /// [`Error::Objects`].
    pub async fn list(&self) -> Result<Vec<Listed>, Error> {
        let names = self.objects.folders(&self.prefix).await?;
        // Other folders are not backups.
        let ids = names.into_iter().filter_map(|name| name.parse::<BackupId>().ok());
        let look = |id: BackupId| async move {
            match self.manifest(&id).await {
                Ok(manifest) => Ok(Listed { id, manifest, unreadable: None }),
                // An unreadable backup does not hide the others.
                Err(error @ (Error::Damaged { .. } | Error::Newer { .. })) => {
                    Ok(Listed { id, manifest: None, unreadable: Some(error.to_string()) })
                }
                Err(error) => Err(error),
            }
        };
        let mut listed: Vec<Listed> = stream::iter(ids.map(look)).buffered(AT_ONCE).try_collect().await?;
        listed.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(listed)
    }

    /// The backup with this name, or the newest complete one.
    ///
    /// # Errors
    /// [`Error::NotFound`], and the errors of [`Store::list`].
    pub async fn find(&self, id: Option<&BackupId>) -> Result<Manifest, Error> {
        match id {
            Some(id) => self.manifest(id).await?.ok_or_else(|| Error::NotFound(id.to_string())),
            None => {
                let newest = self.list().await?.into_iter().rev().find_map(|listed| listed.manifest);
                newest.ok_or_else(|| Error::NotFound("that is whole".to_owned()))
            }
        }
    }

    async fn manifest(&self, id: &BackupId) -> Result<Option<Manifest>, Error> {
        let key = self.key(id.as_str(), MANIFEST);
        let Some(text) = self.objects.get(&key, MANIFEST_BYTES_MAX).await? else { return Ok(None) };
        let manifest = Manifest::parse(&key, &text)?;
        if manifest.id != id.as_str() {
            // An old backup that was copied to a newer name.
            return Err(Error::Damaged { object: key, why: format!("it is the manifest of {}", manifest.id) });
        }
        Ok(Some(manifest))
    }

    /// Uploads parts from a folder, a few at a time.
    pub(crate) async fn send(&self, id: &BackupId, parts: &[Part], folder: &Path) -> Result<(), Error> {
        let send = |part: &Part| {
            let (key, path) = (self.key(id.as_str(), &part.name), part::path(folder, &part.name));
            async move {
                let body = fs::read(path).map_err(|source| Error::Scratch { step: "read", source })?;
                Ok::<_, Error>(self.objects.put(&key, body.into(), "application/octet-stream").await?)
            }
        };
        stream::iter(parts.iter().map(send)).buffer_unordered(AT_ONCE / 2).try_collect::<()>().await
    }

    /// Completes a backup by writing its manifest.
    pub(crate) async fn finish(&self, id: &BackupId, manifest: &Manifest) -> Result<(), Error> {
        let text = manifest.text()?.into_bytes();
        Ok(self.objects.put(&self.key(id.as_str(), MANIFEST), text.into(), "application/json").await?)
    }

    /// The stored bytes of a part.
    pub(crate) async fn fetch(&self, backup: &str, part: &Part) -> Result<Bytes, Error> {
        let key = self.key(backup, &part.name);
        let body = self.objects.get(&key, part.size_bytes.min(SEALED_BYTES_MAX)).await?;
        body.ok_or_else(|| Error::Damaged {
            object: format!("{} of {backup}", part.name),
            why: "it no longer exists".to_owned(),
        })
    }

    /// Deletes expired backups and abandoned incomplete ones. Returns their names.
    ///
    /// # Errors
    /// The errors of [`Store::list`]; some backups may be deleted by then. Safe to repeat.
    pub async fn thin_out(&self, now_ms: u64) -> Result<Vec<BackupId>, Error> {
        let listed = self.list().await?;
        let whole = listed.iter().filter(|listed| listed.manifest.is_some());
        let too_many = retention::too_many(now_ms, &whole.map(|listed| listed.id.began_ms()).collect());
        let may_go = |listed: &Listed| {
            let began_ms = listed.id.began_ms();
            let is_left = listed.is_half() && now_ms.saturating_sub(began_ms) >= retention::HALF_MS;
            is_left || listed.manifest.is_some() && too_many.contains(&began_ms)
        };
        let gone = listed.into_iter().filter(may_go).map(|listed| listed.id).take(DELETED_AT_ONCE_MAX);
        let gone: Vec<BackupId> = gone.collect();
        for id in &gone {
            self.delete(id).await?;
        }
        Ok(gone)
    }

    /// Deletes the manifest first, so that the folder counts as incomplete from then on.
    async fn delete(&self, id: &BackupId) -> Result<(), Error> {
        self.objects.delete(&[self.key(id.as_str(), MANIFEST)]).await?;
        loop {
            let page = self.objects.list(&self.key(id.as_str(), ""), None, PAGE).await?;
            if page.objects.is_empty() {
                return Ok(());
            }
            let keys: Vec<String> = page.objects.into_iter().map(|object| object.key).collect();
            self.objects.delete(&keys).await?;
        }
    }

    fn key(&self, backup: &str, name: &str) -> String {
        format!("{}{backup}/{name}", self.prefix)
    }
}
