//! Files of the API of OpenAI: uploaded files with a purpose and an expiry in their metadata. An index in the object
//! store lists those of each tenant. Its objects are empty: their keys have what a list filters by.

use futures::{StreamExt, TryStreamExt};
use sha2::{Digest, Sha256};
use stokehold_objects::{Error as ObjectsError, Objects};

use crate::files::stored::{FileMetadata, OpenAiFile, metadata_key};
use crate::files::{GETS_AT_ONCE, METADATA_MAX};
use crate::jobs::inputs::file_key;
use crate::names;

/// Time for which a file is kept by default, and the longest, seconds. It is that of batches and their results.
pub(crate) const KEEP_S: u64 = 30 * 24 * 3600;

/// Purpose of the files with the lines of batches, and of the files with their results and errors.
pub(super) const BATCH: &str = "batch";
pub(super) const BATCH_OUTPUT: &str = "batch_output";

/// Purpose of the images of a call, which are files until they expire. No list has them.
pub(super) const IMAGE_EDIT: &str = "image_edit";

/// Number of files of a tenant at which it must delete some before it uploads others. Files of results are not refused.
pub(super) const FILES_MAX: usize = 10_000;

/// Pages of 1,000 files that one list reads.
const PAGES_MAX: usize = 50;

/// Prefixes of the indexes: of the files that lists have, and of the others.
const INDEX: &str = "openai-files/";
const UNLISTED: &str = "openai-unlisted/";

/// Reasons for which files cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The object store failed.
    #[error(transparent)]
    Objects(#[from] ObjectsError),
    /// The metadata of a file is not JSON, or cannot be serialised.
    #[error("the record of file {id:?} cannot be read or written")]
    Record {
        /// The file.
        id: String,
        #[source]
        source: serde_json::Error,
    },
}

/// A file.
pub(super) struct File {
    /// Its ID in the other routes: `file_` and 32 hex digits.
    pub(super) id: String,
    pub(super) name: String,
    pub(super) about: OpenAiFile,
}

/// An entry of the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) tenant: String,
    pub(super) id: String,
    pub(super) purpose: String,
    pub(super) expires_s: u64,
}

impl Entry {
    pub(super) fn new(tenant: &str, id: &str, about: &OpenAiFile) -> Self {
        let (tenant, id, purpose) = (tenant.to_owned(), id.to_owned(), about.purpose.clone());
        Self { tenant, id, purpose, expires_s: about.expires_s }
    }

    fn key(&self) -> String {
        let Self { tenant, id, purpose, expires_s } = self;
        let index = if purpose == IMAGE_EDIT { UNLISTED } else { INDEX };
        format!("{index}{tenant}/{id}.{purpose}.{expires_s}")
    }

    fn from_key(key: &str) -> Option<Self> {
        let (tenant, name) = key.strip_prefix(INDEX).or_else(|| key.strip_prefix(UNLISTED))?.split_once('/')?;
        let (id, rest) = name.split_once('.')?;
        let (purpose, expires_s) = rest.split_once('.')?;
        let (tenant, id, purpose) = (tenant.to_owned(), id.to_owned(), purpose.to_owned());
        Some(Self { tenant, id, purpose, expires_s: expires_s.parse().ok()? })
    }
}

/// The ID that clients of OpenAI know a file by.
pub(super) fn shown_id(id: &str) -> String {
    id.replacen("file_", "file-", 1)
}

/// The ID that the other routes know a file by. `None` if the text is no ID of a file.
pub(super) fn native_id(shown: &str) -> Option<String> {
    let id = format!("file_{}", shown.strip_prefix("file-")?);
    names::is_file_id(&id).then_some(id)
}

/// ID of the file of a batch's results or errors. It begins with the batch's creation time, as those of uploads do with
/// theirs, so that IDs sort by time.
pub(super) fn id_of_batch(batch: &str, kind: &str) -> String {
    let digits = batch.strip_prefix("batch_").unwrap_or(batch);
    let digest = hex::encode(Sha256::new().chain_update(batch).chain_update("\n").chain_update(kind).finalize());
    let time = digits.get(..12).filter(|time| time.bytes().all(|byte| byte.is_ascii_hexdigit()));
    format!("file_{}{}", time.unwrap_or(&digest[20..32]), &digest[..20])
}

/// Reads a file; `None` if there is none or it has expired.
pub(super) async fn find(objects: &Objects, tenant: &str, id: &str, now_s: u64) -> Result<Option<File>, Error> {
    let Some(metadata) = objects.get(&metadata_key(&file_key(tenant, id)), METADATA_MAX).await? else {
        return Ok(None);
    };
    let metadata: FileMetadata =
        serde_json::from_slice(&metadata).map_err(|source| Error::Record { id: id.to_owned(), source })?;
    let about = metadata.openai.filter(|about| about.expires_s > now_s);
    Ok(about.map(|about| File { id: id.to_owned(), name: metadata.name, about }))
}

/// Stores the metadata of a file. Its bytes follow: a process that dies in between leaves an entry that expires.
pub(super) async fn announce(objects: &Objects, tenant: &str, file: &File, content_type: &str) -> Result<(), Error> {
    let File { id, name, about } = file;
    objects.put(&Entry::new(tenant, id, about).key(), bytes::Bytes::new(), "application/octet-stream").await?;
    let (name, content_type) = (name.clone(), content_type.to_owned());
    let metadata = FileMetadata { name, content_type, openai: Some(about.clone()) };
    let metadata = serde_json::to_vec(&metadata).map_err(|source| Error::Record { id: id.clone(), source })?;
    Ok(objects.put(&metadata_key(&file_key(tenant, id)), metadata.into(), "application/json").await?)
}

