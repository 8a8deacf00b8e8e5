//! The Python environments of runners: built once per content, shared, and deleted when space is short.
//!
//! An environment is named by the hash of everything that determines its content: the locked requirements, the
//! interpreter's version and ABI, the platform, the runner wheel, and the tenant if code of the tenant may have run
//! during the build or the requirements have no hashes. It is built next to its final place and renamed, so an
//! environment with its final name is always complete. Environments can be moved: `uv venv --relocatable` writes
//! console scripts that look for Python next to themselves, and `pyvenv.cfg` names only the base interpreter.
//!
//! A sandboxed uv installs the requirements of tenants, and nothing starts the environment's own Python before a
//! handler does, because it would run startup code of packages: the runner is linked from the environment that contains
//! only the runner, and the base interpreter compiles the bytecode. [`Builds`] defines the rights of a build.

mod build_steps;
mod builds;
mod bytecode;
pub(crate) mod child;
mod error;
mod graft;
mod in_use;
pub(crate) mod interpreter;
mod keyed_mutex;
pub(crate) mod lock;
mod phase;
mod seal;
mod store;
mod wheel;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use stokehold_protocol::requirements_lock::Lock;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use self::build_steps::Built;
pub use self::builds::Builds;
use self::builds::{Plan, Scope};
use self::bytecode::Bytecode;
pub use self::error::Error;
pub use self::in_use::Environment;
use self::in_use::InUse;
use self::interpreter::{Interpreter, Interpreters};
pub(crate) use self::keyed_mutex::KeyedMutex;
use self::lock::LockedFile;
pub use self::phase::Phase;
use self::store::Store;
pub use self::wheel::RunnerWheel;
use crate::metrics;
use crate::uv::{INSTALL_LIMIT, Uv};

/// Longest wait for another process that builds the same environment: two installations, plus time for the other steps.
const BUILD_LIMIT: Duration = Duration::from_secs(2 * INSTALL_LIMIT.as_secs() + 5 * 60);

/// Version of the build process. Environments of other versions are not used, and are evicted when unused.
const FORMAT: &str = "2";

/// The default of [`EnvironmentsConfig::cap_bytes`]: about ten GPU stacks.
pub const CAP_BYTES_DEFAULT: u64 = 50 * 1024 * 1024 * 1024;

/// Requirements of an endpoint for its environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvironmentSpec {
    /// Tenant of the endpoint.
    pub tenant: String,
    /// Pinned requirements, with or without hashes; may be empty. uv gets the output of [`Lock`], never this text.
    pub requirements_lock: String,
    /// Python version, e.g. `3.11`; empty means the `python3` on PATH.
    pub python: String,
}

/// Configuration of [`Environments`].
#[derive(Debug, Clone)]
pub struct EnvironmentsConfig {
    /// Folder for environments and downloads.
    pub dir: PathBuf,
    /// uv, which builds them.
    pub uv: Uv,
    /// The runner wheel, which every environment contains.
    pub runner_wheel: RunnerWheel,
    /// Rights of the builds.
    pub builds: Builds,
    /// Maximum size of all environments; above it, unused ones are deleted, least recently used first.
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
    builds: Builds,
    cap_bytes: u64,
    /// Folder of uv's downloads, if the worker manages it.
    own_cache: Option<PathBuf>,
    interpreters: Interpreters,
    building: KeyedMutex,
}

/// An environment to find or build.
struct Wanted<'a> {
    requirements: &'a str,
    interpreter: &'a Interpreter,
    /// The environment that contains only the runner; `None` if it is this one.
    ours: Option<&'a Environment>,
    plan: Plan,
    hash: String,
}

