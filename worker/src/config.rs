//! The configuration: [`RawConfig`] holds the settings as typed, [`Config`] the validated values.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use stokehold_protocol::requirements_lock::listed_indexes;
use stokehold_vast::env;

use crate::programs::{beside, on_path};
use crate::rental::Rental;
use crate::sandbox::Level;
use crate::secret::Secret;

/// Maximum number of slots. A heartbeat names at most 1,000 leases: those of the slots, those leased ahead, and those
/// of unreported results.
const SLOTS_MAX: u32 = 800;

/// All environment variables of a worker.
pub const VARIABLES: [&str; 29] = [
    "STOKE_GATEWAY_URL",
    "STOKE_JOIN_TOKEN",
    "STOKE_JOIN_TOKEN_FILE",
    "STOKE_WORKER_NAME",
    "STOKE_SLOTS",
    "STOKE_DATA_DIR",
    "STOKE_CACHE_DIR",
    "STOKE_RUNNER_WHEEL",
    "STOKE_UV",
    "STOKE_FAKE_GPUS",
    "STOKE_NVML_LIBRARY",
    "STOKE_DRAIN_GRACE_MS",
    "STOKE_LOAD_TIMEOUT_MS",
    "STOKE_MAX_LOADED",
    "STOKE_ENVIRONMENTS_BYTES",
    "STOKE_WEIGHTS_BYTES",
    "STOKE_PACKAGE_BYTES",
    "STOKE_PACKAGES_BYTES",
    "STOKE_SCRATCH_BYTES",
    "STOKE_SANDBOX",
    "STOKE_BWRAP",
    "STOKE_ALLOW_SOURCE_BUILDS",
    "STOKE_PACKAGE_INDEXES",
    "STOKE_PRICE_USD_PER_HOUR",
    "STOKE_METRICS_LISTEN",
    "STOKE_DEAD_MAN_MS",
    "STOKE_VAST_URL",
    env::CONTAINER_ID,
    env::CONTAINER_API_KEY,
];

/// Variables, other than settings, that a worker may inherit from the program that starts it: locations and network
/// access. A worker must not inherit anything else, e.g. tokens and keys of providers, because handlers might read it
/// in `/proc`.
pub const INHERITED: [&str; 49] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_VERSION",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "HF_HOME",
    "HF_HUB_OFFLINE",
    "OMP_NUM_THREADS",
    "RUST_BACKTRACE",
    "STOKE_LOG",
    "STOKE_LOG_FORMAT",
    "STOKE_FAILPOINTS",
    "STOKE_UV_CACHE_DIR",
    "UV_CACHE_DIR",
    "UV_DEFAULT_INDEX",
    "UV_INDEX",
    "UV_INDEX_URL",
    "UV_EXTRA_INDEX_URL",
    "UV_OFFLINE",
    "UV_HTTP_TIMEOUT",
    "UV_NATIVE_TLS",
    "UV_PYTHON_INSTALL_DIR",
    "UV_PYTHON_INSTALL_MIRROR",
];

/// Variables that no other program may see, including child processes.
pub const SECRETS: [&str; 2] = [env::CONTAINER_API_KEY, "STOKE_JOIN_TOKEN"];

/// The settings as typed: the defaults of `config.default.toml`, overridden by the environment, then by the command
/// line.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawConfig {
    /// URL of the gateway.
    pub gateway_url: String,
    /// Token to join with.
    pub join_token: String,
    /// File that contains the join token.
    pub join_token_file: PathBuf,
    /// Name of the worker.
    pub name: String,
    /// Concurrent attempts; 0 is automatic.
    pub slots: u32,
    /// Folder for scratch space.
    pub data_dir: PathBuf,
    /// Folder for environments, packages and weights.
    pub cache_dir: PathBuf,
    /// Path of the runner wheel.
    pub runner_wheel: PathBuf,
    /// Path of uv.
    pub uv: PathBuf,
    /// Sizes of fake GPUs in MiB.
    pub fake_gpus: String,
    /// Path of NVIDIA's management library.
    pub nvml_library: PathBuf,
    /// Grace period of attempts after SIGTERM.
    pub drain_grace_ms: u64,
    /// Timeout of a load.
    pub load_timeout_ms: u64,
    /// Maximum number of idle runners.
    pub max_loaded: usize,
    /// Maximum size of all environments.
    pub environments_bytes: u64,
    /// Maximum size of all weights.
    pub weights_bytes: u64,
    /// Maximum size of one unpacked package.
    pub package_bytes: u64,
    /// Maximum size of all unpacked packages.
    pub packages_bytes: u64,
    /// Maximum scratch space of one endpoint's runners.
    pub scratch_bytes: u64,
    /// Sandbox level, or `auto`.
    pub sandbox: String,
    /// Path of bubblewrap.
    pub bwrap: PathBuf,
    /// Whether to build packages without a wheel, in the sandbox.
    pub allow_source_builds: bool,
    /// Package indexes that locked requirements may name.
    pub package_indexes: String,
    /// Price of one hour of this machine.
    pub price_usd_per_hour: f64,
    /// Address for the worker's own metrics; empty disables them.
    pub metrics_listen: String,
    /// Time without contact with the gateway after which a rented instance destroys itself; 0 is never.
    pub dead_man_ms: u64,
    /// URL of the provider's API.
    pub vast_url: String,
    /// The provider's id of the instance.
    pub container_id: String,
    /// The provider's key for the instance.
    pub container_api_key: Secret,
}

