//! The Python interpreters that environments are built on.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::process::Command;

use super::{Error, child};
use crate::programs::beside;
use crate::uv::Uv;

/// Python versions that runners support, in uv's syntax: the wheel's `requires-python`.
pub(crate) const PYTHON_MIN: &str = ">=3.9";

const PROBE_LIMIT: Duration = Duration::from_secs(30);

/// Prints six lines: the program without symbolic links or shims; the ABI that compiled extensions must match; the
/// platform and its C library, which determine the compatible wheels; the cache tag of bytecode; and the two folders of
/// the installation.
const PROBE: &str = "import os, platform, sys, sysconfig
print(os.path.realpath(getattr(sys, '_base_executable', None) or sys.executable))
print(platform.python_version(), sys.implementation.cache_tag, sysconfig.get_config_var('SOABI') or '', sys.abiflags)
print(sysconfig.get_platform(), *platform.libc_ver())
print(sys.implementation.cache_tag)
print(sys.base_prefix)
print(sys.base_exec_prefix)
";

/// A Python on this machine.
#[derive(Debug)]
pub(crate) struct Interpreter {
    pub(crate) program: PathBuf,
    /// Version, ABI and platform. Environments on equal identities are interchangeable.
    pub(crate) identity: String,
    /// E.g. `cpython-311`.
    pub(crate) cache_tag: String,
    /// Folders of its installation, under all names that an environment may use. Environments only refer to them.
    pub(crate) base: Vec<PathBuf>,
}

/// The interpreters found so far, by requested version.
#[derive(Default)]
pub(super) struct Interpreters(Mutex<HashMap<String, Arc<Interpreter>>>);

impl Interpreters {
    /// The interpreter for a version, e.g. `3.11`, or for an empty version any supported one: the `python3` on PATH, else
    /// the one next to this program, else one that uv finds or installs.
    pub(super) async fn find(&self, uv: &Uv, version: &str) -> Result<Arc<Interpreter>, Error> {
        check_version(version)?;
        let known = self.0.lock().get(version).cloned();
        if let Some(known) = known.filter(|known| known.program.exists()) {
            return Ok(known);
        }
        let found = Arc::new(match here(uv, version).await {
            Some(found) => found,
            None => probe(uv.find_python(if version.is_empty() { PYTHON_MIN } else { version }).await?).await?,
        });
        self.0.lock().insert(version.to_owned(), Arc::clone(&found));
        Ok(found)
    }
}

/// Validates a version. It comes from a tenant and becomes an argument of uv, which also accepts paths and flags there.
pub(crate) fn check_version(version: &str) -> Result<(), Error> {
    let part = |part: &str| (1..=3).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = version.split('.').collect();
    if version.is_empty() || (parts[0] == "3" && parts.len() <= 3 && parts.iter().all(|text| part(text))) {
        return Ok(());
    }
    Err(Error::PythonVersion(version.chars().take(40).collect()))
}

/// The `python3` on PATH, or the one of the environment that this program is installed in, if it has this version and
/// environments can be built on it: GPU images often have no Python, RHEL 8's is 3.6, and a minimal Debian's lacks
/// modules. uv does not consider the Python that an environment on PATH was made from.
async fn here(uv: &Uv, version: &str) -> Option<Interpreter> {
    for program in [Some(PathBuf::from("python3")), beside("python3")].into_iter().flatten() {
        if let Ok(found) = probe(program).await
            && serves(&found.identity)
            && is_of(&found.identity, version)
            && uv.accepts(&found.program).await.is_ok()
        {
            return Some(found);
        }
    }
    None
}

