//! The store's folder: where files are, and how a file becomes visible completely or not at all.
//!
//! ```text
//! lock                      locked by the process that serves the folder
//! tmp/<random>              incomplete files; emptied on start
//! buckets/<bucket>/<2 hex>/<62 hex>
//!                           one object per file (see `format`), named by the SHA-256 of its key
//! uploads/<id>/             a multipart upload in progress (see `multipart`)
//! ```
//!
//! Keys are hashed, so `a` and `a/b` can coexist, `..` has no meaning, and no key is too long or contains characters
//! that the file system does not allow. A write goes to `tmp`, is checked, sealed and synced. Then, under the lock of
//! its key, conditions are checked, the file is renamed to its place, and the folder is synced. Only then is the write
//! acknowledged. A crash at any point leaves the old object or the new one, and at most a file in `tmp`.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::UNIX_EPOCH;

use s3s::{S3Result, s3_error};
use sha2::{Digest, Sha256};

use super::conditions::Conditions;
use super::failure::failed;
use super::format::{self, Entry, Meta};
use super::index::Index;
use crate::Error;

/// Number of shards: one folder and one lock for each first byte of a key's hash.
const SHARDS: usize = 256;

/// S3's default limit on the number of buckets.
const BUCKETS_MAX: usize = 100;

/// The store's folder.
pub(super) struct Disk {
    root: PathBuf,
    pub(super) index: Index,
    /// Locks that are taken while a key changes, by the first byte of its hash.
    shards: [Mutex<()>; SHARDS],
    lock: File,
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A child process that is being started has a copy of the file, so closing it does not release the lock at once.
        let _ = self.lock.unlock();
    }
}

impl Disk {
    /// Locks the folder, removes what a crash left, and loads the metadata of every object.
    pub(super) fn open(root: &Path) -> Result<Self, Error> {
        let made = |path: PathBuf| {
            fs::create_dir_all(&path).map_err(Error::folder("create", &path))?;
            Ok::<_, Error>(path)
        };
        made(root.to_owned())?;
        let lock = take_lock(root)?;
        let tmp = root.join("tmp");
        if tmp.exists() {
            fs::remove_dir_all(&tmp).map_err(Error::folder("sweep", &tmp))?;
        }
        made(tmp)?;
        made(root.join("uploads"))?;
        let buckets = made(root.join("buckets"))?;
        sync_dir(root).map_err(Error::folder("sync", root))?;
        let disk =
            Self { root: root.to_owned(), index: Index::default(), shards: [const { Mutex::new(()) }; SHARDS], lock };
        disk.load(&buckets).map_err(Error::folder("read the objects in", buckets))?;
        Ok(disk)
    }

    fn load(&self, buckets: &Path) -> io::Result<()> {
        for bucket in fs::read_dir(buckets)? {
            let bucket = bucket?;
            let Ok(name) = bucket.file_name().into_string() else { continue };
            let created = bucket.metadata()?.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
            self.index.insert_bucket(&name, u64::try_from(created.as_millis()).unwrap_or(0));
            for shard in fs::read_dir(bucket.path())? {
                for object in fs::read_dir(shard?.path())? {
                    self.load_object(&name, &object?.path())?;
                }
            }
        }
        Ok(())
    }

