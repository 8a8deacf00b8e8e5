//! Finds, installs and runs uv, which locks requirements and builds environments.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;

use crate::config::INHERITED;
use crate::environment::interpreter::check_version;
use crate::environment::{Error, child, lock};
use crate::programs::{beside, on_path};

/// Version to install if uv is missing.
const UV_VERSION: &str = "0.13.8";

const VERSION_LIMIT: Duration = Duration::from_secs(20);
const VENV_LIMIT: Duration = Duration::from_secs(60);
const PYTHON_INSTALL_LIMIT: Duration = Duration::from_secs(10 * 60);
const BOOTSTRAP_LIMIT: Duration = Duration::from_secs(10 * 60);

/// Timeout of locking. It takes as long as the slowest source distribution, which must be built to determine its
/// requirements.
const LOCK_LIMIT: Duration = Duration::from_secs(10 * 60);

/// Timeout of an installation. A GPU framework is about 5 GB and takes two to three minutes with a fast connection;
/// compiling source distributions takes longer.
pub(crate) const INSTALL_LIMIT: Duration = Duration::from_secs(30 * 60);

/// A usable uv.
#[derive(Debug, Clone)]
pub struct Uv {
    path: PathBuf,
    /// Folder of its downloads; `None` for its default.
    cache: Option<PathBuf>,
    /// Whether it gets only the variables that it needs.
    is_cleared: bool,
}

/// Parameters of an installation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Install<'a> {
    /// The environment. It must not contain packages yet, because uv starts its Python.
    pub(crate) venv: &'a Path,
    /// The locked requirements.
    pub(crate) lock: &'a Path,
    pub(crate) require_hashes: bool,
    /// Whether to refuse source distributions, whose builds run code of their authors.
    pub(crate) wheels_only: bool,
}

/// The uv to use: `explicit`, else `STOKE_UV`, else the one next to this program (in a worker archive), else the one on
/// PATH, else the one below `cache_dir`, which is installed on first use. The archive's uv takes precedence over PATH
/// because it is the tested version.
///
/// # Errors
/// [`Error::UvMissing`] if it is missing and could not be installed; its text describes what to do.
pub async fn ensure_uv(explicit: Option<&Path>, cache_dir: &Path) -> Result<Uv, Error> {
    let named = std::env::var_os("STOKE_UV").filter(|name| !name.is_empty()).map(PathBuf::from);
    if let Some(path) = explicit.map(Path::to_owned).or(named) {
        // An explicit choice must not be replaced by another uv.
        let path = on_path(&path).unwrap_or(path);
        return usable(path.clone()).await.map_err(|why| Error::UvMissing(format!("{}: {why}", path.display())));
    }
    let installed = cache_dir.join("uv").join("bin").join("uv");
    for path in [beside("uv"), on_path(Path::new("uv")), Some(installed.clone())].into_iter().flatten() {
        match usable(path.clone()).await {
            Ok(uv) => return Ok(uv),
            Err(error) => tracing::debug!(%error, path = %path.display(), "not a usable uv"),
        }
    }
    bootstrap(cache_dir, &installed).await.map_err(|why| Error::UvMissing(format!("installing it failed: {why}")))?;
    usable(installed).await.map_err(|why| Error::UvMissing(format!("the installed uv does not run: {why}")))
}

async fn usable(path: PathBuf) -> Result<Uv, Error> {
    let uv = Uv { path: std::path::absolute(&path).unwrap_or(path), cache: None, is_cleared: false };
    let answer = child::run("querying the uv version", uv.command(["--version"]), VERSION_LIMIT).await?;
    if answer.starts_with("uv ") {
        Ok(uv)
    } else {
        Err(Error::UvMissing(format!("unexpected output: {:.80}", answer.trim())))
    }
}

/// Installs uv with pip, in a virtual environment or, if Python lacks `venv` or `ensurepip`, in a target folder. Only
/// the binary is kept: it has no dependencies, and moving it into place is atomic.
async fn bootstrap(cache_dir: &Path, installed: &Path) -> Result<(), Error> {
    let bin = installed.parent().unwrap_or(cache_dir);
    std::fs::create_dir_all(bin).map_err(Error::io(format!("create {}", bin.display())))?;
    let _turn = lock::exclusive(&cache_dir.join("uv.lock"), BOOTSTRAP_LIMIT).await?;
    if usable(installed.to_owned()).await.is_ok() {
        return Ok(());
    }
    tracing::info!(version = UV_VERSION, "uv not found; installing it");
    let scratch = tempfile::Builder::new().prefix("uv-").tempdir_in(cache_dir);
    let scratch = scratch.map_err(Error::io(format!("create a folder in {}", cache_dir.display())))?;
    let requirement = format!("uv=={UV_VERSION}");
    let (venv, target) = (scratch.path().join("venv"), scratch.path().join("target"));

    let arguments: [&OsStr; 3] = ["-m".as_ref(), "venv".as_ref(), venv.as_ref()];
    let made = child::run("python3 -m venv", python("python3".as_ref(), arguments), VENV_LIMIT).await;
    let built = match made {
        Ok(_) => {
            let pip = ["-m", "pip", "install", "--quiet", &requirement];
            child::run(
                "installing uv with pip",
                python(venv.join("bin").join("python").as_ref(), pip),
                BOOTSTRAP_LIMIT,
            )
            .await?;
            venv
        }
        Err(error) => {
            tracing::debug!(%error, "cannot create a virtual environment for uv; installing it into a folder");
            let pip: [&OsStr; 7] = [
                "-m".as_ref(),
                "pip".as_ref(),
                "install".as_ref(),
                "--quiet".as_ref(),
                "--target".as_ref(),
                target.as_ref(),
                requirement.as_ref(),
            ];
            child::run("installing uv with pip", python("python3".as_ref(), pip), BOOTSTRAP_LIMIT).await?;
            target
        }
    };
    std::fs::rename(built.join("bin").join("uv"), installed).map_err(Error::io("move uv into place"))
}

