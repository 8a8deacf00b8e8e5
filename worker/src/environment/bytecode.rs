//! Compiled Python modules, stored once for all environments.
//!
//! Runners cannot write to their environment, so a module without bytecode would be compiled at each start. Most
//! modules of a new environment exist in others already: their bytecode is a hard link to the stored one.
//!
//! ```text
//! bytecode/<2 digits>/<SHA-256 of the source>.<cache tag>.pyc
//! bytecode/tenant-<hash>/...                                   for environments of one tenant
//! ```

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, lchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;
use tokio::task::spawn_blocking;

use super::builds::Scope;
use super::store::{walk, write_list};
use super::{Error, child};
use crate::transfer::measure;

/// Timeout of the compilation. A GPU framework has about 20,000 modules and takes a minute on two cores.
const COMPILE_LIMIT: Duration = Duration::from_secs(15 * 60);

const COMPILE: &str = include_str!("compile.py");

/// The bytecode that environments share.
#[derive(Debug, Clone)]
pub(super) struct Bytecode {
    folder: PathBuf,
}

/// A module that is not compiled yet.
#[derive(Debug)]
struct Missing {
    source: PathBuf,
    /// Relative to the environment.
    compiled: PathBuf,
    kept: PathBuf,
}

/// Newly compiled modules, to be stored for other environments once they are flushed to disk.
#[derive(Debug)]
pub(super) struct Fresh(Vec<Missing>);

impl Bytecode {
    pub(super) fn open(folder: PathBuf) -> Result<Self, Error> {
        fs::create_dir_all(&folder).map_err(Error::io(format!("create {}", folder.display())))?;
        Ok(Self { folder })
    }

    /// The bytecode that environments of one scope share.
    pub(super) fn of(&self, scope: &Scope) -> Self {
        match scope {
            Scope::Own | Scope::Shared => self.clone(),
            Scope::Tenant(_) => Self { folder: self.folder.join(scope.folder()) },
        }
    }

    /// Provides bytecode for every module below `venv`. `python` is the base interpreter, because the environment's own
    /// would run startup code of its packages. It reads the modules to compile from `list`. `owner` is the user that it
    /// runs as.
    pub(super) async fn fill(
        &self,
        tag: &str,
        venv: &Path,
        (mut python, owner): (Command, Option<u32>),
        list: &Path,
    ) -> Result<Fresh, Error> {
        let (this, tag, packages) = (self.clone(), tag.to_owned(), venv.join("lib"));
        let linked = spawn_blocking(move || this.link(&tag, &packages, owner)).await;
        let missing = linked.unwrap_or_else(|error| Err(error.into()));
        let missing = missing.map_err(Error::io("share compiled modules"))?;
        if missing.is_empty() {
            return Ok(Fresh(missing));
        }
        let sources: Vec<&str> = missing.iter().filter_map(|module| module.source.to_str()).collect();
        write_list(list, &sources.join("\0")).await.map_err(Error::io("list the modules"))?;
        python.args(["-I", "-S", "-c", COMPILE]).arg(list);
        child::run("compiling the modules", python, COMPILE_LIMIT).await?;
        let within = |path: PathBuf| path.strip_prefix(venv).map(Path::to_owned).unwrap_or(path);
        let fresh = missing.into_iter().map(|module| Missing { compiled: within(module.compiled), ..module });
        Ok(Fresh(fresh.collect()))
    }

    /// Links existing bytecode into place and returns the missing modules. Blocks on the disk.
    fn link(&self, tag: &str, packages: &Path, owner: Option<u32>) -> io::Result<Vec<Missing>> {
        let mut missing = Vec::new();
        walk(packages, &mut |source, _| {
            let (Some(folder), Some(stem)) = (source.parent(), source.file_stem().and_then(|stem| stem.to_str()))
            else {
                return Ok(());
            };
            if source.extension().is_none_or(|extension| extension != "py") || source.to_str().is_none() {
                return Ok(());
            }
            let cache = folder.join("__pycache__");
            let compiled = cache.join(format!("{stem}.{tag}.pyc"));
            let kept = self.place(&measure(&mut File::open(source)?)?.1, tag);
            // A package may contain bytecode. It need not match the source, so it is not used.
            match fs::create_dir(&cache) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => removed(&compiled)?,
                made => made.and_then(|()| owner.map_or(Ok(()), |uid| lchown(&cache, Some(uid), Some(uid))))?,
            }
            if fs::hard_link(&kept, &compiled).is_err() {
                missing.push(Missing { source: source.to_owned(), compiled, kept });
            }
            Ok(())
        })?;
        Ok(missing)
    }

    fn place(&self, sha256: &str, tag: &str) -> PathBuf {
        self.folder.join(&sha256[..2]).join(format!("{sha256}.{tag}.pyc"))
    }

    /// Stores the modules that were compiled for the environment now at `environment`. Blocks on the disk.
    pub(super) fn keep(&self, environment: &Path, Fresh(fresh): Fresh) -> io::Result<()> {
        for module in fresh {
            let folder = module.kept.parent().unwrap_or(&self.folder);
            fs::create_dir_all(folder)?;
            match fs::hard_link(environment.join(&module.compiled), &module.kept) {
                // The module does not compile, or another build stored it first.
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists) => {}
                linked => linked?,
            }
        }
        Ok(())
    }

    /// Deletes bytecode that no environment uses. Blocks on the disk.
    pub(super) fn tidy(&self) -> io::Result<()> {
        walk(&self.folder, &mut |path, metadata| if metadata.nlink() == 1 { removed(path) } else { Ok(()) })?;
        Ok(())
    }
}

