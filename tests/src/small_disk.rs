//! A disk that a test can fill.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// A tmpfs; unmounted when dropped.
pub struct SmallDisk(TempDir);

impl SmallDisk {
    /// A disk of `mib` MiB. Where mounting is not allowed, prints a message and returns `None`.
    ///
    /// # Panics
    /// If no folder can be created.
    #[must_use]
    #[expect(clippy::print_stdout, reason = "a test that does nothing says so")]
    pub fn mount(size_mib: u32) -> Option<Self> {
        let dir = tempfile::tempdir().expect("there is a place for a folder");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size_mib}m"), "tmpfs"]).arg(dir.path());
        if mount.output().is_ok_and(|done| done.status.success()) {
            return Some(Self(dir));
        }
        println!("skipped: a tmpfs cannot be mounted here (it takes root)");
        None
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Fills the disk.
    ///
    /// # Panics
    /// If no file can be created there.
    pub fn fill(&self) {
        let mut filler = File::create(self.path().join("filler")).expect("an empty file fits");
        while filler.write_all(&[0; 64 << 10]).is_ok() {}
    }

    /// Removes what filled it.
    ///
    /// # Panics
    /// If it was not filled.
    pub fn make_room(&self) {
        fs::remove_file(self.path().join("filler")).expect("it was filled");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).status();
    }
}
