//! The index: every key in memory, in order, for listings and write conditions. It is rebuilt from the files on start,
//! so it cannot deviate from them for longer than one run. An object takes 270 bytes with keys of 85 characters.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use s3s::{S3Result, s3_error};

use super::format::Entry;
use super::listing::{self, Page, Query};

struct Bucket {
    created_ms: u64,
    objects: BTreeMap<String, Entry>,
}

/// All buckets and their objects.
#[derive(Default)]
pub(super) struct Index(RwLock<BTreeMap<String, Bucket>>);

impl Index {
    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<String, Bucket>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<String, Bucket>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn insert_bucket(&self, name: &str, created_ms: u64) {
        self.write().insert(name.to_owned(), Bucket { created_ms, objects: BTreeMap::new() });
    }

    /// The names of the buckets, and when each was created.
    pub(super) fn buckets(&self) -> Vec<(String, u64)> {
        self.read().iter().map(|(name, bucket)| (name.clone(), bucket.created_ms)).collect()
    }

    pub(super) fn require_bucket(&self, name: &str) -> S3Result<()> {
        if self.read().contains_key(name) { Ok(()) } else { Err(no_such_bucket(name)) }
    }

    pub(super) fn get(&self, bucket: &str, key: &str) -> S3Result<Option<Entry>> {
        let buckets = self.read();
        let bucket = buckets.get(bucket).ok_or_else(|| no_such_bucket(bucket))?;
        Ok(bucket.objects.get(key).cloned())
    }

    pub(super) fn insert(&self, bucket: &str, key: &str, entry: Entry) {
        if let Some(bucket) = self.write().get_mut(bucket) {
            bucket.objects.insert(key.to_owned(), entry);
        }
    }

    pub(super) fn remove(&self, bucket: &str, key: &str) {
        if let Some(bucket) = self.write().get_mut(bucket) {
            bucket.objects.remove(key);
        }
    }

    pub(super) fn list(&self, bucket: &str, query: &Query) -> S3Result<Page> {
        let buckets = self.read();
        let bucket = buckets.get(bucket).ok_or_else(|| no_such_bucket(bucket))?;
        Ok(listing::page(&bucket.objects, query))
    }
}

fn no_such_bucket(name: &str) -> s3s::S3Error {
    s3_error!(NoSuchBucket, "there is no bucket {name:?}; create it first")
}
