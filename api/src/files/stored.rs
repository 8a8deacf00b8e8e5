//! Files in the object store: the bytes, and beside them the request that created the file.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use stokehold_objects::{Error as ObjectsError, Objects};

use crate::jobs::inputs::file_key;

/// The request that created a file, stored beside it.
#[derive(Serialize, Deserialize)]
pub(super) struct FileMetadata {
    pub(super) name: String,
    pub(super) content_type: String,
}

/// Reasons for which a file was not stored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The object store failed.
    #[error(transparent)]
    Objects(#[from] ObjectsError),
    /// The file's record cannot be serialised, which indicates a bug.
    #[error("failed to serialise the record of a file")]
    Json(#[from] serde_json::Error),
}

/// Stores JSON text that this replica wrote as a file with this ID. Repeating it writes the same objects.
pub(crate) async fn keep(objects: &Objects, tenant: &str, id: &str, name: &str, text: Bytes) -> Result<(), Error> {
    const CONTENT_TYPE: &str = "application/json";
    let key = file_key(tenant, id);
    let card = serde_json::to_vec(&FileMetadata { name: name.to_owned(), content_type: CONTENT_TYPE.to_owned() })?;
    objects.put(&card_key(&key), card.into(), CONTENT_TYPE).await?;
    Ok(objects.put(&key, text, CONTENT_TYPE).await?)
}

pub(super) fn card_key(key: &str) -> String {
    format!("{key}.json")
}
