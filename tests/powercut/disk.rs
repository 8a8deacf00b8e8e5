//! A disk whose power can be cut: a data directory, the record of what a server preloaded with `shim.c` made durable of
//! it, and the cut.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::draw::Draw;

/// The directory of a server, and the journal of what it made durable.
pub(crate) struct Disk {
    dir: TempDir,
    /// The length of each file, by inode, when the server started: that much was on the disk before.
    before: BTreeMap<u64, u64>,
}

/// The losses of a cut.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Dropped {
    pub(crate) bytes: u64,
    /// Files that lost bytes.
    pub(crate) files: u64,
    /// Creates, renames and unlinks that had not reached the disk.
    pub(crate) names: u64,
}

/// A change of a directory that no fsync has made durable yet.
enum Change {
    Create(PathBuf),
    Rename { from: PathBuf, to: PathBuf, saved: Option<PathBuf> },
    Unlink { path: PathBuf, saved: PathBuf },
}

impl Disk {
    /// An empty disk, with the shim compiled beside it.
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let disk = Self { dir, before: BTreeMap::new() };
        for folder in [disk.data(), disk.shadow()] {
            fs::create_dir(folder).unwrap();
        }
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("powercut/shim.c");
        let built = Command::new(&compiler)
            .args(["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"])
            .arg(disk.shim())
            .arg(source)
            .arg("-ldl")
            .status();
        assert!(
            built.is_ok_and(|status| status.success()),
            "{compiler} does not compile the shim: install a C compiler"
        );
        disk
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn shim(&self) -> PathBuf {
        self.dir.path().join("shim.so")
    }

    fn journal(&self) -> PathBuf {
        self.dir.path().join("journal")
    }

    fn shadow(&self) -> PathBuf {
        self.dir.path().join("shadow")
    }

    /// Makes `server` record what it makes durable. Everything on the disk now counts as durable.
    pub(crate) fn arm(&mut self, server: &mut Command) {
        fs::write(self.journal(), "").unwrap();
        for saved in fs::read_dir(self.shadow()).unwrap() {
            fs::remove_file(saved.unwrap().path()).unwrap();
        }
        self.before = self.files().iter().map(|(_, file)| (file.ino(), file.len())).collect();
        server.env("LD_PRELOAD", self.shim());
        server.env("POWERCUT_JOURNAL", self.journal()).env("POWERCUT_SHADOW", self.shadow());
    }

    /// Removes everything that was not durable; the server has been killed. Each file loses the bytes after its last
    /// fsync: in half of the cases all of them, otherwise from a random one on, as on a disk that wrote a part of its
    /// cache. Of the changes of names since a directory's last fsync a random number of the oldest stay: file systems
    /// keep their order.
    pub(crate) fn cut(&self, draw: &mut Draw) -> Dropped {
        let journal = fs::read_to_string(self.journal()).unwrap();
        let mut dropped = Dropped::default();

        let mut safe = self.before.clone();
        let mut changes = Vec::new();
        for line in journal.lines() {
            self.replay(line, &mut safe, &mut changes);
        }
        let mut stay = BTreeMap::new();
        for (folder, _) in &changes {
            *stay.entry(*folder).or_insert(0) += 1;
        }
        for kept in stay.values_mut() {
            *kept = draw.below(*kept + 1);
        }
        let mut gone = Vec::new();
        for (folder, change) in changes {
            match stay.get_mut(&folder) {
                Some(kept) if *kept > 0 => *kept -= 1,
                _ => gone.push(change),
            }
        }
        dropped.names = gone.len() as u64;
        gone.into_iter().rev().for_each(Change::undo);
        for (path, file) in self.files() {
            let tail = file.len().saturating_sub(safe.get(&file.ino()).copied().unwrap_or(0));
            if tail == 0 {
                continue;
            }
            let kept = if draw.below(2) == 0 { 0 } else { draw.below(tail) };
            OpenOptions::new().write(true).open(&path).unwrap().set_len(file.len() - tail + kept).unwrap();
            dropped.bytes += tail - kept;
            dropped.files += 1;
        }
        dropped
    }

    /// Each change is listed with the inode of the directory whose fsync makes it durable.
    fn replay(&self, line: &str, safe: &mut BTreeMap<u64, u64>, changes: &mut Vec<(u64, Change)>) {
        let words: Vec<&str> = line.split(' ').collect();
        let ours = |path: &str| Some(self.data().join(path)).filter(|path| path.starts_with(self.data()));
        let change = match words[..] {
            ["sync", inode, bytes] => {
                let longest = safe.entry(inode.parse().unwrap()).or_default();
                *longest = (*longest).max(bytes.parse().unwrap());
                return;
            }
            ["dirsync", inode] => {
                let inode: u64 = inode.parse().unwrap();
                changes.retain(|(folder, _)| *folder != inode);
                return;
            }
            ["create", path] => ours(path).map(|path| (path.clone(), Change::Create(path))),
            ["rename", from, to, saved] => ours(from).zip(ours(to)).map(|(from, to)| {
                let saved = (saved != "-").then(|| PathBuf::from(saved));
                (to.clone(), Change::Rename { from, to, saved })
            }),
            ["unlink", path, saved] => {
                ours(path).map(|path| (path.clone(), Change::Unlink { path, saved: PathBuf::from(saved) }))
            }
            // The last line may be incomplete: the process was killed.
            _ => None,
        };
        if let Some((path, change)) = change {
            let folder = fs::metadata(path.parent().unwrap()).unwrap().ino();
            changes.push((folder, change));
        }
    }

    /// Removes the entries after `file` from the manifest: they cannot be read without the lost part of `file`.
    pub(crate) fn end_manifest_after(&self, file: &str) {
        let path = self.data().join("appendonlydir/appendonly.aof.manifest");
        let manifest = fs::read_to_string(&path).unwrap();
        let mark = format!("file {file} ");
        let upto = manifest.lines().position(|line| line.starts_with(&mark)).unwrap();
        let kept: Vec<&str> = manifest.lines().take(upto + 1).collect();
        fs::write(path, kept.join("\n") + "\n").unwrap();
    }

    fn files(&self) -> Vec<(PathBuf, fs::Metadata)> {
        let (mut folders, mut found) = (vec![self.data()], Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let metadata = fs::symlink_metadata(&path).unwrap();
                if metadata.is_dir() {
                    folders.push(path);
                } else {
                    found.push((path, metadata));
                }
            }
        }
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        found
    }
}

impl Change {
    fn undo(self) {
        let undone = match self {
            Self::Create(path) => fs::remove_file(path),
            Self::Rename { from, to, saved } => fs::rename(&to, from).and_then(|()| match saved {
                Some(saved) => fs::hard_link(saved, to),
                None => Ok(()),
            }),
            Self::Unlink { path, saved } => fs::hard_link(saved, path),
        };
        match undone {
            // It has been renamed since, in a directory where the new name is durable.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            undone => undone.unwrap(),
        }
    }
}
