//! A small durable S3 server for one machine and one process: what `stoke dev` stores its objects in.
//!
//! `s3s` speaks the protocol (routes, XML, signatures, presigned URLs); this module keeps the bytes. What it promises:
//!
//! - An acknowledged write survives kill -9 and power loss: the file is synced, renamed and its folder synced before the answer.
//! - A body is checked (length, `Content-MD5`, signed hash, checksums in headers or trailers) before anything becomes visible. A
//!   refused write never touches the object that is there.
//! - Body and metadata are one file, committed by one rename (see `format` for its bytes, `disk` for its place).
//! - `If-None-Match: *` has exactly one winner, however many race and however large their bodies are.
//! - Bodies are streamed; memory does not grow with their size. It grows with the number of objects: their keys are held in an
//!   index (seen: 270 bytes each) that is rebuilt from the files on start (seen: 1.7 s per 100,000).
//!
//! Not supported: versions, tags, ACLs, encryption, website hosting (refused, never ignored), more than one machine,
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

/// XML is read whole: 1,000 keys to delete of 1 KiB each, or 10,000 parts to complete with a checksum each, fit well.
const XML_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Where the store keeps its files, and who may ask for them.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// Its folder, made if missing. One process serves it at a time.
    pub dir: PathBuf,
    /// The access key that requests are signed with.
    pub access_key_id: String,
    /// The key's secret.
    pub secret_access_key: Secret,
}

/// Serves S3 until `shutdown` completes, then lets the requests under way finish. Path-style addresses only.
///
/// # Errors
/// [`Error::Locked`] when another process serves the folder, [`Error::Folder`] when it cannot be used.
pub async fn serve(
    listener: TcpListener,
    config: StoreConfig,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), Error> {
    let StoreConfig { dir, access_key_id, secret_access_key } = config;
    let opened = tokio::task::spawn_blocking(move || {
        let disk = Disk::open(&dir)?;
        multipart::sweep(&disk).map_err(Error::folder("sweep abandoned uploads in", &dir))?;
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
    // HTML forms are refused; s3s would first hold their file in memory.
    config.post_object_max_file_size = 0;
    let mut builder = S3ServiceBuilder::new(Service { disk });
    builder.set_auth(auth);
    builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
    builder.build()
}
