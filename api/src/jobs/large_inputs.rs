//! Inputs over 64 KiB: stored in S3 among the tenant's files, so that Redis does not hold them in memory. The record
//! has a reference ([`InputFile`]) in their place, and workers fetch them by a presigned URL.
//!
//! The ID of such a file is derived from its contents: submitting it again, or a thousand jobs with the same input,
//! writes the same object. A replica of the previous release does not support these references: while one uses the same
//! Redis, large inputs stay in their records.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use moka::sync::Cache;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use stokehold_objects::{Error as ObjectsError, Objects};
use stokehold_queue::job::{INLINE_INPUT_BYTES, InputFile, NewJob};

use crate::database;
use crate::database::Database;
use crate::files::stored;
use crate::jobs::{BULK_BODY_MAX, inputs};
use crate::tenants::storage;
use crate::tenants::storage::Storage;

/// Maximum size of an input, bytes: one job of a bulk submit.
const INPUT_MAX: u64 = BULK_BODY_MAX as u64;

/// Objects that one call writes concurrently.
const PUTS_AT_ONCE: usize = 16;

/// Cache time of the check for replicas of the previous release.
const OLDER_FOR: Duration = Duration::from_secs(5);

/// Reasons for which an input was not stored or cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The queue failed.
    #[error(transparent)]
    Database(#[from] database::Error),
    /// The object store failed.
    #[error(transparent)]
    Objects(#[from] ObjectsError),
    /// No storage was reserved for it.
    #[error(transparent)]
    Storage(#[from] storage::Error),
    /// The file of the input was not stored.
    #[error(transparent)]
    File(#[from] stored::Error),
    /// The reference to its file cannot be serialised, which indicates a bug.
    #[error("failed to serialise the reference to an input")]
    Reference(#[source] serde_json::Error),
}

/// The store of large inputs.
pub(crate) struct LargeInputs {
    db: Arc<Database>,
    objects: Arc<Objects>,
    storage: Arc<Storage>,
    /// Set when a replica of the previous release is running.
    older_replicas: Cache<(), bool>,
}

/// Returns whether an input is stored as a file.
fn is_large(input: &RawValue) -> bool {
    input.get().len() > INLINE_INPUT_BYTES || InputFile::of(input).is_some()
}

impl LargeInputs {
    pub(crate) fn new(db: Arc<Database>, objects: Arc<Objects>, storage: Arc<Storage>) -> Self {
        let older_replicas = Cache::builder().max_capacity(1).time_to_live(OLDER_FOR).build();
        Self { db, objects, storage, older_replicas }
    }

    /// Stores the large inputs of a submit in S3, and counts them toward the tenant's storage.
    ///
    /// # Errors
    /// [`storage::Error::Exceeded`]; [`Error::Objects`] when S3 does not answer: then nothing was submitted.
    pub(crate) async fn store_new(&self, jobs: &mut [NewJob]) -> Result<(), Error> {
        let is_new = |job: &&NewJob| job.input.get().len() > INLINE_INPUT_BYTES;
        let bytes: usize = jobs.iter().filter(is_new).map(|job| job.input.get().len()).sum();
        if let (Some(job), true) = (jobs.first(), bytes > 0) {
            self.storage.reserve(&job.spec.tenant, bytes as u64).await?;
        }
        self.store(jobs).await
    }

    /// Like [`LargeInputs::store_new`], for jobs whose inputs were accepted before: lines of a batch, steps.
    pub(crate) async fn store(&self, jobs: &mut [NewJob]) -> Result<(), Error> {
        let large = jobs.iter_mut().filter(|job| is_large(&job.input));
        let stored = large.map(|job| async move {
            let (input, file) = self.store_one(&job.spec.tenant, job.input.clone()).await?;
            job.input = input;
            job.spec.files.extend(file);
            Ok::<_, Error>(())
        });
        // Collected, because the compiler cannot check a borrowing stream of borrowing futures.
        let stored: Vec<_> = stored.collect();
        futures::stream::iter(stored).buffer_unordered(PUTS_AT_ONCE).try_collect().await
    }

    /// The value that the record stores in place of `input`, and the ID of its file if it became one.
    pub(crate) async fn store_one(
        &self,
        tenant: &str,
        input: Box<RawValue>,
    ) -> Result<(Box<RawValue>, Option<String>), Error> {
        if !is_large(&input) || self.has_older_replicas().await? {
            return Ok((input, None));
        }
        let digest = Sha256::new().chain_update(tenant).chain_update("\n").chain_update(input.get()).finalize();
        let id = format!("file_{}", hex::encode(&digest[..16]));
        stored::keep(&self.objects, tenant, &id, "input.json", Bytes::from(input.get().to_owned())).await?;
        let reference = InputFile::new(id.clone()).to_raw().map_err(Error::Reference)?;
        Ok((reference, Some(id)))
    }

    /// The whole input of a record; `None` when its file is missing from the object store.
    pub(crate) async fn whole<'a>(
        &self,
        tenant: &str,
        input: &'a RawValue,
    ) -> Result<Option<Cow<'a, RawValue>>, Error> {
        let Some(file) = InputFile::of(input) else { return Ok(Some(Cow::Borrowed(input))) };
        let Some(bytes) = self.objects.get(&inputs::file_key(tenant, &file.id), INPUT_MAX).await? else {
            return Ok(None);
        };
        let text = String::from_utf8(bytes.into()).ok().and_then(|text| RawValue::from_string(text).ok());
        Ok(text.map(Cow::Owned))
    }

    /// Files that the input of a record names, including its own if it is stored as a file.
    pub(crate) async fn files_of(&self, tenant: &str, input: &RawValue) -> Result<Vec<String>, Error> {
        let whole = self.whole(tenant, input).await?;
        let mut files = whole.map(|text| inputs::files_of(text.get())).unwrap_or_default();
        files.extend(InputFile::of(input).map(|file| file.id));
        Ok(files)
    }

    async fn has_older_replicas(&self) -> Result<bool, Error> {
        if let Some(known) = self.older_replicas.get(&()) {
            return Ok(known);
        }
        let found = self.db.ask("check for older replicas", self.db.queue.has_older_replicas()).await?;
        self.older_replicas.insert((), found);
        Ok(found)
    }
}
