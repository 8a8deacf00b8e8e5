//! With whose rights environments are built, and which builds share what they download.
//!
//! ```text
//! builds/<room>/                           the worker's own: who builds there makes nothing beside what follows
//! builds/<room>/cache/                     uv's downloads
//! builds/<room>/.partial-<hash>-<nonce>/   an environment that is being built, with all that its build writes
//! builds/<room>.lock                       shared by builds that run nothing of a tenant; others hold it alone
//! ```

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use sha2::{Digest, Sha256};
use stokehold_queue::requirements_lock::Indexes;
use tokio::process::Command;

use super::interpreter::Interpreter;
use super::store::{Partial, measure};
use super::{Error, lock};
use crate::sandbox::{Level, Reach, Sandbox};
use crate::uv::{Uv, confined_variables};

/// Where uv keeps what it downloaded, in a room.
const CACHE: &str = "cache";

/// Who builds environments, and with whose rights.
#[derive(Debug, Clone)]
pub struct Builds(Kind);

#[derive(Debug, Clone)]
enum Kind {
    Own,
    Tenants { sandbox: Arc<Sandbox>, allow_source: bool, indexes: Vec<String> },
}

/// A way to build an environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) scope: Scope,
    /// Whether source distributions, whose builds run what their authors wrote, are left alone.
    pub(super) wheels_only: bool,
}

/// Whose environments may be the same one, and whose downloads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Scope {
    /// The caller's own.
    Own,
    /// All tenants': only wheels, each by its hash, and so nothing of a tenant has run.
    Shared,
    /// One tenant's.
    Tenant(String),
}

impl Builds {
    /// What is installed is the caller's own, as on a developer's machine: uv may build source distributions, with the caller's rights.
    #[must_use]
    pub fn own() -> Self {
        Self(Kind::Own)
    }

    /// What is installed is somebody else's: uv runs in the sandbox, builds source distributions only where the operator allows that, and asks
    /// these package indexes alone where requirements name some.
    pub(crate) fn of_tenants(sandbox: Arc<Sandbox>, allow_source: bool, indexes: Vec<String>) -> Self {
        // Else what a build leaves behind could change an environment while the worker looks at it.
        let can_end_them = sandbox.level() == Level::L0 || sandbox.is_alone() || sandbox.builder_uid("").is_some();
        if allow_source && !can_end_them {
            tracing::warn!("STOKE_ALLOW_SOURCE_BUILDS has no effect: at sandbox level L1 the worker must run as root");
        }
        Self(Kind::Tenants { sandbox, allow_source: allow_source && can_end_them, indexes })
    }

    /// The package indexes that requirements may name.
    pub(super) fn indexes(&self) -> Indexes<'_> {
        match &self.0 {
            Kind::Own => Indexes::Any,
            Kind::Tenants { indexes, .. } => Indexes::Listed(indexes),
        }
    }

    /// The ways to build an environment of these requirements, the best one first.
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

    /// Whether they are somebody else's.
    pub(super) fn are_of_tenants(&self) -> bool {
        matches!(self.0, Kind::Tenants { .. })
    }

    /// The room for builds of this scope; `None` is the caller's own. Waits while another build must be alone there.
    pub(super) async fn room(&self, builds: &Path, plan: &Plan, limit: Duration) -> Result<Option<Room>, Error> {
        let Kind::Tenants { sandbox, .. } = &self.0 else { return Ok(None) };
        let scope = plan.scope.folder();
        let uid = sandbox.builder_uid(&scope);
        // What one user has downloaded, another could not add to.
        let name = format!("{scope}-{}", uid.unwrap_or_else(|| Uid::effective().as_raw()));
        let folder = builds.join(&name);
        fs::create_dir_all(&folder).map_err(Error::io(format!("create {}", folder.display())))?;
        let lock_file = builds.join(format!("{name}.lock"));
        // What runs something of a tenant has the room for itself: nobody else changes what the worker looks at behind it.
        let is_alone = plan.scope != Scope::Shared;
        let turn =
            if is_alone { lock::exclusive(&lock_file, limit).await? } else { lock::shared(&lock_file, limit).await? };
        let room = Room { sandbox: Arc::clone(sandbox), cache: folder.join(CACHE), folder, uid, is_alone, _turn: turn };
        room.prepare().map_err(Error::io(format!("prepare {}", room.folder.display())))?;
        Ok(Some(room))
    }
}

impl Scope {
    /// What of it is part of an environment's name.
    pub(super) fn identity(&self) -> &str {
        match self {
            Self::Own | Self::Shared => "",
            Self::Tenant(tenant) => tenant,
        }
    }

