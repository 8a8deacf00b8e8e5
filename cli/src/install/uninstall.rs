//! `stoke uninstall`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::json;

use super::apply::{COMMAND_LIMIT, TRUSTED};
use super::files::{ADMIN, SERVICES, SYSCTL};
use crate::services::{command, remove, systemctl};
use crate::{Global, output};

/// What an installation keeps: secrets and settings, jobs and objects, what the proxy and Prometheus know.
const KEPT: [&str; 4] =
    ["etc/stokehold", "var/lib/stokehold", "var/lib/stokehold-proxy", "var/lib/stokehold-prometheus"];

/// The worker's unit, which is not of `stoke install` alone.
const WORKER: &str = "stoke-worker.service";

/// Stop what `stoke install` set up, and remove its services
///
/// Jobs, results, secrets and settings stay in /var/lib/stokehold and /etc/stokehold: `stoke install` brings all of it back. Packages stay too, and a worker:
/// `stoke worker uninstall` removes that.
#[derive(Args)]
pub(crate) struct UninstallArgs {
    /// Delete jobs, results, secrets and settings as well; nothing brings them back
    #[arg(long)]
    delete_data: bool,
}

pub(crate) async fn run(global: &Global, args: UninstallArgs) -> Result<()> {
    ensure!(nix::unistd::Uid::effective().is_root(), "only root may remove services: use sudo");
    let units = Path::new("/etc/systemd/system");
    let installed: Vec<&str> = SERVICES.into_iter().filter(|service| units.join(service).exists()).collect();
    ensure!(
        !installed.is_empty() || args.delete_data,
        "there is nothing of `stoke install` in {}: nothing to remove",
        units.display()
    );
    ensure!(
        !args.delete_data || !units.join(WORKER).exists(),
        "the worker of this machine has its settings in /etc/stokehold too: `sudo stoke worker uninstall` first"
    );
    // Those that need others go first.
    for service in installed.iter().rev() {
        systemctl(&["disable", "--quiet", "--now", service]).await?;
    }
    for unit in SERVICES.into_iter().chain(["stoke-backup.service"]) {
        remove(&units.join(unit))?;
    }
    let root = Path::new("/");
    remove(&root.join(ADMIN))?;
    remove(&root.join(SYSCTL))?;
    // Nobody has its key any more who could be held to account.
    if args.delete_data && Path::new(TRUSTED).exists() {
        remove(Path::new(TRUSTED))?;
        command("update-ca-certificates", &[], COMMAND_LIMIT).await?;
    }
    systemctl(&["daemon-reload"]).await?;
    if args.delete_data {
        for folder in KEPT {
            delete(&root.join(folder))?;
        }
    }
    if global.json {
        return output::json(&json!({"removed": installed, "data_deleted": args.delete_data}));
    }
    output::note(if args.delete_data {
        "removed, with everything that was kept"
    } else {
        "removed; jobs, results and secrets stay in /var/lib/stokehold and /etc/stokehold, and `stoke install` brings them back"
    });
    Ok(())
}

/// A folder, or what systemd has put as a link in the place of one that belongs to a passing user.
fn delete(path: &Path) -> Result<()> {
    let what = || format!("cannot delete {}", path.display());
    match fs::canonicalize(path) {
        Ok(folder) => fs::remove_dir_all(folder).with_context(what)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(what),
    }
    if path.is_symlink() { fs::remove_file(path).with_context(what) } else { Ok(()) }
}
