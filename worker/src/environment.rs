//! The Python environments that runners run in: built once per content, shared, and removed when space is short.
//!
//! An environment is named by the hash of everything that shapes it: the locked requirements, the interpreter's version and
//! ABI, the platform, and the runner's wheel. It is built beside its final place and renamed there, so whatever has the final
//! name is complete, whoever built it and however that ended. Environments can be moved: `uv venv --relocatable` writes console
//! scripts that look for Python beside themselves, and `pyvenv.cfg` names only the base interpreter.

mod bytecode;
pub(crate) mod child;
mod error;
pub(crate) mod interpreter;
pub(crate) mod lock;
mod store;
mod turns;
mod wheel;

use std::fmt;
use std::fs::{File, FileTimes};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};
use stokehold_queue::requirements_lock::{Indexes, Lock};
use tempfile::TempDir;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use self::bytecode::{Bytecode, Fresh};
pub use self::error::Error;
use self::interpreter::{Interpreter, Interpreters};
use self::store::Store;
pub(crate) use self::turns::Turns;
pub use self::wheel::RunnerWheel;
use crate::metrics;
use crate::uv::{INSTALL_LIMIT, Uv};

/// Longest wait for another process that builds the same environment: two installs, and some for the rest.
const BUILD_LIMIT: Duration = Duration::from_secs(2 * INSTALL_LIMIT.as_secs() + 5 * 60);

/// The default of [`EnvironmentsConfig::cap_bytes`]: about ten GPU stacks.
pub const CAP_BYTES_DEFAULT: u64 = 50 * 1024 * 1024 * 1024;

/// What an endpoint needs of its environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvironmentSpec {
    /// Pinned requirements, with hashes or without; may be empty. What uv is given is what [`Lock`] makes of them.
    pub requirements_lock: String,
    /// A version such as `3.11`; empty is the `python3` on PATH.
    pub python: String,
}

/// What [`Environments`] works with.
#[derive(Debug, Clone)]
pub struct EnvironmentsConfig {
    /// Environments and downloads live here.
    pub dir: PathBuf,
    /// What builds them.
    pub uv: Uv,
    /// What every one of them gets last.
    pub runner_wheel: RunnerWheel,
    /// Unused environments go, the longest unused first, when all together are larger.
    pub cap_bytes: u64,
}

/// All environments of this machine. Cheap to clone; other processes may share the folder.
#[derive(Clone)]
pub struct Environments(Arc<Inner>);

struct Inner {
    store: Store,
    bytecode: Bytecode,
    uv: Uv,
    runner_wheel: RunnerWheel,
    cap_bytes: u64,
    /// uv's downloads, if they are ours to limit.
    own_cache: Option<PathBuf>,
    interpreters: Interpreters,
    turns: Turns,
}

/// A step of making an environment ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Someone else builds the same one.
    Waiting,
    /// An empty environment is created.
    CreatingVenv,
    /// The requirements are downloaded and installed.
    Installing {
        /// How many.
        packages: usize,
    },
    /// The runner's wheel is installed.
    InstallingRunner,
    /// Modules that no other environment has are compiled.
    Compiling,
    /// It is brought to the disk and moved into place.
    Publishing,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting => f.write_str("waiting for another build of it"),
            Self::CreatingVenv => f.write_str("creating"),
            Self::Installing { packages: 1 } => f.write_str("installing 1 package"),
            Self::Installing { packages } => write!(f, "installing {packages} packages"),
            Self::InstallingRunner => f.write_str("installing the runner"),
            Self::Compiling => f.write_str("compiling"),
            Self::Publishing => f.write_str("publishing"),
        }
    }
}

/// An environment that is ready. It is not removed while this, or a clone of it, is held.
#[derive(Debug, Clone)]
pub struct Environment {
    /// Its interpreter.
    pub python: PathBuf,
    /// All of it.
    pub folder: PathBuf,
    /// The hash that names it.
    pub hash: String,
    _in_use: Arc<InUse>,
}

