//! `stoke api`.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use stokehold_api::{Config, config};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::signals::StopSignals;
use crate::{logging, output};

/// Serve the API and the worker gateway
#[derive(Args)]
#[command(after_help = "Examples:\n  stoke api --config /etc/stokehold/api.toml\n  stoke api --print-config")]
pub(crate) struct ApiArgs {
    /// TOML file with settings; environment variables override it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address and port to listen on [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Print every setting with its default, then exit
    #[arg(long)]
    print_config: bool,
    /// Print the OpenAPI document, then exit
    #[arg(long)]
    print_openapi: bool,
}

pub(crate) async fn run(args: ApiArgs) -> Result<()> {
    if args.print_config {
        return output::line(config::DEFAULT.trim_end());
    }
    if args.print_openapi {
        return output::line(stokehold_api::openapi::json().trim_end());
    }
    logging::to_stderr();
    let file = args
        .config
        .as_deref()
        .map(|path| std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display())));
    let mut config = Config::load(file.transpose()?.as_deref(), |name| std::env::var(name).ok())?;
    if let Some(listen) = args.listen {
        config.listen = listen;
    }
    let listener =
        TcpListener::bind(config.listen).await.with_context(|| format!("cannot listen on {}", config.listen))?;
    let (mut stop, shutdown) = (StopSignals::new()?, CancellationToken::new());
    let serving = stokehold_api::run(config, listener, shutdown.clone());
    tokio::pin!(serving);
    tokio::select! {
        done = &mut serving => return done,
        () = stop.recv() => shutdown.cancel(),
    }
    tracing::info!("finishing the requests in progress before stopping; a second signal stops immediately");
    tokio::select! {
        done = &mut serving => done,
        () = stop.recv() => Ok(()),
    }
}
