//! What a handler may reach: the level that this machine can give, and the program that a runner is started through.
//!
//! | level | what it is |
//! |---|---|
//! | L0 | nothing is restricted. Where the worker is root: a user of its own, no capabilities, no new privileges, limits |
//! | L1 | L0, and system calls that no model needs are refused, files by allow-list (Landlock) |
//! | L2 | L1, and namespaces of its own: processes, mounts, IPC, and a network with nothing but loopback unless the endpoint declares more |

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
pub use stokehold_queue::demands::SandboxLevel as Level;
use tokio::process::Command;

pub use confine::confine;
use enclosure::{Bare, Confined, Enclosure, prove};
use namespaces::Bubblewrap;

use crate::programs::on_path;

/// Runners get users of their own from here on, where the worker may give them; nobody has these.
const UIDS: std::ops::Range<u32> = 50_000..59_000;

/// And what builds environments has these: none of them ever runs a handler.
const BUILDERS: std::ops::Range<u32> = 59_000..60_000;

/// And the program that proves that it can be done.
const PROBED: u32 = BUILDERS.end;

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
    /// Of the GPUs that it may use, the device files.
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
    /// Whether it is alone in its namespaces.
    is_alone: bool,
    /// Whether files and system calls are restricted; else only the worker's rights are given up.
    is_restricted: bool,
}

/// Whose rights a handler has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rights {
    /// Those of a user of its own.
    OwnUser,
    /// Those of the worker's user, without any capability.
    WithoutCapabilities,
    /// All of the worker's.
    Workers,
}

/// What this machine can do.
#[derive(Debug)]
pub(crate) struct Sandbox {
    enclosure: Box<dyn Enclosure>,
    rights: Rights,
    /// Why it is not a higher level, a line for each; empty where that was not asked for.
    lacks: String,
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
        Self::of(Box::new(Bare), Rights::Workers, "")
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
        let (stoke, is_root) = (stoke.to_owned(), Uid::effective().is_root());
        // Runners have a PATH of their own.
        let bwrap = on_path(bwrap).unwrap_or_else(|| bwrap.to_owned());
        // The best one first.
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
                            said(&missing)
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
                    said(&sandbox.lacks)
                );
                Ok(sandbox)
            }
        }
    }

    /// L0: nothing is restricted. A worker that is root gives up as many of its rights as it can before a handler starts.
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

    /// What handlers can do all the same.
    pub(crate) fn remains(&self) -> &'static str {
        remains(self.level(), self.rights)
    }

    /// Why handlers are not shut in further.
    pub(crate) fn lacks(&self) -> &str {
        &self.lacks
    }

    pub(crate) fn level(&self) -> Level {
        self.enclosure.level()
    }

    /// Whether a runner has processes, mounts and a loopback of its own, all of which end with it.
    pub(crate) fn is_alone(&self) -> bool {
        self.enclosure.is_alone()
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

    /// A command that becomes `program`, shut in, with exactly these variables.
    pub(crate) fn command(
        &self,
        program: &Path,
        reach: &Reach,
        variables: BTreeMap<String, String>,
    ) -> std::io::Result<Command> {
        self.enclosure.command(program, reach, variables)
    }
}

/// What handlers can do all the same.
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

/// A line of the log is one line.
fn said(missing: &str) -> String {
    missing.replace("\n ", "")
}

/// What is done to a process in this enclosure before it becomes a runner: the argument of [`confine`].
fn policy(reach: &Reach, enclosure: &dyn Enclosure) -> std::io::Result<String> {
    let mut reads = reach.reads.clone();
    reads.extend(system::named());
    let mut writes = reach.writes.clone();
    writes.extend(reach.devices.iter().cloned());
    let groups = groups_of(&reach.devices);
    let policy = Policy {
        reads,
        writes,
        network: reach.network,
        uid: reach.uid,
        groups,
        is_alone: enclosure.is_alone(),
        is_restricted: enclosure.level() > Level::L0,
    };
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
    fn devices_of_everybody_need_no_group() {
        assert!(groups_of(&["/dev/null".into(), "/etc/passwd".into(), "/no/such".into()]).is_empty());
    }
}
