//! The Python requirements of an endpoint, and how uv locks them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::error::Step;
use crate::kind::Kind;

/// The requirements of an environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Requirements {
    /// The text of a lock file; empty without requirements.
    Locked(String),
    /// Requirements that uv must lock.
    Unlocked(Unlocked),
}

/// Requirement files and lines to lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unlocked {
    /// Requirements files.
    pub files: Vec<PathBuf>,
    /// Further requirements; relative paths are relative to the folder of the endpoint.
    pub lines: Vec<String>,
}

/// The place where requirements are declared: a file, by name, or a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Declared {
    File(PathBuf),
    Lines(Vec<String>),
}

impl Unlocked {
    /// The text of the requirements file for `lines`, if there are any.
    #[must_use]
    pub fn lines_file(&self) -> Option<String> {
        (!self.lines.is_empty()).then(|| self.lines.iter().map(|line| format!("{line}\n")).collect())
    }

    /// The arguments of uv that lock these requirements for all platforms, pinned and with hashes. `lines_file` is a
    /// file with the text of [`Unlocked::lines_file`]. `python` is the oldest supported version, e.g. `3.11`; empty
    /// means that of the `python3` on PATH. uv must run in the folder of the endpoint, where relative paths are correct
    /// and the project's uv settings apply.
    #[must_use]
    pub fn uv_arguments(&self, python: &str, lines_file: Option<&Path>) -> Vec<OsString> {
        let fixed = ["pip", "compile", "--universal", "--generate-hashes", "--no-header", "--no-annotate"];
        let python = if python.is_empty() { ["--python", "python3"] } else { ["--python-version", python] };
        let mut arguments: Vec<OsString> = fixed.into_iter().chain(python).map(Into::into).collect();
        arguments.extend(["--quiet".into(), "--".into()]);
        arguments.extend(self.files.iter().map(|file| file.as_os_str().to_owned()));
        arguments.extend(lines_file.map(|file| file.as_os_str().to_owned()));
        arguments
    }
}

/// Reads the declared requirements of a kind of endpoint. A `.lock` file is used without changes.
pub(crate) fn read(declared: &[Declared], kind: Kind, folder: &Path) -> Result<Requirements, Error> {
    let (mut files, mut lines) = (Vec::new(), Vec::new());
    for one in declared {
        match one {
            Declared::Lines(given) => lines.extend(given.iter().cloned()),
            Declared::File(name) => {
                let path = folder.join(name);
                let text = std::fs::read_to_string(&path).reading(&path)?;
                if name.extension().is_some_and(|extension| extension == "lock") {
                    return Ok(Requirements::Locked(text));
                }
                files.push((path, text));
            }
        }
    }
    if let Some(needed) = kind.requirement() {
        let package = needed.split(['>', '=']).next().unwrap_or(needed);
        let named = |line: &str| is_requirement_of(line, package);
        if !lines.iter().any(|line| named(line)) && !files.iter().any(|(_, text)| text.lines().any(named)) {
            lines.push(needed.to_owned());
        }
    }
    if files.is_empty() && lines.is_empty() {
        return Ok(Requirements::Locked(String::new()));
    }
    Ok(Requirements::Unlocked(Unlocked { files: files.into_iter().map(|(path, _)| path).collect(), lines }))
}

/// `requirements.lock`, else `requirements.txt`.
pub(crate) fn usual(folder: &Path) -> Vec<Declared> {
    let usual = ["requirements.lock", "requirements.txt"].into_iter().find(|name| folder.join(name).is_file());
    usual.map(|name| Declared::File(name.into())).into_iter().collect()
}

/// Whether a line of a requirements file names this package, in any version.
fn is_requirement_of(line: &str, package: &str) -> bool {
    let name = line.trim().split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))).next();
    name.is_some_and(|name| name.eq_ignore_ascii_case(package))
}
