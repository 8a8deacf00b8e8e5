//! Where things lie on this machine.

use std::path::PathBuf;

use anyhow::{Context, Result};

/// What can be made again: environments, downloads, tools. `STOKE_CACHE_DIR`, else where workers keep theirs, so that
/// what was built for a deploy is there for the first job.
pub(crate) fn cache_dir() -> Result<PathBuf> {
    Ok(std::path::absolute(set("STOKE_CACHE_DIR").unwrap_or_else(stokehold_worker::user_cache_dir))?)
}

/// Where the CLI and the SDKs look for an address and a token: `STOKE_CREDENTIALS`, else one place in the home
/// directory.
pub(crate) fn credentials() -> Result<PathBuf> {
    if let Some(path) = set("STOKE_CREDENTIALS") {
        return Ok(path);
    }
    let home =
        std::env::home_dir().context("there is no home directory to keep credentials in; set STOKE_CREDENTIALS")?;
    Ok(home.join(".config").join("stokehold").join("credentials.json"))
}

/// The file `name` in one of PATH's folders.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}

fn set(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}
