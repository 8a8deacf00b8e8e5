//! What there is. Every look is bounded in time; what cannot be found out is absent.

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

/// A driver that hangs must not keep a worker from starting; one that is cold takes seconds without its persistence daemon.
const NVML_LIMIT: Duration = Duration::from_secs(60);

/// Where NVIDIA's libraries lie when the loader's cache does not know them.
const LIBRARIES: [&str; 5] =
    ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/lib/wsl/lib"];

/// The Pythons that runners could use.
pub(super) struct Pythons {
    /// The version of the `python3` on PATH.
    pub(super) on_path: Option<String>,
    /// Why uv cannot build on that.
    pub(super) trouble: Option<String>,
    /// Where `on_path` will not do: what uv found instead.
    pub(super) other: Option<PathBuf>,
}

/// What the system says of NVIDIA's GPUs.
pub(super) struct Gpus {
    /// Device files of GPUs are there.
    pub(super) has_devices: bool,
    /// The version of the driver in the kernel.
    pub(super) kernel: Option<String>,
    /// What the driver's library says.
    pub(super) nvml: Result<Driver, Trouble>,
    /// CUDA's own library, which jobs call, is there as well.
    pub(super) has_cuda_library: bool,
    /// The CUDA that this container image brings, as NVIDIA's images say.
    pub(super) image_cuda: Option<String>,
}

/// A driver that answers.
pub(super) struct Driver {
    pub(super) version: Option<String>,
    /// The newest CUDA that it serves, as `12.8`.
    pub(super) cuda: Option<String>,
    /// Their names.
    pub(super) gpus: Vec<String>,
}

/// Why it does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// No library to ask.
    NoLibrary,
    /// The library is of another version than the driver in the kernel.
    Mismatch,
    /// The library is there, the driver in the kernel is not.
    NotLoaded,
    /// Something else, in NVML's words.
    Other(String),
}

impl From<NvmlError> for Trouble {
    fn from(error: NvmlError) -> Self {
        match error {
            NvmlError::LibloadingError(_) => Self::NoLibrary,
            NvmlError::LibRmVersionMismatch => Self::Mismatch,
            NvmlError::DriverNotLoaded => Self::NotLoaded,
            error => Self::Other(error.to_string()),
        }
    }
}

/// The version of the C library, as `2.31`.
pub(super) async fn glibc() -> Option<String> {
    let mut command = Command::new("getconf");
    command.arg("GNU_LIBC_VERSION");
    let answer = child::run("querying the glibc version", command, LIMIT).await.ok()?;
    answer.trim().strip_prefix("glibc ").map(str::to_owned)
}

pub(super) async fn python(uv: Option<&Uv>) -> Pythons {
    let on_path = interpreter::default().await.ok();
    let version = on_path.as_ref().and_then(|found| found.identity.split_whitespace().next()).map(str::to_owned);
    let trouble = match (uv, &on_path) {
        (Some(uv), Some(found)) if serves(&found.identity) => {
            uv.accepts(&found.program).await.err().map(|error| error.to_string())
        }
        _ => None,
    };
    let is_good = trouble.is_none() && version.as_deref().is_some_and(serves);
    let other = match uv {
        Some(uv) if !is_good => uv.python_here(PYTHON_MIN).await.ok(),
        _ => None,
    };
    Pythons { on_path: version, trouble, other }
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

/// Room on the disk where a folder is or would be.
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
        Ok(Ok(answer)) => answer.map_err(|error: NvmlError| Trouble::from(error)),
        Ok(Err(panic)) => Err(Trouble::Other(panic.to_string())),
        Err(_) => Err(Trouble::Other(format!("no response within {} s", NVML_LIMIT.as_secs()))),
    };
    let kernel = fs::read_to_string("/proc/driver/nvidia/version").ok().and_then(|text| kernel_version(&text));
    // Nobody needs it where there is no driver, and looking takes a process.
    let has_cuda_library = nvml.is_ok() && has_library("libcuda.so.1").await;
    let image_cuda = std::env::var("CUDA_VERSION").ok();
    Gpus { has_devices: gpus::have_devices(), kernel, nvml, has_cuda_library, image_cuda }
}

/// Of the first line of `/proc/driver/nvidia/version`: the one word that is numbers and dots.
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

/// The part of `/healthz` that matters here.
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
    async fn a_library_that_is_not_there_is_told_from_one_that_fails() {
        let found = gpus(Some("/no/such/libnvidia-ml.so.1".into())).await;
        assert_eq!(found.nvml.err(), Some(Trouble::NoLibrary));
    }

    #[tokio::test]
    async fn this_machines_glibc_is_found() {
        assert!(glibc().await.is_none_or(|version| version.starts_with("2.")));
    }
}
