//! Rights of environment builds, and which builds share their downloads.
//!
//! ```text
//! builds/<room>/                           owned by the worker; builders can write only to the following folders
//! builds/<room>/cache/                     uv's downloads
//! builds/<room>/.partial-<hash>-<nonce>/   an environment that is being built, with all files of the build
//! builds/<room>.lock                       locked by builds: exclusively if they run code of a tenant, else shared
//! ```

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use sha2::{Digest, Sha256};
use stokehold_protocol::requirements_lock::Indexes;
use tokio::process::Command;

use super::Error;
use super::interpreter::Interpreter;
use super::lock::{self, LockedFile};
use super::store::{Partial, measure};
use crate::sandbox::{FsAccess, Level, Sandbox};
use crate::uv::{Uv, confined_variables};

/// Folder of uv's downloads in a room.
const CACHE: &str = "cache";

/// The rights of environment builds.
#[derive(Debug, Clone)]
pub struct Builds(Kind);

#[derive(Debug, Clone)]
enum Kind {
    Own,
    Tenants { sandbox: Arc<Sandbox>, allow_source: bool, indexes: Vec<String> },
}

/// One way to build an environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) scope: Scope,
    /// Whether to ignore source distributions, whose builds run code of their authors.
    pub(super) wheels_only: bool,
}

/// The set of tenants that share environments and downloads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Scope {
    /// Only the caller.
    Own,
    /// All tenants: only wheels with hashes, so that no code of a tenant has run.
    Shared,
    /// One tenant.
    Tenant(String),
}

impl Builds {
    /// Builds for the caller, e.g. on a developer's machine: uv may build source distributions with the caller's
    /// rights.
    #[must_use]
    pub fn own() -> Self {
        Self(Kind::Own)
    }

    /// Builds for tenants: uv runs in the sandbox, builds source distributions only if the operator allows it, and uses
    /// only these package indexes for requirements that name one.
    pub(crate) fn of_tenants(sandbox: Arc<Sandbox>, allow_source: bool, indexes: Vec<String>) -> Self {
        // Otherwise, processes that a build leaves behind could change an environment while the worker checks it.
        let can_end_them = sandbox.level() == Level::L0 || sandbox.is_alone() || sandbox.builder_uid("").is_some();
        if allow_source && !can_end_them {
            tracing::warn!("STOKE_ALLOW_SOURCE_BUILDS has no effect: at sandbox level L1 the worker must run as root");
        }
        Self(Kind::Tenants { sandbox, allow_source: allow_source && can_end_them, indexes })
    }

    /// Package indexes that requirements may name.
    pub(super) fn indexes(&self) -> Indexes<'_> {
        match &self.0 {
            Kind::Own => Indexes::Any,
            Kind::Tenants { indexes, .. } => Indexes::Listed(indexes),
        }
    }

    /// The ways to build an environment for these requirements, in order of preference.
    pub(super) fn plans(&self, tenant: &str, requirements: &str) -> Vec<Plan> {
        let Kind::Tenants { allow_source, .. } = &self.0 else {
            return vec![Plan { scope: Scope::Own, wheels_only: false }];
        };
        let of_tenant = |wheels_only| Plan { scope: Scope::Tenant(tenant.to_owned()), wheels_only };
        let shared = Plan { scope: Scope::Shared, wheels_only: true };
        match (is_hashed(requirements), *allow_source) {
            (true, false) => vec![shared],
            (true, true) => vec![shared, of_tenant(false)],
            (false, allow_source) => vec![of_tenant(!allow_source)],
        }
    }

    /// Whether the builds are for tenants.
    pub(super) fn are_of_tenants(&self) -> bool {
        matches!(self.0, Kind::Tenants { .. })
    }

    /// The room for builds of this scope; `None` for the caller's own builds. Waits while another build needs the room
    /// for itself.
    pub(super) async fn room(&self, builds: &Path, plan: &Plan, limit: Duration) -> Result<Option<Room>, Error> {
        let Kind::Tenants { sandbox, .. } = &self.0 else { return Ok(None) };
        let scope = plan.scope.folder();
        let uid = sandbox.builder_uid(&scope);
        // Another user could not write to a user's downloads.
        let name = format!("{scope}-{}", uid.unwrap_or_else(|| Uid::effective().as_raw()));
        let folder = builds.join(&name);
        fs::create_dir_all(&folder).map_err(Error::io(format!("create {}", folder.display())))?;
        let lock_file = builds.join(format!("{name}.lock"));
        // A build that runs code of a tenant has the room for itself, so that no other build can change files while the
        // worker checks them.
        let is_alone = plan.scope != Scope::Shared;
        let turn =
            if is_alone { lock::exclusive(&lock_file, limit).await? } else { lock::shared(&lock_file, limit).await? };
        let room = Room { sandbox: Arc::clone(sandbox), cache: folder.join(CACHE), folder, uid, is_alone, _turn: turn };
        room.prepare().map_err(Error::io(format!("prepare {}", room.folder.display())))?;
        Ok(Some(room))
    }
}

