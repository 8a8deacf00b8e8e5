//! Asking a handler what it is: a Python process of its own imports it and prints one JSON document.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::process::Command;

/// Importing a GPU framework from a cold disk takes a minute.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(180);

/// What was found out.
pub(super) struct Described {
    /// Name, entry, options and schemas.
    pub(super) version: Value,
    /// The Python it was imported with, as `3.11`.
    pub(super) python: String,
}

/// Imports `target` with `python`, without calling its `setup()`.
pub(super) async fn describe(python: &Path, target: &str) -> Result<Described> {
    let output = run(python, &["-m", "stokehold.runner", "describe", target]).await;
    let output = output.with_context(|| format!("cannot import {target}"))?;
    let version: Value = serde_json::from_slice(&output.stdout).with_context(|| {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        format!("{target} cannot be described: Python ended with {}\n{said}", output.status)
    })?;
    if let Some(error) = version.get("error").filter(|error| !error.is_null()) {
        let text = |member: &str| error[member].as_str().unwrap_or_default().trim_end().to_owned();
        let traceback =
            Some(text("traceback")).filter(|text| !text.is_empty()).map_or(String::new(), |text| format!("\n{text}"));
        bail!("{target} cannot be deployed: {}: {}{traceback}", text("class"), text("message"));
    }
    let asked = run(python, &["-I", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]).await?;
    Ok(Described { version, python: String::from_utf8_lossy(&asked.stdout).trim().to_owned() })
}

async fn run(python: &Path, arguments: &[&str]) -> Result<std::process::Output> {
    let child = Command::new(python)
        .args(arguments)
        // The folder is the user's: nothing of ours is left in it.
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env_remove("PYTHONPATH")
        .env_remove("PYTHONHOME")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot run {}", python.display()))?;
    let ended = tokio::time::timeout(DESCRIBE_TIMEOUT, child.wait_with_output()).await;
    let advice =
        || format!("it took longer than {} s; load weights in setup(), not at import", DESCRIBE_TIMEOUT.as_secs());
    Ok(ended.with_context(advice)??)
}