/// The shared lock; its file's time of change is when the environment was last used.
#[derive(Debug)]
struct InUse(File);

impl InUse {
    fn touch(&self) {
        // Only the order of eviction suffers if it fails.
        let _ = self.0.set_times(FileTimes::new().set_modified(SystemTime::now()));
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.touch();
    }
}

impl Environments {
    /// Opens the folder, removing what builds that died left behind.
    ///
    /// # Errors
    /// [`Error::Io`] when the folder cannot be used.
    pub fn open(config: EnvironmentsConfig) -> Result<Self, Error> {
        let dir = std::path::absolute(&config.dir).map_err(Error::io(format!("find {}", config.dir.display())))?;
        let given = std::env::var_os("STOKE_UV_CACHE_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
        let own_cache = given.is_none().then(|| dir.join("uv-cache"));
        let uv = match given.or_else(|| own_cache.clone()) {
            Some(cache) => config.uv.with_cache(cache),
            None => config.uv,
        };
        Ok(Self(Arc::new(Inner {
            store: Store::open(dir.join("envs"))?,
            bytecode: Bytecode::open(dir.join("bytecode"))?,
            uv,
            runner_wheel: config.runner_wheel,
            cap_bytes: config.cap_bytes,
            own_cache,
            interpreters: Interpreters::default(),
            turns: Turns::default(),
        })))
    }

    /// The size of all of them, bytes. Blocks on the disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.store.bytes()
    }

    /// Looks at the Python that most endpoints run on before the first of them waits for that.
    pub(crate) async fn look_at_python(&self) {
        // What is wrong with it is told to whoever needs it.
        let _ = self.0.interpreters.find(&self.0.uv, "").await;
    }

    /// The environment for `spec`, built if there is none. Dropping the future stops its build.
    ///
    /// # Errors
    /// [`Error::Requirements`] for a lock that holds more than names, versions, hashes and indexes; [`Error::Failed`] with the last lines of
    /// what uv wrote when the requirements cannot be installed; the others name what the machine lacks.
    pub async fn get(
        &self,
        spec: &EnvironmentSpec,
        progress: &(dyn Fn(Phase) + Send + Sync),
    ) -> Result<Environment, Error> {
        let inner = &*self.0;
        // Before anything reads it: uv sees what is rendered here, never what was sent.
        let lock = &Lock::parse(&spec.requirements_lock, Indexes::Any)?;
        let interpreter = inner.interpreters.find(&inner.uv, &spec.python).await?;
        let hash = inner.hash(lock, &interpreter).await?;
        let _turn = inner.turns.take(&hash, || progress(Phase::Waiting)).await;
        loop {
            if let Some(ready) = inner.ready(&hash, progress).await? {
                return Ok(ready);
            }
            let lock_file = inner.store.lock_file(&hash);
            let turn = lock::exclusive(&lock_file, BUILD_LIMIT).await?;
            if inner.store.is_usable(&hash) {
                continue;
            }
            let started = Instant::now();
            let built = inner.build(lock, &interpreter, &hash, progress).await;
            metrics::environment_built(started.elapsed(), built.is_ok());
            match built {
                Ok((built, fresh)) => self.publish(built, fresh, hash.clone(), turn).await?,
                Err(error) => {
                    // Nothing is left for it to guard, and nothing would ever evict it.
                    let _ = std::fs::remove_file(lock_file);
                    return Err(error);
                }
            }
            // The exclusive lock has ended and the shared one is taken at the top; should another process evict the
            // environment in between, it is built again.
        }
    }

