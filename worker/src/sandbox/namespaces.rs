//! L2: the file system, processes and network that a runner finds, by bubblewrap.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::enclosure::{Enclosure, kept};
use super::system::{SYSTEM, etc, named};
use super::{Level, Reach, policy};

/// Where our own program is in there.
const STOKE: &str = "/run/stoke";

/// Memory that `/tmp` and `/dev/shm` may take each.
const TMP_BYTES: u64 = 1 << 30;

/// Namespaces, and in there what a process does to itself at L1.
#[derive(Debug)]
pub(super) struct Bubblewrap {
    pub(super) bwrap: PathBuf,
    /// Our own program, which shuts a process in and becomes another.
    pub(super) stoke: PathBuf,
}

impl Enclosure for Bubblewrap {
    fn level(&self) -> Level {
        Level::L2
    }

    fn is_alone(&self) -> bool {
        true
    }

    fn command(&self, program: &Path, reach: &Reach, variables: BTreeMap<String, String>) -> std::io::Result<Command> {
        let mut command = Command::new(&self.bwrap);
        command.args(arguments(reach, &self.stoke)?);
        command.args(["--", STOKE, "confine", &policy(reach, self)?, "--"]).arg(program);
        command.current_dir(&reach.folder).env_clear().envs(kept(variables));
        Ok(command)
    }
}

/// The arguments of `bwrap`, up to the program that it is to start.
fn arguments(reach: &Reach, stoke: &Path) -> std::io::Result<Vec<OsString>> {
    let mut arguments = Arguments::default();
    arguments.flags(&["--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]);
    if reach.uid.is_some() {
        // The worker is root, and what it starts takes a user of its own in there; it may nothing else on the way.
        arguments.flags(&["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]);
        arguments.flags(&["--cap-add", "CAP_SETPCAP"]);
    } else {
        arguments.flags(&["--unshare-user"]);
    }
    if !reach.network {
        arguments.flags(&["--unshare-net"]);
    }
    arguments.flags(&["--perms", "0755", "--dir", "/etc"]);
    for path in SYSTEM.iter().map(PathBuf::from).chain(etc()) {
        arguments.system(&path)?;
    }
    arguments.flags(&["--proc", "/proc", "--dev", "/dev"]);
    for folder in ["/tmp", "/dev/shm"] {
        arguments.flags(&["--perms", "1777", "--size", &TMP_BYTES.to_string(), "--tmpfs", folder]);
    }
    for device in &reach.devices {
        arguments.bind("--dev-bind-try", device);
    }
    let reads: Vec<PathBuf> = reach.reads.iter().cloned().chain(named()).collect();
    arguments.parents(reads.iter().chain(&reach.writes).chain([&PathBuf::from(STOKE)]));
    for path in &reads {
        arguments.bind("--ro-bind-try", path);
    }
    // Last: nothing that is read lies over what is written.
    for path in &reach.writes {
        arguments.bind("--bind", path);
    }
    arguments.pair("--ro-bind", stoke.as_os_str(), OsStr::new(STOKE));
    arguments.flags(&["--remount-ro", "/", "--chdir"]);
    arguments.0.push(reach.folder.clone().into());
    Ok(arguments.0)
}

#[derive(Default)]
struct Arguments(Vec<OsString>);

impl Arguments {
    fn flags(&mut self, flags: &[&str]) {
        self.0.extend(flags.iter().map(OsString::from));
    }

    fn pair(&mut self, flag: &str, from: &OsStr, to: &OsStr) {
        self.0.extend([flag.into(), from.to_owned(), to.to_owned()]);
    }

    fn bind(&mut self, flag: &str, path: &Path) {
        self.pair(flag, path.as_os_str(), path.as_os_str());
    }

    /// The folders that lead to these: those that bubblewrap makes on the way are for root alone.
    fn parents<'a>(&mut self, paths: impl Iterator<Item = &'a PathBuf>) {
        let parents: BTreeSet<&Path> = paths.flat_map(|path| path.ancestors().skip(1)).collect();
        let is_system =
            |path: &Path| SYSTEM.iter().chain(&["/etc", "/dev", "/proc"]).any(|root| path.starts_with(root));
        for path in parents.into_iter().filter(|path| path.parent().is_some() && !is_system(path)) {
            self.flags(&["--perms", "0755", "--dir"]);
            self.0.push(path.into());
        }
    }

    /// As the machine has it: `/lib` may be a link into `/usr`, `/etc/resolv.conf` one to somewhere else.
    fn system(&mut self, path: &Path) -> std::io::Result<()> {
        let Ok(found) = path.symlink_metadata() else { return Ok(()) };
        if !found.is_symlink() {
            self.bind("--ro-bind-try", path);
            return Ok(());
        }
        let target = std::fs::read_link(path)?;
        let Ok(real) = std::fs::canonicalize(path) else { return Ok(()) };
        if real.starts_with("/usr") {
            self.pair("--symlink", target.as_os_str(), path.as_os_str());
        } else {
            self.pair("--ro-bind-try", real.as_os_str(), path.as_os_str());
        }
        Ok(())
    }
}
