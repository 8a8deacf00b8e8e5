//! Protects the files of an environment that no package may change: the settings that name its Python, and the links to
//! it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

use super::Error;
use super::builds::each;

/// The file that names the environment's Python installation.
const SETTINGS: &str = "pyvenv.cfg";

/// Folders that packages may install into.
const FOLDERS: [&str; 10] = ["bin", "doc", "etc", "include", "lib", "libexec", "man", "opt", "sbin", "share"];

/// Files that uv creates in every environment.
const OF_UV: [&str; 3] = [".gitignore", ".lock", "CACHEDIR.TAG"];

/// The state of an environment as created by uv, before any package is installed.
#[derive(Debug)]
pub(super) struct Seal {
    settings: Vec<u8>,
    links: BTreeMap<PathBuf, PathBuf>,
}

impl Seal {
    /// Records the state of an empty environment. Blocks on the disk.
    pub(super) fn of(environment: &Path) -> io::Result<Self> {
        let mut links = BTreeMap::new();
        each(environment, &mut |path, metadata| {
            if metadata.is_symlink() {
                links.insert(path.to_owned(), fs::read_link(path)?);
            }
            Ok(())
        })?;
        Ok(Self { settings: fs::read(environment.join(SETTINGS))?, links })
    }

    /// Rejects an environment in which a package has changed protected files or created links that point elsewhere.
    /// Blocks on the disk.
    pub(super) fn check(&self, environment: &Path) -> Result<(), Error> {
        let foreign = self.foreign(environment).map_err(Error::io("inspect the installed files"))?;
        match foreign {
            None => Ok(()),
            Some(path) => Err(Error::Foreign { path: path.strip_prefix(environment).unwrap_or(&path).to_owned() }),
        }
    }

    fn foreign(&self, environment: &Path) -> io::Result<Option<PathBuf>> {
        let settings = environment.join(SETTINGS);
        let mut known = self.links.clone();
        let mut foreign = None;
        each(environment, &mut |path, metadata| {
            let is_fine = if metadata.is_symlink() {
                known.remove(path) == Some(fs::read_link(path)?)
            } else if path.parent() == Some(environment) {
                may_be_there(path, metadata)
            } else {
                (metadata.is_dir() || metadata.is_file())
                    && path.file_name().is_none_or(|name| name != SETTINGS || !is_in_bin(path))
            };
            if !is_fine {
                foreign.get_or_insert_with(|| path.to_owned());
            }
            Ok(())
        })?;
        let gone = || known.into_keys().next();
        let is_changed = !fs::read(&settings).is_ok_and(|now| now == self.settings);
        Ok(foreign.or_else(gone).or_else(|| is_changed.then_some(settings)))
    }
}

/// Whether a package may create this next to `bin` and `lib`. Files there are never read.
fn may_be_there(path: &Path, metadata: &fs::Metadata) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    if metadata.is_dir() {
        FOLDERS.contains(&name)
    } else {
        metadata.is_file() && (!name.starts_with('.') || OF_UV.contains(&name))
    }
}

/// Python also looks for its settings in `bin`.
fn is_in_bin(path: &Path) -> bool {
    path.parent().and_then(Path::file_name).is_some_and(|name| name == "bin")
}

/// Makes the worker the owner of a built environment. Files that are also in uv's cache stay the builder's: with
/// another owner, the next environment could not hard-link them. Only builds of the same scope run as that user. Blocks
/// on the disk.
pub(super) fn take(environment: &Path) -> io::Result<()> {
    let own = |path: &Path, metadata: &fs::Metadata| {
        if metadata.is_dir() {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
        }
        if metadata.is_file() && metadata.nlink() > 1 { Ok(()) } else { lchown(path, Some(0), Some(0)) }
    };
    own(environment, &fs::symlink_metadata(environment)?)?;
    each(environment, &mut |path, metadata| own(path, metadata))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::symlink;

    use super::*;

    struct Venv(tempfile::TempDir, Seal);

    impl Venv {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            for name in ["bin", "lib"] {
                fs::create_dir(folder.path().join(name)).unwrap();
            }
            symlink("/usr/bin/python3", folder.path().join("bin/python")).unwrap();
            symlink("lib", folder.path().join("lib64")).unwrap();
            fs::write(folder.path().join(SETTINGS), "home = /usr/bin\n").unwrap();
            let seal = Seal::of(folder.path()).unwrap();
            Self(folder, seal)
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn refused(&self) -> Option<String> {
            match self.1.check(self.0.path()) {
                Ok(()) => None,
                Err(Error::Foreign { path }) => Some(path.to_string_lossy().into_owned()),
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn packages_install_into_folders_of_their_own() {
        let venv = Venv::new();
        for name in ["share/man/man1", "etc/jupyter", "include/python3.11", "lib/python3.11/site-packages/six"] {
            fs::create_dir_all(venv.at(name)).unwrap();
        }
        for name in ["bin/six", "lib/pyvenv.cfg", "LICENSE", ".lock"] {
            fs::write(venv.at(name), "x").unwrap();
        }
        assert_eq!(venv.refused(), None);
    }

    type Harm = (&'static str, fn(&Venv));

    #[test]
    fn what_is_the_environments_own_no_package_changes() {
        let harms: [Harm; 9] = [
            ("pyvenv.cfg", |venv| fs::write(venv.at(SETTINGS), "home = /root\n").unwrap()),
            ("pyvenv.cfg", |venv| fs::remove_file(venv.at(SETTINGS)).unwrap()),
            ("bin/pyvenv.cfg", |venv| fs::write(venv.at("bin/pyvenv.cfg"), "home = /root\n").unwrap()),
            ("bin/python", |venv| fs::remove_file(venv.at("bin/python")).unwrap()),
            ("bin/python", |venv| {
                fs::remove_file(venv.at("bin/python")).unwrap();
                symlink("/tmp/python", venv.at("bin/python")).unwrap();
            }),
            ("lib/out", |venv| symlink("/etc", venv.at("lib/out")).unwrap()),
            ("elsewhere", |venv| fs::create_dir(venv.at("elsewhere")).unwrap()),
            (".stokehold-bytes", |venv| fs::write(venv.at(".stokehold-bytes"), "0").unwrap()),
            ("lib/pipe", |venv| {
                nix::unistd::mkfifo(&venv.at("lib/pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
            }),
        ];
        for (path, harm) in harms {
            let venv = Venv::new();
            harm(&venv);
            assert_eq!(venv.refused().as_deref(), Some(path));
        }
        let venv = Venv::new();
        fs::remove_file(venv.at("bin/python")).unwrap();
        fs::write(venv.at("bin/python"), "#!/bin/sh\n").unwrap();
        assert_eq!(venv.refused().as_deref(), Some("bin/python"));
    }
}
