//! Child processes that do not outlive this one, however it ends.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

/// Starts a program through `stoke guard`, in a process group of its own: Ctrl-C reaches only us, and we stop it in its turn. Call
/// it from the main thread, to whose life the guard ties the child.
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

/// Asks a child to end, and kills it after `grace` or when `now` completes.
pub(super) async fn stop(child: &mut Child, grace: Duration, now: impl Future<Output = ()>) {
    let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) else { return };
    // It may be gone already.
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
