//! The provider `kubernetes` against an API server in this process, which rejects everything that the published types
//! of Kubernetes reject.

mod cluster;
mod deployment;
mod jobs;
mod rbac;
mod schema;
mod server;

use stokehold_autoscaler::config::Config;
use stokehold_autoscaler::provider::{Order, Provider, ProviderError, Rental, RentalState};
use stokehold_autoscaler::providers::kubernetes::Kubernetes;
use stokehold_autoscaler::secret::Secret;

use server::{Server, TOKEN};

/// The join token of workers.
const JOIN: &str = "jt_verysecret";

const POOLS: &str = r#"
page = 2
retry_ms = 1
call_limit_ms = 2000
[[kubernetes.pools]]
name = "a100"
max = 5
kind = "A100 80GB"
cards = 2
vram_gib = 80.0
usd_per_hour = 1.9
region = "eu"
image = "registry.example.com/stoke-worker:1"
command = ["stoke", "worker", "run"]
cpu = "8"
memory = "64Gi"
ephemeral_storage = "200Gi"
shm = "8Gi"
runtime_class = "nvidia"
priority_class = "gpu"
service_account = "worker"
node_selector = { "nvidia.com/gpu.product" = "NVIDIA-A100-SXM4-80GB" }
tolerations = [{ key = "nvidia.com/gpu", effect = "NoSchedule" }, { key = "team", value = "ml" }]
image_pull_secrets = ["registry"]
env = { STOKE_SANDBOX = "L1" }
[[kubernetes.pools]]
name = "own"
mode = "deployment"
deployment = "workers"
max = 3
trust = "owned"
"#;

async fn server() -> (Server, Kubernetes) {
    let server = Server::start().await;
    let provider = provider(&server, TOKEN, "");
    (server, provider)
}

fn provider(server: &Server, token: &str, more: &str) -> Kubernetes {
    let url = &server.url;
    let file = format!("[kubernetes]\nurl = '{url}'\ntoken = '{token}'\nnamespace = 'ml'\n{more}{POOLS}");
    let file = if more.is_empty() { file } else { file.replacen("call_limit_ms = 2000\n", "", 1) };
    let config = Config::load(Some(&file), |_| None).unwrap();
    assert!(!format!("{config:?}").contains("verysecret"));
    Kubernetes::new(config.kubernetes, &config.redis.prefix, "https://stoke.example.com")
}

/// A client with a short timeout.
fn impatient(server: &Server) -> Kubernetes {
    provider(server, TOKEN, "call_limit_ms = 500\n")
}

async fn order(provider: &Kubernetes, pool: &str, label: &str) -> Order {
    let offers = provider.offers().await.unwrap();
    let offer = offers.into_iter().find(|offer| *offer.id == *pool).unwrap();
    let (label, join_token) = (label.to_owned(), Secret::new(JOIN));
    Order { label, offer, bid_usd_per_hour: None, join_token }
}

async fn rent(provider: &Kubernetes, pool: &str, label: &str) -> Result<String, ProviderError> {
    provider.rent(&order(provider, pool, label).await).await
}

async fn listed(provider: &Kubernetes) -> Result<Vec<Rental>, ProviderError> {
    provider.rentals().await.map(Option::unwrap)
}

/// Labels and states.
async fn states(provider: &Kubernetes) -> Vec<(String, RentalState)> {
    let mut states: Vec<_> = listed(provider).await.unwrap().into_iter().map(|of| (of.label, of.state)).collect();
    states.sort_by(|a, b| a.0.cmp(&b.0));
    states
}

fn label(label: &str, state: RentalState) -> (String, RentalState) {
    (label.to_owned(), state)
}
