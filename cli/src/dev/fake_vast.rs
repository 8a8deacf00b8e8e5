//! The simulated Vast.ai of `stoke dev --fake-vast`: offers, prices and bills in Vast.ai's format, and instances that
//! are child processes. It is used only with `--fake-vast`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use stokehold_autoscaler::config::Config;
use stokehold_autoscaler::providers::vast::transport::Http;
use stokehold_autoscaler::providers::vast::{Vast, VastSettings};
use stokehold_autoscaler::secret::Secret;
use stokehold_fake_vast::{KEY, Market, Options, Processes, Server, Settings, Started};
use stokehold_planner::Policy;
use stokehold_vast::env;
use stokehold_worker::VARIABLES;

use super::WorkerRange;
use crate::autoscaler::bootstrap;
use crate::paths;

/// Credit of the account, US dollars.
const CREDIT_USD: f64 = 100.0;

/// Range of boot times, seconds. Short, because this is a demonstration.
const BOOT_S: (f64, f64) = (5.0, 15.0);
const RESTART_S: (f64, f64) = (2.0, 5.0);

/// Time after the end of an instance at which its charges are final, seconds. Short, because the simulated provider
/// never charges late.
const CHARGES_SETTLE_S: u64 = 6;

/// Time until a list contains a new instance, longer than the autoscaler caches a list. Short, because the lists of the
/// simulated provider have no delay.
const LISTS_SETTLE: Duration = Duration::from_secs(20);

/// Variables that an instance sets itself or gets with its rental. It inherits the other worker settings.
const ITS_OWN: [&str; 12] = [
    "STOKE_GATEWAY_URL",
    "STOKE_JOIN_TOKEN",
    "STOKE_WORKER_NAME",
    "STOKE_SLOTS",
    "STOKE_DATA_DIR",
    "STOKE_CACHE_DIR",
    "STOKE_FAKE_GPUS",
    "STOKE_PRICE_USD_PER_HOUR",
    "STOKE_METRICS_LISTEN",
    "STOKE_VAST_URL",
    env::CONTAINER_ID,
    env::CONTAINER_API_KEY,
];

/// A running simulated Vast.ai.
pub(super) struct FakeVast {
    server: Server,
}

impl FakeVast {
    /// Starts a market with this random seed. Instances get folders in the data directory; those of an earlier market
    /// are deleted.
    pub(super) async fn start(seed: u64, data: &Path, slots: Option<u32>) -> Result<Self> {
        let root = data.join("vast");
        if root.exists() {
            std::fs::remove_dir_all(&root).with_context(|| format!("cannot empty {}", root.display()))?;
        }
        let given = given(slots)?;
        let hardware = move |started: &Started| {
            let cards = vec![started.gpu_ram_mb.to_string(); started.num_gpus].join(",");
            let mut given = given.clone();
            if !given.iter().any(|(name, _)| name == "STOKE_SLOTS") {
                given.push(("STOKE_SLOTS".to_owned(), started.num_gpus.to_string()));
            }
            given.push(("STOKE_FAKE_GPUS".to_owned(), cards));
            given
        };
        let machines = Processes::new(&root, Box::new(hardware)).context("cannot create folders for machines")?;
        let settings = Settings {
            credit_usd: CREDIT_USD,
            boot_s: BOOT_S,
            restart_s: RESTART_S,
            image_gb: 0.5,
            bills_after_destroy_s: 0.0,
            ..Settings::default()
        };
        let options = Options { machines: Some(Arc::new(machines)), ..Options::default() };
        let server =
            Server::start(Market::new(seed, settings), options).await.context("cannot start the simulated Vast.ai")?;
        Ok(Self { server })
    }

    /// URL of the market.
    pub(super) fn url(&self) -> &str {
        self.server.url()
    }

    /// Builds the provider that rents from this market.
    pub(super) async fn provider(&self, policy: &Policy, gateway_url: &str) -> Result<Vast> {
        let usual = Config::load(None, |_| None)?.vast;
        let settings = VastSettings {
            api_key: Secret::new(KEY),
            url: self.url().to_owned(),
            namespace: "dev".to_owned(),
            image: "stokehold/worker".to_owned(),
            image_gb: 0.5,
            charges_settle_s: CHARGES_SETTLE_S,
            ..usual
        };
        let http = Http::new(&settings.url, &settings.api_key)?;
        let script = bootstrap::script("".into()).await?;
        Ok(Vast::new(settings, policy, gateway_url, script, Arc::new(http))?.settling_after(LISTS_SETTLE))
    }
}

/// A policy for demonstrations: scales within this range, and fast rather than cheap.
pub(super) fn policy(WorkerRange { least, most }: WorkerRange) -> Policy {
    let usual = Policy::default();
    Policy {
        min_machines: least,
        max_machines: most,
        max_usd_per_hour: 20.0,
        may_bid: true,
        may_stop: false,
        min_reliability: 0.9,
        max_idle_s: Some(20.0),
        standard_target_s: usual.interactive_target_s,
        batch_target_s: usual.interactive_target_s,
        ..usual
    }
}

/// Variables of every instance: the program, the cache folder and the worker settings of this process.
fn given(slots: Option<u32>) -> Result<Vec<(String, String)>> {
    let stoke = std::env::current_exe().context("cannot find the path of this program")?;
    let cache = paths::cache_dir()?;
    let text = |path: &Path| path.display().to_string();
    let mut given =
        vec![("STOKE_WORKER_PROGRAM".to_owned(), text(&stoke)), ("STOKE_CACHE_DIR".to_owned(), text(&cache))];
    given.extend(slots.map(|slots| ("STOKE_SLOTS".to_owned(), slots.to_string())));
    // Relative: each instance has its own home folder.
    given.push(("STOKE_DATA_DIR".to_owned(), "data".to_owned()));
    for name in VARIABLES.into_iter().filter(|name| !ITS_OWN.contains(name)) {
        given.extend(std::env::var(name).ok().map(|value| (name.to_owned(), value)));
    }
    Ok(given)
}
