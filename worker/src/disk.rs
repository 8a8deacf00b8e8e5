//! Full disks. A worker with a full disk would fail jobs faster than other workers run them. Therefore, it leases no
//! jobs until there is space, and failures caused by a full disk count as the worker's, not the handler's.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::statvfs::statvfs;
use stokehold_protocol::job::{ErrorCode, JobError, Responsible};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// A disk with fewer free bytes counts as full.
const ROOM_MIN: u64 = 64 << 20;

/// A disk with fewer free inodes counts as full.
const FILES_MIN: u64 = 100;

const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A disk that does not respond within this time counts as full.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// The disks that jobs write to: those of scratch space, environments and packages.
pub(crate) struct Disks {
    folders: [PathBuf; 2],
    checked_at: Option<Instant>,
    has_room: bool,
}

impl Disks {
    pub(crate) fn new(data_dir: &Path, cache_dir: &Path) -> Self {
        Self { folders: [data_dir.to_owned(), cache_dir.to_owned()], checked_at: None, has_room: true }
    }

    /// Whether the worker may lease more jobs. Checks the disks at most once a second, and logs changes.
    pub(crate) async fn have_room(&mut self) -> bool {
        if self.checked_at.is_none_or(|checked_at| checked_at.elapsed() >= CHECK_INTERVAL) {
            self.checked_at = Some(Instant::now());
            let folders = self.folders.clone();
            // A network disk may hang, and the worker's only thread must continue to send heartbeats.
            let check = spawn_blocking(move || folders.into_iter().find(|folder| !has_room(folder)));
            let full = match timeout(CHECK_TIMEOUT, check).await {
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

/// Whether a disk has space. A disk that cannot be checked counts as having space: writing to it fails with its own
/// error.
#[expect(clippy::useless_conversion, reason = "the fields' types differ between systems")]
fn has_room(folder: &Path) -> bool {
    statvfs(folder).map_or(true, |stat| {
        let bytes = u64::from(stat.blocks_available()).saturating_mul(u64::from(stat.fragment_size()));
        // Some file systems allocate inodes dynamically and report none.
        bytes >= ROOM_MIN && (stat.files() == 0 || u64::from(stat.files_available()) >= FILES_MIN)
    })
}

/// Converts the error of an attempt to `infra` if a full disk caused it: the job is retried, usually on another worker,
/// without using up its attempts.
pub(crate) fn attribute_to_disk(error: JobError) -> JobError {
    /// The standard messages of ENOSPC and EDQUOT.
    const SIGNS: [&str; 2] = ["No space left on device", "Disk quota exceeded"];
    if error.code.fault() != Responsible::Model || !SIGNS.iter().any(|sign| error.message.contains(sign)) {
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
        let blamed_code = |code, message: &str| attribute_to_disk(JobError::new(code, message)).code;
        for code in [ErrorCode::HandlerError, ErrorCode::SetupFailed, ErrorCode::EnvironmentFailed] {
            assert_eq!(blamed_code(code, full), ErrorCode::Infra);
            assert_eq!(blamed_code(code, "no such thing"), code);
        }
        assert_eq!(blamed_code(ErrorCode::OomGpu, full), ErrorCode::OomGpu);
        assert!(attribute_to_disk(JobError::new(ErrorCode::HandlerError, full)).message.ends_with(full));
    }

    #[tokio::test]
    async fn a_folder_that_is_not_there_has_room() {
        assert!(Disks::new(Path::new("/no/such"), Path::new("/no/such")).have_room().await);
    }
}
