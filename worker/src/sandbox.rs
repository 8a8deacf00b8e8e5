//! Sandboxes of handlers: the level that this machine supports, and the program through which a runner is started.
//!
//! | level | restrictions |
//! |---|---|
//! | L0 | none; if the worker runs as root: a separate user, no capabilities, no new privileges, limits |
//! | L1 | L0, and a system call filter and a file allow-list (Landlock) |
//! | L2 | L1, and separate namespaces for processes, mounts, IPC and, unless the endpoint declares `network`, networking |

mod confine;
mod enclosure;
mod namespaces;
mod system;
mod ways;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::unistd::Uid;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
pub use stokehold_protocol::requirements::SandboxLevel as Level;
use tokio::process::Command;

pub use confine::confine;
use enclosure::{Bare, Confined, Enclosure, prove};
use namespaces::Bubblewrap;

use crate::programs::on_path;

/// User ids of runners, if the worker can assign them. No other user has these.
const UIDS: std::ops::Range<u32> = 50_000..59_000;

/// User ids of environment builds, which never run a handler.
const BUILDERS: std::ops::Range<u32> = 59_000..60_000;

/// User id of the test program.
const PROBED: u32 = BUILDERS.end;

/// Prefix of a runner's variables until it is sandboxed.
const KEPT: &str = "STOKE_KEPT_";

/// The access of one runner in addition to what every program needs.
#[derive(Debug, Clone)]
pub(crate) struct FsAccess {
    /// Readable folders: its environment, the base Python, its package.
    pub(crate) reads: Vec<PathBuf>,
    /// Writable folders: its home, the scratch space of its jobs, and their inputs.
    pub(crate) writes: Vec<PathBuf>,
    /// Links in `/tmp`, and their targets.
    pub(crate) links: Vec<(PathBuf, PathBuf)>,
    /// Its working directory.
    pub(crate) folder: PathBuf,
    /// Whether it can access the worker's network.
    pub(crate) network: bool,
    /// Device files of the GPUs that it may use.
    pub(crate) devices: Vec<PathBuf>,
    /// The user that it runs as; `None` for the worker's user.
    pub(crate) uid: Option<u32>,
}

/// The restrictions of a process before it becomes a runner.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Policy {
    reads: Vec<PathBuf>,
    writes: Vec<PathBuf>,
    network: bool,
    uid: Option<u32>,
    /// Groups that have access to its device files.
    groups: Vec<u32>,
    /// Whether it uses a GPU.
    has_gpu: bool,
    /// Whether it has its own namespaces.
    is_alone: bool,
    /// Whether files and system calls are restricted; otherwise only the worker's rights are dropped.
    is_restricted: bool,
}

/// The rights of a handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rights {
    /// Those of a separate user.
    OwnUser,
    /// Those of the worker's user, without capabilities.
    WithoutCapabilities,
    /// All rights of the worker.
    Workers,
}

/// The sandbox of this machine.
#[derive(Debug)]
pub(crate) struct Sandbox {
    enclosure: Box<dyn Enclosure>,
    rights: Rights,
    /// Why no higher level is available, one line per level; empty if none was requested.
    lacks: String,
    next_uid: Option<AtomicU32>,
}

impl FsAccess {
    /// Full access, for a handler that is not sandboxed.
    pub(crate) fn all(folder: PathBuf) -> Self {
        let (reads, writes, links, devices) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { reads, writes, links, folder, network: true, devices, uid: None }
    }
}

impl Sandbox {
    /// No sandbox.
    pub(crate) fn none() -> Self {
        Self::of(Box::new(Bare), Rights::Workers, "")
    }

    /// Selects the requested level, or the highest that works. `stoke` is the program that has [`confine`] as its
    /// subcommand `confine`; `folders` contain the files that runners must access.
    ///
    /// # Errors
    /// What is missing for the requested level.
    pub(crate) async fn probe(
        wanted: Option<Level>,
        bwrap: &Path,
        stoke: &Path,
        folders: &[&Path],
    ) -> Result<Self, String> {
        let (stoke, is_root) = (stoke.to_owned(), Uid::effective().is_root());
        // Resolve it here, because runners have a different PATH.
        let bwrap = on_path(bwrap).unwrap_or_else(|| bwrap.to_owned());
        // Highest level first.
        let enclosures: [Box<dyn Enclosure>; 2] = [
            Box::new(Bubblewrap { bwrap, stoke: stoke.clone() }),
            Box::new(Confined { stoke: stoke.clone(), is_restricted: true }),
        ];
        let mut missing = String::new();
        for enclosure in enclosures {
            let level = enclosure.level();
            if wanted.is_some_and(|wanted| wanted != level) {
                continue;
            }
            match prove(&*enclosure, is_root.then_some(PROBED), folders).await {
                Ok(()) => {
                    if !missing.is_empty() {
                        tracing::info!(
                            "handlers run at sandbox level {level}; no higher level is available:{}",
                            one_line(&missing)
                        );
                    }
                    let rights = if is_root { Rights::OwnUser } else { Rights::WithoutCapabilities };
                    return Ok(Self::of(enclosure, rights, &missing));
                }
                Err(why) => missing = format!("{missing}\n  {level}: {why}"),
            }
        }
        match wanted {
            Some(level @ (Level::L1 | Level::L2)) => {
                Err(format!("STOKE_SANDBOX requires {level}, which this machine does not support:{missing}"))
            }
            Some(Level::L0) | None => {
                let sandbox = Self::open(stoke, is_root, folders, missing).await;
                tracing::warn!(
                    "HANDLERS ARE NOT ISOLATED (sandbox L0): {}. Run only handlers that you trust. {}",
                    sandbox.remains(),
                    one_line(&sandbox.lacks)
                );
                Ok(sandbox)
            }
        }
    }

