//! Where tests meet handlers at files. Where the tests are root, a handler has a user of its own at every level: it enters, reads and writes only
//! what everybody may.

use std::fs::{Permissions, set_permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use nix::sys::stat::Mode;
use tempfile::TempDir;

/// A folder in which handlers read and write.
///
/// # Errors
/// When it cannot be made.
pub fn folder() -> io::Result<TempDir> {
    let folder = tempfile::tempdir()?;
    open(folder.path())?;
    Ok(folder)
}

/// Lets handlers read and write this file, or in this folder.
///
/// # Errors
/// When its rights cannot be changed.
pub fn open(path: &Path) -> io::Result<()> {
    // Without the sticky bit, by which the kernel would keep root itself from opening what a handler has made.
    set_permissions(path, Permissions::from_mode(0o777))
}

/// Lets handlers go through this folder.
///
/// # Errors
/// When its rights cannot be changed.
pub fn enter(path: &Path) -> io::Result<()> {
    let mode = path.metadata()?.permissions().mode();
    set_permissions(path, Permissions::from_mode(mode | 0o111))
}

/// A pipe with a name, which a handler opens at one end.
///
/// # Errors
/// When it cannot be made.
pub fn pipe(path: &Path) -> io::Result<()> {
    nix::unistd::mkfifo(path, Mode::S_IRWXU)?;
    open(path)
}