/// The validated configuration.
#[derive(Debug, Clone)]
pub struct Config {
    pub(crate) gateway_url: String,
    pub(crate) join_token: Secret,
    pub(crate) name: String,
    pub(crate) slots: u32,
    pub(crate) data_dir: PathBuf,
    pub(crate) cache_dir: PathBuf,
    pub(crate) runner_wheel: Option<PathBuf>,
    pub(crate) uv: Option<PathBuf>,
    pub(crate) fake_gpus: Option<Vec<u64>>,
    pub(crate) nvml_library: Option<PathBuf>,
    pub(crate) drain_grace: Duration,
    pub(crate) load_timeout: Duration,
    pub(crate) max_loaded: usize,
    pub(crate) environments_bytes: u64,
    pub(crate) weights_bytes: u64,
    pub(crate) package_bytes: u64,
    pub(crate) packages_bytes: u64,
    pub(crate) scratch_bytes: u64,
    /// `None` selects the highest level that is supported.
    pub(crate) sandbox: Option<Level>,
    pub(crate) bwrap: PathBuf,
    /// The program that has the subcommand `confine`, if it is not this one.
    pub(crate) confines: Option<PathBuf>,
    pub(crate) allow_source_builds: bool,
    pub(crate) package_indexes: Vec<String>,
    pub(crate) price_usd_micros_per_hour: u64,
    /// Address for the worker's own metrics.
    pub metrics_listen: Option<SocketAddr>,
    /// Set only on a rented instance that may destroy itself.
    pub(crate) rental: Option<Rental>,
}

/// An invalid setting.
#[derive(Debug, thiserror::Error)]
#[error("{name}: {why}")]
pub struct ConfigError {
    name: &'static str,
    why: String,
}

