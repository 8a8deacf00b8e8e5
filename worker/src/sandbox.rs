//! What a handler may reach: the level that this machine can give, and the program that a runner is started through.
//!
//! | level | what it is |
//! |---|---|
//! | L0 | nothing: a handler can do what the worker can; as root, where `auto` can do no better, a user of its own |
//! | L1 | no new privileges, system calls that no model needs are refused, files by allow-list (Landlock), limits; as root a user of its own |
//! | L2 | L1, and namespaces of its own: processes, mounts, IPC, and a network with nothing but loopback unless the endpoint declares more |

mod confine;
mod namespaces;
mod system;
mod ways;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::unistd::{Gid, Uid};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
pub use stokehold_queue::demands::SandboxLevel as Level;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::timeout;

pub use confine::confine;

use crate::uv::on_path;

/// A probe starts one small program.
const PROBE_LIMIT: Duration = Duration::from_secs(10);

/// Runners get users of their own from here on, where the worker may give them; nobody has these.
const UIDS: std::ops::Range<u32> = 50_000..59_000;

/// And what builds environments has these: none of them ever runs a handler.
const BUILDERS: std::ops::Range<u32> = 59_000..60_000;

/// Before the names of a runner's variables, until it is shut in.
const KEPT: &str = "STOKE_KEPT_";

/// What one runner may reach besides what every program needs.
#[derive(Debug, Clone)]
pub(crate) struct Reach {
    /// Folders it reads: its environment, the Python that this points at, its package.
    pub(crate) reads: Vec<PathBuf>,
    /// Folders it writes: its home, the scratch space of its jobs, and their inputs.
    pub(crate) writes: Vec<PathBuf>,
    /// Its working directory.
    pub(crate) folder: PathBuf,
    /// Whether it reaches the network that the worker does.
    pub(crate) network: bool,
    /// Of the cards that it may use, the device files.
    pub(crate) devices: Vec<PathBuf>,
    /// The user that it runs as; the worker's own when absent.
    pub(crate) uid: Option<u32>,
}

/// What is done to a process before it becomes a runner.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Policy {
    reads: Vec<PathBuf>,
    writes: Vec<PathBuf>,
    network: bool,
    uid: Option<u32>,
    /// Of the device files that it writes, the groups that may.
    groups: Vec<u32>,
    level: Level,
}

impl Policy {
    /// Whether it is alone in its namespaces.
    fn is_alone(&self) -> bool {
        self.level == Level::L2
    }
}

/// What this machine can do.
#[derive(Debug)]
pub(crate) struct Sandbox {
    level: Level,
    /// Why it is not a higher one, a line for each; empty where that was not asked for.
    lacks: String,
    /// `bwrap`, at L2.
    bwrap: PathBuf,
    /// Our own program, which shuts a process in and becomes another.
    stoke: PathBuf,
    next_uid: Option<AtomicU32>,
}

impl Reach {
    /// Of a handler that is not shut in.
    pub(crate) fn all(folder: PathBuf) -> Self {
        let (reads, writes, devices) = (Vec::new(), Vec::new(), Vec::new());
        Self { reads, writes, folder, network: true, devices, uid: None }
    }
}

impl Sandbox {
    /// Shuts nothing in.
    pub(crate) fn none() -> Self {
        Self { level: Level::L0, lacks: String::new(), bwrap: PathBuf::new(), stoke: PathBuf::new(), next_uid: None }
    }

