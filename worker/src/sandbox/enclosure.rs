//! Enclosures: each sandbox level is one implementation that turns a program into a sandboxed command, and one test
//! program verifies all of them.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::unistd::{Gid, Uid};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::timeout;

use super::{FsAccess, KEPT, Level, policy};

/// Timeout of the test program.
const PROBE_LIMIT: Duration = Duration::from_secs(10);

/// One way to sandbox a process.
pub(super) trait Enclosure: Debug + Send + Sync {
    /// The level that it provides.
    fn level(&self) -> Level;

    /// Whether its processes have their own process, mount and network namespaces, and end together.
    fn is_alone(&self) -> bool;

    /// A command that becomes `program` in the sandbox, with exactly these variables. The caller adds the program's
    /// arguments and descriptors.
    fn command(
        &self,
        program: &Path,
        access: &FsAccess,
        variables: BTreeMap<String, String>,
    ) -> std::io::Result<Command>;
}

/// L0 with the worker's own rights: starts the program directly.
#[derive(Debug)]
pub(super) struct Bare;

impl Enclosure for Bare {
    fn level(&self) -> Level {
        Level::L0
    }

    fn is_alone(&self) -> bool {
        false
    }

    fn command(
        &self,
        program: &Path,
        access: &FsAccess,
        variables: BTreeMap<String, String>,
    ) -> std::io::Result<Command> {
        let mut command = Command::new(program);
        command.current_dir(&access.folder).env_clear().envs(variables);
        Ok(command)
    }
}

/// A process that restricts itself through our own program: at L0 it drops the worker's rights, at L1 it also restricts
/// files and system calls.
#[derive(Debug)]
pub(super) struct Confined {
    /// Our own program, which restricts the process and then becomes the runner.
    pub(super) stoke: PathBuf,
    /// Whether Landlock and the system call filter apply.
    pub(super) is_restricted: bool,
}

impl Enclosure for Confined {
    fn level(&self) -> Level {
        if self.is_restricted { Level::L1 } else { Level::L0 }
    }

    fn is_alone(&self) -> bool {
        false
    }

    fn command(
        &self,
        program: &Path,
        access: &FsAccess,
        variables: BTreeMap<String, String>,
    ) -> std::io::Result<Command> {
        let mut command = Command::new(&self.stoke);
        command.args(["confine", &policy(access, self)?, "--"]).arg(program);
        command.current_dir(&access.folder).env_clear().envs(kept(variables));
        Ok(command)
    }
}

/// Renames variables for the programs that create the sandbox: the variables are not trusted, and some, e.g.
/// `LD_PRELOAD`, affect every program.
pub(super) fn kept(variables: BTreeMap<String, String>) -> impl Iterator<Item = (String, String)> {
    variables.into_iter().map(|(name, value)| (format!("{KEPT}{name}"), value))
}

/// Starts a test program like a runner, as this user, and checks that it wrote a file below each of these folders.
///
/// # Errors
/// Why it failed.
pub(super) async fn prove(enclosure: &dyn Enclosure, uid: Option<u32>, folders: &[&Path]) -> Result<(), String> {
    let made = |folder: &Path| {
        let made = tempfile::tempdir_in(folder)?;
        nix::unistd::chown(made.path(), uid.map(Uid::from_raw), uid.map(Gid::from_raw))?;
        Ok(made)
    };
    let temp = std::env::temp_dir();
    let folders = folders.iter().copied().filter(|folder| folder.exists()).chain([temp.as_path()]);
    let folders: std::io::Result<Vec<TempDir>> = folders.map(made).collect();
    let folders = folders.map_err(|error| error.to_string())?;
    let writes: Vec<_> = folders.iter().map(|folder| folder.path().to_owned()).collect();
    let access = FsAccess {
        reads: Vec::new(),
        folder: writes[0].clone(),
        writes: writes.clone(),
        links: Vec::new(),
        network: false,
        devices: Vec::new(),
        uid,
    };
    let command = enclosure.command(Path::new("/bin/sh"), &access, BTreeMap::new());
    let mut command = command.map_err(|error| error.to_string())?;
    command
        .args(["-c", "for folder; do : >\"$folder/file\" || exit 1; done", "sh"])
        .args(&writes)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let child = command.kill_on_drop(true).spawn();
    let child = child.map_err(|error| format!("{}: {error}", command.as_std().get_program().to_string_lossy()))?;
    match timeout(PROBE_LIMIT, child.wait_with_output()).await {
        Ok(Ok(output)) if output.status.success() => writes.iter().try_for_each(|folder| written(folder, uid)),
        Ok(Ok(output)) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("the test program did not finish in time".to_owned()),
    }
}

/// Checks that this user wrote the file; the exit code alone proves nothing.
fn written(folder: &Path, uid: Option<u32>) -> Result<(), String> {
    let owner = uid.unwrap_or_else(|| Uid::effective().as_raw());
    match folder.join("file").metadata() {
        Ok(file) if file.uid() == owner => Ok(()),
        Ok(file) => Err(format!("the test program ran as user {} instead of {owner}", file.uid())),
        Err(_) => Err("the test program did not write the expected file".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::namespaces::Bubblewrap;
    use super::*;

    #[test]
    fn what_shuts_a_runner_in_takes_no_orders_from_its_variables() {
        let variables = || BTreeMap::from([("LD_PRELOAD".to_owned(), "/package/evil.so".to_owned())]);
        let stoke = || PathBuf::from("/bin/stoke");
        let enclosures: [Box<dyn Enclosure>; 3] = [
            Box::new(Confined { stoke: stoke(), is_restricted: false }),
            Box::new(Confined { stoke: stoke(), is_restricted: true }),
            Box::new(Bubblewrap { stoke: stoke(), bwrap: "/bin/bwrap".into() }),
        ];
        for enclosure in enclosures {
            let command = enclosure.command(Path::new("/bin/sh"), &FsAccess::all("/".into()), variables()).unwrap();
            let names: Vec<_> = command.as_std().get_envs().map(|(name, _)| name.to_owned()).collect();
            assert_eq!(names, ["STOKE_KEPT_LD_PRELOAD"], "{enclosure:?}");
        }
        let plain = Bare.command(Path::new("/bin/sh"), &FsAccess::all("/".into()), variables()).unwrap();
        assert_eq!(plain.as_std().get_envs().next().unwrap().0, "LD_PRELOAD");
    }

    #[tokio::test]
    async fn what_ends_well_and_did_nothing_proves_nothing() {
        let data = tempfile::tempdir().unwrap();
        prove(&Bare, None, &[data.path()]).await.unwrap();
        let nothing = Confined { stoke: "/bin/true".into(), is_restricted: false };
        let why = prove(&nothing, None, &[data.path()]).await.unwrap_err();
        assert!(why.contains("did not write"), "{why}");
        if Uid::effective().is_root() {
            let why = prove(&Bare, Some(50_123), &[data.path()]).await.unwrap_err();
            assert!(why.contains("ran as user 0 instead of 50123"), "{why}");
        }
    }
}
