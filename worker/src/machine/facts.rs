//! Facts about this machine. Every check has a timeout; unknown facts are absent.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::statvfs::statvfs;
use nvml_wrapper::error::NvmlError;
use serde::Deserialize;
use tokio::process::Command;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::{Finding, judge};
use crate::environment::interpreter::{self, PYTHON_MIN, serves};
use crate::environment::{Error, child};
use crate::gpus::{self, nvml};
use crate::uv::Uv;

const LIMIT: Duration = Duration::from_secs(10);

/// Timeout of NVML. A driver that hangs must not prevent a worker from starting; without its persistence daemon, a
/// driver needs seconds to start.
const NVML_LIMIT: Duration = Duration::from_secs(60);

/// Folders of NVIDIA's libraries that may be missing from the loader's cache.
const LIBRARIES: [&str; 5] =
    ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/lib/wsl/lib"];

/// The Python interpreters that runners could use.
pub(super) struct Pythons {
    /// Version of the `python3` on PATH.
    pub(super) on_path: Option<String>,
    /// Why uv cannot use it.
    pub(super) problem: Option<String>,
    /// The interpreter that uv found instead, if `on_path` is not usable.
    pub(super) other: Option<PathBuf>,
}

/// Facts about NVIDIA GPUs.
pub(super) struct Gpus {
    /// Whether device files of GPUs exist.
    pub(super) has_devices: bool,
    /// Version of the driver in the kernel.
    pub(super) kernel: Option<String>,
    /// Result of the driver's library.
    pub(super) nvml: Result<Driver, DriverError>,
    /// Whether CUDA's library, which jobs use, exists.
    pub(super) has_cuda_library: bool,
    /// CUDA version of this container image, as declared by NVIDIA's images.
    pub(super) image_cuda: Option<String>,
}

/// A working driver.
pub(super) struct Driver {
    pub(super) version: Option<String>,
    /// The newest supported CUDA version, e.g. `12.8`.
    pub(super) cuda: Option<String>,
    /// Names of the GPUs.
    pub(super) gpus: Vec<String>,
}

/// Why the driver does not work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DriverError {
    /// The library is missing.
    NoLibrary,
    /// The library and the driver in the kernel have different versions.
    Mismatch,
    /// The library exists, but no driver is loaded in the kernel.
    NotLoaded,
    /// Another error of NVML.
    Other(String),
}

impl From<NvmlError> for DriverError {
    fn from(error: NvmlError) -> Self {
        match error {
            NvmlError::LibloadingError(_) => Self::NoLibrary,
            NvmlError::LibRmVersionMismatch => Self::Mismatch,
            NvmlError::DriverNotLoaded => Self::NotLoaded,
            error => Self::Other(error.to_string()),
        }
    }
}

/// Version of the C library, e.g. `2.31`.
pub(super) async fn glibc() -> Option<String> {
    let mut command = Command::new("getconf");
    command.arg("GNU_LIBC_VERSION");
    let answer = child::run("querying the glibc version", command, LIMIT).await.ok()?;
    answer.trim().strip_prefix("glibc ").map(str::to_owned)
}

pub(super) async fn python(uv: Option<&Uv>) -> Pythons {
    let on_path = interpreter::default().await.ok();
    let version = on_path.as_ref().and_then(|found| found.identity.split_whitespace().next()).map(str::to_owned);
    let problem = match (uv, &on_path) {
        (Some(uv), Some(found)) if serves(&found.identity) => {
            uv.accepts(&found.program).await.err().map(|error| error.to_string())
        }
        _ => None,
    };
    let is_good = problem.is_none() && version.as_deref().is_some_and(serves);
    let other = match uv {
        Some(uv) if !is_good => uv.python_here(PYTHON_MIN).await.ok(),
        _ => None,
    };
    Pythons { on_path: version, problem, other }
}