impl RawConfig {
    /// The defaults, overridden by the environment. `var` looks up a variable.
    ///
    /// # Errors
    /// If a variable has an invalid value.
    pub fn from_env(var: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let mut raw: Self = toml::from_str(include_str!("config.default.toml"))
            .map_err(|error| ConfigError { name: "config.default.toml", why: error.to_string() })?;
        let text = |name: &'static str, into: &mut String| {
            if let Some(value) = var(name) {
                *into = value;
            }
        };
        text("STOKE_GATEWAY_URL", &mut raw.gateway_url);
        text("STOKE_JOIN_TOKEN", &mut raw.join_token);
        text("STOKE_WORKER_NAME", &mut raw.name);
        text("STOKE_FAKE_GPUS", &mut raw.fake_gpus);
        text("STOKE_SANDBOX", &mut raw.sandbox);
        text("STOKE_PACKAGE_INDEXES", &mut raw.package_indexes);
        text("STOKE_METRICS_LISTEN", &mut raw.metrics_listen);
        text("STOKE_VAST_URL", &mut raw.vast_url);
        text(env::CONTAINER_ID, &mut raw.container_id);
        if let Some(value) = var(env::CONTAINER_API_KEY) {
            raw.container_api_key = Secret::new(value);
        }
        let path = |name: &'static str, into: &mut PathBuf| {
            if let Some(value) = var(name) {
                *into = value.into();
            }
        };
        path("STOKE_JOIN_TOKEN_FILE", &mut raw.join_token_file);
        path("STOKE_DATA_DIR", &mut raw.data_dir);
        path("STOKE_CACHE_DIR", &mut raw.cache_dir);
        path("STOKE_RUNNER_WHEEL", &mut raw.runner_wheel);
        path("STOKE_UV", &mut raw.uv);
        path("STOKE_NVML_LIBRARY", &mut raw.nvml_library);
        path("STOKE_BWRAP", &mut raw.bwrap);
        number(&var, "STOKE_SLOTS", &mut raw.slots)?;
        if let Some(value) = var("STOKE_ALLOW_SOURCE_BUILDS") {
            let why = |_| ConfigError {
                name: "STOKE_ALLOW_SOURCE_BUILDS",
                why: format!("expected true or false, got {value:?}"),
            };
            raw.allow_source_builds = value.parse().map_err(why)?;
        }
        number(&var, "STOKE_DRAIN_GRACE_MS", &mut raw.drain_grace_ms)?;
        number(&var, "STOKE_LOAD_TIMEOUT_MS", &mut raw.load_timeout_ms)?;
        number(&var, "STOKE_MAX_LOADED", &mut raw.max_loaded)?;
        number(&var, "STOKE_ENVIRONMENTS_BYTES", &mut raw.environments_bytes)?;
        number(&var, "STOKE_WEIGHTS_BYTES", &mut raw.weights_bytes)?;
        number(&var, "STOKE_PACKAGE_BYTES", &mut raw.package_bytes)?;
        number(&var, "STOKE_PACKAGES_BYTES", &mut raw.packages_bytes)?;
        number(&var, "STOKE_SCRATCH_BYTES", &mut raw.scratch_bytes)?;
        number(&var, "STOKE_PRICE_USD_PER_HOUR", &mut raw.price_usd_per_hour)?;
        number(&var, "STOKE_DEAD_MAN_MS", &mut raw.dead_man_ms)?;
        Ok(raw)
    }
}

fn number<T: std::str::FromStr>(
    var: impl Fn(&str) -> Option<String>,
    name: &'static str,
    into: &mut T,
) -> Result<(), ConfigError> {
    if let Some(value) = var(name) {
        *into = value
            .parse()
            .map_err(|_| ConfigError { name, why: format!("{value:?} is not a valid number for this setting") })?;
    }
    Ok(())
}

impl Config {
    /// Uses this `stoke` and its subcommand `confine` to sandbox handlers, for callers that are another program.
    #[must_use]
    pub fn confined_by(self, stoke: PathBuf) -> Self {
        Self { confines: Some(stoke), ..self }
    }
}

impl TryFrom<RawConfig> for Config {
    type Error = ConfigError;

    fn try_from(raw: RawConfig) -> Result<Self, ConfigError> {
        let refuse = |name, why: &str| Err(ConfigError { name, why: why.to_owned() });
        if !raw.gateway_url.starts_with("http://") && !raw.gateway_url.starts_with("https://") {
            return refuse("gateway_url", "must start with http:// or https://");
        }
        let join_token = join_token(raw.join_token, &raw.join_token_file)?;
        if raw.max_loaded == 0 {
            return refuse("max_loaded", "must be at least 1");
        }
        if raw.package_bytes > raw.packages_bytes / 2 {
            return refuse(
                "packages_bytes",
                "must be at least twice package_bytes, because one tenant may use at most half of it",
            );
        }
        if !raw.vast_url.starts_with("http://") && !raw.vast_url.starts_with("https://") {
            return refuse("vast_url", "must start with http:// or https://");
        }
        let is_rented = !raw.container_id.is_empty() && !raw.container_api_key.expose().is_empty();
        if is_rented && !raw.container_id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return refuse("container_id", "must be an instance id: letters and digits only");
        }
        let rental = (is_rented && raw.dead_man_ms > 0).then(|| Rental {
            url: raw.vast_url.trim_end_matches('/').to_owned(),
            instance: raw.container_id,
            key: raw.container_api_key,
            limit: Duration::from_millis(raw.dead_man_ms),
        });
        let set = |path: PathBuf| Some(path).filter(|path| !path.as_os_str().is_empty());
        Ok(Self {
            gateway_url: raw.gateway_url.trim_end_matches('/').to_owned(),
            join_token: Secret::new(join_token),
            name: if raw.name.is_empty() { host_name() } else { raw.name },
            slots: if raw.slots == 0 { automatic_slots() } else { raw.slots.min(SLOTS_MAX) },
            data_dir: std::path::absolute(&raw.data_dir)
                .map_err(|error| ConfigError { name: "data_dir", why: error.to_string() })?,
            cache_dir: set(raw.cache_dir).unwrap_or_else(user_cache_dir),
            runner_wheel: set(raw.runner_wheel),
            uv: set(raw.uv),
            fake_gpus: fake_gpus(&raw.fake_gpus)?,
            nvml_library: set(raw.nvml_library),
            drain_grace: Duration::from_millis(raw.drain_grace_ms),
            load_timeout: Duration::from_millis(raw.load_timeout_ms),
            max_loaded: raw.max_loaded,
            environments_bytes: raw.environments_bytes,
            weights_bytes: raw.weights_bytes,
            package_bytes: raw.package_bytes,
            packages_bytes: raw.packages_bytes,
            scratch_bytes: raw.scratch_bytes,
            sandbox: level(&raw.sandbox)?,
            bwrap: bwrap(set(raw.bwrap)),
            confines: None,
            allow_source_builds: raw.allow_source_builds,
            package_indexes: listed_indexes(&raw.package_indexes)
                .map_err(|why| ConfigError { name: "package_indexes", why: why.to_owned() })?,
            metrics_listen: address(&raw.metrics_listen)?,
            price_usd_micros_per_hour: micros(raw.price_usd_per_hour)?,
            rental,
        })
    }
}

