//! Child processes that exit with this process, even if it is killed.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

/// Starts a program through `stoke guard` in its own process group, so that Ctrl-C reaches only this process. Must be
/// called from the main thread: the guard ties the child to the calling thread.
pub(super) fn spawn<A: AsRef<OsStr>>(
    program: &Path,
    arguments: impl IntoIterator<Item = A>,
    prepare: impl FnOnce(&mut Command),
) -> Result<Child> {
    let stoke = std::env::current_exe().context("cannot find the path of this program")?;
    let mut command = Command::new(stoke);
    command.arg("guard").arg(std::process::id().to_string()).arg("--").arg(program).args(arguments);
    command.process_group(0).kill_on_drop(true).stdin(Stdio::null());
    prepare(&mut command);
    command.spawn().with_context(|| format!("cannot run {}", program.display()))
}

/// Sends SIGTERM to a child, and kills it after `grace` or when `now` completes.
pub(super) async fn stop(child: &mut Child, grace: Duration, now: impl Future<Output = ()>) {
    let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) else { return };
    // The child may have exited already.
    let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    let ended = tokio::select! {
        _ = child.wait() => true,
        () = tokio::time::sleep(grace) => false,
        () = now => false,
    };
    if !ended {
        let _ = child.kill().await;
    }
}