impl Environments {
    /// Opens the folder and removes leftovers of builds whose process died.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder cannot be used.
    pub fn open(config: EnvironmentsConfig) -> Result<Self, Error> {
        let dir = std::path::absolute(&config.dir).map_err(Error::io(format!("find {}", config.dir.display())))?;
        let given = std::env::var_os("STOKE_UV_CACHE_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
        let own_cache = given.is_none().then(|| dir.join("uv-cache"));
        let uv = match given.or_else(|| own_cache.clone()) {
            Some(cache) => config.uv.with_cache(cache),
            None => config.uv,
        };
        let uv = if config.builds.are_of_tenants() { uv.cleared() } else { uv };
        Ok(Self(Arc::new(Inner {
            store: Store::open(dir.join("envs"), dir.join("builds"))?,
            bytecode: Bytecode::open(dir.join("bytecode"))?,
            uv,
            runner_wheel: config.runner_wheel,
            builds: config.builds,
            cap_bytes: config.cap_bytes,
            own_cache,
            interpreters: Interpreters::default(),
            building: KeyedMutex::default(),
        })))
    }

    /// Size of all environments in bytes. Blocks on the disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.store.bytes()
    }

    /// Prepares the default Python and its runner environment before the first job needs them.
    pub(crate) async fn prepare_python(&self) {
        // Errors are reported to the first job that needs it.
        if let Ok(interpreter) = self.0.interpreters.find(&self.0.uv, "").await {
            let _ = self.ours(&interpreter, &|_| ()).await;
        }
    }

    /// The environment for `spec`, built if necessary. Dropping the future stops the build.
    ///
    /// # Errors
    /// [`Error::Requirements`] if a lock contains more than names, versions, hashes and indexes; [`Error::Failed`] with
    /// the last lines of uv's output if the requirements cannot be installed; the other errors name what the machine
    /// lacks.
    pub async fn get(
        &self,
        spec: &EnvironmentSpec,
        progress: &(dyn Fn(Phase) + Send + Sync),
    ) -> Result<Environment, Error> {
        // Parse first: uv gets the rendered requirements, never the text that was sent.
        let requirements = Lock::parse(&spec.requirements_lock, self.0.builds.indexes())?.render();
        let interpreter = self.0.interpreters.find(&self.0.uv, &spec.python).await?;
        if requirements.is_empty() {
            return self.ours(&interpreter, progress).await;
        }
        let ours = self.ours(&interpreter, &|_| ()).await?;
        let plans = self.0.builds.plans(&spec.tenant, &requirements);
        let mut wanted = Vec::new();
        for plan in plans {
            let hash = self.0.hash(&requirements, &plan.scope, &interpreter).await?;
            wanted.push(Wanted {
                requirements: &requirements,
                interpreter: &interpreter,
                ours: Some(&ours),
                plan,
                hash,
            });
        }
        // An environment that was built in a less preferred way may exist already.
        for other in wanted.iter().skip(1).filter(|other| self.0.store.is_usable(&other.hash)) {
            if let Some(ready) = self.0.ready(other, progress).await? {
                return Ok(ready);
            }
        }
        let mut ways = wanted.iter().peekable();
        loop {
            let Some(way) = ways.next() else {
                return Err(Error::io("find a way to build the environment")(std::io::ErrorKind::NotFound.into()));
            };
            match self.made(way, progress).await {
                Err(error) if error.is_for_want_of_a_wheel() && ways.peek().is_some() => {}
                made => return made,
            }
        }
    }

    /// The environment that contains only the runner.
    async fn ours(
        &self,
        interpreter: &Interpreter,
        progress: &(dyn Fn(Phase) + Send + Sync),
    ) -> Result<Environment, Error> {
        let plan = Plan { scope: Scope::Own, wheels_only: false };
        let hash = self.0.hash("", &plan.scope, interpreter).await?;
        self.made(&Wanted { requirements: "", interpreter, ours: None, plan, hash }, progress).await
    }