pub(super) async fn uv(found: Result<Uv, Error>) -> Finding {
    let found = async {
        let uv = found?;
        let mut command = Command::new(uv.path());
        command.arg("--version");
        let version = child::run("querying the uv version", command, LIMIT).await?;
        Ok::<_, Error>(format!("{}, {}", version.trim(), uv.path().display()))
    };
    judge::uv(found.await.map_err(|error| error.to_string()))
}

/// Free space of the disk on which a folder is or would be.
#[expect(clippy::useless_conversion, reason = "the fields' types differ between systems")]
pub(super) fn free_bytes(folder: &Path) -> Result<u64, String> {
    let absolute = std::path::absolute(folder).map_err(|error| error.to_string())?;
    let there = absolute.ancestors().find(|folder| folder.exists()).ok_or("no such folder")?;
    let stat = statvfs(there).map_err(|error| error.to_string())?;
    Ok(u64::from(stat.blocks_available()).saturating_mul(u64::from(stat.fragment_size())))
}

pub(super) async fn gpus(library: Option<PathBuf>) -> Gpus {
    let asked = spawn_blocking(move || {
        let nvml = nvml::open(library.as_deref())?;
        let (version, cuda) = nvml::versions(&nvml);
        Ok(Driver { version, cuda, gpus: nvml::gpus(&nvml).into_iter().map(|gpu| gpu.name).collect() })
    });
    let nvml = match timeout(NVML_LIMIT, asked).await {
        Ok(Ok(answer)) => answer.map_err(|error: NvmlError| DriverError::from(error)),
        Ok(Err(panic)) => Err(DriverError::Other(panic.to_string())),
        Err(_) => Err(DriverError::Other(format!("no response within {} s", NVML_LIMIT.as_secs()))),
    };
    let kernel = fs::read_to_string("/proc/driver/nvidia/version").ok().and_then(|text| kernel_version(&text));
    // Checked only with a driver, because it starts a process.
    let has_cuda_library = nvml.is_ok() && has_library("libcuda.so.1").await;
    let image_cuda = std::env::var("CUDA_VERSION").ok();
    Gpus { has_devices: gpus::have_devices(), kernel, nvml, has_cuda_library, image_cuda }
}

/// Parses the first line of `/proc/driver/nvidia/version`: the only word of digits and dots.
fn kernel_version(text: &str) -> Option<String> {
    let is_version = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    text.lines().next()?.split_whitespace().find(is_version).map(str::to_owned)
}

async fn has_library(name: &str) -> bool {
    let named = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = std::env::split_paths(&named).chain(LIBRARIES.map(PathBuf::from));
    if folders.into_iter().any(|folder| folder.join(name).exists()) {
        return true;
    }
    let mut command = Command::new("/sbin/ldconfig");
    command.arg("-p");
    child::run("listing the libraries", command, LIMIT).await.is_ok_and(|known| known.contains(name))
}

/// The relevant part of `/healthz`.
#[derive(Deserialize)]
struct Health {
    release: String,
}

/// The gateway's release.
pub(super) async fn gateway(url: &str) -> Result<String, String> {
    let asked = async {
        let http = reqwest::Client::builder().timeout(LIMIT).build()?;
        let answer = http.get(format!("{}/healthz", url.trim_end_matches('/'))).send().await?.error_for_status()?;
        anyhow::Ok(answer.json::<Health>().await?.release)
    };
    asked.await.map_err(|error| format!("{error:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_driver_is_read_as_both_kinds_write_it() {
        let closed =
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\nGCC version:";
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (root@)\n";
        assert_eq!(kernel_version(closed).as_deref(), Some("535.129.03"));
        assert_eq!(kernel_version(open).as_deref(), Some("570.86.15"));
        assert_eq!(kernel_version(""), None);
    }

    #[tokio::test]
    async fn a_missing_library_differs_from_one_that_fails() {
        let found = gpus(Some("/no/such/libnvidia-ml.so.1".into())).await;
        assert_eq!(found.nvml.err(), Some(DriverError::NoLibrary));
    }

    #[tokio::test]
    async fn this_machines_glibc_is_found() {
        assert!(glibc().await.is_none_or(|version| version.starts_with("2.")));
    }
}
