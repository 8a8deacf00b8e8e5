//! Files that tests and handlers share. If the tests run as root, a handler has a separate user at every level: it can
//! enter, read and write only what every user may.

use std::fs::{Permissions, set_permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use nix::sys::stat::Mode;
use tempfile::TempDir;

/// A folder in which handlers read and write.
///
/// # Errors
/// If it cannot be created.
pub fn folder() -> io::Result<TempDir> {
    let folder = tempfile::tempdir()?;
    open(folder.path())?;
    Ok(folder)
}

/// Lets handlers read and write this file, or in this folder.
///
/// # Errors
/// If its permissions cannot be changed.
pub fn open(path: &Path) -> io::Result<()> {
    // Without the sticky bit, which would make the kernel keep root itself from opening a handler's files.
    set_permissions(path, Permissions::from_mode(0o777))
}

/// Lets handlers enter this folder.
///
/// # Errors
/// If its permissions cannot be changed.
pub fn enter(path: &Path) -> io::Result<()> {
    let mode = path.metadata()?.permissions().mode();
    set_permissions(path, Permissions::from_mode(mode | 0o111))
}

/// A named pipe, which a handler opens at one end.
///
/// # Errors
/// If it cannot be created.
pub fn pipe(path: &Path) -> io::Result<()> {
    nix::unistd::mkfifo(path, Mode::S_IRWXU)?;
    open(path)
}