    /// Publishes, then makes room. Runs to its end, holding the lock, even if the caller goes away.
    async fn publish(&self, built: TempDir, fresh: Fresh, hash: String, lock: File) -> Result<(), Error> {
        let this = self.clone();
        let published = spawn_blocking(move || {
            let inner = &*this.0;
            inner.store.publish(built, &hash)?;
            // Not before: what a power cut left half written would be had by all.
            if let Err(error) = inner.bytecode.keep(&inner.store.environment(&hash), fresh) {
                tracing::warn!(%error, "compiled modules could not be kept for other environments");
            }
            // From here on it may be used, but still not be evicted: least of all by us, who have just built it.
            lock.lock_shared()?;
            let in_use = InUse(lock);
            in_use.touch();
            let is_cache_large = inner.make_room().unwrap_or_else(|error| {
                tracing::warn!(%error, "unused environments could not be removed");
                false
            });
            Ok(is_cache_large)
        });
        let published = published.await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        let is_cache_large = published.map_err(Error::io("publish the environment"))?;
        // By uv itself, which waits for installs of other processes that read from it.
        if is_cache_large && let Err(error) = self.0.uv.clean_cache().await {
            tracing::warn!(%error, "uv's cache could not be emptied");
        }
        Ok(())
    }
}

impl Inner {
    async fn hash(&self, lock: &Lock, interpreter: &Interpreter) -> Result<String, Error> {
        let mut hash = Sha256::new();
        // Zero bytes part the fields: none of them can hold one.
        for field in [&lock.render(), &interpreter.identity, &self.runner_wheel.identity().await?] {
            hash.update(field.replace('\0', ""));
            hash.update([0]);
        }
        Ok(hex::encode(hash.finalize()))
    }

    /// The environment, if it is there. Waits for whoever is building it.
    async fn ready(&self, hash: &str, progress: &(dyn Fn(Phase) + Send + Sync)) -> Result<Option<Environment>, Error> {
        let lock_file = self.store.lock_file(hash);
        let at_once = lock::try_shared(&lock_file).map_err(Error::io(format!("lock {}", lock_file.display())))?;
        let lock = match at_once {
            Some(lock) => lock,
            None => {
                progress(Phase::Waiting);
                lock::shared(&lock_file, BUILD_LIMIT).await?
            }
        };
        if !self.store.is_usable(hash) {
            return Ok(None);
        }
        let in_use = InUse(lock);
        in_use.touch();
        let folder = self.store.environment(hash);
        let python = folder.join("bin").join("python");
        Ok(Some(Environment { python, folder, hash: hash.to_owned(), _in_use: Arc::new(in_use) }))
    }

    async fn build(
        &self,
        requirements: &Lock,
        interpreter: &Interpreter,
        hash: &str,
        progress: &(dyn Fn(Phase) + Send + Sync),
    ) -> Result<(TempDir, Fresh), Error> {
        let partial = self.store.partial(hash)?;
        let venv = partial.path();
        progress(Phase::CreatingVenv);
        self.uv.venv(&interpreter.program, venv).await?;
        if !requirements.is_empty() {
            let lock = venv.join(".stokehold-requirements.txt");
            tokio::fs::write(&lock, requirements.render()).await.map_err(Error::io("write the requirements"))?;
            progress(Phase::Installing { packages: requirements.len() });
            self.uv.sync(venv, &lock, requirements.is_hashed()).await?;
        }
        progress(Phase::InstallingRunner);
        self.uv.install(venv, self.runner_wheel.as_argument()).await?;
        progress(Phase::Compiling);
        let fresh = self.bytecode.fill(interpreter, venv).await?;
        progress(Phase::Publishing);
        Ok((partial, fresh))
    }

    /// Keeps the environments below the cap. Says whether uv's cache should be emptied. Blocks on the disk.
    fn make_room(&self) -> std::io::Result<bool> {
        let evicted = self.store.evict(self.cap_bytes)?;
        if evicted > 0 {
            self.bytecode.tidy()?;
        }
        // Most files of an environment are hard links into the cache, so an eviction alone frees little. What only the cache
        // holds grows by evictions: it may reach the cap as well, then all of it goes.
        match &self.own_cache {
            Some(cache) if evicted > 0 => Ok(store::measure(cache)?.sole > self.cap_bytes),
            _ => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_read_as_words() {
        assert_eq!(Phase::Installing { packages: 1 }.to_string(), "installing 1 package");
        assert_eq!(Phase::Installing { packages: 12 }.to_string(), "installing 12 packages");
    }
}
