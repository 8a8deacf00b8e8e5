//! Starts and kills runner processes.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use command_fds::{CommandFdExt as _, FdMapping};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use stokehold_protocol::endpoint::EndpointSpec;
use stokehold_protocol::gateway::{JobMessage, Secrets};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::unix::pipe::Receiver;
use tokio::process::Child;
use tokio::sync::mpsc::UnboundedSender;

use super::streams::Streams;
use crate::metrics;
use crate::sandbox::{FsAccess, Sandbox};
use crate::turns::Turns;

/// File descriptor of the socket in the child: the first after the standard streams.
const WIRE_FD: i32 = 3;

/// The variable with this descriptor.
const WIRE: &str = "STOKE_WIRE_FD";

/// The variable with the folder of the weights.
const WEIGHTS: &str = "STOKE_WEIGHTS";

/// The variables with the memory that a handler may use on each of its GPUs: in MiB, and as a fraction of the GPU's
/// memory.
const VRAM_MIB: &str = "STOKE_VRAM_MIB";
const VRAM_FRACTION: &str = "STOKE_VRAM_FRACTION";

/// Variables of the worker's environment that are passed to handlers. No others are, above all no tokens.
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

/// The parameters of a runner process.
#[derive(Debug, Clone)]
pub(crate) struct Launch {
    /// Python of the environment.
    pub(crate) python: PathBuf,
    /// Python of an environment that has only the runner.
    pub(crate) ours: PathBuf,
    /// The sandbox and the access that it allows, including the working directory: the unpacked package.
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) access: FsAccess,
    /// HOME: a directory for this runner only.
    pub(crate) home: PathBuf,
    /// TMPDIR: the same directory, by a shorter path.
    pub(crate) temp: PathBuf,
    /// Scratch space of the process and its runs, and its limit in bytes.
    pub(crate) scratch: PathBuf,
    pub(crate) scratch_bytes: u64,
    /// Options of the endpoint.
    pub(crate) spec: EndpointSpec,
    /// Secrets, which are sent over the socket and masked in its output.
    pub(crate) secrets: Secrets,
    /// Folder of its weights.
    pub(crate) weights: Option<PathBuf>,
    /// Receiver of output outside any run, e.g. in `setup()`.
    pub(crate) output_to: Option<UnboundedSender<JobMessage>>,
    /// Value of `CUDA_VISIBLE_DEVICES`; empty hides all GPUs.
    pub(crate) visible: Vec<String>,
    /// Memory that it may use on each of them; `None` on the CPU.
    pub(crate) vram: Option<Vram>,
    /// Turns of its runs, which it can limit.
    pub(crate) turns: Option<Arc<Turns>>,
}

/// Memory that a runner may use on each of its GPUs, in MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Vram {
    /// The reserved memory.
    pub(crate) held_mib: u64,
    /// The GPU's total memory.
    pub(crate) total_mib: u64,
}

impl Vram {
    /// The reserved fraction of the GPU, rounded down to a thousandth, in the format that engines accept: `0.9`.
    #[expect(clippy::cast_precision_loss, reason = "a thousandth is enough")]
    fn fraction(self) -> String {
        let thousandths = self.held_mib * 1_000 / self.total_mib.max(1);
        (thousandths as f64 / 1_000.0).to_string()
    }

    /// Replaces `{vram_mib}` and `{vram_fraction}` in a text by the reserved memory.
    fn fill(self, text: &str) -> String {
        text.replace("{vram_mib}", &self.held_mib.to_string()).replace("{vram_fraction}", &self.fraction())
    }
}

/// A started process in its own process group, with captured standard streams.
pub(super) struct Process {
    pub(super) child: Child,
    pub(super) pid: u32,
    /// Whether it has its own namespaces; then `child` is the program that keeps them.
    pub(super) is_boxed: bool,
}

impl Process {
    /// Starts a process. Returns it with our ends of its socket and standard streams.
    pub(super) fn spawn(launch: &Launch) -> std::io::Result<(Self, OwnedWriteHalf, Streams)> {
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut variables =
            environment(&launch.python, (&launch.home, &launch.temp), &launch.visible, &launch.spec.env);
        variables.insert(WIRE.to_owned(), WIRE_FD.to_string());
        if let Some(vram) = launch.vram {
            // Only the endpoint's variables may contain placeholders, not the worker's.
            for name in launch.spec.env.keys() {
                variables.entry(name.clone()).and_modify(|value| *value = vram.fill(value));
            }
            variables.insert(VRAM_MIB.to_owned(), vram.held_mib.to_string());
            variables.insert(VRAM_FRACTION.to_owned(), vram.fraction());
        }
        if let Some(folder) = &launch.weights {
            variables.insert(WEIGHTS.to_owned(), folder.to_string_lossy().into_owned());
        }
        let mut command = launch.sandbox.command(&launch.python, &launch.access, variables)?;
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
        // The command still holds the child's end of the socket; while it exists, the socket would not be closed when
        // the child exits.
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

/// Kills the runner and everything that it has started. The group id is the runner's process id; a group that has
/// exited is ignored.
pub(crate) fn kill_group(pid: u32) {
    let _ = killpg(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
}

/// Sends SIGTERM to the runner and everything that it has started.
pub(super) fn terminate_group(pid: u32) {
    let _ = killpg(Pid::from_raw(pid.cast_signed()), Signal::SIGTERM);
}

/// The kernel's count of out-of-memory kills since boot, in any group; 0 if unknown.
pub(super) fn oom_kills() -> u64 {
    let vmstat = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    vmstat.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok()).unwrap_or(0)
}

/// The environment of a process: variables of this worker, overridden by its `own` variables, overridden by its folders
/// (HOME and TMPDIR) and GPUs.
pub(crate) fn environment(
    python: &Path,
    (home, temp): (&Path, &Path),
    gpus: &[String],
    own: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut variables: BTreeMap<String, String> =
        PASSED_ON.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?))).collect();
    let bin = python.parent().map(|bin| bin.to_string_lossy().into_owned()).unwrap_or_default();
    let set = [
        ("PATH", format!("{bin}:/usr/local/bin:/usr/bin:/bin")),
        ("HOME", home.to_string_lossy().into_owned()),
        ("TMPDIR", temp.to_string_lossy().into_owned()),
        ("PYTHONUNBUFFERED", "1".to_owned()),
        ("PYTHONDONTWRITEBYTECODE", "1".to_owned()),
        // NVML orders GPUs by bus id; CUDA's default puts the fastest first.
        ("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned()),
        ("CUDA_VISIBLE_DEVICES", gpus.join(",")),
    ];
    variables.extend(own.clone());
    variables.extend(set.map(|(name, value)| (name.to_owned(), value)));
    variables
}

/// The exit code of a process, or the name of the signal that killed it.
pub(super) fn ending(status: ExitStatus, is_boxed: bool) -> Result<i32, String> {
    const SIGNALS: i32 = 128;
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        // The program that keeps the namespaces reports signals as a shell does.
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
        let folders = (Path::new("/home"), Path::new("/tmp"));
        let seen = environment(Path::new("/venv/bin/python"), folders, &[], &BTreeMap::new());
        for name in crate::config::SECRETS {
            assert!(!PASSED_ON.contains(&name) && !seen.contains_key(name), "{name}");
        }
        assert!(PASSED_ON.iter().all(|name| !name.starts_with("STOKE") && !name.starts_with("CONTAINER")));
    }
}