    /// What of it is part of a folder's name.
    pub(super) fn folder(&self) -> String {
        match self {
            Self::Own => "own".to_owned(),
            Self::Shared => "shared".to_owned(),
            Self::Tenant(tenant) => format!("tenant-{}", hex::encode(&Sha256::digest(tenant.as_bytes())[..16])),
        }
    }
}

/// Where environments of one scope are built, in the sandbox.
#[derive(Debug)]
pub(super) struct Room {
    sandbox: Arc<Sandbox>,
    pub(super) folder: PathBuf,
    cache: PathBuf,
    /// The user that builds, where that is not the worker's.
    uid: Option<u32>,
    is_alone: bool,
    _turn: File,
}

impl Room {
    fn prepare(&self) -> io::Result<()> {
        // Whoever builds goes through, and makes nothing here.
        fs::set_permissions(&self.folder, fs::Permissions::from_mode(0o711))?;
        match fs::create_dir(&self.cache) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made.and_then(|()| self.hand_over(&self.cache)),
        }
    }

    fn hand_over(&self, path: &Path) -> io::Result<()> {
        self.uid.map_or(Ok(()), |uid| lchown(path, Some(uid), Some(uid)))
    }

    /// Gives an empty environment, and a home, to whoever builds. What they lie in, and the lists in it, stay the worker's: nobody puts a link
    /// in their place.
    pub(super) fn give(&self, partial: &Partial) -> io::Result<()> {
        fs::create_dir(partial.home())?;
        for folder in [partial.home(), partial.environment()] {
            each(&folder, &mut |path, _| self.hand_over(path))?;
            self.hand_over(&folder)?;
        }
        fs::set_permissions(partial.path(), fs::Permissions::from_mode(0o711))
    }

    /// What is made there from now on is the builder's, too.
    pub(super) fn owner(&self) -> Option<u32> {
        self.uid
    }

    /// Sees to it that nothing is left of what installed something of a tenant: the worker looks at the environment next.
    pub(super) fn settle(&self) -> io::Result<()> {
        // In namespaces of their own all have ended with the first.
        match self.uid {
            Some(uid) if self.is_alone && !self.sandbox.is_alone() => end_all_of(uid),
            _ => Ok(()),
        }
    }

    /// uv, shut in: it reads what it needs, and writes the environment and its cache.
    pub(super) fn uv(
        &self,
        uv: &Uv,
        partial: &Partial,
        interpreter: &Interpreter,
        wheels_only: bool,
    ) -> io::Result<Command> {
        let (variables, reads) = confined_variables(&partial.home(), &self.cache, !wheels_only);
        let reads = reads.into_iter().chain([uv.path().to_owned()]).chain(interpreter.base.iter().cloned());
        self.sandbox.command(uv.path(), &self.reach(partial, reads.collect(), true), variables)
    }

    /// The base interpreter, shut in and without any network.
    pub(super) fn python(&self, partial: &Partial, interpreter: &Interpreter) -> io::Result<Command> {
        let (mut variables, _) = confined_variables(&partial.home(), &self.cache, false);
        variables.retain(|name, _| !name.starts_with("UV_") && !name.to_ascii_lowercase().ends_with("_proxy"));
        self.sandbox.command(&interpreter.program, &self.reach(partial, interpreter.base.clone(), false), variables)
    }

    /// Of the room all: uv links files from its cache into environments, which the kernel lets it do only within one mount.
    fn reach(&self, partial: &Partial, reads: Vec<PathBuf>, network: bool) -> Reach {
        let (writes, folder) = (vec![self.folder.clone()], partial.path().to_owned());
        Reach { reads, writes, folder, network, devices: Vec::new(), uid: self.uid }
    }
}

/// Whether every requirement has a hash, and nothing is asked for but requirements and package indexes.
fn is_hashed(requirements: &str) -> bool {
    const INDEXES: [&str; 4] = ["--index-url", "-i", "--extra-index-url", "--only-binary"];
    let joined = requirements.replace("\\\n", " ");
    let is_pinned = |line: &str| {
        let first = line.split([' ', '=', '\t']).next().unwrap_or_default();
        if line.starts_with('-') { INDEXES.contains(&first) } else { line.contains(" --hash=sha256:") }
    };
    joined.lines().all(is_pinned)
}

/// Ends all processes of a user that only builds have.
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

/// Visits everything below `folder`, what holds others before those; links are not followed.
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

/// Forgets the downloads of rooms in which nobody builds, if what only they hold is more than `cap_bytes`. Blocks on the disk.
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
