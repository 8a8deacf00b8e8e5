//! A process of the system under test. It dies with this program, however that ends.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result, anyhow};
use nix::sys::signal::Signal;
use stokehold_tests::process;

/// Length of the end of a log in an error.
const LOG_TAIL_BYTES: usize = 4_000;

/// A running process.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
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
        let file = File::options().create(true).append(true).open(log).context("cannot open a log")?;
        let child = Command::new(stoke)
            .args(["guard", &std::process::id().to_string(), "--"])
            .arg(program)
            .args(arguments)
            .env_clear()
            .envs(kept_environment())
            .envs(env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self { child, log: log.to_owned() })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it with SIGKILL, and waits for its end.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// How it ended; `None` while it runs.
    pub(crate) fn end(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Whether it has aborted at a failpoint.
    ///
    /// # Errors
    /// If it has ended in another way.
    pub(crate) fn has_aborted(&mut self) -> Result<bool> {
        match self.end() {
            None => Ok(false),
            Some(status) if status.signal() == Some(Signal::SIGABRT as i32) => Ok(true),
            Some(status) => Err(self.unexpected(status)),
        }
    }

    /// Checks that it runs.
    ///
    /// # Errors
    /// If it has ended.
    pub(crate) fn ensure_running(&mut self) -> Result<()> {
        self.end().map_or(Ok(()), |status| Err(self.unexpected(status)))
    }

    /// The error for an end that nothing in the run explains. It includes the end of the log, because the directory of
    /// the run may be lost with its machine.
    fn unexpected(&self, status: ExitStatus) -> anyhow::Error {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let tail = String::from_utf8_lossy(&log[log.len().saturating_sub(LOG_TAIL_BYTES)..]).into_owned();
        anyhow!("the process ended by itself ({status}). The end of {}:\n{tail}", self.log.display())
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A process of this shell script that has ended, and whose log has one line.
    fn ended(script: &str) -> (Process, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("api-0.log");
        std::fs::write(&log, "cannot listen on 127.0.0.1:7070\n").unwrap();
        let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        child.wait().unwrap();
        (Process { child, log }, dir)
    }

    #[test]
    fn only_an_abort_is_the_end_at_a_failpoint() {
        let (mut aborted, _dir) = ended("kill -ABRT $$");
        assert!(aborted.has_aborted().unwrap());
        for (script, status) in [("exit 3", "exit status: 3"), ("kill -KILL $$", "signal: 9")] {
            let (mut process, _dir) = ended(script);
            let error = process.has_aborted().unwrap_err().to_string();
            assert!(error.contains(status) && error.contains("cannot listen on"), "{error}");
            assert!(process.ensure_running().is_err());
        }
    }

    #[test]
    fn a_running_process_has_not_ended() {
        let dir = tempfile::tempdir().unwrap();
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let mut process = Process { child, log: dir.path().join("api-0.log") };
        assert!(!process.has_aborted().unwrap());
        process.ensure_running().unwrap();
    }
}