    /// L0, without restrictions. A worker that runs as root drops as many rights as possible before a handler starts.
    async fn open(stoke: PathBuf, is_root: bool, folders: &[&Path], mut missing: String) -> Self {
        let confined = Confined { stoke, is_restricted: false };
        let ways = [
            (Rights::OwnUser, Some(PROBED), "a separate user"),
            (Rights::WithoutCapabilities, None, "root without capabilities"),
        ];
        for (rights, uid, what) in ways.into_iter().filter(|_| is_root) {
            match prove(&confined, uid, folders).await {
                Ok(()) => return Self::of(Box::new(confined), rights, &missing),
                Err(why) => missing = format!("{missing}\n  {what}: {why}"),
            }
        }
        Self::of(Box::new(Bare), Rights::Workers, &missing)
    }

    fn of(enclosure: Box<dyn Enclosure>, rights: Rights, missing: &str) -> Self {
        let next_uid = (rights == Rights::OwnUser).then(|| AtomicU32::new(rand::random_range(UIDS)));
        Self { enclosure, rights, lacks: missing.trim().to_owned(), next_uid }
    }

    /// Description of what handlers can still do despite the sandbox.
    pub(crate) fn remains(&self) -> &'static str {
        remains(self.level(), self.rights)
    }

    /// Why no higher level is available.
    pub(crate) fn lacks(&self) -> &str {
        &self.lacks
    }

    pub(crate) fn level(&self) -> Level {
        self.enclosure.level()
    }

    /// Whether a runner has its own process, mount and network namespaces, whose processes end with it.
    pub(crate) fn is_alone(&self) -> bool {
        self.enclosure.is_alone()
    }

    /// A user for the next endpoint, if endpoints can have separate users.
    pub(crate) fn next_uid(&self) -> Option<u32> {
        let next = self.next_uid.as_ref()?;
        Some(UIDS.start + (next.fetch_add(1, Ordering::Relaxed) - UIDS.start) % (UIDS.end - UIDS.start))
    }

    /// The user that builds environments under this name, if available. It is always the same for a name, because it
    /// owns the downloads.
    pub(crate) fn builder_uid(&self, name: &str) -> Option<u32> {
        self.next_uid.as_ref()?;
        let digest = Sha256::digest(name.as_bytes());
        let number = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
        Some(BUILDERS.start + number % (BUILDERS.end - BUILDERS.start))
    }

    /// A command that becomes `program` in the sandbox, with exactly these variables.
    pub(crate) fn command(
        &self,
        program: &Path,
        access: &FsAccess,
        variables: BTreeMap<String, String>,
    ) -> std::io::Result<Command> {
        self.enclosure.command(program, access, variables)
    }
}

/// Description of what handlers can still do despite the sandbox.
fn remains(level: Level, rights: Rights) -> &'static str {
    match (level, rights) {
        (Level::L0, Rights::OwnUser) => "handlers can access everything that a separate user can, and the network",
        (Level::L0, Rights::WithoutCapabilities) => {
            "handlers run as the worker's user without its capabilities: they can read and change all of its files"
        }
        (Level::L0, Rights::Workers) => "handlers can do everything that the worker can",
        (Level::L1, _) => "handlers can still see the processes of this machine",
        (Level::L2, _) => "handlers still share this machine's kernel",
    }
}

/// Joins lines for a log message.
fn one_line(missing: &str) -> String {
    missing.replace("\n ", "")
}

/// The argument of [`confine`]: the restrictions of a process in this enclosure.
fn policy(access: &FsAccess, enclosure: &dyn Enclosure) -> std::io::Result<String> {
    let mut reads = access.reads.clone();
    reads.extend(system::named());
    let mut writes = access.writes.clone();
    writes.extend(access.devices.iter().cloned());
    let groups = groups_of(&access.devices);
    let policy = Policy {
        reads,
        writes,
        network: access.network,
        uid: access.uid,
        groups,
        has_gpu: !access.devices.is_empty(),
        is_alone: enclosure.is_alone(),
        is_restricted: enclosure.level() > Level::L0,
    };
    serde_json::to_string(&policy).map_err(Into::into)
}

/// Groups that a user needs to use these device files, e.g. `video` and `render`; most devices are accessible to all
/// users. Never root's group.
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
    fn devices_of_everybody_need_no_group() {
        assert!(groups_of(&["/dev/null".into(), "/etc/passwd".into(), "/no/such".into()]).is_empty());
    }
}
