//! `stoke store`: the built-in object store as a service.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Args;
use stokehold_objects::Secret;
use stokehold_objects::store::{self, StoreConfig};
use tokio::net::TcpListener;

use crate::logging;
use crate::signals::StopSignals;

/// Minimum length of the secret key, bytes.
const SECRET_BYTES_MIN: usize = 32;

/// Serve an S3 object store on this machine's disk
///
/// `stoke dev` and `stoke server install` use it for results, files and packages unless you configure another S3
/// server. It is durable, runs on one machine and has a single key, from STOKE_S3_ACCESS_KEY_ID and STOKE_S3_SECRET_ACCESS_KEY. It
/// has no TLS: listen on loopback behind a TLS proxy.
#[derive(Args)]
#[command(after_help = "Examples:\n  stoke store --data /var/lib/stokehold/objects")]
pub(crate) struct StoreArgs {
    /// Folder of the objects; only one process can use it at a time
    #[arg(long, value_name = "FOLDER", env = "STOKE_STORE_DATA")]
    data: PathBuf,
    /// Address and port to listen on
    #[arg(long, value_name = "ADDRESS:PORT", env = "STOKE_STORE_LISTEN", default_value = "127.0.0.1:7071")]
    listen: SocketAddr,
}

pub(crate) async fn run(args: StoreArgs) -> Result<()> {
    logging::to_stderr();
    let config = StoreConfig {
        access_key_id: given("STOKE_S3_ACCESS_KEY_ID", 1)?,
        secret_access_key: Secret::from(given("STOKE_S3_SECRET_ACCESS_KEY", SECRET_BYTES_MIN)?),
        dir: args.data,
    };
    let listener = TcpListener::bind(args.listen).await.with_context(|| format!("cannot listen on {}", args.listen))?;
    let mut stop = StopSignals::new()?;
    tracing::info!("serving {} on {}", config.dir.display(), listener.local_addr()?);
    Ok(store::serve(listener, config, async move { stop.recv().await }).await?)
}

fn given(name: &str, bytes_min: usize) -> Result<String> {
    let value = std::env::var(name).unwrap_or_default();
    ensure!(
        value.len() >= bytes_min,
        "set {name} to at least {bytes_min} characters, e.g. from `openssl rand -hex 32`"
    );
    Ok(value)
}
