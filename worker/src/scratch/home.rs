//! The home of a runner, and a short path to it.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use nix::unistd::Uid;

use super::unguessed;

/// Folder of the links to homes, which are the values of TMPDIR. The path of a Unix socket has at most 107 bytes, and
/// programs create sockets in TMPDIR: Python's `multiprocessing` appends 32 bytes to it, vLLM 37.
const LINKS: &str = "/tmp";

const LINK_PREFIX: &str = "stoke-";

/// A runner's home. Deleted on drop.
pub(crate) struct Home {
    path: PathBuf,
    link: Option<PathBuf>,
}

impl Home {
    /// The folder at `path` becomes the home of a runner of this user, `None` being the worker's.
    pub(super) fn new(path: PathBuf, uid: Option<u32>) -> Self {
        let link = link_to(&path, uid);
        Self { path, link }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A short path to the home: a link in [`LINKS`], or `None` if there is none that the runner's user can follow.
    pub(crate) fn link(&self) -> Option<&Path> {
        self.link.as_deref()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Some(link) = &self.link {
            let _ = fs::remove_file(link);
        }
        // This follows no links.
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn link_to(home: &Path, uid: Option<u32>) -> Option<PathBuf> {
    let (owner, own) = (fs::metadata(LINKS).ok()?.uid(), Uid::effective().as_raw());
    // In a folder that all users write to, the kernel lets a process follow its own links and those of the folder's
    // owner (`fs.protected_symlinks`).
    if uid.is_some_and(|uid| uid != own) && owner != own {
        return None;
    }
    let link = Path::new(LINKS).join(format!("{LINK_PREFIX}{}", unguessed()));
    match symlink(home, &link) {
        Ok(()) => Some(link),
        Err(error) => {
            tracing::warn!(%error, "cannot create a link in {LINKS}; programs that create Unix sockets in TMPDIR may fail");
            None
        }
    }
}

/// Removes the links that crashed workers left, whose scratch space was below `all`.
pub(super) fn remove_dead_links(all: &Path) {
    let entries = fs::read_dir(LINKS).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(LINK_PREFIX)) {
        let path = entry.path();
        if fs::read_link(&path).is_ok_and(|target| target.starts_with(all) && !target.exists()) {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::mem::ManuallyDrop;

    use super::super::{EndpointFolder, Scratch};
    use super::*;

    #[test]
    fn a_home_has_a_short_path_which_goes_with_it_or_with_the_next_worker() {
        let data = tempfile::tempdir().unwrap();
        let scratch = Scratch::open(data.path()).unwrap();
        let endpoint = EndpointFolder::new(&scratch.path(), None).unwrap();
        let home = endpoint.home().unwrap();
        let link = home.link().unwrap().to_owned();
        assert_eq!(fs::read_link(&link).unwrap(), home.path());
        assert!(link.as_os_str().len() + 37 <= 107);
        drop(home);
        assert!(!link.is_symlink());

        let home = ManuallyDrop::new(endpoint.home().unwrap());
        let link = home.link().unwrap();
        let other = ManuallyDrop::new(EndpointFolder::new(data.path(), None).unwrap().home().unwrap());
        drop((endpoint, scratch));
        let _next = Scratch::open(data.path()).unwrap();
        assert!(!link.is_symlink());
        let other = other.link().unwrap();
        assert!(other.is_symlink(), "it may be another worker's");
        fs::remove_file(other).unwrap();
    }
}
