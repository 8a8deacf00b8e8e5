//! Reserves disk space for downloads, and evicts weights to make room.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use nix::sys::statvfs::statvfs;

use super::Store;
use super::entries::{Group, groups};
use super::notes::note;
use crate::environment::lock::{self, LockedFile};
use crate::weights::WeightFile;
use crate::weights::error::{Error, at};
use crate::weights::partial::Partial;
use crate::weights::rights::Note;

/// Disk space that downloads leave free for jobs.
const DISK_LEFT_MIN: u64 = 256 << 20;

impl Store {
    /// Reserves space for downloads, and opens them: all or none. The exclusive locks of the files and of the room are
    /// held. Blocks on the disk.
    pub(in crate::weights) fn reserve(
        &self,
        wanted: &[(WeightFile, Arc<LockedFile>)],
    ) -> Result<Vec<Arc<Partial>>, Error> {
        let mut need = 0;
        for (file, lock) in wanted {
            let paths = self.paths(&file.name());
            let partial = fs::metadata(&paths.partial).ok().filter(|partial| partial.len() == file.size_bytes);
            if paths.blob.exists() {
                // The blob was changed.
                fs::remove_file(&paths.blob).map_err(at("remove", &paths.blob))?;
            }
            need += if partial.is_some() { 0 } else { file.size_bytes };
            note(lock, &Note::default()).map_err(at("write", &paths.lock))?;
        }
        if let Err(error) = self.make_room(need) {
            for (paths, _) in wanted.iter().map(|(file, lock)| (self.paths(&file.name()), lock)) {
                // The lock file guards nothing any more, and no eviction would remove it.
                let _ = if paths.partial.exists() { Ok(()) } else { paths.remove() };
            }
            return Err(error);
        }
        let open = |(file, lock): &(WeightFile, Arc<LockedFile>)| {
            let partial = Partial::open(self.paths(&file.name()), file.size_bytes, Arc::clone(lock));
            partial.map(Arc::new).map_err(Error::write(&file.path))
        };
        wanted.iter().map(open).collect()
    }

    /// Deletes weights, least recently used first, until `need` more bytes fit. Deletes nothing if they cannot fit.
    fn make_room(&self, need: u64) -> Result<(), Error> {
        let mut by_use = groups(self.entries().map_err(at("list", &self.folder))?);
        let mut total: u64 = by_use.iter().map(|group| group.bytes).sum();
        let unwritten: u64 = by_use.iter().map(|group| group.unwritten).sum();
        let mut free = free_bytes(&self.folder).map_err(at("read the free space of", &self.folder))?;
        free = free.saturating_sub(unwritten + DISK_LEFT_MIN);

        by_use.sort_by_key(|group| group.used);
        let mut leaving = Vec::new();
        for group in by_use {
            if total + need <= self.cap_bytes && free >= need {
                break;
            }
            let Some(locks) = self.lock_all(&group.names)? else { continue };
            total -= group.bytes;
            free += group.bytes;
            leaving.push((group, locks));
        }
        if total + need > self.cap_bytes {
            return Err(Error::InUse { need, in_use: total, cap: self.cap_bytes });
        }
        if free < need {
            return Err(Error::Disk { need, free });
        }
        for (Group { names, bytes, .. }, _locks) in &leaving {
            for name in names {
                self.paths(name).remove().map_err(at("remove", &self.blob(name)))?;
            }
            tracing::info!(weights.names = ?names, bytes, "weights evicted");
        }
        Ok(())
    }

    /// The exclusive locks of these names; `None` if one is in use.
    fn lock_all(&self, names: &[String]) -> Result<Option<Vec<LockedFile>>, Error> {
        let lock = |name: &String| {
            let lock_file = self.lock_file(name);
            lock::try_exclusive(&lock_file).map_err(at("lock", &lock_file))
        };
        names.iter().map(lock).collect()
    }
}

#[expect(clippy::useless_conversion, reason = "the fields' types differ between systems")]
fn free_bytes(folder: &Path) -> io::Result<u64> {
    let stat = statvfs(folder).map_err(io::Error::from)?;
    Ok(u64::from(stat.blocks_available()).saturating_mul(u64::from(stat.fragment_size())))
}
