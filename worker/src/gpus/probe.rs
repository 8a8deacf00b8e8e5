//! Tests whether GPUs work: a program allocates a little memory on each, writes it and reads it back.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use crate::runner::{environment, kill_group};

/// Timeout of the test; it needs only one megabyte.
const PROBE_MAX: Duration = Duration::from_secs(30);

/// Exit code of the program for a faulty GPU. Any other failure is the program's own and proves nothing.
const FAULT: i32 = 3;

/// Describes what is wrong with these GPUs; `None` if they work. `python` must have only the runner installed, so that
/// no package of a tenant runs.
pub(super) async fn fault(python: &Path, gpus: &[u32]) -> Option<String> {
    let indices: Vec<String> = gpus.iter().map(u32::to_string).collect();
    let temp = std::env::temp_dir();
    let started = Command::new(python)
        .args(["-I", "-m", "stokehold.runner", "probe"])
        .env_clear()
        .envs(environment(python, (&temp, &temp), &indices, &BTreeMap::new()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn();
    let child = match started {
        Ok(child) => child,
        Err(error) => {
            tracing::warn!(%error, "cannot test the GPUs");
            return None;
        }
    };
    let pid = child.id();
    let Ok(ended) = timeout(PROBE_MAX, child.wait_with_output()).await else {
        pid.into_iter().for_each(kill_group);
        return Some(format!("writing one megabyte did not finish within {} s", PROBE_MAX.as_secs()));
    };
    let ended = ended.ok()?;
    let said = String::from_utf8_lossy(&ended.stderr);
    let said: String = said.lines().last().unwrap_or_default().chars().take(300).collect();
    match ended.status.code() {
        Some(0) => None,
        Some(FAULT) => Some(said),
        _ => {
            tracing::warn!(status = %ended.status, said, "the GPU test program failed; the state of the GPUs is unknown");
            None
        }
    }
}
