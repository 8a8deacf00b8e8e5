//! The configuration: the operator's settings (`RawConfig`) and their parsed form ([`Config`]). `config.default.toml`
//! has the defaults with comments.

pub(crate) mod traces;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use serde::Deserialize;
use stokehold_objects::ObjectsConfig;
use stokehold_queue::costs::Hosted;
use stokehold_queue::requirements_lock::listed_indexes;
use stokehold_queue::{Durability, RedisConfig, shown_in_words};
use toml::{Table, Value};

pub use self::traces::{Exporter, Headers, Protocol, Sampler, Traces};
use crate::secrets::Keyring;
use crate::tenants::token::TokenKey;
use crate::webhooks::schedule;

/// The defaults, as a commented file to start from.
pub const DEFAULT: &str = include_str!("config.default.toml");

/// All environment variables, and the setting that each overrides.
pub const ENV: [(&str, &str); 41] = [
    ("STOKE_LISTEN", "listen"),
    ("STOKE_PUBLIC_URL", "public_url"),
    ("STOKE_TRUSTED_PROXIES", "trusted_proxies"),
    ("STOKE_TOKEN_KEY", "token_key"),
    ("STOKE_SECRET_KEYS", "secret_keys"),
    ("STOKE_WEIGHT_BUCKETS", "weight_buckets"),
    ("STOKE_PACKAGE_INDEXES", "package_indexes"),
    ("STOKE_LEASE_MS", "lease_ms"),
    ("STOKE_EXTEND_EVERY_MS", "extend_every_ms"),
    ("STOKE_RETENTION_MS", "retention_ms"),
    ("STOKE_AGE_AFTER_MS", "age_after_ms"),
    ("STOKE_DURABILITY", "durability"),
    ("STOKE_REPLICAS_TO_WAIT", "replicas_to_wait"),
    ("STOKE_EPHEMERAL", "ephemeral"),
    ("STOKE_WORKER_DIST", "worker_dist"),
    ("STOKE_REDIS_URL", "redis.url"),
    ("STOKE_REDIS_PREFIX", "redis.prefix"),
    ("STOKE_REDIS_SHARDS", "redis.shards"),
    ("STOKE_S3_ENDPOINT_URL", "s3.endpoint_url"),
    ("STOKE_S3_PUBLIC_URL", "s3.public_url"),
    ("STOKE_S3_REGION", "s3.region"),
    ("STOKE_S3_BUCKET", "s3.bucket"),
    ("STOKE_S3_ACCESS_KEY_ID", "s3.access_key_id"),
    ("STOKE_S3_SECRET_ACCESS_KEY", "s3.secret_access_key"),
    ("STOKE_S3_PATH_STYLE", "s3.path_style"),
    ("STOKE_LIMIT_CONNECTIONS", "limits.connections"),
    ("STOKE_LIMIT_HELD_REQUESTS", "limits.held_requests"),
    ("STOKE_LIMIT_QUEUE_TIMEOUT_MS", "limits.queue_timeout_ms"),
    ("STOKE_LIMIT_FILE_BYTES", "limits.file_bytes"),
    ("STOKE_LIMIT_PACKAGE_BYTES", "limits.package_bytes"),
    ("STOKE_WEBHOOK_ALLOW_PRIVATE", "webhooks.allow_private"),
    ("STOKE_WEBHOOK_ALLOW_HTTP", "webhooks.allow_http"),
    ("STOKE_WEBHOOK_PORTS", "webhooks.ports"),
    ("STOKE_WEBHOOK_WAITS_S", "webhooks.waits_s"),
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "traces.endpoint"),
    ("OTEL_EXPORTER_OTLP_HEADERS", "traces.headers"),
    ("OTEL_EXPORTER_OTLP_PROTOCOL", "traces.protocol"),
    ("OTEL_EXPORTER_OTLP_TIMEOUT", "traces.timeout_ms"),
    ("OTEL_SERVICE_NAME", "traces.service_name"),
    ("OTEL_TRACES_SAMPLER", "traces.sampler"),
    ("OTEL_TRACES_SAMPLER_ARG", "traces.sampler_ratio"),
];