impl Scope {
    /// Part of an environment's name.
    pub(super) fn identity(&self) -> &str {
        match self {
            Self::Own | Self::Shared => "",
            Self::Tenant(tenant) => tenant,
        }
    }

    /// Part of a folder's name.
    pub(super) fn folder(&self) -> String {
        match self {
            Self::Own => "own".to_owned(),
            Self::Shared => "shared".to_owned(),
            Self::Tenant(tenant) => format!("tenant-{}", hex::encode(&Sha256::digest(tenant.as_bytes())[..16])),
        }
    }
}

/// The folder in which environments of one scope are built, in the sandbox.
#[derive(Debug)]
pub(super) struct Room {
    sandbox: Arc<Sandbox>,
    pub(super) folder: PathBuf,
    cache: PathBuf,
    /// User of the builds, if it is not the worker's.
    uid: Option<u32>,
    is_alone: bool,
    _turn: LockedFile,
}

impl Room {
    fn prepare(&self) -> io::Result<()> {
        // Builders may enter but not write here.
        fs::set_permissions(&self.folder, fs::Permissions::from_mode(0o711))?;
        match fs::create_dir(&self.cache) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made.and_then(|()| self.hand_over(&self.cache)),
        }
    }

    fn hand_over(&self, path: &Path) -> io::Result<()> {
        self.uid.map_or(Ok(()), |uid| lchown(path, Some(uid), Some(uid)))
    }

    /// Makes the builder the owner of an empty environment and a home. Their parent folder and its lists stay the
    /// worker's, so that builders cannot replace them by links.
    pub(super) fn give(&self, partial: &Partial) -> io::Result<()> {
        fs::create_dir(partial.home())?;
        for folder in [partial.home(), partial.environment()] {
            each(&folder, &mut |path, _| self.hand_over(path))?;
            self.hand_over(&folder)?;
        }
        fs::set_permissions(partial.path(), fs::Permissions::from_mode(0o711))
    }

    /// Owner of files that are created during the build.
    pub(super) fn owner(&self) -> Option<u32> {
        self.uid
    }

    /// Kills all processes that are left of a tenant's build, before the worker checks the environment.
    pub(super) fn settle(&self) -> io::Result<()> {
        // With separate namespaces, all processes have ended with the first.
        match self.uid {
            Some(uid) if self.is_alone && !self.sandbox.is_alone() => end_all_of(uid),
            _ => Ok(()),
        }
    }

    /// The command for a sandboxed uv, which may read what it needs and write the environment and its cache.
    pub(super) fn uv(
        &self,
        uv: &Uv,
        partial: &Partial,
        interpreter: &Interpreter,
        wheels_only: bool,
    ) -> io::Result<Command> {
        let (variables, reads) = confined_variables(&partial.home(), &self.cache, !wheels_only);
        let reads = reads.into_iter().chain([uv.path().to_owned()]).chain(interpreter.base.iter().cloned());
        self.sandbox.command(uv.path(), &self.access(partial, reads.collect(), true), variables)
    }

    /// The command for the base interpreter, sandboxed and without network access.
    pub(super) fn python(&self, partial: &Partial, interpreter: &Interpreter) -> io::Result<Command> {
        let (mut variables, _) = confined_variables(&partial.home(), &self.cache, false);
        variables.retain(|name, _| !name.starts_with("UV_") && !name.to_ascii_lowercase().ends_with("_proxy"));
        self.sandbox.command(&interpreter.program, &self.access(partial, interpreter.base.clone(), false), variables)
    }

    /// Writable is the whole room: uv hard-links files from its cache into environments, which the kernel allows only
    /// within one mount.
    fn access(&self, partial: &Partial, reads: Vec<PathBuf>, network: bool) -> FsAccess {
        let (writes, folder) = (vec![self.folder.clone()], partial.path().to_owned());
        FsAccess { reads, writes, links: Vec::new(), folder, network, devices: Vec::new(), uid: self.uid }
    }
}

