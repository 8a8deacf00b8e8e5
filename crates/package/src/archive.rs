//! Packs a folder as a reproducible `.tar.gz`: equal files give equal bytes on every machine.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use flate2::{Compression, GzBuilder};
use sha2::{Digest, Sha256};
use tar::{Builder, Header};

use crate::error::{Error, Step, invalid, require};

/// Maximum size of a package. Workers download it before the first job, so weights are kept separate.
const BYTES_MAX: u64 = 256 << 20;

const SKIPPED: [&str; 2] = ["__pycache__", "node_modules"];

/// Hash and length of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Archive {
    /// SHA-256 in lower-case hex.
    pub sha256: String,
    /// Length in bytes.
    pub size_bytes: u64,
}

/// Hashes what is written to a file.
struct Hashed<'a> {
    file: &'a File,
    hash: Sha256,
    size_bytes: u64,
}

impl Write for Hashed<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.size_bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

/// Packs the files of a folder, or one file, into `archive`: sorted, without times and owners. Excludes hidden files,
/// caches, environments and the files in `left_out`, which are uploaded separately.
pub(crate) fn pack(source: &Path, left_out: &[PathBuf], archive: &File) -> Result<Archive, Error> {
    let mut files = Vec::new();
    if source.is_dir() {
        find(source, Path::new(""), &mut files)?;
        files.retain(|name| !left_out.contains(&source.join(name)));
        files.sort();
    } else {
        files.push(PathBuf::from(source.file_name().ok_or_else(|| Error::invalid("the source file has no name"))?));
    }
    let root = if source.is_dir() { source } else { source.parent().unwrap_or(Path::new("")) };
    check_size(root, &files)?;
    let file = Hashed { file: archive, hash: Sha256::new(), size_bytes: 0 };
    // A gzip header without name and time.
    let mut tar = Builder::new(GzBuilder::new().write(file, Compression::default()));
    for name in &files {
        add(&mut tar, root, name).step(|| format!("cannot pack {}", root.join(name).display()))?;
    }
    let finish = || -> std::io::Result<Archive> {
        let mut file = tar.into_inner()?.finish()?;
        file.flush()?;
        Ok(Archive { sha256: hex::encode(file.hash.finalize()), size_bytes: file.size_bytes })
    };
    finish().step(|| "cannot write the archive".to_owned())
}

fn add(tar: &mut Builder<impl Write>, root: &Path, name: &Path) -> std::io::Result<()> {
    let mut file = File::open(root.join(name))?;
    let metadata = file.metadata()?;
    let mut header = Header::new_gnu();
    header.set_size(metadata.len());
    header.set_mode(if metadata.permissions().mode() & 0o111 == 0 { 0o644 } else { 0o755 });
    tar.append_data(&mut header, name, &mut file)?;
    Ok(())
}

fn check_size(root: &Path, files: &[PathBuf]) -> Result<(), Error> {
    let size = |name: &PathBuf| {
        let path = root.join(name);
        Ok(fs::metadata(&path).reading(&path)?.len())
    };
    let sizes: Result<Vec<u64>, Error> = files.iter().map(size).collect();
    let mut sizes: Vec<(u64, &PathBuf)> = sizes?.into_iter().zip(files).collect();
    let total: u64 = sizes.iter().map(|(size, _)| size).sum();
    if total <= BYTES_MAX {
        return Ok(());
    }
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let largest: Vec<String> =
        sizes.iter().take(3).map(|(size, name)| format!("{} ({} MiB)", name.display(), size >> 20)).collect();
    invalid!(
        "{} has {} MiB, but a package may have at most {} MiB; largest files: {}. Declare weights in stoke.toml (see docs/how-to/weights.md), and move other data out of the folder",
        root.display(),
        total >> 20,
        BYTES_MAX >> 20,
        largest.join(", ")
    )
}

fn find(root: &Path, below: &Path, found: &mut Vec<PathBuf>) -> Result<(), Error> {
    let folder = root.join(below);
    for entry in fs::read_dir(&folder).reading(&folder)? {
        let entry = entry.reading(&folder)?;
        let name = entry.file_name();
        let Some(text) = name.to_str() else { invalid!("{} is not UTF-8; rename it", entry.path().display()) };
        if text.starts_with('.') || SKIPPED.contains(&text) || text.ends_with(".pyc") {
            continue;
        }
        let path = below.join(text);
        // A symlink to a file is packed as that file.
        let metadata = fs::metadata(entry.path());
        let metadata = metadata.step(|| format!("{} is a dangling symlink; remove it", entry.path().display()))?;
        if metadata.is_dir() {
            require!(
                !entry.path().is_symlink(),
                "{} is a symlink to a folder; replace it with the folder",
                entry.path().display()
            );
            if !entry.path().join("pyvenv.cfg").exists() {
                find(root, &path, found)?;
            }
        } else {
            require!(metadata.is_file(), "{} is not a regular file; remove it from the folder", entry.path().display());
            found.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::io::{Read, Seek};
    use std::time::{Duration, SystemTime};

    use super::*;

    fn packed(source: &Path) -> Vec<u8> {
        let mut archive = tempfile::tempfile().unwrap();
        let measured = pack(source, &[], &archive).unwrap();
        archive.rewind().unwrap();
        let mut bytes = Vec::new();
        archive.read_to_end(&mut bytes).unwrap();
        assert_eq!(measured.sha256, hex::encode(Sha256::digest(&bytes)));
        assert_eq!(measured.size_bytes, bytes.len() as u64);
        bytes
    }

    fn names(archive: &[u8]) -> Vec<String> {
        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(archive));
        tar.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn only_what_belongs_is_packed_and_the_same_files_make_the_same_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        };
        [
            "main.py",
            "sub/b.py",
            "sub/a.txt",
            ".git/HEAD",
            ".env",
            "__pycache__/main.pyc",
            "venv/pyvenv.cfg",
            "venv/big",
        ]
        .into_iter()
        .for_each(write);
        let first = packed(folder.path());
        assert_eq!(names(&first), ["main.py", "sub/a.txt", "sub/b.py"]);
        let mut less = tempfile::tempfile().unwrap();
        pack(folder.path(), &[folder.path().join("sub/a.txt")], &less).unwrap();
        less.rewind().unwrap();
        let mut bytes = Vec::new();
        less.read_to_end(&mut bytes).unwrap();
        assert_eq!(names(&bytes), ["main.py", "sub/b.py"], "weights go another way");
        let file = File::options().write(true).open(folder.path().join("main.py")).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1)).unwrap();
        assert_eq!(packed(folder.path()), first);
        assert_eq!(names(&packed(&folder.path().join("main.py"))), ["main.py"]);
    }

    #[test]
    fn a_folder_that_is_too_large_is_refused_with_its_largest_files() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("main.py"), "").unwrap();
        File::create(folder.path().join("weights.bin")).unwrap().set_len(BYTES_MAX + 1).unwrap();
        let error = pack(folder.path(), &[], &tempfile::tempfile().unwrap()).unwrap_err().to_string();
        assert!(error.contains("largest files: weights.bin (256 MiB)"), "{error}");
        let weights = [folder.path().join("weights.bin")];
        assert!(pack(folder.path(), &weights, &tempfile::tempfile().unwrap()).is_ok(), "weights are not packed");
    }

    #[test]
    fn what_cannot_be_packed_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("nowhere", folder.path().join("link")).unwrap();
        let error = pack(folder.path(), &[], &tempfile::tempfile().unwrap()).unwrap_err().to_string();
        assert!(error.contains("link is a dangling symlink"), "{error}");
    }
}
