//! Uploads in parts.
//!
//! ```text
//! uploads/<id>/manifest.json     the object that it will become, durable before the id is returned
//! uploads/<id>/00001 ...         one part per file, in the format of an object
//! ```
//!
//! Completing an upload copies the parts into one file, inside the kernel and without copying if the file system can
//! share blocks, and commits it like any other object. An upload that is neither completed nor aborted is deleted at
//! the first start of the store more than a week after it began.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use s3s::crypto::{Checksum, Md5};
use s3s::{S3Error, S3Result, s3_error};
use serde::{Deserialize, Serialize};

use super::conditions::Conditions;
use super::digest::{Checksums, Digests};
use super::disk::{Disk, Temp, sync_dir};
use super::failure::failed;
use super::format::{self, Headers, Meta, now_ms};

/// S3's limits: on the number of a part, and on the size of every part but the last.
const PART_NUMBER_MAX: u16 = 10_000;
const PART_BYTES_MIN: u64 = 5 * 1024 * 1024;

const UPLOADS_MAX: usize = 1000;

const ABANDONED_AFTER_MS: u64 = 7 * 24 * 60 * 60 * 1000;

const MANIFEST: &str = "manifest.json";

/// The object that an upload will become.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) bucket: String,
    pub(super) key: String,
    pub(super) created_ms: u64,
    pub(super) headers: Headers,
}

/// An upload in progress, as long as its folder exists.
pub(super) struct Upload<'d> {
    disk: &'d Disk,
    dir: PathBuf,
    pub(super) manifest: Manifest,
}

/// A part as named by the client's request to complete the upload.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) number: i32,
    pub(super) etag: Option<String>,
    pub(super) checksums: Checksums,
}

/// Begins an upload and returns its id.
pub(super) fn begin(disk: &Disk, manifest: &Manifest) -> S3Result<String> {
    disk.index.require_bucket(&manifest.bucket)?;
    let step = failed("begin an upload");
    if fs::read_dir(disk.uploads()).map_err(&step)?.count() >= UPLOADS_MAX {
        return Err(s3_error!(SlowDown, "{UPLOADS_MAX} uploads are in progress; complete or abort some first"));
    }
    let id = hex::encode(rand::random::<[u8; 16]>());
    let draft = disk.temp_path();
    let made = || {
        fs::create_dir(&draft)?;
        let mut file = File::create_new(draft.join(MANIFEST))?;
        serde_json::to_writer(&mut file, manifest)?;
        file.sync_all()?;
        sync_dir(&draft)?;
        fs::rename(&draft, disk.uploads().join(&id))?;
        sync_dir(&disk.uploads())
    };
    made().map_err(step)?;
    Ok(id)
}

/// All uploads in progress, by key.
pub(super) fn list(disk: &Disk, bucket: &str, prefix: &str) -> S3Result<Vec<(String, Manifest)>> {
    disk.index.require_bucket(bucket)?;
    let step = failed("list uploads");
    let mut found = Vec::new();
    for entry in fs::read_dir(disk.uploads()).map_err(&step)? {
        let id = entry.map_err(&step)?.file_name().to_string_lossy().into_owned();
        // The upload ended in the meantime.
        let Some(manifest) = read_manifest(&disk.uploads().join(&id)).map_err(&step)? else { continue };
        if manifest.bucket == bucket && manifest.key.starts_with(prefix) {
            found.push((id, manifest));
        }
    }
    found.sort_unstable_by(|(a_id, a), (b_id, b)| (&a.key, a_id).cmp(&(&b.key, b_id)));
    Ok(found)
}

/// Deletes abandoned uploads. Called before anything is served.
pub(super) fn sweep(disk: &Disk) -> io::Result<()> {
    let now = now_ms();
    for entry in fs::read_dir(disk.uploads())? {
        let dir = entry?.path();
        let created = read_manifest(&dir)?.map_or(0, |manifest| manifest.created_ms);
        if now.saturating_sub(created) > ABANDONED_AFTER_MS {
            tracing::info!(path = %dir.display(), "removed an abandoned upload");
            fs::remove_dir_all(&dir)?;
        }
    }
    Ok(())
}

impl<'d> Upload<'d> {
    /// Finds an upload of this object.
    pub(super) fn find(disk: &'d Disk, bucket: &str, key: &str, id: &str) -> S3Result<Self> {
        // An id is hex, so the path cannot leave the folder.
        let dir = disk.uploads().join(id);
        let known = id.bytes().all(|byte| byte.is_ascii_hexdigit()) && !id.is_empty();
        let manifest = if known { read_manifest(&dir).map_err(failed("find an upload"))? } else { None };
        let manifest =
            manifest.filter(|manifest| manifest.bucket == bucket && manifest.key == key).ok_or_else(no_such_upload)?;
        Ok(Self { disk, dir, manifest })
    }

