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
use stokehold_autoscaler::providers::vast::transport::Http;
use stokehold_autoscaler::providers::vast::{DEFAULT_URL, Vast};

use crate::Global;

/// Get machines when there is work for them, and give them back
#[derive(Args)]
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

/// Where the settings come from.
#[derive(Args)]
struct From {
    /// Settings as TOML; the environment overrides them
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

/// The providers that the settings name.
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

/// Machines at Vast.ai, which must be able to get what makes them workers.
async fn vast(config: &Config) -> Result<Vast> {
    let gateway = Some(config.vast.gateway_url.as_str()).filter(|url| !url.is_empty()).unwrap_or(&config.gateway_url);
    if config.vast.url.trim_end_matches('/') == DEFAULT_URL {
        ensure!(
            gateway.starts_with("https://"),
            "rented machines are to reach the gateway over the internet, with tokens: gateway_url (or vast.gateway_url) is {gateway:?}, \
             make it an https:// address"
        );
    }
    let script = bootstrap::script(config.worker_dist.clone()).await?;
    ensure!(
        script.contains("archive=") || config.vast.url.trim_end_matches('/') != DEFAULT_URL,
        "there is no archive of the worker for rented machines: `make worker-dist` builds it, and STOKE_WORKER_DIST names its folder"
    );
    let http = Http::new(&config.vast.url, &config.vast.api_key)?;
    Ok(Vast::new(config.vast.clone(), &config.settings.policy, &config.gateway_url, script, Arc::new(http))?)
}
