//! Verifies blobs, and shares them between owners by hard links.

use std::fs::{self, File, FileTimes};
use std::io;
use std::sync::Arc;

use super::entries::Blob;
use super::notes::{fingerprint, note, noted};
use super::{BlobState, Store, VerifiedBlob, remove};
use crate::environment::lock::{self, LockedFile};
use crate::transfer;
use crate::weights::WeightFile;
use crate::weights::rights::{Note, is_name};

impl Store {
    /// The blob, if unchanged since its verification: one with changed metadata is hashed again. The lock is held,
    /// shared or exclusively. Blocks on the disk.
    pub(in crate::weights) fn verified(&self, file: &WeightFile, lock: &Arc<LockedFile>) -> io::Result<BlobState> {
        self.verified_as(&file.name(), file, lock)
    }

    /// Links another owner's blob to this file, if its owner may access it. The exclusive lock of the file is held.
    /// Blocks on the disk.
    pub(in crate::weights) fn adopt(&self, file: &WeightFile, lock: &Arc<LockedFile>) -> io::Result<bool> {
        self.share(file, lock, |note| file.may_share(&note.sources))
    }

    fn verified_as(&self, name: &str, file: &WeightFile, lock: &Arc<LockedFile>) -> io::Result<BlobState> {
        let blob = self.blob(name);
        let fingerprint = match fs::metadata(&blob) {
            Ok(metadata) => fingerprint(&metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BlobState::Absent),
            Err(error) => return Err(error),
        };
        let noted = noted(lock)?;
        if noted.fingerprint != fingerprint {
            let (bytes, sha256) = transfer::measure(&mut File::open(&blob)?)?;
            if bytes != file.size_bytes || sha256 != file.sha256 {
                tracing::warn!(weights.sha256 = file.sha256, "weights were changed after they were verified");
                return Ok(BlobState::Changed);
            }
            note(lock, &Note { fingerprint, ..noted })?;
        }
        let verified = VerifiedBlob(Arc::clone(lock));
        verified.touch();
        Ok(BlobState::Verified(verified))
    }

    /// Links this file to another owner's blob of the same hash, if `may_have` allows it.
    pub(super) fn share(&self, file: &WeightFile, lock: &File, may_have: impl Fn(&Note) -> bool) -> io::Result<bool> {
        let name = file.name();
        for other in self.same_bytes(file)?.into_iter().filter(|other| *other != name) {
            let Some(shared) = lock::try_shared(&self.lock_file(&other))?.map(Arc::new) else { continue };
            if may_have(&noted(&shared)?)
                && matches!(self.verified_as(&other, file, &shared)?, BlobState::Verified(_))
                && self.link_blob(&other, file, &shared, lock)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Links the blob `other` to this file. A new link changes the blob's metadata, so the notes of all its names are
    /// updated.
    fn link_blob(&self, other: &str, file: &WeightFile, shared: &File, lock: &File) -> io::Result<bool> {
        let linking = File::create(self.folder.join(".link.lock"))?;
        linking.lock()?;
        let (name, blob) = (file.name(), self.blob(other));
        let before = fs::metadata(&blob)?;
        let known = noted(shared)?;
        if known.fingerprint != fingerprint(&before) || before.len() != file.size_bytes {
            return Ok(false);
        }
        let paths = self.paths(&name);
        remove(&paths.link)?;
        fs::hard_link(&blob, &paths.link)?;
        fs::rename(&paths.link, &paths.blob)?;
        // It remains if both names already refer to the same file.
        remove(&paths.link)?;
        let after = fingerprint(&fs::metadata(&paths.blob)?);
        for also in self.same_bytes(file)?.into_iter().filter(|also| *also != name) {
            let is_same = fs::metadata(self.blob(&also)).is_ok_and(|also| Blob::of(&also).id == Blob::of(&before).id);
            // A name that is being deleted needs no note, and one without a note is hashed again.
            if is_same && let Some(lock) = lock::try_shared(&self.lock_file(&also))? {
                let used = lock.metadata()?.modified()?;
                let noted = noted(&lock)?;
                if noted.fingerprint == known.fingerprint {
                    note(&lock, &Note { fingerprint: after.clone(), ..noted })?;
                    lock.set_times(FileTimes::new().set_modified(used))?;
                }
            }
        }
        let mut own = noted(lock)?;
        own.fingerprint = after;
        own.learn(known.sources);
        note(lock, &own)?;
        Ok(true)
    }

    /// The names of blobs of the same hash.
    fn same_bytes(&self, file: &WeightFile) -> io::Result<Vec<String>> {
        let names = fs::read_dir(&self.folder)?.flatten().filter_map(|item| item.file_name().into_string().ok());
        Ok(names.filter(|name| name.starts_with(&file.sha256) && is_name(name)).collect())
    }
}
