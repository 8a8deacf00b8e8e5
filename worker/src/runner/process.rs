//! Starting and ending a runner's process.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use command_fds::{CommandFdExt as _, FdMapping};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use stokehold_queue::endpoint::Runner as RunnerKind;
use stokehold_queue::gateway::{JobMessage, Secrets};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::unix::pipe::Receiver;
use tokio::process::Child;
use tokio::sync::mpsc::UnboundedSender;

use super::streams::Streams;
use crate::metrics;
use crate::sandbox::{Reach, Sandbox};

/// The wire's descriptor in the child: the first after the standard three.
const WIRE_FD: i32 = 3;

/// Where the runner is told of it.
const WIRE: &str = "STOKE_WIRE_FD";

/// Where a handler is told of its weights.
const WEIGHTS: &str = "STOKE_WEIGHTS";

/// What it may use of each of its GPUs: MiB, and the same as a part of the GPU's memory.
const VRAM_MIB: &str = "STOKE_VRAM_MIB";
const VRAM_FRACTION: &str = "STOKE_VRAM_FRACTION";

/// Variables that a handler sees of the worker's own environment. Everything else, above all tokens, stays here.
const PASSED_ON: [&str; 14] = [
    "LANG",
    "LC_ALL",
    "TZ",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "HF_HOME",
    "HF_HUB_OFFLINE",
    "OMP_NUM_THREADS",
];

/// What to start.
#[derive(Debug, Clone)]
pub(crate) struct Launch {
    /// The environment's Python.
    pub(crate) python: PathBuf,
    /// That of an environment with nothing but the runner.
    pub(crate) ours: PathBuf,
    /// What it may reach, its working directory among it: the unpacked package.
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) reach: Reach,
    /// HOME and TMPDIR: a directory of this runner's own.
    pub(crate) home: PathBuf,
    /// Where it and its runs leave files, and how much that may be, bytes.
    pub(crate) scratch: PathBuf,
    pub(crate) scratch_bytes: u64,
    /// What it starts, and where that is in the package.
    pub(crate) runner: RunnerKind,
    pub(crate) entry: String,
    /// Variables of the endpoint's own.
    pub(crate) env: BTreeMap<String, String>,
    /// What it gets through its wire, and what it is not to print.
    pub(crate) secrets: Secrets,
    /// Where its weights are.
    pub(crate) weights: Option<PathBuf>,
    /// Who hears what is printed outside of any run, as by `setup()`.
    pub(crate) heard_by: Option<UnboundedSender<JobMessage>>,
    /// Runs at once.
    pub(crate) max_concurrency: u32,
    /// Jobs that one call of the handler takes, and how long the first of them waits for others.
    pub(crate) max_batch_size: u32,
    pub(crate) max_wait: Duration,
    /// The GPUs that it may use, as CUDA is told; none hides all of them.
    pub(crate) visible: Vec<String>,
    /// What it may use of each of them; `None` on the CPU.
    pub(crate) vram: Option<Vram>,
}

/// What a runner may use of each of its GPUs, MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Vram {
    /// What is reserved for it.
    pub(crate) held_mib: u64,
    /// All that the GPU has.
    pub(crate) total_mib: u64,
}

impl Vram {
    /// The part of the GPU that is reserved, rounded down to a thousandth, as engines take it: `0.9`.
    #[expect(clippy::cast_precision_loss, reason = "a thousandth is enough")]
    fn fraction(self) -> String {
        let thousandths = self.held_mib * 1_000 / self.total_mib.max(1);
        (thousandths as f64 / 1_000.0).to_string()
    }

    /// A text in which `{vram_mib}` and `{vram_fraction}` stand for what is reserved.
    fn fill(self, text: &str) -> String {
        text.replace("{vram_mib}", &self.held_mib.to_string()).replace("{vram_fraction}", &self.fraction())
    }
}

/// A started process: its own group, its standard streams captured.
pub(super) struct Process {
    pub(super) child: Child,
    pub(super) pid: u32,
    /// It is in namespaces of its own, and what is started is what keeps them.
    pub(super) is_boxed: bool,
}

