//! Files in the object store: the bytes, and beside them the request that created the file.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use stokehold_objects::{Error as ObjectsError, Objects};

use crate::jobs::inputs::file_key;

/// The request that created a file, stored beside it.
#[derive(Serialize, Deserialize)]
pub(crate) struct FileMetadata {
    pub(crate) name: String,
    pub(crate) content_type: String,
    /// Set for a file of the API of OpenAI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) openai: Option<OpenAiFile>,
}

/// The properties of a file that only the API of OpenAI has.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct OpenAiFile {
    /// What the file is for, e.g. `batch`.
    pub(crate) purpose: String,
    pub(crate) bytes: u64,
    /// Unix seconds.
    pub(crate) created_s: u64,
    /// Time at which the file is deleted, Unix seconds.
    pub(crate) expires_s: u64,
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
    let metadata = serde_json::to_vec(&FileMetadata {
        name: name.to_owned(),
        content_type: CONTENT_TYPE.to_owned(),
        openai: None,
    })?;
    objects.put(&metadata_key(&key), metadata.into(), CONTENT_TYPE).await?;
    Ok(objects.put(&key, text, CONTENT_TYPE).await?)
}

/// Key of the metadata of the file with this key.
pub(crate) fn metadata_key(key: &str) -> String {
    format!("{key}.json")
}