fn python<A: AsRef<OsStr>>(program: &OsStr, arguments: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    isolated(&mut command);
    command
}

/// Removes variables of the caller's own Python environment.
fn isolated(command: &mut Command) {
    for name in ["VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONHOME", "UV_PROJECT_ENVIRONMENT", "UV_PYTHON"] {
        command.env_remove(name);
    }
}

/// Variables that configure package sources and network access.
const REACHES: [&str; 23] = [
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "UV_DEFAULT_INDEX",
    "UV_INDEX",
    "UV_INDEX_URL",
    "UV_EXTRA_INDEX_URL",
    "UV_INDEX_STRATEGY",
    "UV_OFFLINE",
    "UV_HTTP_TIMEOUT",
    "UV_NATIVE_TLS",
    "UV_SYSTEM_CERTS",
    "UV_CONCURRENT_DOWNLOADS",
];

/// Variables that compilers need, if packages may be compiled.
const BUILDS: [&str; 2] = ["PATH", "CUDA_HOME"];

/// PATH with only the system's programs.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The variables of a uv that installs requirements of tenants, and the files that they name. `home` is its home.
pub(crate) fn confined_variables(home: &Path, cache: &Path, builds: bool) -> (BTreeMap<String, String>, Vec<PathBuf>) {
    let named: &[&str] = if builds { &BUILDS } else { &[] };
    let home = home.to_string_lossy().into_owned();
    let mut variables = BTreeMap::from([("PATH".to_owned(), PATH.to_owned())]);
    variables.extend(set(&REACHES).chain(set(named)).chain(index_credentials()));
    let fixed = [
        ("HOME", home.clone()),
        ("TMPDIR", home),
        ("UV_CACHE_DIR", cache.to_string_lossy().into_owned()),
        ("UV_PYTHON_DOWNLOADS", "never".to_owned()),
        ("NO_COLOR", "1".to_owned()),
    ];
    variables.extend(fixed.map(|(name, value)| (name.to_owned(), value)));
    match config_file() {
        Some(file) => variables.insert("UV_CONFIG_FILE".to_owned(), file.to_string_lossy().into_owned()),
        None => variables.insert("UV_NO_CONFIG".to_owned(), "1".to_owned()),
    };
    let files = ["SSL_CERT_FILE", "SSL_CERT_DIR", "UV_CONFIG_FILE"];
    let reads = files.iter().filter_map(|name| variables.get(*name)).map(PathBuf::from);
    let reads = reads.filter(|path| path.is_absolute() && path.parent().is_some()).collect();
    (variables, reads)
}

/// The variables of this list that are set.
fn set<'a>(names: &'a [&'a str]) -> impl Iterator<Item = (String, String)> + 'a {
    names.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)))
}

/// `UV_INDEX_<NAME>_USERNAME` and `_PASSWORD`: the credentials of the operator's indexes.
fn index_credentials() -> impl Iterator<Item = (String, String)> {
    let is_one =
        |name: &str| name.starts_with("UV_INDEX_") && (name.ends_with("_USERNAME") || name.ends_with("_PASSWORD"));
    let all =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    all.filter(move |(name, _)| is_one(name))
}

/// The operator's configuration file of uv, at the places where uv looks for it.
fn config_file() -> Option<PathBuf> {
    let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let of_user = || {
        let folder = var("XDG_CONFIG_HOME").or_else(|| Some(var("HOME")?.join(".config")))?;
        Some(folder.join("uv").join("uv.toml")).filter(|file| file.is_file())
    };
    let of_system = || Some(PathBuf::from("/etc/uv/uv.toml")).filter(|file| file.is_file());
    var("UV_CONFIG_FILE").or_else(of_user).or_else(of_system)
}

impl Uv {
    /// The program.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Locks requirements with these arguments, in `folder`. `python` is the oldest supported version.
    ///
    /// # Errors
    /// [`Error::Failed`] with uv's output if the requirements cannot be met.
    pub async fn lock(&self, arguments: &[OsString], folder: &Path, python: &str) -> Result<String, Error> {
        check_version(python)?;
        let mut command = self.plain();
        command.args(arguments).current_dir(folder);
        child::run("locking the requirements", command, LOCK_LIMIT).await
    }

