//! L0 and L1 as root: a runner's user must be able to reach its files, although parent folders such as `/root` may be
//! accessible to root only. In a separate mount namespace, the runner finds these folders accessible, with only its own
//! files in them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use nix::fcntl::{OFlag, open};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode, umask};

const OWNER_ENTERS: u32 = 0o100;
const OTHERS_ENTER: u32 = 0o001;

/// Makes these files and folders accessible to this user. Must run as root, before switching to the user.
pub(super) fn open_to(uid: u32, wanted: &[PathBuf]) -> Result<()> {
    let mut wanted = named_twice(wanted);
    let closed = closed_to(uid, &wanted);
    let Some(first) = closed.first() else { return Ok(()) };
    wanted.retain(|path| closed.iter().any(|closed| path.starts_with(closed)));
    let why = || {
        format!(
            "users other than root cannot enter {}: run `chmod o+x` on it, move the worker's data elsewhere, or give the worker CAP_SYS_ADMIN",
            first.display()
        )
    };
    unshare(CloneFlags::CLONE_NEWNS).with_context(why)?;
    // Later mounts of the machine propagate into the namespace, but not the other way round.
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_SLAVE | MsFlags::MS_REC, None::<&str>).with_context(why)?;
    // Open the paths before they are covered. Descriptors opened outside the namespace could not be mounted inside it.
    let file = wanted.iter().map(|path| Ok((path.as_path(), opened(path)?))).collect::<Result<Vec<_>>>()?;
    let here = std::env::current_dir().context("the working directory does not exist")?;
    let mask = umask(Mode::from_bits_truncate(0o022));
    for folder in &closed {
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(Some("tmpfs"), folder.as_path(), Some("tmpfs"), flags, Some("mode=0755,size=1m")).with_context(why)?;
    }
    for (path, file) in &file {
        uncover(path, file).with_context(|| format!("cannot make {} reachable", path.display()))?;
    }
    for folder in &closed {
        let flags = MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(None::<&str>, folder.as_path(), None::<&str>, flags, None::<&str>).with_context(why)?;
    }
    umask(mask);
    // The working directory still refers to the covered folder.
    std::env::set_current_dir(&here).with_context(|| format!("cannot enter {}", here.display()))
}

/// The paths as given and with links resolved. Sorted, so that parents come first.
fn named_twice(wanted: &[PathBuf]) -> Vec<PathBuf> {
    let real = wanted.iter().filter_map(|path| fs::canonicalize(path).ok());
    let both: BTreeSet<PathBuf> = wanted.iter().filter(|path| path.exists()).cloned().chain(real).collect();
    both.into_iter().collect()
}

/// The outermost parent folders that this user cannot enter.
fn closed_to(uid: u32, wanted: &[PathBuf]) -> Vec<PathBuf> {
    let is_closed = |folder: &&Path| {
        let Ok(folder) = fs::metadata(folder) else { return false };
        let enters = if folder.uid() == uid { OWNER_ENTERS } else { OTHERS_ENTER };
        folder.mode() & enters == 0
    };
    let ways = wanted.iter().flat_map(|path| path.ancestors().skip(1)).filter(is_closed);
    // The name may be a link; its target is what must be covered.
    let all: BTreeSet<PathBuf> = ways.filter_map(|folder| fs::canonicalize(folder).ok()).collect();
    let mut closed: Vec<PathBuf> = Vec::new();
    for folder in all {
        if !closed.iter().any(|other| folder.starts_with(other)) {
            closed.push(folder);
        }
    }
    closed
}

fn opened(path: &Path) -> Result<OwnedFd> {
    let file = open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty());
    file.with_context(|| format!("cannot open {}", path.display()))
}

fn uncover(path: &Path, file: &OwnedFd) -> Result<()> {
    let source = format!("/proc/self/fd/{}", file.as_raw_fd());
    if !path.exists() {
        if fs::metadata(&source)?.is_dir() {
            fs::create_dir_all(path)?;
        } else {
            fs::create_dir_all(path.parent().context("it has no parent folder")?)?;
            File::create(path)?;
        }
    }
    mount(Some(source.as_str()), path, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_outermost_folders_that_a_user_cannot_enter_are_found() {
        let top = tempfile::tempdir().unwrap();
        let made = |path: &str, mode| {
            let folder = top.path().join(path);
            fs::create_dir_all(&folder).unwrap();
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
            folder
        };
        made("", 0o755);
        let (open, closed) = (made("open", 0o711), made("closed", 0o700));
        let (below, deeper) = (made("open/below", 0o755), made("closed/deeper", 0o755));
        made("closed/deeper/closed", 0o700);
        let inner = made("closed/deeper/closed/inner", 0o755);
        let link = top.path().join("open/link");
        std::os::unix::fs::symlink(&deeper, &link).unwrap();
        let nobody = 65_000;
        let closed_to = |uid, paths: &[&PathBuf]| {
            closed_to(uid, &named_twice(&paths.iter().map(|path| (*path).clone()).collect::<Vec<_>>()))
        };
        assert_eq!(closed_to(nobody, &[&below, &open, &closed]), Vec::<PathBuf>::new(), "what is wanted is its own");
        assert_eq!(closed_to(nobody, &[&inner, &deeper, &below]), [fs::canonicalize(&closed).unwrap()]);
        assert_eq!(closed_to(nobody, &[&link.join("closed")]), [fs::canonicalize(&closed).unwrap()]);
        assert_eq!(closed_to(top.path().metadata().unwrap().uid(), &[&inner]), Vec::<PathBuf>::new());
    }
}
