//! The links that killed workers leave in `/tmp`.

use std::fs;
use std::path::PathBuf;

/// Removes, when it is dropped, the links in `/tmp` to folders below this one. They are the TMPDIR of runners, and stay
/// if a worker is killed and none starts on its data again.
#[derive(Debug)]
pub struct TempLinks(pub PathBuf);

impl Drop for TempLinks {
    fn drop(&mut self) {
        for entry in fs::read_dir("/tmp").into_iter().flatten().flatten() {
            let path = entry.path();
            let is_link = entry.file_name().to_string_lossy().starts_with("stoke-");
            if is_link && fs::read_link(&path).is_ok_and(|target| target.starts_with(&self.0)) {
                // A worker that is still ending may have removed it.
                let _ = fs::remove_file(path);
            }
        }
    }
}