    /// The same uv with its downloads in `cache`.
    pub(crate) fn with_cache(mut self, cache: PathBuf) -> Self {
        self.cache = Some(cache);
        self
    }

    /// The same uv with only the variables that it needs.
    pub(crate) fn cleared(mut self) -> Self {
        self.is_cleared = true;
        self
    }

    /// A Python of this version on this machine, installed by uv if missing.
    pub(crate) async fn find_python(&self, version: &str) -> Result<PathBuf, Error> {
        if let Ok(found) = self.python_here(version).await {
            return Ok(found);
        }
        tracing::info!(version, "Python not found; installing it with uv");
        let mut install = self.command(["python", "install", "--no-progress"]);
        install.arg(version);
        let missing = |error: Error| Error::PythonMissing { version: version.to_owned(), why: error.to_string() };
        child::run("installing Python", install, PYTHON_INSTALL_LIMIT).await.map_err(missing)?;
        self.python_here(version).await.map_err(missing)
    }

    /// A Python of this version on this machine.
    pub(crate) async fn python_here(&self, version: &str) -> Result<PathBuf, Error> {
        // `--system`: a virtual environment of the caller must not be used as a base.
        // Not `--quiet`, which suppresses the output too.
        let mut command = self.command(["python", "find", "--system", "--no-project"]);
        command.arg(version);
        Ok(PathBuf::from(child::run("looking for Python", command, VENV_LIMIT).await?.trim()))
    }

    /// Checks whether uv can build environments on this Python.
    pub(crate) async fn accepts(&self, python: &Path) -> Result<(), Error> {
        let mut command = self.command(["python", "find", "--system", "--no-project"]);
        command.arg(python);
        child::run("checking Python", command, VENV_LIMIT).await.map(drop)
    }

    /// Creates an environment that may be moved.
    pub(crate) async fn venv(&self, python: &Path, at: &Path) -> Result<(), Error> {
        let mut command =
            self.command(["venv", "--relocatable", "--no-project", "--quiet", "--allow-existing", "--python"]);
        command.arg(python).arg(at);
        child::run("creating the environment", command, VENV_LIMIT).await.map(drop)
    }

    /// Installs exactly the requirements of a lock. `uv` is a command for this uv with the intended rights.
    pub(crate) async fn sync(&self, mut uv: Command, sync: Install<'_>) -> Result<(), Error> {
        uv.args(["pip", "sync", "--quiet", "--no-progress", "--python"]).arg(sync.venv.join("bin").join("python"));
        if sync.require_hashes {
            uv.arg("--require-hashes");
        }
        if sync.wheels_only {
            uv.args(["--only-binary", ":all:"]);
        }
        uv.arg("--").arg(sync.lock);
        child::run("installing the requirements", uv, INSTALL_LIMIT).await.map(drop)
    }

    /// Installs one package without its dependencies, replacing any other version.
    pub(crate) async fn install(&self, venv: &Path, package: &OsStr) -> Result<(), Error> {
        let mut command = self.command(["pip", "install", "--quiet", "--no-progress", "--python"]);
        command.arg(venv.join("bin").join("python")).args(["--no-deps", "--reinstall", "--"]).arg(package);
        child::run("installing the runner", command, INSTALL_LIMIT).await.map(drop)
    }

    /// Deletes all downloads.
    pub(crate) async fn clean_cache(&self) -> Result<(), Error> {
        child::run("cleaning uv's cache", self.command(["cache", "clean", "--quiet"]), VENV_LIMIT).await.map(drop)
    }

    /// A command for this uv with the worker's rights.
    pub(crate) fn plain(&self) -> Command {
        self.command([])
    }

    fn command<const N: usize>(&self, arguments: [&str; N]) -> Command {
        let mut command = Command::new(&self.path);
        if self.is_cleared {
            command.env_clear().envs(set(&INHERITED)).envs(index_credentials());
        }
        command.args(arguments).env("NO_COLOR", "1");
        isolated(&mut command);
        if let Some(cache) = &self.cache {
            command.env("UV_CACHE_DIR", cache);
        }
        command
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn a_named_uv_that_is_none_is_refused_with_advice() {
        let folder = tempfile::tempdir().unwrap();
        let error = ensure_uv(Some(&folder.path().join("absent")), folder.path()).await.unwrap_err().to_string();
        assert!(error.contains("absent") && error.contains("STOKE_UV"), "{error}");
    }

    #[tokio::test]
    async fn a_python_is_found_by_its_version() {
        let asked = ["-c", "import sys; print('%d.%d' % sys.version_info[:2])"];
        let version = child::run("asking", python("python3".as_ref(), asked), VERSION_LIMIT).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let found = ensure_uv(None, folder.path()).await.unwrap().find_python(version.trim()).await.unwrap();
        assert!(found.is_file(), "{}", found.display());
    }

    #[tokio::test]
    async fn a_program_that_is_not_uv_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = ensure_uv(Some(Path::new("/bin/echo")), folder.path()).await.unwrap_err().to_string();
        assert!(error.contains("unexpected output"), "{error}");
    }
}