impl Process {
    /// Starts it, with our end of its wire and of its standard streams.
    pub(super) fn spawn(launch: &Launch) -> std::io::Result<(Self, OwnedWriteHalf, Streams)> {
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut variables = environment(&launch.python, &launch.home, &launch.visible, &launch.env);
        variables.insert(WIRE.to_owned(), WIRE_FD.to_string());
        if let Some(vram) = launch.vram {
            // Only what the endpoint wrote itself: the worker's own variables have no placeholders.
            for name in launch.env.keys() {
                variables.entry(name.clone()).and_modify(|value| *value = vram.fill(value));
            }
            variables.insert(VRAM_MIB.to_owned(), vram.held_mib.to_string());
            variables.insert(VRAM_FRACTION.to_owned(), vram.fraction());
        }
        if let Some(folder) = &launch.weights {
            variables.insert(WEIGHTS.to_owned(), folder.to_string_lossy().into_owned());
        }
        let mut command = launch.sandbox.command(&launch.python, &launch.reach, variables)?;
        command
            .args(["-m", "stokehold.runner", "serve"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .fd_mappings(vec![FdMapping { parent_fd: OwnedFd::from(theirs), child_fd: WIRE_FD }])
            .map_err(std::io::Error::other)?;
        let mut child = command.spawn()?;
        metrics::runner_started();
        // The command still holds the child's end: while it lives, the wire would never say that the child is gone.
        drop(command);
        let gone = || std::io::Error::other("the process exited while it was being started");
        let pid = child.id().ok_or_else(gone)?;
        let stdout = child.stdout.take().ok_or_else(gone)?.into_owned_fd()?;
        let stderr = child.stderr.take().ok_or_else(gone)?.into_owned_fd()?;
        let (reader, writer) = UnixStream::from_std(ours)?.into_split();
        let streams = Streams::new(reader, Receiver::from_owned_fd(stdout)?, Receiver::from_owned_fd(stderr)?);
        let is_boxed = launch.sandbox.is_alone();
        Ok((Self { child, pid, is_boxed }, writer, streams))
    }
}

/// Kills everything the runner has started as well. The group's id is the runner's process id; a group that is gone is fine.
pub(crate) fn kill_group(pid: u32) {
    let _ = killpg(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
}

/// Tells everything the runner has started to end.
pub(super) fn terminate_group(pid: u32) {
    let _ = killpg(Pid::from_raw(pid.cast_signed()), Signal::SIGTERM);
}

/// How many processes the kernel has killed for memory since it started, in whatever group; 0 where it does not tell.
pub(super) fn oom_kills() -> u64 {
    let vmstat = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    vmstat.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok()).unwrap_or(0)
}

/// What a process sees of this worker's environment; over that its `own` variables; over these what it is told: where it lives, and which
/// GPUs it may use.
pub(crate) fn environment(
    python: &Path,
    home: &Path,
    gpus: &[String],
    own: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut variables: BTreeMap<String, String> =
        PASSED_ON.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?))).collect();
    let bin = python.parent().map(|bin| bin.to_string_lossy().into_owned()).unwrap_or_default();
    let home = home.to_string_lossy().into_owned();
    let set = [
        ("PATH", format!("{bin}:/usr/local/bin:/usr/bin:/bin")),
        ("HOME", home.clone()),
        ("TMPDIR", home),
        ("PYTHONUNBUFFERED", "1".to_owned()),
        ("PYTHONDONTWRITEBYTECODE", "1".to_owned()),
        // NVML counts GPUs by their place on the bus; CUDA by itself puts the fastest first.
        ("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned()),
        ("CUDA_VISIBLE_DEVICES", gpus.join(",")),
    ];
    variables.extend(own.clone());
    variables.extend(set.map(|(name, value)| (name.to_owned(), value)));
    variables
}

/// How a process ended: its exit code, or the name of the signal that ended it.
pub(super) fn ending(status: ExitStatus, is_boxed: bool) -> Result<i32, String> {
    const SIGNALS: i32 = 128;
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        // What a process in namespaces of its own died of is told so, as by a shell.
        (Some(code), _) if is_boxed && code > SIGNALS => Err(signal_name(code - SIGNALS)),
        (Some(code), _) => Ok(code),
        (None, Some(signal)) => Err(signal_name(signal)),
        (None, None) => Err("an unknown signal".to_owned()),
    }
}

fn signal_name(signal: i32) -> String {
    Signal::try_from(signal).map_or_else(|_| format!("signal {signal}"), |signal| signal.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_sees_no_secret_of_the_workers() {
        let seen = environment(Path::new("/venv/bin/python"), Path::new("/home"), &[], &BTreeMap::new());
        for name in crate::config::SECRETS {
            assert!(!PASSED_ON.contains(&name) && !seen.contains_key(name), "{name}");
        }
        assert!(PASSED_ON.iter().all(|name| !name.starts_with("STOKE") && !name.starts_with("CONTAINER")));
    }
}
