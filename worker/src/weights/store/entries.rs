//! Lists the files of the folder, grouped by the file that their names refer to.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

use super::{JOURNAL, LINK, LOCK, PARTIAL, Store};
use crate::weights::rights::is_name;

/// The files of one name.
#[derive(Default)]
pub(super) struct Entry {
    pub(super) blob: Option<Blob>,
    /// Size of its download.
    pub(super) bytes: u64,
    /// The part of the download that is not written yet.
    pub(super) unwritten: u64,
    pub(super) used: Option<SystemTime>,
}

/// A file, regardless of its names.
#[derive(Clone, Copy)]
pub(super) struct Blob {
    pub(super) id: (u64, u64),
    pub(super) bytes: u64,
}

impl Blob {
    pub(super) fn of(metadata: &fs::Metadata) -> Self {
        Self { id: (metadata.dev(), metadata.ino()), bytes: metadata.len() }
    }
}

/// Names that must be deleted together to free their space.
#[derive(Default)]
pub(super) struct Group {
    pub(super) names: Vec<String>,
    pub(super) bytes: u64,
    pub(super) unwritten: u64,
    /// Last use of any of the names.
    pub(super) used: Option<SystemTime>,
}

impl Store {
    /// The existing files, by name.
    pub(super) fn entries(&self) -> io::Result<BTreeMap<String, Entry>> {
        let mut entries: BTreeMap<String, Entry> = BTreeMap::new();
        for item in fs::read_dir(&self.folder)?.flatten() {
            let (Ok(called), Ok(metadata)) = (item.file_name().into_string(), item.metadata()) else { continue };
            let bare = called.strip_suffix(LOCK).unwrap_or(&called);
            let prefix = [PARTIAL, JOURNAL, LINK].into_iter().find(|prefix| bare.starts_with(prefix));
            let name = &bare[prefix.map_or(0, str::len)..];
            if !is_name(name) || !metadata.is_file() {
                continue;
            }
            let entry = entries.entry(name.to_owned()).or_default();
            match prefix {
                _ if called.ends_with(LOCK) => entry.used = metadata.modified().ok(),
                Some(PARTIAL) => {
                    entry.bytes = metadata.len();
                    entry.unwritten = metadata.len().saturating_sub(metadata.blocks() * 512);
                }
                Some(_) => {}
                None => entry.blob = Some(Blob::of(&metadata)),
            }
        }
        Ok(entries)
    }
}

/// Groups entries by the file that they refer to.
pub(super) fn groups(entries: BTreeMap<String, Entry>) -> Vec<Group> {
    let (mut shared, mut groups): (BTreeMap<(u64, u64), Group>, Vec<Group>) = Default::default();
    for (name, entry) in entries {
        let mut alone = Group::default();
        let group = match entry.blob {
            Some(blob) => {
                let group = shared.entry(blob.id).or_default();
                group.bytes = group.bytes.max(blob.bytes);
                group
            }
            None => &mut alone,
        };
        group.names.push(name);
        group.bytes += entry.bytes;
        group.unwritten += entry.unwritten;
        group.used = group.used.max(entry.used);
        if !alone.names.is_empty() {
            groups.push(alone);
        }
    }
    groups.extend(shared.into_values());
    groups
}
