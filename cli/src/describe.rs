//! Describes a handler with the Python of its environment.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use stokehold_package::{Description, Package};
use tokio::process::Command;

/// Timeout of the import. Importing a GPU framework from a cold disk takes about a minute.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(180);

/// Imports the handler with `python`. Does not call `setup()`, but some kinds run at import.
pub(crate) async fn describe(package: &Package, python: &Path) -> Result<Description> {
    let version = match package.describe_arguments() {
        Some(arguments) => {
            let output = run(python, arguments.iter().map(String::as_str)).await;
            let output = output.with_context(|| format!("cannot import {}", package.handler()))?;
            package.parse_description(&output.stdout, &output.stderr, &output.status.to_string())?
        }
        None => Package::description_of_program(),
    };
    Ok(Description { version, python: version_of(python).await? })
}

async fn version_of(python: &Path) -> Result<String> {
    let asked = run(python, ["-I", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]).await?;
    Ok(String::from_utf8_lossy(&asked.stdout).trim().to_owned())
}

async fn run<'a>(python: &Path, arguments: impl IntoIterator<Item = &'a str>) -> Result<std::process::Output> {
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
