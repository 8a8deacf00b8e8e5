//! `stoke autoscaler run`.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Args;
use stokehold_autoscaler::config;
use stokehold_autoscaler::history::Recorder;
use stokehold_autoscaler::live::Autoscaler;
use stokehold_autoscaler::metrics;
use stokehold_metrics::Exposition;
use stokehold_queue::Shards;
use stokehold_worker::conceal;
use stokehold_worker::uv::ensure_uv;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{From, invites, providers};
use crate::signals::StopSignals;
use crate::{logging, output, paths};

/// Settings that are secrets, as variables.
const SECRETS: [&str; 6] = [
    "STOKE_JOIN_TOKEN",
    "STOKE_TOKEN_KEY",
    "STOKE_REDIS_URL",
    "VAST_API_KEY",
    "STOKE_VAST_API_KEY",
    "STOKE_KUBERNETES_TOKEN",
];

/// Look, decide and act until told to stop
///
/// Of several that run on one Redis one acts, and another takes over when it is gone. What was rented stays when it stops; workers of this
/// machine end with it.
#[derive(Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    from: From,
    /// Write every look and every plan there, a line of JSON each [STOKE_AUTOSCALER_RECORD]
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Print every setting with its default, and end
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
        "there is nobody to get machines from: set local.max, or list hosts of yours under [[static.hosts]], pools of a cluster under [[kubernetes.pools]], or set STOKE_VAST_API_KEY (--print-config shows how)"
    );
    let token_key = invites::key(&providers, &config.token_key)?;
    // Workers of this machine run beside it, as the same user.
    if let Err(error) = conceal(&SECRETS) {
        tracing::warn!(%error, "this process' secrets cannot be hidden: who runs as the same user may read them in /proc");
    }
    let record = config.record.as_deref().map(|path| {
        Recorder::open(path, &config.settings.policy).with_context(|| format!("cannot record into {}", path.display()))
    });
    let recorder = record.transpose()?;
    if config.local.max > 0 {
        ensure!(
            !config.join_token.expose().is_empty(),
            "set STOKE_JOIN_TOKEN: `stoke token create --kind join` makes one"
        );
        // Here rather than in each of them, where nobody would see why it takes a while.
        ensure_uv(None, &paths::cache_dir()?).await?;
    }
    let exposition = Exposition::default();
    let (mut stop, shutdown) = (StopSignals::new()?, CancellationToken::new());
    if let Some(listen) = config.listen {
        let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
        stokehold_metrics::install(&metrics::catalogues());
        tokio::spawn(stokehold_metrics::serve(listener, exposition.clone(), shutdown.clone()));
    }
    let queue = Shards::connect(config.redis.clone()).await.context("Redis cannot be reached")?;
    let registry = queue.registry();
    let mut autoscaler = Autoscaler::new(queue, providers, config.settings, recorder).with_exposition(exposition);
    if let Some(key) = token_key {
        autoscaler = autoscaler.with_invites(invites::with(registry, key));
    }
    // Not in a task of its own: what it starts is tied to this thread.
    let running = autoscaler.run(shutdown.clone());
    tokio::pin!(running);
    tokio::select! {
        done = &mut running => return done,
        () = stop.recv() => shutdown.cancel(),
    }
    tracing::info!("stopping: workers of this machine may end what they have; once more stops at once");
    tokio::select! {
        done = &mut running => done,
        () = stop.recv() => Ok(()),
    }
}
