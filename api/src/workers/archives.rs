//! `/v1/worker/`: the script and the archive that install a worker on a new host. No token is needed because neither
//! contains a secret: the operator supplies the join token.

use std::path::Path as FsPath;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use tokio::fs::{self, File};
use tokio::time::timeout;
use tokio_util::io::ReaderStream;

use crate::config::Config;
use crate::error::{Code, Problem, ProblemBody};
use crate::names;
use crate::server::path::Path;

/// The script, with placeholders for the values of this replica.
const SCRIPT: &str = include_str!("archives/install.sh");

/// Timeout of the disk.
const DISK_LIMIT: Duration = Duration::from_secs(5);

const READ_BYTES: usize = 64 << 10;

/// A worker archive of this release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Archive {
    /// Machine type, as printed by `uname -m`.
    pub arch: String,
    /// File name.
    pub name: String,
    /// SHA-256 of its bytes, hex.
    pub sha256: String,
}

/// Get the script that installs a worker on a machine
#[utoipa::path(get, operation_id = "worker_install_script", path = "/v1/worker/install.sh", tag = "workers", security(()),
    responses(
        (status = 200, description = "A script for sh that expects STOKE_JOIN_TOKEN in its environment.", content_type = "text/x-shellscript", body = String),
        (status = 404, description = "`not_found`: this API has no archive of the worker.", content_type = "application/problem+json", body = ProblemBody),
        (status = 503, description = "`unavailable`: the API's disk does not answer.", content_type = "application/problem+json", body = ProblemBody),
    ))]
pub(crate) async fn script(State(config): State<Arc<Config>>) -> Result<Response, Problem> {
    let archives = archives(config.worker_dist.as_deref()).await?;
    let script = filled(&config.public_url, &archives);
    Ok(([(CONTENT_TYPE, "text/x-shellscript; charset=utf-8"), (CACHE_CONTROL, "no-store")], script).into_response())
}

/// Get an archive of the worker
#[utoipa::path(get, operation_id = "worker_archive", path = "/v1/worker/archives/{name}", tag = "workers", security(()),
    params(("name" = String, Path, description = "The archive's name, as in the script.")),
    responses(
        (status = 200, description = "The `.tar.gz`.", content_type = "application/gzip", body = Vec<u8>),
        (status = 404, description = "`not_found`: no such archive.", content_type = "application/problem+json", body = ProblemBody),
        (status = 503, description = "`unavailable`: the API's disk does not answer.", content_type = "application/problem+json", body = ProblemBody),
    ))]
pub(crate) async fn archive(State(config): State<Arc<Config>>, Path(name): Path<String>) -> Result<Response, Problem> {
    let folder = config.worker_dist.as_deref();
    // The name is compared with those of the existing archives, and never used as a path itself.
    let known = archives(folder).await?.into_iter().find(|archive| archive.name == name);
    let (Some(folder), Some(known)) = (folder, known) else {
        return Err(Problem::new(
            Code::NotFound,
            "no such archive; /v1/worker/install.sh names those that this API serves",
        ));
    };
    let open = async {
        let file = File::open(folder.join(known.name)).await?;
        let length = file.metadata().await?.len();
        Ok::<_, std::io::Error>((file, length))
    };
    let (file, length) = on_disk(open).await?;
    let body = Body::from_stream(ReaderStream::with_capacity(file, READ_BYTES));
    Ok(([(CONTENT_TYPE, "application/gzip".to_owned()), (CONTENT_LENGTH, length.to_string())], body).into_response())
}

/// Archives of this release: a worker of another release may use another protocol.
async fn archives(folder: Option<&FsPath>) -> Result<Vec<Archive>, Problem> {
    let found = match folder {
        Some(folder) => on_disk(list(folder)).await?,
        None => Vec::new(),
    };
    if found.is_empty() {
        let detail = format!(
            "this API has no worker archive of release {}; `make worker-dist` builds it, and STOKE_WORKER_DIST names its folder",
            env!("CARGO_PKG_VERSION")
        );
        return Err(Problem::new(Code::NotFound, detail));
    }
    Ok(found)
}

