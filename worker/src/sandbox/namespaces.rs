//! L2: file system, process and network namespaces, created by bubblewrap.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::enclosure::{Enclosure, kept};
use super::system::{SYSTEM, etc, named};
use super::{FsAccess, Level, policy};

/// Path of our own program in the sandbox.
const STOKE: &str = "/run/stoke";

/// Maximum memory of `/tmp` and of `/dev/shm`.
const TMP_BYTES: u64 = 1 << 30;

/// Separate namespaces, in which the process also restricts itself as at L1.
#[derive(Debug)]
pub(super) struct Bubblewrap {
    pub(super) bwrap: PathBuf,
    /// Our own program, which restricts the process and then becomes the runner.
    pub(super) stoke: PathBuf,
}

impl Enclosure for Bubblewrap {
    fn level(&self) -> Level {
        Level::L2
    }

    fn is_alone(&self) -> bool {
        true
    }

    fn command(
        &self,
        program: &Path,
        access: &FsAccess,
        variables: BTreeMap<String, String>,
    ) -> std::io::Result<Command> {
        let mut command = Command::new(&self.bwrap);
        command.args(arguments(access, &self.stoke)?);
        command.args(["--", STOKE, "confine", &policy(access, self)?, "--"]).arg(program);
        command.current_dir(&access.folder).env_clear().envs(kept(variables));
        Ok(command)
    }
}

/// The arguments of `bwrap`, up to the program to start.
fn arguments(access: &FsAccess, stoke: &Path) -> std::io::Result<Vec<OsString>> {
    let mut arguments = Arguments::default();
    arguments.flags(&["--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]);
    if access.uid.is_some() {
        // The worker runs as root, and the process switches to a separate user inside; it keeps only the capabilities
        // for that.
        arguments.flags(&["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]);
        arguments.flags(&["--cap-add", "CAP_SETPCAP"]);
    } else {
        arguments.flags(&["--unshare-user"]);
    }
    if !access.network {
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
    for (link, target) in &access.links {
        arguments.pair("--symlink", target.as_os_str(), link.as_os_str());
    }
    for device in &access.devices {
        arguments.bind("--dev-bind-try", device);
    }
    let reads: Vec<PathBuf> =
        access.reads.iter().cloned().chain(named()).filter_map(|path| beyond(&SYSTEM, path)).collect();
    arguments.parents(reads.iter().chain(&access.writes).chain([&PathBuf::from(STOKE)]));
    for path in &reads {
        arguments.bind("--ro-bind-try", path);
    }
    // Writable folders last, so that no read-only mount covers them.
    for path in &access.writes {
        arguments.bind("--bind", path);
    }
    arguments.pair("--ro-bind", stoke.as_os_str(), OsStr::new(STOKE));
    arguments.flags(&["--remount-ro", "/", "--chdir"]);
    arguments.0.push(access.folder.clone().into());
    Ok(arguments.0)
}

/// The path to map for a readable path. None below one of `roots`, which are mapped as a whole, except the target of a
/// link that leads out of them. bubblewrap cannot map onto a link: `/usr/local/cuda` is one in NVIDIA's images.
fn beyond(roots: &[&str], path: PathBuf) -> Option<PathBuf> {
    let is_below = |path: &Path| roots.iter().any(|root| path.starts_with(root));
    if !is_below(&path) {
        return Some(path);
    }
    path.canonicalize().ok().filter(|target| !is_below(target))
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

    /// Creates the parent folders of these paths: those that bubblewrap creates by itself are accessible to root only.
    fn parents<'a>(&mut self, paths: impl Iterator<Item = &'a PathBuf>) {
        let parents: BTreeSet<&Path> = paths.flat_map(|path| path.ancestors().skip(1)).collect();
        let is_system =
            |path: &Path| SYSTEM.iter().chain(&["/etc", "/dev", "/proc"]).any(|root| path.starts_with(root));
        for path in parents.into_iter().filter(|path| path.parent().is_some() && !is_system(path)) {
            self.flags(&["--perms", "0755", "--dir"]);
            self.0.push(path.into());
        }
    }

    /// Maps a system path as on the machine: `/lib` may be a link into `/usr`, `/etc/resolv.conf` a link elsewhere.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_within_the_system_are_not_mapped_and_those_that_lead_out_are_by_their_target() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let (system, outside) = (folder.join("usr"), folder.join("data/cuda"));
        for made in [&system.join("cuda-13.0"), &outside] {
            std::fs::create_dir_all(made).unwrap();
        }
        symlink("cuda-13.0", system.join("cuda")).unwrap();
        symlink(&outside, system.join("cuda-12")).unwrap();
        let roots = [system.to_str().unwrap()];
        assert_eq!(beyond(&roots, system.join("cuda")), None);
        assert_eq!(beyond(&roots, system.join("cuda-13.0/lib64")), None);
        assert_eq!(beyond(&roots, system.join("missing")), None);
        assert_eq!(beyond(&roots, system.join("cuda-12")), Some(outside.clone()));
        assert_eq!(beyond(&roots, outside.clone()), Some(outside));
    }
}
