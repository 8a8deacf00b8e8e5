//! The files of an attempt and of a runner: presigned URLs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::endpoint::EndpointVersion;
use crate::id::{Fence, JobId};

/// `POST /worker/v1/uploads`: requests URLs for the files of one attempt.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UploadsRequest {
    /// The job.
    pub job_id: JobId,
    /// Proof of the lease.
    pub fence: Fence,
    /// The files; at most 1,000.
    pub files: Vec<UploadFile>,
}

/// One file to upload. Length and checksum are signed into its URL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadFile {
    /// Name of the file below the attempt's prefix: `[A-Za-z0-9._-]{1,200}`.
    pub name: String,
    /// Size, bytes.
    pub size_bytes: u64,
    /// SHA-256, hex.
    pub sha256: String,
    /// MIME type.
    pub content_type: String,
}

/// The reply to `uploads`. 409 `stale_fence` if the lease is lost.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UploadsReply {
    /// The presigned requests, one per file, in order.
    pub uploads: Vec<Upload>,
}

/// A presigned PUT.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Upload {
    /// The URL.
    pub url: String,
    /// Headers that are part of the signature and must be sent unchanged.
    pub headers: BTreeMap<String, String>,
}

/// `GET /worker/v1/endpoints/{tenant}/{name}/{version}`: what a worker needs to start a runner. 404 unless it holds a
/// lease of that tenant.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunnerSpec {
    /// The version.
    #[serde(flatten)]
    pub version: EndpointVersion,
    /// Presigned GET of the package, valid for an hour.
    pub package_url: String,
    /// The address of each of its weights, in order; presigned ones are valid for some hours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weight_urls: Vec<String>,
    /// The learned memory needs, MiB by GPU model.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub needs_mib: BTreeMap<String, u64>,
}
