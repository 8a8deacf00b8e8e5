//! The configuration. `config.default.toml` holds the defaults and documents the settings.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use stokehold_planner::{Policy, RETIRED};
use stokehold_queue::{RedisConfig, shown_in_words};
use toml::{Table, Value};

use crate::live::Settings;
use crate::providers::kubernetes::settings::KubernetesSettings;
use crate::providers::owned::Host;
use crate::providers::vast::VastSettings;
use crate::secret::Secret;

/// Default configuration with comments.
pub const DEFAULT: &str = include_str!("config.default.toml");

/// Environment variables and the setting that each overrides.
pub const ENV: [(&str, &str); 21] = [
    ("STOKE_AUTOSCALER_TICK_MS", "tick_ms"),
    ("STOKE_AUTOSCALER_LISTEN", "listen"),
    ("STOKE_AUTOSCALER_RECORD", "record"),
    ("STOKE_GATEWAY_URL", "gateway_url"),
    ("STOKE_JOIN_TOKEN", "join_token"),
    ("STOKE_TOKEN_KEY", "token_key"),
    ("STOKE_WORKER_DIST", "worker_dist"),
    ("STOKE_REDIS_URL", "redis.url"),
    ("STOKE_REDIS_PREFIX", "redis.prefix"),
    ("STOKE_REDIS_SHARDS", "redis.shards"),
    ("STOKE_LOCAL_MAX", "local.max"),
    ("STOKE_DATA_DIR", "local.data_dir"),
    ("VAST_API_KEY", "vast.api_key"),
    ("STOKE_VAST_API_KEY", "vast.api_key"),
    ("STOKE_VAST_URL", "vast.url"),
    ("STOKE_VAST_NAMESPACE", "vast.namespace"),
    ("STOKE_VAST_IMAGE", "vast.image"),
    ("STOKE_VAST_GATEWAY_URL", "vast.gateway_url"),
    ("STOKE_VAST_PACKAGE_INDEXES", "vast.package_indexes"),
    ("STOKE_KUBERNETES_URL", "kubernetes.url"),
    ("STOKE_KUBERNETES_TOKEN", "kubernetes.token"),
];

/// Configuration of the autoscaler.
#[derive(Debug, Clone)]
pub struct Config {
    /// Settings of the loop.
    pub settings: Settings,
    /// Address that serves the metrics, if any.
    pub listen: Option<SocketAddr>,
    /// File that records every round, if any.
    pub record: Option<PathBuf>,
    /// Connection to Redis.
    pub redis: RedisConfig,
    /// Address at which workers reach the gateway.
    pub gateway_url: String,
    /// Join token of workers.
    pub join_token: Secret,
    /// Key that signs the join tokens of rented machines.
    pub token_key: Secret,
    /// Folder of the worker archives that the gateway serves; rented machines run one of them.
    pub worker_dist: PathBuf,
    /// Workers that run as processes on this machine.
    pub local: LocalSettings,
    /// Hosts of the operator.
    pub hosts: StaticSettings,
    /// Machines rented at Vast.ai.
    pub vast: VastSettings,
    /// Kubernetes cluster.
    pub kubernetes: KubernetesSettings,
    /// Settings of the file that earlier releases had and this one ignores, e.g. `policy.prefetch_max`.
    pub ignored: Vec<String>,
}

/// Settings of workers that run as processes on this machine.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalSettings {
    /// Maximum number of workers.
    pub max: u32,
    /// Jobs that each worker runs at once; 0 is automatic.
    pub slots: u32,
    /// Parent folder of the workers' data folders.
    pub data_dir: PathBuf,
}

/// Settings of hosts of the operator.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StaticSettings {
    /// Time that the worker of a started host has to join, seconds. After it the host is stopped.
    pub join_limit_s: u64,
    /// Timeout of a command, seconds.
    pub command_limit_s: u64,
    /// Variables of the autoscaler's environment that commands get in addition to those of a login.
    pub inherits: Vec<String>,
    /// Hosts that the autoscaler may start and stop.
    pub hosts: Vec<Host>,
}

