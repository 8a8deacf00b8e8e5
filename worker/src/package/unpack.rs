//! Unpacks packages of tenants: no entry may point outside the package, and the size is limited regardless of the
//! compression.

use std::collections::HashSet;
use std::fs::{self, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use flate2::read::GzDecoder;
use tar::{Archive, Entry, EntryType};

use super::{Error, chain};

/// Minimum disk space of a file or folder.
const BLOCK: u64 = 4_096;

/// Limits of one package.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Maximum number of files, links and folders, including implicit parent folders.
    pub(super) entries: usize,
    /// Maximum disk space.
    pub(super) bytes: u64,
}

/// Counts the unpacked entries.
struct Count<'a> {
    limits: &'a Limits,
    entries: usize,
    bytes: u64,
    folders: HashSet<PathBuf>,
}

impl Count<'_> {
    /// Counts an entry and its new parent folders.
    fn add(&mut self, entry: &Entry<'_, impl Read>, path: &Path) -> Result<(), Error> {
        let plain: PathBuf = path.components().filter(|part| matches!(part, Component::Normal(_))).collect();
        let is_folder = entry.header().entry_type().is_dir();
        for folder in plain.ancestors().skip(usize::from(!is_folder)) {
            if folder.as_os_str().is_empty() || self.folders.contains(folder) {
                break;
            }
            self.one(BLOCK)?;
            self.folders.insert(folder.to_owned());
        }
        if !is_folder {
            self.one(entry.size().div_ceil(BLOCK).max(1).saturating_mul(BLOCK))?;
        }
        Ok(())
    }

    fn one(&mut self, bytes: u64) -> Result<(), Error> {
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.entries > self.limits.entries {
            return Err(Error::TooMany(self.limits.entries));
        }
        if self.bytes > self.limits.bytes {
            return Err(Error::TooLarge { cap: self.limits.bytes });
        }
        Ok(())
    }
}

/// Unpacks a `.tar.gz` into the new folder `into`. Entries that could reach outside it, or are not a file, folder or
/// link, are rejected, not skipped: our tools create packages, so an unusual one was tampered with. Returns the disk
/// space used.
pub(super) fn unpack(archive: impl Read, into: &Path, limits: &Limits) -> Result<u64, Error> {
    fs::create_dir(into)?;
    // Limits the uncompressed data: contents, headers and padding, which are at most 3 KiB per entry for the longest
    // names that a file system accepts.
    let bytes_max = limits.bytes.saturating_add(3 * 1024 * limits.entries as u64);
    let mut archive = Archive::new(GzDecoder::new(archive).take(bytes_max));
    archive.set_overwrite(false);
    let mut count = Count { limits, entries: 0, bytes: 0, folders: HashSet::new() };
    for entry in archive.entries().map_err(bad)? {
        let mut entry = entry.map_err(bad)?;
        check(&entry)?;
        let path = entry.path().map_err(bad)?.into_owned();
        count.add(&entry, &path)?;
        if !entry.unpack_in(into).map_err(bad)? {
            return Err(Error::Unpack("an entry points outside the package".to_owned()));
        }
        protect(&entry, into).map_err(bad)?;
    }
    Ok(count.bytes)
}

/// Classifies an error as the disk's or the package's.
fn bad(error: io::Error) -> Error {
    use nix::errno::Errno;
    let machines =
        [Errno::ENOSPC, Errno::EDQUOT, Errno::EROFS, Errno::EIO, Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM];
    let causes = std::iter::successors(Some(&error as &(dyn std::error::Error + 'static)), |cause| cause.source());
    let numbers = causes.filter_map(|cause| cause.downcast_ref::<io::Error>()?.raw_os_error());
    if numbers.into_iter().any(|number| machines.contains(&Errno::from_raw(number))) {
        return Error::Io(error);
    }
    Error::Unpack(chain(&error))
}

fn check(entry: &Entry<'_, impl Read>) -> Result<(), Error> {
    let path = entry.path().map_err(bad)?;
    let refuse = |why: &str| Err(Error::Unpack(format!("{} {why}", path.display())));
    if depth(Path::new(""), &path).is_none() {
        return refuse("points outside the package");
    }
    match entry.header().entry_type() {
        EntryType::Regular | EntryType::Continuous | EntryType::Directory => Ok(()),
        kind @ (EntryType::Symlink | EntryType::Link) => {
            let Some(target) = entry.link_name().map_err(bad)? else { return refuse("is a link without a target") };
            // A symbolic link is relative to its folder, a hard link to the top.
            let from = if kind == EntryType::Symlink { path.parent().unwrap_or(Path::new("")) } else { Path::new("") };
            if depth(from, &target).is_none() { refuse("is a link that points outside the package") } else { Ok(()) }
        }
        _ => refuse("is not a file, a folder or a link"),
    }
}

/// The depth below the top at which `path` ends, relative to the folder `from`; `None` if it leaves the top on the way.
/// A `..` after a name is rejected too: the name may be a link, so that `..` leads elsewhere.
fn depth(from: &Path, path: &Path) -> Option<usize> {
    let mut depth = from.components().filter(|part| matches!(part, Component::Normal(_))).count();
    let mut named = false;
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::Normal(_) => (depth, named) = (depth + 1, true),
            Component::ParentDir if !named => depth = depth.checked_sub(1)?,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(depth)
}

/// Makes files read-only for runners. Best effort: root is not restricted. Folders stay writable so that they can be
/// deleted.
fn protect(entry: &Entry<'_, impl Read>, into: &Path) -> io::Result<()> {
    if entry.header().entry_type().is_file() {
        let executable = entry.header().mode()? & 0o111 != 0;
        let path = into.join(entry.path()?);
        fs::set_permissions(path, Permissions::from_mode(if executable { 0o555 } else { 0o444 }))?;
    }
    Ok(())
}
