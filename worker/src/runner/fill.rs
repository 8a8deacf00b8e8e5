//! Limits the scratch space of a runner by polling, because the file system does not account for it.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::mpsc::WeakSender;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::driver::Command;
use crate::scratch::open_folder_below;

const EVERY: Duration = Duration::from_secs(2);

/// Notifies the driver when its scratch space exceeds `most` bytes. Ends with the driver.
pub(super) async fn watch(folder: PathBuf, most: u64, driver: WeakSender<Command>) {
    loop {
        sleep(EVERY).await;
        if driver.strong_count() == 0 {
            return;
        }
        let measured = folder.clone();
        let taken = spawn_blocking(move || bytes(&measured)).await.unwrap_or(0);
        if taken > most {
            if let Some(driver) = driver.upgrade() {
                let _ = driver.send(Command::Overfull(most)).await;
            }
            return;
        }
    }
}

/// Disk space of everything below a folder; files that disappear meanwhile count as 0. Handlers change the folder
/// concurrently, so no link is followed.
fn bytes(folder: &Path) -> u64 {
    let Ok(top) = File::open(folder) else { return 0 };
    let mut taken = 0;
    let mut folders = vec![PathBuf::from(".")];
    while let Some(below) = folders.pop() {
        let Ok(opened) = open_folder_below(&top, &below) else { continue };
        let measure = |entry: io::Result<fs::DirEntry>| {
            let entry = entry.ok()?;
            // The metadata of a link itself, not of its target.
            Some((entry.file_name(), entry.metadata().ok()?))
        };
        let entries = fs::read_dir(format!("/proc/self/fd/{}", opened.as_raw_fd()));
        for (name, metadata) in entries.into_iter().flatten().filter_map(measure) {
            if metadata.is_dir() {
                folders.push(below.join(name));
            } else {
                taken += metadata.blocks() * 512;
            }
        }
    }
    taken
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn what_is_there_counts_and_what_a_link_leads_to_does_not() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(folder.path().join("deep")).unwrap();
        fs::write(folder.path().join("deep/a"), vec![1; 1 << 20]).unwrap();
        fs::write(other.path().join("b"), vec![1; 1 << 20]).unwrap();
        std::os::unix::fs::symlink(other.path(), folder.path().join("link")).unwrap();
        let taken = bytes(folder.path());
        assert!((1 << 20..3 << 19).contains(&taken), "{taken}");
        assert_eq!(bytes(Path::new("/no/such")), 0);
    }
}
