//! Paths on this machine.

use std::path::PathBuf;

use anyhow::{Context, Result};

/// Cache folder for environments, downloads and tools: `STOKE_CACHE_DIR`, else the cache of workers, so that an
/// environment built for a deploy is ready for the first job.
pub(crate) fn cache_dir() -> Result<PathBuf> {
    Ok(std::path::absolute(set("STOKE_CACHE_DIR").unwrap_or_else(stokehold_worker::user_cache_dir))?)
}

/// The credentials file of the CLI and the SDKs: `STOKE_CREDENTIALS`, else a path in the home directory.
pub(crate) fn credentials() -> Result<PathBuf> {
    if let Some(path) = set("STOKE_CREDENTIALS") {
        return Ok(path);
    }
    let home =
        std::env::home_dir().context("no home directory found for the credentials file; set STOKE_CREDENTIALS")?;
    Ok(home.join(".config").join("stokehold").join("credentials.json"))
}

/// Finds the file `name` in a folder of PATH.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}

fn set(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}
