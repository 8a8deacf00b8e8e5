//! Adds the runner to an environment, by hard links to the files of the environment that contains only the runner. No
//! program is started, and files of packages with the same names are replaced.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Links the packages and programs of `bare` into `environment`, which no other process may write to. Blocks on the
/// disk.
pub(super) fn graft(bare: &Path, environment: &Path) -> io::Result<()> {
    let packages = packages(bare)?;
    let from = bare.join(&packages);
    let into = environment.join(&packages);
    fs::create_dir_all(&into)?;
    // Metadata of another version that the requirements named.
    for entry in fs::read_dir(&into)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| name.starts_with("stokehold-") && name.ends_with(".dist-info"))
        {
            remove(&entry.path())?;
        }
    }
    for entry in fs::read_dir(&from)? {
        let entry = entry?;
        let target = into.join(entry.file_name());
        remove(&target)?;
        link(&entry.path(), &target)?;
    }
    for entry in fs::read_dir(bare.join("bin"))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            let target = environment.join("bin").join(entry.file_name());
            remove(&target)?;
            fs::hard_link(entry.path(), target)?;
        }
    }
    Ok(())
}

/// The environment's `lib/python3.11/site-packages`.
fn packages(environment: &Path) -> io::Result<PathBuf> {
    for entry in fs::read_dir(environment.join("lib"))? {
        let packages = Path::new("lib").join(entry?.file_name()).join("site-packages");
        if environment.join(&packages).is_dir() {
            return Ok(packages);
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "the runner's environment has no site-packages"))
}

fn link(from: &Path, to: &Path) -> io::Result<()> {
    if fs::symlink_metadata(from)?.is_dir() {
        fs::create_dir(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            link(&entry.path(), &to.join(entry.file_name()))?;
        }
        return Ok(());
    }
    fs::hard_link(from, to)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn the_runner_takes_the_place_of_what_a_package_has_there() {
        let folder = tempfile::tempdir().unwrap();
        let (bare, venv) = (folder.path().join("bare"), folder.path().join("venv"));
        let write = |root: &Path, name: &str, text: &str| {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let packages = "lib/python3.11/site-packages";
        write(&bare, &format!("{packages}/stokehold/runner/__init__.py"), "ours");
        write(&bare, &format!("{packages}/stokehold-2.dist-info/METADATA"), "2");
        write(&bare, "bin/stoke-where", "ours");
        write(&venv, &format!("{packages}/stokehold/runner/__init__.py"), "theirs");
        write(&venv, &format!("{packages}/stokehold/other.py"), "theirs");
        write(&venv, &format!("{packages}/stokehold-1.dist-info/METADATA"), "1");
        write(&venv, &format!("{packages}/six.py"), "six");
        write(&venv, "bin/six", "six");
        graft(&bare, &venv).unwrap();
        let read = |name: &str| fs::read_to_string(venv.join(name)).ok();
        assert_eq!(read(&format!("{packages}/stokehold/runner/__init__.py")).as_deref(), Some("ours"));
        assert_eq!(read(&format!("{packages}/stokehold/other.py")), None);
        assert_eq!(read(&format!("{packages}/stokehold-1.dist-info/METADATA")), None);
        assert_eq!(read(&format!("{packages}/stokehold-2.dist-info/METADATA")).as_deref(), Some("2"));
        assert_eq!(read("bin/stoke-where").as_deref(), Some("ours"));
        assert_eq!(
            (read("bin/six").as_deref(), read(&format!("{packages}/six.py")).as_deref()),
            (Some("six"), Some("six"))
        );
        assert_eq!(fs::metadata(venv.join("bin/stoke-where")).unwrap().nlink(), 2);
    }
}
