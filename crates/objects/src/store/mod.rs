//! A small durable S3 server for one host and one process, in which `stoke dev` stores its objects.
//!
//! `s3s` implements the protocol (routes, XML, signatures, presigned URLs); this module stores the bytes. Guarantees:
//!
//! - An acknowledged write survives kill -9 and power loss: the file is synced and renamed, and its folder synced,
//!   before the response.
//! - A body is checked (length, `Content-MD5`, signed hash, checksums in headers or trailers) before anything becomes
//!   visible. A rejected write never changes the existing object.
//! - Body and metadata are one file, committed by one rename (`format` describes its bytes, `disk` its place).
//! - `If-None-Match: *` has exactly one winner among any number of concurrent requests with bodies of any size.
//! - Bodies are streamed; memory does not grow with their size. It grows with the number of objects: an index holds
//!   their keys (measured: 270 bytes each) and is rebuilt from the files on start (measured: 1.7 s per 100,000).
//!
//! Not supported: versions, tags, ACLs, encryption, website hosting (rejected, never ignored), more than one host,
//! repair of silent disk corruption. One secret gives access to everything. The listen address is a setting: bind it to
//! loopback unless presigned URLs must work from elsewhere.

mod conditions;
mod digest;
mod disk;
mod failure;
mod format;
mod headers;
mod index;
mod inert;
mod ingest;
mod listing;
mod multipart;
mod objects;
mod server;
mod service;
mod uploads;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use s3s::auth::SimpleAuth;
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::{S3Service, S3ServiceBuilder};
use tokio::net::TcpListener;

use self::disk::Disk;
use self::service::Service;
use crate::{Error, Secret};

/// Maximum size of an XML body, which is read whole: 1,000 keys of 1 KiB to delete, or 10,000 parts with checksums, fit
/// well.
const XML_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Configuration of the store: its folder and its credentials.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// The folder, created if missing. One process serves it at a time.
    pub dir: PathBuf,
    /// The access key for signing requests.
    pub access_key_id: String,
    /// The key's secret.
    pub secret_access_key: Secret,
}

/// Serves S3 until `shutdown` completes, then waits for requests in progress. Path-style addresses only.
///
/// # Errors
/// [`Error::Locked`] if another process serves the folder, [`Error::Folder`] if it cannot be used.
pub async fn serve(
    listener: TcpListener,
    config: StoreConfig,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), Error> {
    let StoreConfig { dir, access_key_id, secret_access_key } = config;
    let opened = tokio::task::spawn_blocking(move || {
        let disk = Disk::open(&dir)?;
        multipart::sweep(&disk).map_err(Error::folder("delete abandoned uploads in", &dir))?;
        Ok::<_, Error>(disk)
    });
    let disk = opened.await.map_err(|error| Error::Unavailable { step: "open the store", source: error.into() })??;
    let auth = SimpleAuth::from_single(access_key_id, secret_access_key.expose());
    server::run(listener, service(Arc::new(disk), auth), shutdown).await;
    Ok(())
}

fn service(disk: Arc<Disk>, auth: SimpleAuth) -> S3Service {
    let mut config = S3Config::default();
    config.xml_max_body_size = XML_BYTES_MAX;
    // HTML forms are rejected; s3s would hold their file in memory first.
    config.post_object_max_file_size = 0;
    let mut builder = S3ServiceBuilder::new(Service { disk });
    builder.set_auth(auth);
    builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
    builder.build()
}