fn removed(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::environment::interpreter::{Interpreter, probe};

    struct Room {
        folder: tempfile::TempDir,
        bytecode: Bytecode,
        interpreter: Interpreter,
    }

    impl Room {
        async fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let bytecode = Bytecode::open(folder.path().join("bytecode")).unwrap();
            Self { folder, bytecode, interpreter: probe(PathBuf::from("python3")).await.unwrap() }
        }

        /// An environment with these modules: the number of compiled ones, and its path.
        async fn environment(&self, name: &str, modules: &[(&str, &str)]) -> (usize, PathBuf) {
            let venv = self.folder.path().join(name);
            for (module, source) in modules {
                let path = venv.join("lib").join(module);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, source).unwrap();
            }
            let (python, list) = (Command::new(&self.interpreter.program), self.folder.path().join("modules"));
            let tag = &self.interpreter.cache_tag;
            let fresh = self.bytecode.fill(tag, &venv, (python, None), &list).await.unwrap();
            let compiled = fresh.0.len();
            self.bytecode.keep(&venv, fresh).unwrap();
            (compiled, venv)
        }

        fn compiled(&self, venv: &Path, module: &str) -> PathBuf {
            venv.join("lib/__pycache__").join(format!("{module}.{}.pyc", self.interpreter.cache_tag))
        }
    }

    async fn output_of(room: &Room, venv: &Path, script: &str) -> String {
        let mut command = Command::new(&room.interpreter.program);
        let script = format!("import sys; sys.path.insert(0, {:?}); {script}", venv.join("lib"));
        command.args(["-I", "-S", "-c", &script]);
        child::run("importing", command, Duration::from_secs(30)).await.unwrap()
    }

    #[tokio::test]
    async fn what_one_environment_compiled_the_next_one_has() {
        let room = Room::new().await;
        let (first, one) = room.environment("one", &[("a.py", "A = 1"), ("deep/b.py", "B = 2")]).await;
        let (second, two) = room.environment("two", &[("a.py", "A = 1"), ("deep/b.py", "B = 3")]).await;
        assert_eq!((first, second), (2, 1));
        let inode = |venv: &Path| fs::metadata(room.compiled(venv, "a")).unwrap().ino();
        assert_eq!(inode(&one), inode(&two));
        let script =
            "import a, deep.b; print(a.A, deep.b.B, a.__cached__ is not None, a.__loader__.get_code('a').co_filename)";
        assert_eq!(output_of(&room, &two, script).await.trim(), format!("1 3 True {}", two.join("lib/a.py").display()));
    }

    #[tokio::test]
    async fn many_modules_are_compiled_beside_each_other() {
        let room = Room::new().await;
        let names: Vec<String> = (0..200).map(|n| format!("m{n}.py")).collect();
        let modules: Vec<(&str, String)> = names.iter().map(|name| (name.as_str(), format!("N = {name:?}"))).collect();
        let modules: Vec<(&str, &str)> = modules.iter().map(|(name, source)| (*name, source.as_str())).collect();
        let (compiled, venv) = room.environment("one", &modules).await;
        assert_eq!(compiled, 200);
        assert_eq!(fs::read_dir(venv.join("lib/__pycache__")).unwrap().count(), 200);
    }

    /// A package could contain bytecode next to a copy of another package's source. Used from the store, the bytecode
    /// would run wherever that other package is installed.
    #[tokio::test]
    async fn bytecode_that_a_package_brings_is_not_believed() {
        let room = Room::new().await;
        let forged = room.folder.path().join("forged");
        let brought = room.compiled(&forged, "a");
        fs::create_dir_all(brought.parent().unwrap()).unwrap();
        fs::write(&brought, "not what the source says").unwrap();
        let (compiled, _) = room.environment("forged", &[("a.py", "A = 1")]).await;
        let (_, venv) = room.environment("honest", &[("a.py", "A = 1")]).await;
        assert_eq!(compiled, 1);
        assert_eq!(output_of(&room, &venv, "import a; print(a.A)").await.trim(), "1");
    }

    #[tokio::test]
    async fn what_does_not_compile_is_left_alone() {
        let room = Room::new().await;
        let (_, venv) = room.environment("one", &[("a.py", "A = 1"), ("template.py", "print {{ name }}")]).await;
        assert!(room.compiled(&venv, "a").exists());
        assert!(!room.compiled(&venv, "template").exists());
    }

    #[tokio::test]
    async fn what_no_environment_has_is_forgotten() {
        let room = Room::new().await;
        let (_, one) = room.environment("one", &[("a.py", "A = 1"), ("b.py", "B = 1")]).await;
        let _ = room.environment("two", &[("a.py", "A = 1")]).await;
        fs::remove_dir_all(one).unwrap();
        room.bytecode.tidy().unwrap();
        assert_eq!(room.environment("three", &[("a.py", "A = 1"), ("b.py", "B = 1")]).await.0, 1);
    }
}