    async fn made(&self, wanted: &Wanted<'_>, progress: &(dyn Fn(Phase) + Send + Sync)) -> Result<Environment, Error> {
        let (inner, hash) = (&*self.0, &wanted.hash);
        let _guard = inner.building.lock(hash, || progress(Phase::Waiting)).await;
        loop {
            if let Some(ready) = inner.ready(wanted, progress).await? {
                return Ok(ready);
            }
            let lock_file = inner.store.lock_file(hash);
            let is_built = || inner.store.is_usable(hash);
            let Some(lock) = lock::to_make(&lock_file, BUILD_LIMIT, is_built).await? else { continue };
            let started = Instant::now();
            let built = inner.build(wanted, progress).await;
            metrics::environment_built(started.elapsed(), built.is_ok());
            match built {
                Ok(built) => self.publish(built, hash.clone(), lock).await?,
                Err(error) => {
                    // The lock file protects nothing any more, and no eviction would remove it.
                    let _ = std::fs::remove_file(lock_file);
                    self.forget_downloads().await;
                    return Err(error);
                }
            }
            // The exclusive lock is released and the shared one is taken at the top of the loop. If another process
            // evicts the environment in between, it is built again.
        }
    }

    /// Deletes the downloads of failed builds, which trigger no eviction.
    async fn forget_downloads(&self) {
        let inner = Arc::clone(&self.0);
        let cleaned = spawn_blocking(move || builds::clean(inner.store.builds(), inner.cap_bytes)).await;
        if let Err(error) = cleaned.unwrap_or_else(|error| Err(error.into())) {
            tracing::warn!(%error, "cannot remove unused downloads");
        }
    }

    /// Publishes the environment, then evicts others if necessary. Runs to its end with the lock held even if the
    /// caller is cancelled.
    async fn publish(&self, built: Built, hash: String, lock: LockedFile) -> Result<(), Error> {
        let this = self.clone();
        let published = spawn_blocking(move || {
            let inner = &*this.0;
            let Built { partial, bytecode, fresh, room } = built;
            inner.store.publish(&partial, &hash)?;
            // Only after publishing: bytecode that was half-written at a power failure must not be shared.
            if let Err(error) = bytecode.keep(&inner.store.environment(&hash), fresh) {
                tracing::warn!(%error, "cannot keep compiled modules for other environments");
            }
            // The room must stay locked until the build folder is deleted.
            drop((partial, room));
            // From here on it may be used but not evicted.
            lock.lock_shared()?;
            let in_use = InUse(lock);
            in_use.touch();
            let is_cache_large = inner.make_room().unwrap_or_else(|error| {
                tracing::warn!(%error, "cannot remove unused environments");
                false
            });
            Ok(is_cache_large)
        });
        let published = published.await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        let is_cache_large = published.map_err(Error::io("publish the environment"))?;
        // Use uv, which waits for installations of other processes that read its cache.
        if is_cache_large && let Err(error) = self.0.uv.clean_cache().await {
            tracing::warn!(%error, "cannot clear uv's cache");
        }
        Ok(())
    }
}

impl Inner {
    async fn hash(&self, requirements: &str, scope: &Scope, interpreter: &Interpreter) -> Result<String, Error> {
        let mut hash = Sha256::new();
        let wheel = self.runner_wheel.identity().await?;
        // Zero bytes separate the fields; no field contains one.
        for field in [FORMAT, requirements, &interpreter.identity, &wheel, scope.identity()] {
            hash.update(field.replace('\0', ""));
            hash.update([0]);
        }
        Ok(hex::encode(hash.finalize()))
    }

    /// Keeps the environments below the maximum size. Returns whether uv's cache should be emptied. Blocks on the disk.
    fn make_room(&self) -> std::io::Result<bool> {
        let evicted = self.store.evict(self.cap_bytes)?;
        if evicted > 0 {
            self.bytecode.tidy()?;
            builds::clean(self.store.builds(), self.cap_bytes)?;
        }
        // Most files of an environment are hard links into the cache, so an eviction alone frees little. Files that
        // only the cache contains accumulate with evictions; if they exceed the maximum too, the cache is emptied.
        match &self.own_cache {
            Some(cache) if evicted > 0 && cache.is_dir() => Ok(store::measure(cache)?.sole > self.cap_bytes),
            _ => Ok(false),
        }
    }
}