/// Deletes a file. Its entry goes last, so that a deletion that fails is repeated when the file expires.
pub(super) async fn remove(objects: &Objects, entry: &Entry) -> Result<(), Error> {
    let key = file_key(&entry.tenant, &entry.id);
    let metadata = metadata_key(&key);
    for key in [key, metadata, entry.key()] {
        objects.delete(&[key]).await?;
    }
    Ok(())
}

/// The entries of a tenant that have not expired, oldest first.
pub(super) async fn entries(objects: &Objects, tenant: &str, now_s: u64) -> Result<Vec<Entry>, Error> {
    let (prefix, mut found, mut cursor) = (format!("{INDEX}{tenant}/"), Vec::new(), None);
    for _ in 0..PAGES_MAX {
        let page = objects.list(&prefix, cursor.as_deref(), 1_000).await?;
        found.extend(page.objects.iter().filter_map(|object| Entry::from_key(&object.key)));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    found.retain(|entry| entry.expires_s > now_s);
    Ok(found)
}

/// The files of the first of these entries, at most `limit`. Returns also the number of entries that were used: a file
/// may have been deleted.
pub(super) async fn read(
    objects: &Objects,
    entries: &[Entry],
    limit: usize,
    now_s: u64,
) -> Result<(Vec<File>, usize), Error> {
    let (mut files, mut used) = (Vec::new(), 0);
    while files.len() < limit && used < entries.len() {
        let next = &entries[used..entries.len().min(used + limit - files.len())];
        used += next.len();
        let found: Vec<_> =
            next.iter().map(|entry| one(objects.clone(), entry.tenant.clone(), entry.id.clone(), now_s)).collect();
        let found: Vec<Option<File>> = futures::stream::iter(found).buffered(GETS_AT_ONCE).try_collect().await?;
        files.extend(found.into_iter().flatten());
    }
    Ok((files, used))
}

/// As [`find`], with arguments of its own: the compiler cannot check a borrowing stream of borrowing futures.
async fn one(objects: Objects, tenant: String, id: String, now_s: u64) -> Result<Option<File>, Error> {
    find(&objects, &tenant, &id, now_s).await
}

/// Deletes the files of all tenants that have expired. Returns their number. A file that cannot be deleted does not keep
/// the others, and the error is that of the last one.
pub(super) async fn expire(objects: &Objects, now_s: u64) -> Result<usize, Error> {
    let listed = expire_in(objects, INDEX, now_s).await;
    Ok(expire_in(objects, UNLISTED, now_s).await? + listed?)
}

async fn expire_in(objects: &Objects, index: &str, now_s: u64) -> Result<usize, Error> {
    let (mut count, mut failed, mut cursor) = (0, None, None);
    loop {
        let page = objects.list(index, cursor.as_deref(), 1_000).await?;
        for object in &page.objects {
            let Some(entry) = Entry::from_key(&object.key) else {
                tracing::warn!(key = object.key, "this object is no entry of the index of files; it is never deleted");
                continue;
            };
            if entry.expires_s > now_s {
                continue;
            }
            // A call that was repeated has stored its images again, and they have a later entry.
            let removed = match find(objects, &entry.tenant, &entry.id, now_s).await {
                Ok(Some(_)) => objects.delete(&[entry.key()]).await.map(|()| 0).map_err(Error::from),
                Ok(None) | Err(Error::Record { .. }) => remove(objects, &entry).await.map(|()| 1),
                Err(error) => Err(error),
            };
            match removed {
                Ok(removed) => count += removed,
                Err(error) => failed = Some(error),
            }
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            return failed.map_or(Ok(count), Err);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_of_files_and_derive_from_the_batch() {
        let id = format!("file_{}", "0f".repeat(16));
        assert_eq!(native_id(&shown_id(&id)), Some(id.clone()));
        assert_eq!((native_id(&id), native_id("file-../x"), native_id("batch_1")), (None, None, None));
        let batch = format!("batch_019ac9d1c2f07{}", "a".repeat(19));
        let (output, errors) = (id_of_batch(&batch, "output"), id_of_batch(&batch, "errors"));
        assert!(output.starts_with("file_019ac9d1c2f0") && names::is_file_id(&output), "{output}");
        assert!(output != errors && output == id_of_batch(&batch, "output"));
    }

    #[test]
    fn an_entry_is_its_key() {
        let about = OpenAiFile { purpose: "fine-tune".to_owned(), bytes: 7, created_s: 1, expires_s: 1_795_240_200 };
        let entry = Entry::new("acme", &format!("file_{}", "0f".repeat(16)), &about);
        assert_eq!(Entry::from_key(&entry.key()).as_ref(), Some(&entry));
        let unlisted = Entry { purpose: IMAGE_EDIT.to_owned(), ..entry };
        assert!(!unlisted.key().starts_with(INDEX));
        assert_eq!(Entry::from_key(&unlisted.key()), Some(unlisted));
        assert_eq!(Entry::from_key("openai-files/acme/file_1.batch"), None);
    }
}