/// The configuration of the API.
#[derive(Debug, Clone)]
pub struct Config {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The URL at which clients reach this API, without a trailing slash.
    pub public_url: String,
    /// The proxies whose X-Forwarded-For is trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// The queue's connection.
    pub redis: RedisConfig,
    /// The object store's connection.
    pub s3: ObjectsConfig,
    /// The key that hashes tokens.
    pub token_key: TokenKey,
    /// The keys that seal tenants' secrets.
    pub secret_keys: Keyring,
    /// Buckets from which every tenant may use weights.
    pub weight_buckets: Vec<String>,
    /// Package indexes that locked requirements may name, including addresses below them.
    pub package_indexes: Vec<String>,
    /// Interval at which a worker extends its leases, milliseconds.
    pub extend_every_ms: u64,
    /// Accept a Redis that loses all data at a restart.
    pub ephemeral: bool,
    /// The folder of the worker archives that new hosts install.
    pub worker_dist: Option<PathBuf>,
    /// The limits of one replica.
    pub limits: Limits,
    /// Allowed destinations of webhooks, and their retries.
    pub webhooks: Webhooks,
    /// The prices that costs are compared with.
    pub costs: Costs,
    /// Export of traces: the collector and the sampling.
    pub traces: Traces,
}

/// The prices that costs are compared with.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Prices of hosted services, by service and GPU model.
    pub hosted: Vec<Hosted>,
}

/// Allowed destinations of webhooks, and their retries. The default, as in `config.default.toml`, is public addresses
/// over https.
#[derive(Debug, Clone)]
pub struct Webhooks {
    /// Allow loopback and private networks too. Link-local addresses, including cloud metadata services, are never
    /// allowed.
    pub allow_private: bool,
    /// Allow plain http too.
    pub allow_http: bool,
    /// The allowed ports; empty means 443 and 8443, with `allow_http` also 80 and 8080.
    pub ports: Vec<u16>,
    /// The pauses between delivery attempts. There is one attempt more than there are pauses.
    pub waits: Vec<Duration>,
}

impl Default for Webhooks {
    fn default() -> Self {
        Self { allow_private: false, allow_http: false, ports: Vec::new(), waits: schedule::WAITS.to_vec() }
    }
}

/// The limits of one replica.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Maximum number of open connections. Further ones wait to be accepted.
    pub connections: usize,
    /// Requests held open at the same time: waits, event streams and workers' lease polls.
    pub held_requests: usize,
    /// Timeout for answers from Redis, milliseconds.
    pub queue_timeout_ms: u64,
    /// Maximum size of an uploaded file, bytes.
    pub file_bytes: u64,
    /// Maximum size of an endpoint package, bytes.
    pub package_bytes: u64,
}

impl Default for Limits {
    /// The values of `config.default.toml`.
    fn default() -> Self {
        Self {
            connections: 10_000,
            held_requests: 8_000,
            queue_timeout_ms: 3_000,
            file_bytes: 5 << 30,
            package_bytes: 512 << 20,
        }
    }
}

/// An error in the configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is not TOML, or has an unknown key or a wrong type.
    #[error("the configuration cannot be read: {}", shown_in_words(.0, .0.message()))]
    Toml(#[from] toml::de::Error),
    /// An environment variable of the wrong type.
    #[error("{variable} must be {wanted}")]
    Variable {
        /// The variable's name.
        variable: &'static str,
        /// The expected type.
        wanted: &'static str,
    },
    /// A setting with an invalid value.
    #[error("{setting}: {why}")]
    Setting {
        /// The setting, as in the file.
        setting: &'static str,
        /// The change that makes the setting valid.
        why: String,
    },
}

