//! `stoke autoscaler run`.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Args;
use stokehold_autoscaler::config;
use stokehold_autoscaler::history::Recorder;
use stokehold_autoscaler::live::Autoscaler;
use stokehold_autoscaler::metrics;
use stokehold_metrics::Metrics;
use stokehold_queue::Shards;
use stokehold_worker::conceal;
use stokehold_worker::uv::ensure_uv;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{From, invites, providers};
use crate::signals::StopSignals;
use crate::{logging, output, paths};

/// Environment variables that hold secrets.
const SECRETS: [&str; 6] = [
    "STOKE_JOIN_TOKEN",
    "STOKE_TOKEN_KEY",
    "STOKE_REDIS_URL",
    "VAST_API_KEY",
    "STOKE_VAST_API_KEY",
    "STOKE_KUBERNETES_TOKEN",
];

/// Run the autoscaler until interrupted
///
/// If several autoscalers share one Redis, one leads and another takes over when it stops. Rented machines keep running
/// after a stop; workers on this machine stop with the autoscaler.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  stoke autoscaler run --config /etc/stokehold/autoscaler.toml\n  stoke autoscaler run --print-config"
)]
pub(super) struct RunArgs {
    #[command(flatten)]
    from: From,
    /// Record every observation and plan in this file, one JSON line per round [STOKE_AUTOSCALER_RECORD]
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Print every setting with its default, then exit
    #[arg(long)]
    print_config: bool,
}

pub(super) async fn run(args: RunArgs) -> Result<()> {
    if args.print_config {
        return output::line(config::DEFAULT.trim_end());
    }
    logging::to_stderr();
    let mut config = args.from.load()?;
    for setting in &config.ignored {
        tracing::warn!(setting, "setting ignored: it has no effect in this release; remove it from the configuration");
    }
    config.record = args.record.or(config.record);
    let providers = providers(&config).await?;
    ensure!(
        providers.iter().next().is_some(),
        "no provider is configured: set local.max, list your hosts under [[static.hosts]] or Kubernetes pools under [[kubernetes.pools]], or set STOKE_VAST_API_KEY (see --print-config)"
    );
    let token_key = invites::key(&providers, &config.token_key)?;
    // Workers on this machine run as the same user.
    if let Err(error) = conceal(&SECRETS) {
        tracing::warn!(%error, "cannot hide the secrets of this process: processes of the same user can read them in /proc");
    }
    let record = config.record.as_deref().map(|path| {
        Recorder::open(path, &config.settings.policy).with_context(|| format!("cannot record into {}", path.display()))
    });
    let recorder = record.transpose()?;
    if config.local.max > 0 {
        ensure!(
            !config.join_token.expose().is_empty(),
            "local workers need a join token: create one with `stoke token create --kind join` and set STOKE_JOIN_TOKEN"
        );
        // Done once here, so that the log shows the download before the workers start.
        ensure_uv(None, &paths::cache_dir()?).await?;
    }
    let exposition = Metrics::default();
    let (mut stop, shutdown) = (StopSignals::new()?, CancellationToken::new());
    if let Some(listen) = config.listen {
        let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
        stokehold_metrics::install(&metrics::catalogues());
        tokio::spawn(stokehold_metrics::serve(listener, exposition.clone(), shutdown.clone()));
    }
    let queue = Shards::connect(config.redis.clone()).await.context("cannot reach Redis")?;
    let registry = queue.registry();
    let mut autoscaler = Autoscaler::new(queue, providers, config.settings, recorder).with_exposition(exposition);
    if let Some(key) = token_key {
        autoscaler = autoscaler.with_invites(invites::with(registry, key));
    }
    // The autoscaler is not a separate task: the processes that it starts are tied to this thread.
    let running = autoscaler.run(shutdown.clone());
    tokio::pin!(running);
    tokio::select! {
        done = &mut running => return done,
        () = stop.recv() => shutdown.cancel(),
    }
    tracing::info!("stopping after the workers on this machine finish their jobs; a second signal stops immediately");
    tokio::select! {
        done = &mut running => done,
        () = stop.recv() => Ok(()),
    }
}
