//! The runner wheel, which every environment contains.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use std::fs::File;

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
    /// The wheel to use: `explicit`, else the file in `STOKE_RUNNER_WHEEL`, else the newest `stokehold-*.whl` in
    /// `../wheels` relative to this program (where builds and release archives put it), else this version from the
    /// package index.
    #[must_use]
    pub fn find(explicit: Option<&Path>) -> Self {
        let named = std::env::var_os("STOKE_RUNNER_WHEEL").filter(|name| !name.is_empty()).map(PathBuf::from);
        if let Some(path) = explicit.map(Path::to_owned).or(named) {
            return Self::File(std::path::absolute(&path).unwrap_or(path));
        }
        // Check two levels: test programs are in `deps/`, one level below others.
        let program = std::env::current_exe().ok();
        let above = program.iter().flat_map(|program| program.ancestors().skip(2).take(2));
        let found = above.filter_map(|folder| newest(&folder.join("wheels"))).next();
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
}
