//! Folders of links to blobs, one for each set of files.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{PARTIAL, Store};
use crate::weights::WeightFile;

impl Store {
    /// The folder of links for these files, whose blobs are in use. Blocks on the disk.
    pub(in crate::weights) fn link(&self, files: &[WeightFile]) -> io::Result<PathBuf> {
        let links: BTreeMap<&str, PathBuf> = files.iter().map(|file| (file.path.as_str(), target(file))).collect();
        let mut hash = Sha256::new();
        for (path, target) in &links {
            // No path can hold a zero byte.
            hash.update(format!("{path}\0{}\0", target.display()));
        }
        let sets = self.folder.join("sets");
        let set = sets.join(hex::encode(hash.finalize()));
        let is_whole =
            |set: &Path| links.iter().all(|(path, to)| fs::read_link(set.join(path)).is_ok_and(|is| is == *to));
        if is_whole(&set) {
            return Ok(set);
        }
        let making = tempfile::Builder::new().prefix(PARTIAL).tempdir_in(&sets)?;
        fs::set_permissions(making.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        for (path, to) in &links {
            let link = making.path().join(path);
            link.parent().map_or(Ok(()), fs::create_dir_all)?;
            symlink(to, link)?;
        }
        if set.exists() {
            // A link is missing.
            fs::remove_dir_all(&set)?;
        }
        match fs::rename(making.path(), &set) {
            Ok(()) => drop(making.keep()),
            // Another process created it first.
            Err(_) if is_whole(&set) => {}
            Err(error) => return Err(error),
        }
        Ok(set)
    }
}

/// Relative path from the link in a set to the blob.
fn target(file: &WeightFile) -> PathBuf {
    let up = Path::new(&file.path).components().count() + 1;
    std::iter::repeat_n("..", up).collect::<PathBuf>().join(file.name())
}