    /// The level asked for, or the best that works here. `stoke` is the program that has [`confine`] as its subcommand `confine`; in `folders` lies
    /// what runners are to reach.
    ///
    /// # Errors
    /// What is missing for the level that was asked for.
    pub(crate) async fn probe(
        wanted: Option<Level>,
        bwrap: &Path,
        stoke: &Path,
        folders: &[&Path],
    ) -> Result<Self, String> {
        let is_root = Uid::effective().is_root();
        // Runners have a PATH of their own.
        let bwrap = on_path(bwrap).unwrap_or_else(|| bwrap.to_owned());
        let at = |level, lacks: &str| Self {
            level,
            lacks: lacks.trim().to_owned(),
            bwrap: bwrap.clone(),
            stoke: stoke.to_owned(),
            next_uid: is_root.then(|| AtomicU32::new(rand::random_range(UIDS))),
        };
        let mut missing = String::new();
        // A line of the log is one line.
        let said = |missing: &str| missing.replace("\n ", "");
        for level in [Level::L2, Level::L1] {
            if wanted.is_some_and(|wanted| wanted != level) {
                continue;
            }
            let sandbox = at(level, &missing);
            match sandbox.works(folders).await {
                Ok(()) => {
                    if !missing.is_empty() {
                        tracing::info!("handlers are shut in at {level}, and could not be further:{}", said(&missing));
                    }
                    return Ok(sandbox);
                }
                Err(why) => missing = format!("{missing}\n  {level}: {why}"),
            }
        }
        match wanted {
            Some(level @ (Level::L1 | Level::L2)) => {
                Err(format!("STOKE_SANDBOX asks for {level}, and this machine cannot give it:{missing}"))
            }
            Some(Level::L0) | None => {
                let mut sandbox = at(Level::L0, &missing);
                // Whoever asks for L0 has the worker's own user.
                if sandbox.next_uid.is_some() && (wanted.is_some() || sandbox.works(folders).await.is_err()) {
                    sandbox.next_uid = None;
                }
                let can = if sandbox.next_uid.is_some() { "much of what" } else { "all that" };
                tracing::warn!(
                    "HANDLERS ARE NOT ISOLATED (sandbox L0): they can do {can} this worker can. Run only handlers that you trust.{}",
                    said(&missing)
                );
                Ok(sandbox)
            }
        }
    }

    /// Why handlers are not shut in further.
    pub(crate) fn lacks(&self) -> &str {
        &self.lacks
    }

    pub(crate) fn level(&self) -> Level {
        self.level
    }

    /// A user for the next endpoint, where each can have its own.
    pub(crate) fn next_uid(&self) -> Option<u32> {
        let next = self.next_uid.as_ref()?;
        Some(UIDS.start + (next.fetch_add(1, Ordering::Relaxed) - UIDS.start) % (UIDS.end - UIDS.start))
    }

    /// The user that builds environments under this name, where there can be one. It is always the same: it owns what was downloaded.
    pub(crate) fn builder_uid(&self, name: &str) -> Option<u32> {
        self.next_uid.as_ref()?;
        let digest = Sha256::digest(name.as_bytes());
        let number = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
        Some(BUILDERS.start + number % (BUILDERS.end - BUILDERS.start))
    }

    /// A command that becomes `program`, shut in, with exactly these variables. They are part of what is not trusted, and some - `LD_PRELOAD` -
    /// are orders to whatever program has them: those that shut it in have them under names that mean nothing.
    pub(crate) fn command(
        &self,
        program: &Path,
        reach: &Reach,
        variables: BTreeMap<String, String>,
    ) -> std::io::Result<Command> {
        let mut command = match self.level {
            Level::L0 if reach.uid.is_none() => Command::new(program),
            level @ (Level::L0 | Level::L1) => {
                let mut command = Command::new(&self.stoke);
                command.args(["confine", &policy(reach, level)?, "--"]).arg(program);
                command
            }
            Level::L2 => {
                let mut command = Command::new(&self.bwrap);
                command.args(namespaces::arguments(reach, &self.stoke)?);
                command.args(["--", namespaces::STOKE, "confine", &policy(reach, Level::L2)?, "--"]).arg(program);
                command
            }
        };
        let prefix = if self.level == Level::L0 && reach.uid.is_none() { "" } else { KEPT };
        let variables = variables.into_iter().map(|(name, value)| (format!("{prefix}{name}"), value));
        command.current_dir(&reach.folder).env_clear().envs(variables);
        Ok(command)
    }