/// The join token, read from its file if necessary.
fn join_token(token: String, file: &Path) -> Result<String, ConfigError> {
    let refuse = |why: String| Err(ConfigError { name: "join_token", why });
    if !token.is_empty() {
        return Ok(token);
    }
    if file.as_os_str().is_empty() {
        return refuse(
            "is missing; create one with `stoke token create --kind join`, then set STOKE_JOIN_TOKEN_FILE to a file that contains it or set STOKE_JOIN_TOKEN"
                .to_owned(),
        );
    }
    match std::fs::read_to_string(file) {
        Ok(text) if !text.trim().is_empty() => Ok(text.trim().to_owned()),
        Ok(_) => refuse(format!("is missing: {} is empty", file.display())),
        Err(error) => refuse(format!("cannot be read from {}: {error}", file.display())),
    }
}

/// The bubblewrap to use. The one on PATH takes precedence over the one in the worker archive, because a distribution
/// may allow only its own bubblewrap to create namespaces.
pub(crate) fn bwrap(named: Option<PathBuf>) -> PathBuf {
    let name = Path::new("bwrap");
    named.or_else(|| on_path(name)).or_else(|| beside("bwrap")).unwrap_or_else(|| name.to_owned())
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and a thousand million")]
fn micros(usd: f64) -> Result<u64, ConfigError> {
    if !(0.0..=1_000.0).contains(&usd) {
        return Err(ConfigError { name: "price_usd_per_hour", why: format!("must be between 0 and 1000, got {usd}") });
    }
    Ok((usd * 1e6).round() as u64)
}

fn address(text: &str) -> Result<Option<SocketAddr>, ConfigError> {
    if text.is_empty() {
        return Ok(None);
    }
    let why = |_| ConfigError {
        name: "metrics_listen",
        why: format!("expected ADDRESS:PORT, e.g. 127.0.0.1:7073, got {text:?}"),
    };
    text.parse().map(Some).map_err(why)
}

pub(crate) fn level(text: &str) -> Result<Option<Level>, ConfigError> {
    if text == "auto" {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|why| ConfigError { name: "sandbox", why: format!("{text:?}: {why}") })
}

pub(crate) fn fake_gpus(text: &str) -> Result<Option<Vec<u64>>, ConfigError> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let gpus: Result<Vec<u64>, _> = text.split(',').map(|gpu| gpu.trim().parse()).collect();
    let why = || format!("expected a comma-separated list of sizes in MiB, e.g. 24576,81920, got {text:?}");
    gpus.map(Some).map_err(|_| ConfigError { name: "fake_gpus", why: why() })
}

/// The user's cache directory for this project: `$XDG_CACHE_HOME/stokehold`, else `~/.cache/stokehold`, else one in the
/// system's temporary directory.
#[must_use]
pub fn user_cache_dir() -> PathBuf {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    base.unwrap_or_else(std::env::temp_dir).join("stokehold")
}

pub(crate) fn automatic_slots() -> u32 {
    std::thread::available_parallelism().map_or(2, |cores| u32::try_from(cores.get()).unwrap_or(2).max(2))
}

fn host_name() -> String {
    nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_else(|| "worker".to_owned())
}

#[cfg(test)]
mod tests;