/// The shape of the file. `config.default.toml` has a default for every member.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawConfig {
    listen: String,
    public_url: String,
    trusted_proxies: String,
    token_key: String,
    secret_keys: String,
    weight_buckets: String,
    package_indexes: String,
    lease_ms: u64,
    extend_every_ms: u64,
    retention_ms: u64,
    age_after_ms: u64,
    durability: Durability,
    replicas_to_wait: Value,
    ephemeral: bool,
    worker_dist: PathBuf,
    redis: RawRedis,
    s3: RawS3,
    limits: Limits,
    webhooks: RawWebhooks,
    costs: Costs,
    traces: traces::RawTraces,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawWebhooks {
    allow_private: bool,
    allow_http: bool,
    ports: String,
    waits_s: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRedis {
    url: String,
    prefix: String,
    shards: u8,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawS3 {
    endpoint_url: String,
    public_url: String,
    region: String,
    bucket: String,
    access_key_id: String,
    secret_access_key: String,
    path_style: bool,
}

impl Config {
    /// Loads the defaults, overlaid with `file` (TOML), overlaid with the environment.
    ///
    /// # Errors
    /// [`Error`], which names the setting.
    pub fn load(file: Option<&str>, env: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let mut settings: Table = DEFAULT.parse()?;
        if let Some(file) = file {
            overlay(&mut settings, file.parse()?);
        }
        for (variable, path) in ENV {
            if let Some(text) = env(variable) {
                set(&mut settings, variable, path, text)?;
            }
        }
        Self::mean(RawConfig::deserialize(Value::Table(settings))?)
    }

    fn mean(raw: RawConfig) -> Result<Self, Error> {
        let wrong = |setting, why: &str| Error::Setting { setting, why: why.to_owned() };
        let listen =
            raw.listen.parse().map_err(|_| wrong("listen", "must be an address and a port, e.g. 127.0.0.1:7070"))?;
        if !raw.public_url.starts_with("http://") && !raw.public_url.starts_with("https://") {
            return Err(wrong("public_url", "must start with http:// or https://"));
        }
        let token_key = raw
            .token_key
            .parse()
            .map_err(|error: crate::tenants::token::Error| wrong("token_key", &error.to_string()))?;
        let secret_keys = Keyring::parse(&raw.secret_keys, &token_key).ok_or_else(|| {
            wrong(
                "secret_keys",
                "must be a comma-separated list of at most 8 <id>:<64 hex digits> with distinct ids, or empty",
            )
        })?;
        if raw.lease_ms < 1_000 {
            return Err(wrong("lease_ms", "must be at least 1000"));
        }
        if raw.extend_every_ms == 0 || raw.extend_every_ms > raw.lease_ms / 3 {
            return Err(wrong("extend_every_ms", "must be at least 1 and at most a third of lease_ms"));
        }
        if raw.limits.connections == 0 || raw.limits.held_requests == 0 || raw.limits.queue_timeout_ms == 0 {
            return Err(wrong("limits", "must be above 0"));
        }
        if raw.costs.hosted.iter().any(|price| !(0.0..=1_000.0).contains(&price.usd_per_hour)) {
            return Err(wrong("costs.hosted", "usd_per_hour must be 0 to 1000"));
        }
        Ok(Self {
            listen,
            public_url: raw.public_url.trim_end_matches('/').to_owned(),
            trusted_proxies: trusted_proxies(&raw.trusted_proxies)?,
            redis: RedisConfig {
                url: raw.redis.url,
                prefix: raw.redis.prefix,
                shards: raw.redis.shards,
                lease_ms: raw.lease_ms,
                retention_ms: raw.retention_ms,
                age_after_ms: raw.age_after_ms,
                durability: raw.durability,
                replicas_to_wait: replicas_to_wait(&raw.replicas_to_wait)?,
                ..RedisConfig::default()
            },
            token_key,
            secret_keys,
            weight_buckets: weight_buckets(&raw.weight_buckets, &raw.s3.bucket)?,
            package_indexes: listed_indexes(&raw.package_indexes)
                .map_err(|why| Error::Setting { setting: "package_indexes", why: why.to_owned() })?,
            s3: raw.s3.mean(),
            extend_every_ms: raw.extend_every_ms,
            ephemeral: raw.ephemeral,
            worker_dist: worker_dist(raw.worker_dist),
            limits: raw.limits,
            webhooks: raw.webhooks.mean()?,
            costs: raw.costs,
            traces: raw.traces.mean()?,
        })
    }
}

/// Parses addresses and networks.
fn trusted_proxies(text: &str) -> Result<Vec<IpNet>, Error> {
    let named = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    let net = |name: &str| name.parse().ok().or_else(|| name.parse::<IpAddr>().ok().map(IpNet::from));
    let why =
        || "must be a comma-separated list of addresses and networks, e.g. \"10.0.0.0/8,::1\", or empty".to_owned();
    named.map(net).collect::<Option<_>>().ok_or_else(|| Error::Setting { setting: "trusted_proxies", why: why() })
}

/// Parses the weight buckets, which must not include the API's own bucket: its objects belong to individual tenants.
fn weight_buckets(text: &str, own: &str) -> Result<Vec<String>, Error> {
    let named: Vec<String> =
        text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    if named.iter().any(|name| name == own) {
        let why =
            format!("must not name {own:?}, which holds every tenant's results; keep weights in a separate bucket");
        return Err(Error::Setting { setting: "weight_buckets", why });
    }
    Ok(named)
}

/// The configured folder; if empty, `../dist` relative to this program, where `make worker-dist` puts the archives
/// beside a build.
#[must_use]
pub fn worker_dist(named: PathBuf) -> Option<PathBuf> {
    if !named.as_os_str().is_empty() {
        return Some(named);
    }
    let program = std::env::current_exe().ok()?;
    Some(program.parent()?.parent()?.join("dist")).filter(|folder| folder.is_dir())
}

/// `None` for "auto".
fn replicas_to_wait(value: &Value) -> Result<Option<u32>, Error> {
    let number = match value {
        Value::Integer(number) => u32::try_from(*number).ok(),
        Value::String(text) if text == "auto" => return Ok(None),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    let wrong = || Error::Setting { setting: "replicas_to_wait", why: "must be \"auto\" or 0 to 10".to_owned() };
    number.filter(|number| *number <= 10).map(Some).ok_or_else(wrong)
}

impl RawWebhooks {
    fn mean(self) -> Result<Webhooks, Error> {
        let named = self.ports.split(',').map(str::trim).filter(|port| !port.is_empty());
        let ports = named.map(|port| port.parse().ok().filter(|port| *port > 0)).collect::<Option<_>>();
        let why = || "must be a comma-separated list of ports, e.g. \"443,8443\", or empty".to_owned();
        let ports = ports.ok_or_else(|| Error::Setting { setting: "webhooks.ports", why: why() })?;
        let waits = schedule::parse(&self.waits_s)
            .ok_or_else(|| Error::Setting { setting: "webhooks.waits_s", why: schedule::WANTED.to_owned() })?;
        Ok(Webhooks { allow_private: self.allow_private, allow_http: self.allow_http, ports, waits })
    }
}

impl RawS3 {
    fn mean(self) -> ObjectsConfig {
        let given = |text: String| (!text.is_empty()).then_some(text);
        ObjectsConfig {
            endpoint_url: given(self.endpoint_url),
            public_url: given(self.public_url),
            region: self.region,
            bucket: self.bucket,
            access_key_id: given(self.access_key_id),
            secret_access_key: given(self.secret_access_key).map(Into::into),
            path_style: self.path_style,
        }
    }
}

/// Replaces settings by those in `over`, table by table. Unknown keys are kept, so that a later step can refuse them by
/// name.
fn overlay(settings: &mut Table, over: Table) {
    for (key, value) in over {
        match (settings.get_mut(&key), value) {
            (Some(Value::Table(inner)), Value::Table(over)) => overlay(inner, over),
            (_, value) => {
                settings.insert(key, value);
            }
        }
    }
}

/// Sets one setting from text, parsed as the type of its default.
fn set(settings: &mut Table, variable: &'static str, path: &str, text: String) -> Result<(), Error> {
    let (table, key) = match path.split_once('.') {
        Some((section, key)) => match settings.get_mut(section) {
            Some(Value::Table(table)) => (table, key),
            _ => {
                return Err(Error::Variable { variable, wanted: "unset: its section is not a table" });
            }
        },
        None => (settings, path),
    };
    let value = match table.get(key) {
        Some(Value::Integer(_)) => {
            Value::Integer(text.parse().map_err(|_| Error::Variable { variable, wanted: "a whole number" })?)
        }
        Some(Value::Boolean(_)) => {
            Value::Boolean(text.parse().map_err(|_| Error::Variable { variable, wanted: "true or false" })?)
        }
        _ => Value::String(text),
    };
    table.insert(key.to_owned(), value);
    Ok(())
}

#[cfg(test)]
mod tests;
