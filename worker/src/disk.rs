//! Full disks. A worker whose disk is full would fail jobs faster than others run them: it takes no more until there is room, and
//! what failed for want of room is its own fault and not the handler's.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::statvfs::statvfs;
use stokehold_queue::job::{ErrorCode, Fault, JobError};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// A disk with less free space is full, bytes.
const ROOM_MIN: u64 = 64 << 20;

/// A disk with fewer files left is full.
const FILES_MIN: u64 = 100;

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A disk that does not answer within this is as good as full.
const LOOK_MAX: Duration = Duration::from_secs(5);

/// The disks that jobs write to: scratch space, environments and packages.
pub(crate) struct Disks {
    folders: [PathBuf; 2],
    looked: Option<Instant>,
    has_room: bool,
}

impl Disks {
    pub(crate) fn new(data_dir: &Path, cache_dir: &Path) -> Self {
        Self { folders: [data_dir.to_owned(), cache_dir.to_owned()], looked: None, has_room: true }
    }

    /// Whether more jobs may come. Looks once a second at most, and says when it changes.
    pub(crate) async fn have_room(&mut self) -> bool {
        if self.looked.is_none_or(|looked| looked.elapsed() >= LOOK_EVERY) {
            self.looked = Some(Instant::now());
            let folders = self.folders.clone();
            // A disk on a network may hang, and the worker's one thread must go on beating.
            let look = spawn_blocking(move || folders.into_iter().find(|folder| !has_room(folder)));
            let full = match timeout(LOOK_MAX, look).await {
                Ok(Ok(full)) => full,
                Ok(Err(_)) | Err(_) => Some(self.folders[0].clone()),
            };
            match &full {
                Some(folder) if self.has_room => tracing::error!(
                    path = %folder.display(),
                    "this disk has less than {} MiB free or does not respond; taking no jobs until it has space",
                    ROOM_MIN >> 20
                ),
                None if !self.has_room => tracing::info!("the disks have free space again"),
                _ => {}
            }
            self.has_room = full.is_none();
        }
        self.has_room
    }
}

/// A disk that cannot be asked is taken to have room: what fails on it says so itself.
#[expect(clippy::useless_conversion, reason = "the fields' types differ between systems")]
fn has_room(folder: &Path) -> bool {
    statvfs(folder).map_or(true, |stat| {
        let bytes = u64::from(stat.blocks_available()).saturating_mul(u64::from(stat.fragment_size()));
        // Some file systems make room for files as they come, and count none.
        bytes >= ROOM_MIN && (stat.files() == 0 || u64::from(stat.files_available()) >= FILES_MIN)
    })
}

/// The error of an attempt, as `infra` when a full disk is behind it: the job is tried again, most likely elsewhere, at no cost to its
/// own attempts.
pub(crate) fn blamed(error: JobError) -> JobError {
    /// ENOSPC and EDQUOT, as everybody writes them.
    const SIGNS: [&str; 2] = ["No space left on device", "Disk quota exceeded"];
    if error.code.fault() != Fault::Model || !SIGNS.iter().any(|sign| error.message.contains(sign)) {
        return error;
    }
    JobError { code: ErrorCode::Infra, message: format!("this worker's disk is full: {}", error.message), ..error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_names_a_full_disk_is_blamed_on_it() {
        let full = "[Errno 28] No space left on device: 'out.bin'";
        let blamed_code = |code, message: &str| blamed(JobError::new(code, message)).code;
        for code in [ErrorCode::HandlerError, ErrorCode::SetupFailed, ErrorCode::EnvironmentFailed] {
            assert_eq!(blamed_code(code, full), ErrorCode::Infra);
            assert_eq!(blamed_code(code, "no such thing"), code);
        }
        assert_eq!(blamed_code(ErrorCode::OomGpu, full), ErrorCode::OomGpu);
        assert!(blamed(JobError::new(ErrorCode::HandlerError, full)).message.ends_with(full));
    }

    #[tokio::test]
    async fn a_folder_that_is_not_there_has_room() {
        assert!(Disks::new(Path::new("/no/such"), Path::new("/no/such")).have_room().await);
    }
}
