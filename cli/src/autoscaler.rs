//! `stoke autoscaler`.

pub(crate) mod bootstrap;
pub(crate) mod invites;
pub(crate) mod local;
mod plan;
mod run;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};
use stokehold_autoscaler::config::Config;
use stokehold_autoscaler::provider::Provider;
use stokehold_autoscaler::providers::Providers;
use stokehold_autoscaler::providers::kubernetes::Kubernetes;
use stokehold_autoscaler::providers::owned::Static;
use stokehold_autoscaler::providers::vast::Vast;
use stokehold_autoscaler::providers::vast::transport::Http;

use crate::Global;

/// Add machines when jobs wait, and release them when they are idle
#[derive(Args)]
#[command(
    after_help = "Examples:\n  stoke autoscaler plan\n  stoke autoscaler run --config /etc/stokehold/autoscaler.toml"
)]
pub(crate) struct AutoscalerArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Run(run::RunArgs),
    Plan(plan::PlanArgs),
    Bootstrap(bootstrap::BootstrapArgs),
}

/// The source of the settings.
#[derive(Args)]
struct From {
    /// TOML file with settings; environment variables override it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(crate) async fn run(global: &Global, args: AutoscalerArgs) -> Result<()> {
    match args.verb {
        Verb::Run(args) => Box::pin(run::run(args)).await,
        Verb::Plan(args) => plan::run(global, args).await,
        Verb::Bootstrap(args) => bootstrap::run(args).await,
    }
}

impl From {
    fn load(&self) -> Result<Config> {
        let read =
            |path: &Path| std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
        let file = self.config.as_deref().map(read).transpose()?;
        Ok(Config::load(file.as_deref(), |name| std::env::var(name).ok())?)
    }
}

/// Builds the providers that the settings configure.
async fn providers(config: &Config) -> Result<Providers> {
    let mut providers: Vec<Arc<dyn Provider>> = Vec::new();
    if !config.hosts.hosts.is_empty() {
        let seconds = std::time::Duration::from_secs;
        let (join, command) = (seconds(config.hosts.join_limit_s), seconds(config.hosts.command_limit_s));
        providers.push(Arc::new(
            Static::new(config.hosts.hosts.clone(), join, command).inheriting(config.hosts.inherits.clone()),
        ));
    }
    if config.local.max > 0 {
        providers.push(Arc::new(local::provider(local::LocalOptions {
            gateway_url: config.gateway_url.clone(),
            join_token: config.join_token.expose().to_owned(),
            data_dir: config.local.data_dir.clone(),
            max: config.local.max,
            slots: Some(config.local.slots).filter(|slots| *slots > 0),
            log: None,
        })?));
    }
    if !config.kubernetes.pools.is_empty() {
        let (prefix, gateway_url) = (&config.redis.prefix, &config.gateway_url);
        providers.push(Arc::new(Kubernetes::new(config.kubernetes.clone(), prefix, gateway_url)));
    }
    if config.vast.is_enabled() {
        providers.push(Arc::new(vast(config).await?));
    }
    Ok(providers.into_iter().collect())
}

/// Builds the Vast.ai provider. Its instances must be able to reach the gateway and download the worker.
async fn vast(config: &Config) -> Result<Vast> {
    let gateway = Some(config.vast.gateway_url.as_str()).filter(|url| !url.is_empty()).unwrap_or(&config.gateway_url);
    if config.vast.url.trim_end_matches('/') == stokehold_vast::URL {
        ensure!(
            gateway.starts_with("https://"),
            "rented machines send tokens to the gateway over the internet, so gateway_url (or vast.gateway_url) must be an \
             https:// URL; it is {gateway:?}"
        );
    }
    let script = bootstrap::script(config.worker_dist.clone()).await?;
    ensure!(
        script.contains("archive=") || config.vast.url.trim_end_matches('/') != stokehold_vast::URL,
        "no worker archive found for rented machines; build one with `make worker-dist` and set STOKE_WORKER_DIST to its folder"
    );
    let http = Http::new(&config.vast.url, &config.vast.api_key)?;
    Ok(Vast::new(config.vast.clone(), &config.settings.policy, &config.gateway_url, script, Arc::new(http))?)
}