/// Whether every requirement has a hash, and the text contains only requirements and package indexes.
fn is_hashed(requirements: &str) -> bool {
    const INDEXES: [&str; 4] = ["--index-url", "-i", "--extra-index-url", "--only-binary"];
    let joined = requirements.replace("\\\n", " ");
    let is_pinned = |line: &str| {
        let first = line.split([' ', '=', '\t']).next().unwrap_or_default();
        if line.starts_with('-') { INDEXES.contains(&first) } else { line.contains(" --hash=sha256:") }
    };
    joined.lines().all(is_pinned)
}

/// Kills all processes of a builder's user.
fn end_all_of(uid: u32) -> io::Result<()> {
    loop {
        let mut found = false;
        for entry in fs::read_dir("/proc")?.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
            let Ok(status) = fs::read_to_string(entry.path().join("status")) else { continue };
            let is_dead = status.contains("\nState:\tZ") || status.contains("\nState:\tX");
            let owner =
                status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().next()?.parse().ok());
            if owner == Some(uid) && !is_dead {
                found = true;
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
        if !found {
            return Ok(());
        }
    }
}

/// Visits everything below `folder`, parents first; links are not followed.
pub(super) fn each(folder: &Path, visit: &mut dyn FnMut(&Path, &fs::Metadata) -> io::Result<()>) -> io::Result<()> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            visit(&entry.path(), &metadata)?;
            if metadata.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    Ok(())
}

/// Deletes the downloads of idle rooms if the files that exist only there exceed `cap_bytes`. Blocks on the disk.
pub(super) fn clean(builds: &Path, cap_bytes: u64) -> io::Result<()> {
    let rooms: Vec<PathBuf> =
        fs::read_dir(builds)?.flatten().map(|entry| entry.path()).filter(|path| path.join(CACHE).is_dir()).collect();
    let mut sole = 0;
    for room in &rooms {
        sole += measure(&room.join(CACHE))?.sole;
    }
    for room in rooms.iter().filter(|_| sole > cap_bytes) {
        let Some(_turn) = lock::try_exclusive(&room.with_extension("lock"))? else { continue };
        let away = tempfile::Builder::new().prefix(".partial-").tempdir_in(room)?;
        fs::rename(room.join(CACHE), away.path().join(CACHE))?;
        away.close()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const HASHED: &str =
        "-i https://index.invalid\nsix==1.17.0 \\\n    --hash=sha256:aa\nidna==3.10 --hash=sha256:bb\n";

    fn of_tenants(allow_source: bool) -> Builds {
        Builds::of_tenants(Arc::new(Sandbox::none()), allow_source, Vec::new())
    }

    #[test]
    fn tenants_share_only_what_runs_nothing_of_theirs() {
        let plan = |scope: Scope, wheels_only| Plan { scope, wheels_only };
        let of_a = || Scope::Tenant("a".to_owned());
        assert_eq!(of_tenants(false).plans("a", HASHED), [plan(Scope::Shared, true)]);
        assert_eq!(of_tenants(true).plans("a", HASHED), [plan(Scope::Shared, true), plan(of_a(), false)]);
        for unhashed in ["six==1.17.0\n", "six==1.17.0 --hash=sha256:aa\nidna==3.10\n", "-r other.txt\n", "-e .\n"] {
            assert_eq!(of_tenants(false).plans("a", unhashed), [plan(of_a(), true)], "{unhashed}");
            assert_eq!(of_tenants(true).plans("a", unhashed), [plan(of_a(), false)], "{unhashed}");
        }
        assert_eq!(Builds::own().plans("a", "six\n"), [plan(Scope::Own, false)]);
    }

    #[test]
    fn every_tenant_has_a_room_of_its_own() {
        let folder = |tenant: &str| Scope::Tenant(tenant.to_owned()).folder();
        assert_ne!(folder("a"), folder("b"));
        assert!(!folder("../../etc").contains(['/', '.']));
    }

    #[tokio::test]
    async fn downloads_of_idle_rooms_are_forgotten_when_they_are_too_many() {
        let builds = tempfile::tempdir().unwrap();
        let plan = Plan { scope: Scope::Shared, wheels_only: true };
        let room = of_tenants(false).room(builds.path(), &plan, Duration::from_secs(1)).await.unwrap().unwrap();
        fs::write(room.cache.join("wheel"), [0; 100]).unwrap();
        clean(builds.path(), 10).unwrap();
        assert!(room.cache.join("wheel").exists(), "somebody builds there");
        let cache = room.cache.clone();
        drop(room);
        clean(builds.path(), 100).unwrap();
        assert!(cache.exists());
        clean(builds.path(), 10).unwrap();
        assert!(!cache.exists());
    }
}
