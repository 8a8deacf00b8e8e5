//! Finding programs: on PATH, or in the folder of this program.

use std::path::{Path, PathBuf};

/// A file in the folder of this program, with links resolved.
pub(crate) fn beside(name: &str) -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    Some(program.parent()?.join(name)).filter(|path| path.is_file())
}

/// A bare name resolved through PATH, or a path made absolute, because programs are started in other folders.
pub(crate) fn on_path(name: &Path) -> Option<PathBuf> {
    if name.components().count() > 1 {
        return std::path::absolute(name).ok();
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}