/// Lists the worker archives in a folder, by name. Each has its checksum beside it, as `make worker-dist` writes it.
/// Omits archives without one and those of another release. A missing folder has none.
///
/// # Errors
/// When the folder cannot be read.
pub async fn list(folder: &FsPath) -> std::io::Result<Vec<Archive>> {
    let mut found = Vec::new();
    let mut entries = match fs::read_dir(folder).await {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(found),
        entries => entries?,
    };
    while let Some(entry) = entries.next_entry().await? {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let Some(arch) = arch_of(&name) else { continue };
        let Ok(line) = fs::read_to_string(folder.join(format!("{name}.sha256"))).await else { continue };
        let sha256 = line.split_whitespace().next().unwrap_or_default();
        if names::is_sha256(sha256) {
            found.push(Archive { arch: arch.to_owned(), sha256: sha256.to_owned(), name });
        }
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

/// Machine type in a name such as `stokehold-worker-0.1.0-x86_64-linux.tar.gz`. It is inserted into a script unchanged.
fn arch_of(name: &str) -> Option<&str> {
    let rest = name.strip_prefix("stokehold-worker-")?.strip_prefix(env!("CARGO_PKG_VERSION"))?.strip_prefix('-')?;
    let arch = rest.strip_suffix("-linux.tar.gz")?;
    let is_word = !arch.is_empty() && arch.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_word.then_some(arch)
}

fn filled(gateway: &str, archives: &[Archive]) -> String {
    let cases: Vec<String> = archives
        .iter()
        .map(|Archive { arch, name, sha256 }| format!("    {arch}) archive={name} sum={sha256} ;;"))
        .collect();
    let words: Vec<&str> = archives.iter().map(|archive| archive.arch.as_str()).collect();
    SCRIPT
        .replace("@ARCHIVES@", cases.join("\n").trim_start())
        .replace("@ARCHES@", &words.join(", "))
        .replace("@RELEASE@", env!("CARGO_PKG_VERSION"))
        .replace("@GATEWAY@", &gateway.replace('\'', "'\\''"))
}

async fn on_disk<T>(step: impl Future<Output = std::io::Result<T>>) -> Result<T, Problem> {
    let failed = |why: String| {
        tracing::error!(why, "the worker archives cannot be read");
        Problem::new(Code::Unavailable, "the worker archives cannot be read at present; the API's log has the reason")
    };
    match timeout(DISK_LIMIT, step).await {
        Ok(done) => done.map_err(|error| failed(error.to_string())),
        Err(_) => Err(failed("the disk did not answer in time".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_archives_of_this_release_have_an_architecture() {
        let name = |arch: &str| format!("stokehold-worker-{}-{arch}-linux.tar.gz", env!("CARGO_PKG_VERSION"));
        assert_eq!(arch_of(&name("x86_64")), Some("x86_64"));
        for other in [
            name(""),
            name("a;b"),
            name("../x"),
            name("x86_64") + ".sha256",
            "stokehold-worker-9.9.9-x86_64-linux.tar.gz".to_owned(),
        ] {
            assert_eq!(arch_of(&other), None, "{other}");
        }
    }

    #[test]
    fn the_script_is_filled_and_an_address_cannot_leave_its_quotes() {
        let (arch, name, sha256) = ("x86_64".to_owned(), "a.tar.gz".to_owned(), "0".repeat(64));
        let script = filled("https://g/'; true '", &[Archive { arch, name, sha256 }]);
        for place in ["@ARCHIVES@", "@ARCHES@", "@RELEASE@", "@GATEWAY@"] {
            assert!(SCRIPT.contains(place) && !script.contains(place), "{place}");
        }
        assert!(script.contains(r"'https://g/'\''; true '\'''"), "{script}");
        assert!(script.trim_end().ends_with("main \"$@\""), "a script that was cut runs nothing");
    }
}