    /// Loads the object of a file. A file without a valid object was damaged after it was written, because a crash does
    /// not leave one. It stays in place for inspection, and its key counts as absent until it is written again.
    fn load_object(&self, bucket: &str, path: &Path) -> io::Result<()> {
        match format::open(&mut File::open(path)?) {
            Ok(meta) if self.place(bucket, &meta.key).path == *path => {
                self.index.insert(bucket, &meta.key, Entry::from(&meta));
                Ok(())
            }
            Ok(_) => {
                tracing::error!(path = %path.display(), "an object is stored in the wrong place; ignoring it");
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                tracing::error!(path = %path.display(), %error, "an object is damaged; ignoring it");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn create_bucket(&self, bucket: &str) -> S3Result<()> {
        // The first shard's lock also serves for the list of buckets.
        let _guard = self.lock(0);
        if self.index.require_bucket(bucket).is_ok() {
            return Err(s3_error!(BucketAlreadyOwnedByYou, "bucket {bucket:?} already exists"));
        }
        if self.index.buckets().len() >= BUCKETS_MAX {
            return Err(s3_error!(TooManyBuckets, "this store holds at most {BUCKETS_MAX} buckets"));
        }
        let draft = self.temp_path();
        let made = || {
            for shard in 0..SHARDS {
                fs::create_dir_all(draft.join(format!("{shard:02x}")))?;
            }
            sync_dir(&draft)?;
            fs::rename(&draft, self.root.join("buckets").join(bucket))?;
            sync_dir(&self.root.join("buckets"))
        };
        made().map_err(failed("create a bucket"))?;
        self.index.insert_bucket(bucket, format::now_ms());
        Ok(())
    }

    /// Creates a new file that is not visible yet.
    pub(super) fn temp(&self) -> S3Result<Temp> {
        let path = self.temp_path();
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        Ok(Temp { file: file.map_err(failed("create a file"))?, path, placed: false })
    }

    pub(super) fn temp_path(&self) -> PathBuf {
        self.root.join("tmp").join(hex::encode(rand::random::<[u8; 16]>()))
    }

    pub(super) fn uploads(&self) -> PathBuf {
        self.root.join("uploads")
    }

    /// Makes a checked body an object, durably, if the conditions are met at that moment.
    pub(super) fn commit(&self, bucket: &str, mut temp: Temp, meta: &Meta, conditions: &Conditions) -> S3Result<()> {
        let step = failed("commit an object");
        temp.seal(meta)?;
        let place = self.place(bucket, &meta.key);
        let _guard = self.lock(place.shard);
        conditions.check_write(self.index.get(bucket, &meta.key)?.as_ref())?;
        temp.rename(&place.path).map_err(&step)?;
        self.index.insert(bucket, &meta.key, Entry::from(meta));
        sync_dir(&place.dir).map_err(&step)
    }

    /// Opens an object at the start of its body.
    pub(super) fn open_object(&self, bucket: &str, key: &str) -> S3Result<(File, Meta)> {
        self.index.require_bucket(bucket)?;
        let mut file = match File::open(self.place(bucket, key).path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(s3_error!(NoSuchKey, "there is no object {key:?}"));
            }
            Err(error) => return Err(failed("open an object")(error)),
        };
        let meta = format::open(&mut file).map_err(failed("read an object's metadata"))?;
        Ok((file, meta))
    }

    /// Deletes objects, durably. A key without an object is not an error unless a condition requires one.
    pub(super) fn delete(&self, bucket: &str, keys: &[String], conditions: &Conditions) -> S3Result<()> {
        let step = failed("delete an object");
        let mut touched = BTreeSet::new();
        for key in keys {
            let place = self.place(bucket, key);
            let _guard = self.lock(place.shard);
            let current = self.index.get(bucket, key)?;
            conditions.check_write(current.as_ref())?;
            match fs::remove_file(&place.path) {
                Ok(()) => drop(touched.insert(place.dir)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(step(error)),
            }
            self.index.remove(bucket, key);
        }
        touched.iter().try_for_each(|dir| sync_dir(dir)).map_err(step)
    }

    fn lock(&self, shard: u8) -> MutexGuard<'_, ()> {
        // The lock protects data on disk. A panic while it was locked left nothing that a later holder could misread.
        self.shards[usize::from(shard)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, bucket: &str, key: &str) -> Paths {
        let hash = Sha256::digest(key);
        let name = hex::encode(hash);
        let (shard, rest) = name.split_at(2);
        let dir = self.root.join("buckets").join(bucket).join(shard);
        Paths { path: dir.join(rest), dir, shard: hash[0] }
    }
}

struct Paths {
    shard: u8,
    dir: PathBuf,
    path: PathBuf,
}

/// A file in `tmp`. It is deleted on drop unless it was renamed to its place.
pub(super) struct Temp {
    pub(super) file: File,
    path: PathBuf,
    placed: bool,
}

impl Temp {
    /// Completes the file and makes its content durable.
    pub(super) fn seal(&mut self, meta: &Meta) -> S3Result<()> {
        format::seal(&mut self.file, meta).and_then(|()| self.file.sync_all()).map_err(failed("write an object"))
    }

    /// Moves the file to its place. The caller syncs the target folder.
    pub(super) fn rename(&mut self, to: &Path) -> io::Result<()> {
        fs::rename(&self.path, to)?;
        self.placed = true;
        Ok(())
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        if !self.placed {
            // If this fails, the next start removes the file.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn take_lock(root: &Path) -> Result<File, Error> {
    let path = root.join("lock");
    let open = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let lock = open.map_err(Error::folder("open", &path))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(Error::Locked { path: root.to_owned() }),
        Err(TryLockError::Error(error)) => Err(Error::folder("lock", path)(error)),
    }
}

/// Makes the entries of a folder durable.
pub(super) fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
