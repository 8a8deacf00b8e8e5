//! Workers of this machine, as `stoke dev` and `stoke autoscaler run` start them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;

use anyhow::{Context, Result};
use stokehold_autoscaler::providers::local::{Local, LocalConfig};
use stokehold_worker::{RawConfig, machine};

/// What a worker would otherwise take for itself, or is not to see.
/// With the last one it would end the machine that it shares with us.
pub(crate) const UNSET: [&str; 6] = [
    "STOKE_METRICS_LISTEN",
    "STOKE_WORKER_NAME",
    "STOKE_TOKEN",
    "STOKE_REDIS_URL",
    "STOKE_TOKEN_KEY",
    "CONTAINER_API_KEY",
];

/// What they are started with.
pub(crate) struct LocalOptions {
    pub(crate) gateway_url: String,
    pub(crate) join_token: String,
    pub(crate) data_dir: PathBuf,
    pub(crate) max: u32,
    /// Jobs at once in each; else it decides.
    pub(crate) slots: Option<u32>,
    /// Where their log lines go, if not beside ours.
    pub(crate) log: Option<File>,
}

/// Starts workers through `stoke guard`, so that they end with this process.
pub(crate) fn provider(options: LocalOptions) -> Result<Local> {
    let stoke = std::env::current_exe().context("cannot find the path of this program")?.into_os_string();
    let word = |word: &str| OsString::from(word);
    let parent = std::process::id().to_string();
    let program =
        vec![stoke.clone(), word("guard"), word(&parent), word("--"), stoke, word("worker"), word("--exit-with-stdin")];
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
        unset: UNSET.to_vec(),
        data_dir: options.data_dir,
        max: options.max,
        gpus: machine::cards(&raw)?,
        slots: options.slots.unwrap_or_else(|| machine::slots(&raw)),
        log: options.log,
    }))
}