    /// Adds a part, or replaces it.
    pub(super) fn put_part(&self, number: i32, mut temp: Temp, digests: Digests) -> S3Result<Meta> {
        let path = self.part_path(number)?;
        let meta = Meta {
            key: self.manifest.key.clone(),
            size_bytes: digests.size_bytes,
            etag: digests.etag(),
            modified_ms: now_ms(),
            headers: Headers::default(),
            checksums: digests.checksums,
        };
        temp.seal(&meta)?;
        match temp.rename(&path).and_then(|()| sync_dir(&self.dir)) {
            Ok(()) => Ok(meta),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(no_such_upload()),
            Err(error) => Err(failed("add a part")(error)),
        }
    }

    /// The parts that have been uploaded, by number.
    pub(super) fn parts(&self) -> S3Result<Vec<(i32, Meta)>> {
        let step = failed("list parts");
        let mut parts = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(&step)? {
            let name = entry.map_err(&step)?.file_name();
            let Some(number) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            let (_, meta) = self.open_part(number)?;
            parts.push((number, meta));
        }
        parts.sort_unstable_by_key(|(number, _)| *number);
        Ok(parts)
    }

    /// Joins the named parts, in this order, into the object. `size_bytes` is the length that the client announced.
    pub(super) fn complete(self, parts: &[Named], size_bytes: Option<i64>, conditions: &Conditions) -> S3Result<Meta> {
        if parts.is_empty() {
            return Err(s3_error!(InvalidRequest, "name at least one part"));
        }
        if !parts.is_sorted_by(|a, b| a.number < b.number) {
            return Err(s3_error!(InvalidPartOrder, "name each part once, in ascending order"));
        }
        let mut temp = self.disk.temp()?;
        let mut digest_of_digests = Md5::new();
        let mut joined_bytes = 0;
        for (at, named) in parts.iter().enumerate() {
            let (file, part) = self.open_part(named.number)?;
            check_part(named, &part, at + 1 == parts.len())?;
            let copied = io::copy(&mut file.take(part.size_bytes), &mut temp.file).map_err(failed("join the parts"))?;
            if copied != part.size_bytes {
                return Err(s3_error!(InternalError, "part {} is shorter than when it was uploaded", named.number));
            }
            joined_bytes += copied;
            digest_of_digests.update(&hex::decode(&part.etag).unwrap_or_default());
        }
        if size_bytes.is_some_and(|said| u64::try_from(said) != Ok(joined_bytes)) {
            return Err(s3_error!(
                InvalidRequest,
                "the parts have {joined_bytes} bytes together, which is not the announced length"
            ));
        }
        let meta = Meta {
            key: self.manifest.key.clone(),
            size_bytes: joined_bytes,
            etag: format!("{}-{}", hex::encode(digest_of_digests.finalize()), parts.len()),
            modified_ms: now_ms(),
            headers: self.manifest.headers.clone(),
            checksums: Checksums::default(),
        };
        self.disk.commit(&self.manifest.bucket, temp, &meta, conditions)?;
        // The object exists, so the call succeeded. If `end` fails, the error is logged and the rest is deleted like an
        // abandoned upload.
        let _ = self.end();
        Ok(meta)
    }

    /// Ends the upload and deletes its parts.
    pub(super) fn end(self) -> S3Result<()> {
        let step = failed("end an upload");
        let gone = self.disk.temp_path();
        match fs::rename(&self.dir, &gone) {
            Ok(()) => {
                sync_dir(&self.disk.uploads()).map_err(&step)?;
                fs::remove_dir_all(&gone).map_err(step)
            }
            // Another request ended it at the same time.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(step(error)),
        }
    }

    fn part_path(&self, number: i32) -> S3Result<PathBuf> {
        match u16::try_from(number) {
            Ok(number @ 1..=PART_NUMBER_MAX) => Ok(self.dir.join(format!("{number:05}"))),
            _ => Err(s3_error!(InvalidArgument, "a part's number is 1 to {PART_NUMBER_MAX}, not {number}")),
        }
    }

    fn open_part(&self, number: i32) -> S3Result<(File, Meta)> {
        match File::open(self.part_path(number)?).and_then(|mut file| Ok((format::open(&mut file)?, file))) {
            Ok((meta, file)) => Ok((file, meta)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(s3_error!(InvalidPart, "part {number} was not uploaded"))
            }
            Err(error) => Err(failed("open a part")(error)),
        }
    }
}

fn check_part(named: &Named, part: &Meta, last: bool) -> S3Result<()> {
    let number = named.number;
    if named.etag.as_ref().is_some_and(|etag| *etag != part.etag) {
        return Err(s3_error!(InvalidPart, "part {number} has another ETag"));
    }
    if !named.checksums.agree_with(&part.checksums) {
        return Err(s3_error!(InvalidPart, "part {number} has another checksum"));
    }
    if !last && part.size_bytes < PART_BYTES_MIN {
        return Err(s3_error!(
            EntityTooSmall,
            "part {number} has {} bytes; only the last part may have fewer than {PART_BYTES_MIN}",
            part.size_bytes
        ));
    }
    Ok(())
}

fn no_such_upload() -> S3Error {
    s3_error!(NoSuchUpload, "no such upload of this key; it may have been completed or aborted")
}

fn read_manifest(dir: &Path) -> io::Result<Option<Manifest>> {
    match fs::read(dir.join(MANIFEST)) {
        Ok(json) => Ok(Some(serde_json::from_slice(&json)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