/// Error in a configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Invalid TOML, an unknown key or a wrong type.
    #[error("invalid configuration: {}", shown_in_words(.0, .0.message()))]
    Toml(#[from] toml::de::Error),
    /// An environment variable of the wrong type.
    #[error("{0} must be a whole number")]
    Number(&'static str),
    /// A setting out of its range, or in conflict with another.
    #[error("{setting}: {why}")]
    Setting {
        /// The setting, as in the file.
        setting: &'static str,
        /// The required change.
        why: String,
    },
}

/// Structure of the file. Every member has its default in `config.default.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawConfig {
    tick_ms: u64,
    listen: String,
    record: PathBuf,
    gateway_url: String,
    join_token: Secret,
    token_key: Secret,
    worker_dist: PathBuf,
    redis: RawRedis,
    policy: Policy,
    local: LocalSettings,
    #[serde(rename = "static")]
    hosts: StaticSettings,
    vast: VastSettings,
    kubernetes: KubernetesSettings,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRedis {
    url: String,
    prefix: String,
    shards: u8,
}

impl Config {
    /// Loads the configuration: the environment overrides `file`, which overrides the defaults. `var` looks up a
    /// variable.
    ///
    /// # Errors
    /// Names the setting and the required change.
    pub fn load(file: Option<&str>, var: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let mut table: Table = toml::from_str(DEFAULT)?;
        if let Some(file) = file {
            merge(&mut table, toml::from_str(file)?);
        }
        for (variable, setting) in ENV {
            if let Some(text) = var(variable) {
                put(&mut table, variable, setting, text)?;
            }
        }
        let ignored = drop_retired(&mut table);
        let raw: RawConfig = Value::Table(table).try_into()?;
        if raw.tick_ms < 100 {
            return Err(Error::Setting { setting: "tick_ms", why: "must be at least 100".to_owned() });
        }
        let listen = (!raw.listen.is_empty()).then(|| raw.listen.parse());
        let why = |_| Error::Setting {
            setting: "listen",
            why: format!("{:?} is not an address and a port, e.g. 127.0.0.1:7071", raw.listen),
        };
        let listen = listen.transpose().map_err(why)?;
        for host in &raw.hosts.hosts {
            if host.start.is_empty() || host.stop.is_empty() || host.name.is_empty() {
                let why = format!("host {:?} needs a name and the commands start and stop", host.name);
                return Err(Error::Setting { setting: "static.hosts", why });
            }
        }
        let named = |n: usize| raw.hosts.hosts[..n].iter().any(|host| host.name == raw.hosts.hosts[n].name);
        if let Some(twice) = (0..raw.hosts.hosts.len()).find(|n| named(*n)) {
            let why = format!("two hosts have the name {:?}", raw.hosts.hosts[twice].name);
            return Err(Error::Setting { setting: "static.hosts", why });
        }
        raw.policy
            .check()
            .map_err(|(setting, why)| Error::Setting { setting: "policy", why: format!("{setting}: {why}") })?;
        raw.vast.check().map_err(|(setting, why)| Error::Setting { setting, why })?;
        if let Some(why) = raw.kubernetes.why_invalid(&raw.redis.prefix) {
            return Err(Error::Setting { setting: "kubernetes", why });
        }
        Ok(Self {
            settings: Settings { tick: Duration::from_millis(raw.tick_ms), policy: raw.policy, holder: None },
            listen,
            record: Some(raw.record).filter(|record| !record.as_os_str().is_empty()),
            redis: RedisConfig {
                url: raw.redis.url,
                prefix: raw.redis.prefix,
                shards: raw.redis.shards,
                ..RedisConfig::default()
            },
            gateway_url: raw.gateway_url.trim_end_matches('/').to_owned(),
            join_token: raw.join_token,
            token_key: raw.token_key,
            worker_dist: raw.worker_dist,
            local: raw.local,
            hosts: raw.hosts,
            vast: raw.vast,
            kubernetes: raw.kubernetes,
            ignored,
        })
    }
}

/// Removes the settings that have no effect any more, so that a file written for an earlier release still loads.
/// Returns their names.
fn drop_retired(table: &mut Table) -> Vec<String> {
    let Some(Value::Table(policy)) = table.get_mut("policy") else { return Vec::new() };
    let retired = RETIRED.iter().filter(|name| policy.remove(**name).is_some());
    retired.map(|name| format!("policy.{name}")).collect()
}

/// Merges `over` into `table`, member by member; values of `over` win.
fn merge(table: &mut Table, over: Table) {
    for (name, value) in over {
        match (table.get_mut(&name), value) {
            (Some(Value::Table(into)), Value::Table(value)) => merge(into, value),
            (_, value) => drop(table.insert(name, value)),
        }
    }
}

/// Sets a member to a text, converted to the type of its default.
fn put(table: &mut Table, variable: &'static str, setting: &str, text: String) -> Result<(), Error> {
    let (into, name) = match setting.split_once('.') {
        Some((section, name)) => match table.get_mut(section) {
            Some(Value::Table(section)) => (section, name),
            _ => return Ok(()),
        },
        None => (table, setting),
    };
    let value = match into.get(name) {
        Some(Value::Integer(_)) => Value::Integer(text.trim().parse().map_err(|_| Error::Number(variable))?),
        _ => Value::String(text),
    };
    into.insert(name.to_owned(), value);
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn load(file: &str, set: &[(&str, &str)]) -> Result<Config, String> {
        let var = |name: &str| set.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned());
        Config::load(Some(file), var).map_err(|error| error.to_string())
    }

    #[test]
    fn the_environment_overrides_the_file_which_overrides_the_defaults() {
        let file = "tick_ms = 500\n[redis]\nprefix = 'a'\n[policy]\nmax_machines = 3";
        let config = load(file, &[("STOKE_REDIS_PREFIX", "b"), ("STOKE_LOCAL_MAX", "2")]).unwrap();
        assert_eq!((config.settings.tick.as_millis(), config.redis.prefix.as_str()), (500, "b"));
        assert_eq!((config.settings.policy.max_machines, config.local.max, config.redis.shards), (3, 2, 1));
        assert_eq!(load("", &[]).unwrap().settings.policy, Policy::default());
    }

    #[test]
    fn a_limit_that_is_not_given_is_none_and_0_is_a_limit() {
        let limits = |file: &str| {
            let Policy { max_usd_per_day, max_idle_s, .. } = load(file, &[]).unwrap().settings.policy;
            (max_usd_per_day, max_idle_s)
        };
        assert_eq!(limits(""), (None, None));
        assert_eq!(limits("[policy]\nmax_usd_per_day = 0\nmax_idle_s = 0.0"), (Some(0.0), Some(0.0)));
        let policy = Policy::default().with("max_usd_per_day", "0").unwrap();
        assert_eq!(policy.max_usd_per_day, Some(0.0));
        assert_eq!(policy.with("max_usd_per_day", "null").unwrap().max_usd_per_day, None);
        assert!(policy.with("max_usd_per_day", "-1").is_err());
    }

    #[test]
    fn a_setting_of_an_earlier_release_is_ignored_and_reported() {
        let config = load("[policy]\nprefetch_max = 12\nmax_machines = 3", &[]).unwrap();
        assert_eq!((config.ignored, config.settings.policy.max_machines), (vec!["policy.prefetch_max".to_owned()], 3));
        assert_eq!(load("", &[]).unwrap().ignored, [""; 0]);
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        let refused = |file: &str, set: &[(&str, &str)]| load(file, set).unwrap_err();
        assert!(refused("tikc_ms = 1", &[]).contains("tikc_ms"));
        assert!(refused("tick_ms = 1", &[]).starts_with("tick_ms"));
        assert!(refused("", &[("STOKE_LOCAL_MAX", "many")]).starts_with("STOKE_LOCAL_MAX"));
        assert!(refused("listen = 'here'", &[]).starts_with("listen"));
        assert!(refused("[policy]\nmax_usd_per_day = -1", &[]).starts_with("policy: max_usd_per_day"));
        assert!(refused("[policy]\nmax_usd_per_hour = inf", &[]).starts_with("policy: max_usd_per_hour"));
        assert!(refused("[[static.hosts]]\nname='a'\nstart=[]\nstop=['x']", &[]).starts_with("static.hosts"));
        assert!(refused("[vast]\nnamespace = 'A'", &[]).starts_with("vast.namespace"));
        let host = "[[static.hosts]]\nname='a'\nstart=['x']\nstop=['x']\n";
        assert!(refused(&format!("{host}{host}"), &[]).contains("two hosts"));
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_refused_without_the_names_that_types_have_in_rust() {
        let refused = |file: &str| load(file, &[]).unwrap_err();
        let said = refused("[policy]\nmax_machines = 'many'");
        assert!(said.contains("must be a whole number from 0 to 4294967295, not \"many\""), "{said}");
        assert!(said.contains("policy.max_machines"), "{said}");
        let said = refused("static = 3");
        assert!(said.contains("must be an object, not 3"), "{said}");
        let said = Policy::default().with("max_machines", "1.5").unwrap_err().to_string();
        assert!(said.ends_with("must be a whole number from 0 to 4294967295, not 1.5"), "{said}");
    }

    #[test]
    fn every_variable_is_in_the_file() {
        for (variable, _) in ENV {
            assert!(DEFAULT.contains(&format!("[{variable}]")), "{variable}");
        }
    }

    #[test]
    fn secrets_do_not_print() {
        let set =
            [("STOKE_JOIN_TOKEN", "jt_verysecret"), ("STOKE_TOKEN_KEY", "verysecret"), ("VAST_API_KEY", "verysecret")];
        let config = load("", &set).unwrap();
        assert!(!format!("{config:?}").contains("verysecret"));
        assert!(config.vast.is_enabled() && !load("", &[]).unwrap().vast.is_enabled());
    }
}
