//! A process of the system under test. It dies with this program, however that ends.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use stokehold_tests::process;

/// A running process.
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Starts `program` through `stoke guard` and appends its output to `log`. The calling thread must live as long as
    /// the process.
    pub(crate) fn start<A: AsRef<OsStr>>(
        stoke: &Path,
        log: &Path,
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
        env: &[(&str, String)],
    ) -> Result<Self> {
        let log = File::options().create(true).append(true).open(log).context("cannot open a log")?;
        let child = Command::new(stoke)
            .args(["guard", &std::process::id().to_string(), "--"])
            .arg(program)
            .args(arguments)
            .env_clear()
            .envs(kept_environment())
            .envs(env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self { child })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it with SIGKILL, and waits for its end.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Whether it has exited or was killed.
    pub(crate) fn is_over(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Whether it has aborted at a failpoint.
    pub(crate) fn has_aborted(&mut self) -> bool {
        use std::os::unix::process::ExitStatusExt;
        let status = self.child.try_wait().ok().flatten();
        status.is_some_and(|status| status.signal() == Some(Signal::SIGABRT as i32))
    }

    /// Stops or continues it; with `all`, all its descendants as well.
    pub(crate) fn signal(&self, signal: Signal, all: bool) {
        let below = if all { process::descendants(self.pid()) } else { Vec::new() };
        for pid in below.into_iter().map(|(pid, _)| pid).chain([self.pid()]) {
            send(pid, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Sends a signal. Returns whether the process existed.
pub(crate) fn send(pid: u32, signal: Signal) -> bool {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.cast_signed()), signal).is_ok()
}

/// The variables that a process needs. Tokens and settings of this program's user stay out of the system under test.
fn kept_environment() -> impl Iterator<Item = (String, String)> {
    ["PATH", "HOME", "TMPDIR", "XDG_CACHE_HOME", "STOKE_UV", "STOKE_CACHE_DIR", "STOKE_LOG", "STOKE_MUTANT", "LANG"]
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)))
}

/// Path of the log of this name.
pub(crate) fn log_path(dir: &Path, name: &str) -> PathBuf {
    dir.join("logs").join(format!("{name}.log"))
}