    /// Starts something as a runner would be started, which reaches a folder below each of these.
    async fn works(&self, folders: &[&Path]) -> Result<(), String> {
        let uid = self.next_uid.as_ref().map(|_| BUILDERS.end);
        let made = |folder: &Path| {
            let made = tempfile::tempdir_in(folder)?;
            nix::unistd::chown(made.path(), uid.map(Uid::from_raw), uid.map(Gid::from_raw))?;
            Ok(made)
        };
        let temp = std::env::temp_dir();
        let folders = folders.iter().copied().filter(|folder| folder.exists()).chain([temp.as_path()]);
        let folders: std::io::Result<Vec<TempDir>> = folders.map(made).collect();
        let folders = folders.map_err(|error| error.to_string())?;
        let writes: Vec<_> = folders.iter().map(|folder| folder.path().to_owned()).collect();
        let reach = Reach {
            reads: Vec::new(),
            folder: writes[0].clone(),
            writes: writes.clone(),
            network: false,
            devices: Vec::new(),
            uid,
        };
        let command = self.command(Path::new("/bin/sh"), &reach, BTreeMap::new());
        let mut command = command.map_err(|error| error.to_string())?;
        command
            .args(["-c", "for folder; do : >\"$folder/file\" || exit 1; done", "sh"])
            .args(writes)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let child = command.kill_on_drop(true).spawn();
        let child = child.map_err(|error| format!("{}: {error}", command.as_std().get_program().to_string_lossy()))?;
        match timeout(PROBE_LIMIT, child.wait_with_output()).await {
            Ok(Ok(output)) if output.status.success() => Ok(()),
            Ok(Ok(output)) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("it takes too long".to_owned()),
        }
    }
}

fn policy(reach: &Reach, level: Level) -> std::io::Result<String> {
    let mut reads = reach.reads.clone();
    reads.extend(system::named());
    let mut writes = reach.writes.clone();
    writes.extend(reach.devices.iter().cloned());
    let groups = groups_of(&reach.devices);
    let policy = Policy { reads, writes, network: reach.network, uid: reach.uid, groups, level };
    serde_json::to_string(&policy).map_err(Into::into)
}

/// Those that a user has to be in to use these device files, such as `video` and `render`: most belong to everybody. Never root's.
fn groups_of(devices: &[PathBuf]) -> Vec<u32> {
    const GROUP: u32 = 0o060;
    const OTHERS: u32 = 0o006;
    let found = devices.iter().filter_map(|path| path.metadata().ok()).filter(|device| {
        device.file_type().is_char_device() && device.mode() & OTHERS != OTHERS && device.mode() & GROUP == GROUP
    });
    let groups: BTreeSet<u32> = found.map(|device| device.gid()).filter(|group| *group != 0).collect();
    groups.into_iter().collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn what_shuts_a_runner_in_takes_no_orders_from_its_variables() {
        let variables = || BTreeMap::from([("LD_PRELOAD".to_owned(), "/package/evil.so".to_owned())]);
        for level in [Level::L1, Level::L2] {
            let sandbox = Sandbox {
                level,
                lacks: String::new(),
                stoke: "/bin/stoke".into(),
                bwrap: "/bin/bwrap".into(),
                next_uid: None,
            };
            let command = sandbox.command(Path::new("/bin/sh"), &Reach::all("/".into()), variables()).unwrap();
            let names: Vec<_> = command.as_std().get_envs().map(|(name, _)| name.to_owned()).collect();
            assert_eq!(names, ["STOKE_KEPT_LD_PRELOAD"], "{level}");
        }
        let plain = Sandbox::none().command(Path::new("/bin/sh"), &Reach::all("/".into()), variables()).unwrap();
        assert_eq!(plain.as_std().get_envs().next().unwrap().0, "LD_PRELOAD");
    }

    #[test]
    fn devices_of_everybody_need_no_group() {
        assert!(groups_of(&["/dev/null".into(), "/etc/passwd".into(), "/no/such".into()]).is_empty());
    }
}