/// Whether a version, possibly followed by text, is the wanted one or a more exact form of it.
fn is_of(version: &str, wanted: &str) -> bool {
    let rest = version.strip_prefix(wanted);
    wanted.is_empty() || rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// The `python3` on PATH.
pub(crate) async fn default() -> Result<Interpreter, Error> {
    probe(PathBuf::from("python3")).await
}

/// Whether runners support this version; text after the version is ignored.
pub(crate) fn serves(version: &str) -> bool {
    let mut parts = version.split(|c: char| !c.is_ascii_digit());
    let mut number = || parts.next().and_then(|part| part.parse::<u32>().ok());
    (number(), number()) >= (Some(3), Some(9))
}

pub(super) async fn probe(program: PathBuf) -> Result<Interpreter, Error> {
    const WHAT: &str = "querying the Python version";
    let mut command = Command::new(program);
    command.args(["-I", "-c", PROBE]);
    let answer = child::run(WHAT, command, PROBE_LIMIT).await?;
    match answer.lines().collect::<Vec<_>>()[..] {
        [program, abi, platform, cache_tag, prefix, exec_prefix] => Ok(Interpreter {
            base: base_of(Path::new(program), [Path::new(prefix), Path::new(exec_prefix)]),
            program: PathBuf::from(program),
            identity: format!("{abi}\n{platform}"),
            cache_tag: cache_tag.to_owned(),
        }),
        _ => Err(Error::Answer { what: WHAT, answer: answer.chars().take(200).collect() }),
    }
}

/// The folders of an interpreter: the parent of its `bin`, its prefixes, and links next to them that point there. uv's
/// Pythons have such links, e.g. `cpython-3.11-...` for `cpython-3.11.9-...`, and environments may use them.
fn base_of(program: &Path, prefixes: [&Path; 2]) -> Vec<PathBuf> {
    let installed = program.parent().and_then(Path::parent);
    let mut found: BTreeSet<PathBuf> = installed.into_iter().chain(prefixes).map(Path::to_owned).collect();
    for folder in found.clone() {
        let Ok(real) = std::fs::canonicalize(&folder) else { continue };
        let beside = real.parent().filter(|parent| parent.parent().is_some()).map(std::fs::read_dir);
        let links = beside.into_iter().flatten().flatten().flatten().map(|entry| entry.path());
        found.extend(links.filter(|path| path.is_symlink() && std::fs::canonicalize(path).is_ok_and(|to| to == real)));
        found.insert(real);
    }
    found.into_iter().filter(|path| path.is_absolute() && path.parent().is_some()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_version_is_of_its_shorter_forms() {
        for wanted in ["", "3", "3.11", "3.11.7"] {
            assert!(is_of("3.11.7 cpython-311", wanted), "{wanted:?}");
        }
        for wanted in ["3.1", "3.12", "3.11.70", "3.11.7.1"] {
            assert!(!is_of("3.11.7 cpython-311", wanted), "{wanted:?}");
        }
    }

    #[test]
    fn only_versions_are_versions() {
        for good in ["", "3", "3.11", "3.12.4"] {
            assert!(check_version(good).is_ok(), "{good:?}");
        }
        for bad in ["2.7", "3.", "3.11.1.1", "--help", "/usr/bin/python3", "3.x", "pypy3", "3.1111", " 3.11"] {
            assert!(check_version(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn runners_need_python_3_9() {
        for (version, does) in
            [("3.9.2 cpython-39", true), ("3.14.0rc1", true), ("3.8.20", false), ("2.7.18", false), ("", false)]
        {
            assert_eq!(serves(version), does, "{version:?}");
        }
    }

    #[tokio::test]
    async fn the_python_on_path_is_probed() {
        let found = probe(PathBuf::from("python3")).await.expect("python3 is on PATH");
        assert!(found.program.is_absolute());
        assert!(found.base.iter().any(|folder| found.program.starts_with(folder)), "{found:?}");
        assert!(found.identity.starts_with("3."), "{}", found.identity);
    }

    #[test]
    fn the_base_is_the_installation_and_the_links_to_it_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(folder.path()).unwrap();
        let installed = root.join("cpython-3.11.9");
        std::fs::create_dir_all(installed.join("bin")).unwrap();
        std::fs::create_dir(root.join("other")).unwrap();
        std::os::unix::fs::symlink(&installed, root.join("cpython-3.11")).unwrap();
        std::os::unix::fs::symlink(root.join("other"), root.join("another")).unwrap();
        let base = base_of(&installed.join("bin/python3.11"), [&installed, Path::new("/")]);
        assert_eq!(base, [root.join("cpython-3.11"), installed]);
    }
}
