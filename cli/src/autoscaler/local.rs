//! Workers on this machine, started by `stoke dev` and `stoke autoscaler run`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;

use anyhow::{Context, Result};
use stokehold_autoscaler::providers::local::{Local, LocalConfig};
use stokehold_vast::env;
use stokehold_worker::{INHERITED, RawConfig, VARIABLES, machine};

/// Worker settings that local workers do not inherit, because each worker has its own value or gets one from this
/// process. The last two would let a worker destroy the machine that it shares with this process.
const ITS_OWN: [&str; 8] = [
    "STOKE_GATEWAY_URL",
    "STOKE_JOIN_TOKEN",
    "STOKE_JOIN_TOKEN_FILE",
    "STOKE_METRICS_LISTEN",
    "STOKE_WORKER_NAME",
    "STOKE_DATA_DIR",
    env::CONTAINER_ID,
    env::CONTAINER_API_KEY,
];

/// Environment variables that a local worker inherits: settings of the worker and of the machine, but no tokens or
/// keys.
fn inherited() -> Vec<&'static str> {
    INHERITED.into_iter().chain(VARIABLES.into_iter().filter(|name| !ITS_OWN.contains(name))).collect()
}

/// Options of local workers.
pub(crate) struct LocalOptions {
    pub(crate) gateway_url: String,
    pub(crate) join_token: String,
    pub(crate) data_dir: PathBuf,
    pub(crate) max: u32,
    /// Concurrent jobs per worker; `None` lets the worker decide.
    pub(crate) slots: Option<u32>,
    /// File for the workers' log lines; `None` means standard error.
    pub(crate) log: Option<File>,
}

/// Builds a provider that starts workers through `stoke guard`, so that they exit with this process.
pub(crate) fn provider(options: LocalOptions) -> Result<Local> {
    let stoke = std::env::current_exe().context("cannot find the path of this program")?.into_os_string();
    let word = |word: &str| OsString::from(word);
    let parent = std::process::id().to_string();
    let program = vec![
        stoke.clone(),
        word("guard"),
        word(&parent),
        word("--"),
        stoke,
        word("worker"),
        word("run"),
        word("--exit-with-stdin"),
    ];
    let mut set = BTreeMap::from([
        ("STOKE_GATEWAY_URL".to_owned(), options.gateway_url.into()),
        ("STOKE_JOIN_TOKEN".to_owned(), options.join_token.into()),
    ]);
    if let Some(slots) = options.slots {
        set.insert("STOKE_SLOTS".to_owned(), slots.to_string().into());
    }
    let raw = RawConfig::from_env(|name| std::env::var(name).ok())?;
    Ok(Local::new(LocalConfig {
        program,
        set,
        inherits: inherited(),
        data_dir: options.data_dir,
        max: options.max,
        gpus: machine::gpus(&raw)?,
        slots: options.slots.unwrap_or_else(|| machine::slots(&raw)),
        log: options.log,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_of_ours_is_among_what_a_worker_inherits() {
        let inherited = inherited();
        let secret = ["TOKEN", "KEY", "SECRET", "PASSWORD", "REDIS", "S3", "BACKUP", "CREDENTIAL"];
        let leaks: Vec<&&str> = inherited.iter().filter(|name| secret.iter().any(|word| name.contains(word))).collect();
        assert_eq!(leaks, [&""; 0]);
        for name in stokehold_autoscaler::config::ENV.map(|(name, _)| name) {
            let is_setting = VARIABLES.contains(&name) && !ITS_OWN.contains(&name);
            assert!(is_setting || !inherited.contains(&name), "{name} is the autoscaler's");
        }
    }
}
