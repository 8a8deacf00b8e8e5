//! Describes a handler: a Python process imports it and prints a JSON document.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tokio::process::Command;

use super::Kind;

/// Timeout of the import. Importing a GPU framework from a cold disk takes about a minute.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(180);

/// A description of a handler.
pub(crate) struct Described {
    /// Name, entry, options and schemas.
    pub(crate) version: Value,
    /// Python version that imported it, e.g. `3.11`.
    pub(crate) python: String,
}

impl Described {
    /// The description of a program, which has no Python handler.
    pub(super) async fn of_program(python: &Path) -> Result<Self> {
        let dialect = "https://json-schema.org/draft/2020-12/schema";
        let version = json!({"entry": "", "input_schema": {"$schema": dialect, "type": "object"}, "output_schema": {}});
        Ok(Self { version, python: version_of(python).await? })
    }
}

/// Imports `target` with `python`. Does not call `setup()`, but some kinds run at import.
pub(crate) async fn describe(python: &Path, kind: Kind, target: &str) -> Result<Described> {
    let kind = kind.to_string();
    let output = run(python, &["-m", "stokehold.runner", "describe", target, "--kind", &kind]).await;
    let output = output.with_context(|| format!("cannot import {target}"))?;
    let version: Value = serde_json::from_slice(&output.stdout).with_context(|| {
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        format!("cannot describe {target}: Python exited with {}\n{stderr}", output.status)
    })?;
    if let Some(error) = version.get("error").filter(|error| !error.is_null()) {
        let text = |member: &str| error[member].as_str().unwrap_or_default().trim_end().to_owned();
        let traceback =
            Some(text("traceback")).filter(|text| !text.is_empty()).map_or(String::new(), |text| format!("\n{text}"));
        bail!("cannot deploy {target}: {}: {}{traceback}", text("class"), text("message"));
    }
    Ok(Described { version, python: version_of(python).await? })
}

async fn version_of(python: &Path) -> Result<String> {
    let asked = run(python, &["-I", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]).await?;
    Ok(String::from_utf8_lossy(&asked.stdout).trim().to_owned())
}

async fn run(python: &Path, arguments: &[&str]) -> Result<std::process::Output> {
    let child = Command::new(python)
        .args(arguments)
        // Do not write to the user's folder.
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
    let advice = || {
        format!("the import took longer than {} s; load weights in setup(), not at import", DESCRIBE_TIMEOUT.as_secs())
    };
    Ok(ended.with_context(advice)??)
}
