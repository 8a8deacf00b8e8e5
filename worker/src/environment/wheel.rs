//! The runner wheel, which every environment contains.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};

use tokio::task::spawn_blocking;

use super::Error;
use crate::transfer::measure;

/// Source of the runner package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunnerWheel {
    /// A wheel on this machine.
    File(PathBuf),
    /// A requirement for the package index, e.g. `stokehold==0.1.0`.
    Requirement(String),
}

impl RunnerWheel {
    /// The wheel to use: `explicit`, else the file in `STOKE_RUNNER_WHEEL`, else one that belongs to this program, else
    /// this version from the package index.
    #[must_use]
    pub fn find(explicit: Option<&Path>) -> Self {
        let named = std::env::var_os("STOKE_RUNNER_WHEEL").filter(|name| !name.is_empty()).map(PathBuf::from);
        if let Some(path) = explicit.map(Path::to_owned).or(named) {
            return Self::File(std::path::absolute(&path).unwrap_or(path));
        }
        let program = std::env::current_exe().ok();
        let found = program.as_deref().and_then(of_program);
        found.map_or_else(|| Self::Requirement(format!("stokehold=={}", env!("CARGO_PKG_VERSION"))), Self::File)
    }

    /// The identity of a wheel: the hash of a file, or the text of a requirement.
    pub(super) async fn identity(&self) -> Result<String, Error> {
        match self {
            Self::File(path) => {
                let wheel = path.clone();
                let measured = spawn_blocking(move || measure(&mut File::open(wheel)?)).await;
                let measured = measured.unwrap_or_else(|panic| Err(panic.into()));
                Ok(measured.map_err(|source| Error::Wheel { path: path.clone(), source })?.1)
            }
            Self::Requirement(requirement) => Ok(requirement.clone()),
        }
    }

    /// The argument for uv.
    pub(super) fn as_argument(&self) -> &OsStr {
        match self {
            Self::File(path) => path.as_os_str(),
            Self::Requirement(requirement) => requirement.as_ref(),
        }
    }
}

/// The runner's wheel of a program: the newest in a folder `wheels` next to it (a release build of a checkout), in
/// `../share/stokehold/wheels` (installed from the published wheel), in `../wheels` (the archive of a worker, a debug
/// build of a checkout) or in `../../wheels` (a test program of a checkout).
fn of_program(program: &Path) -> Option<PathBuf> {
    let mut above = program.ancestors().skip(1);
    let (own, parent, grandparent) = (above.next()?, above.next(), above.next());
    let folders = [
        Some(own.join("wheels")),
        parent.map(|parent| parent.join("share/stokehold/wheels")),
        parent.map(|parent| parent.join("wheels")),
        grandparent.map(|grandparent| grandparent.join("wheels")),
    ];
    folders.into_iter().flatten().find_map(|folder| newest(&folder))
}

fn newest(folder: &Path) -> Option<PathBuf> {
    let wheels = std::fs::read_dir(folder).ok()?.flatten().filter(|entry| {
        let name = entry.file_name();
        name.to_str().is_some_and(|name| name.starts_with("stokehold-") && name.ends_with(".whl"))
    });
    wheels.max_by_key(|entry| entry.metadata().and_then(|metadata| metadata.modified()).ok()).map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_explicit_wheel_wins() {
        let found = RunnerWheel::find(Some(Path::new("/some/stokehold-9.whl")));
        assert_eq!(found, RunnerWheel::File("/some/stokehold-9.whl".into()));
    }

    #[test]
    fn the_newest_wheel_of_a_folder_is_found() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(newest(folder.path()), None);
        let old = std::time::SystemTime::UNIX_EPOCH;
        for (name, written) in [("stokehold-2.whl", None), ("stokehold-3.whl", Some(old)), ("other-9.whl", None)] {
            let file = std::fs::File::create(folder.path().join(name)).unwrap();
            if let Some(written) = written {
                file.set_modified(written).unwrap();
            }
        }
        assert_eq!(newest(folder.path()), Some(folder.path().join("stokehold-2.whl")));
    }
    #[test]
    fn each_layout_of_files_leads_to_the_wheel_of_the_program() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            path
        };
        let of = |program: &str| of_program(&root.path().join(program));
        assert_eq!(of("checkout/target/debug/stoke"), None);
        let debug = put("checkout/target/wheels/stokehold-1.whl");
        let release = put("checkout/target/release/wheels/stokehold-1.whl");
        for program in ["checkout/target/debug/stoke", "checkout/target/debug/deps/it-1"] {
            assert_eq!(of(program), Some(debug.clone()), "{program}");
        }
        assert_eq!(of("checkout/target/release/stoke"), Some(release));
        let archived = put("opt/stokehold/wheels/stokehold-1.whl");
        assert_eq!(of("opt/stokehold/bin/stoke"), Some(archived));
        let installed = put("venv/share/stokehold/wheels/stokehold-1.whl");
        assert_eq!(of("venv/bin/stoke"), Some(installed));
    }
}
