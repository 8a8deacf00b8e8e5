//! `stoke server uninstall`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::json;

use super::apply::{COMMAND_LIMIT, TRUSTED};
use super::files::{ADMIN, SERVICES, SYSCTL};
use crate::services::{command, remove, systemctl};
use crate::{Global, output};

/// Data of an installation: secrets and settings, jobs and objects, data of the proxy and of Prometheus.
const KEPT: [&str; 4] =
    ["etc/stokehold", "var/lib/stokehold", "var/lib/stokehold-proxy", "var/lib/stokehold-prometheus"];

/// Unit of the worker, which `stoke worker install` manages.
const WORKER: &str = "stoke-worker.service";

/// Stop and remove the services of `stoke server install`
///
/// Jobs, results, secrets and settings are kept in /var/lib/stokehold and /etc/stokehold, and `stoke server install`
/// uses them again. Packages are kept too, and so is a worker: remove it with `stoke worker uninstall`.
#[derive(Args)]
#[command(after_help = "Examples:\n  sudo stoke server uninstall")]
pub(crate) struct UninstallArgs {
    /// Also delete jobs, results, secrets and settings (cannot be undone)
    #[arg(long)]
    delete_data: bool,
}

pub(crate) async fn run(global: &Global, args: UninstallArgs) -> Result<()> {
    ensure!(nix::unistd::Uid::effective().is_root(), "removing services requires root: use sudo");
    let units = Path::new("/etc/systemd/system");
    let installed: Vec<&str> = SERVICES.into_iter().filter(|service| units.join(service).exists()).collect();
    ensure!(
        !installed.is_empty() || args.delete_data,
        "nothing to remove: {} has no services of `stoke server install`",
        units.display()
    );
    ensure!(
        !args.delete_data || !units.join(WORKER).exists(),
        "the settings of this machine's worker are in /etc/stokehold too: run `sudo stoke worker uninstall` first"
    );
    // In reverse start order.
    for service in installed.iter().rev() {
        systemctl(&["disable", "--quiet", "--now", service]).await?;
    }
    for unit in SERVICES.into_iter().chain(["stoke-backup.service"]) {
        remove(&units.join(unit))?;
    }
    let root = Path::new("/");
    remove(&root.join(ADMIN))?;
    remove(&root.join(SYSCTL))?;
    // The key of the local authority is being deleted, so it must not stay trusted.
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
        "removed, with all data"
    } else {
        "removed; jobs, results and secrets are kept in /var/lib/stokehold and /etc/stokehold, and `stoke server install` uses them again"
    });
    Ok(())
}

/// Deletes a folder. It may be a symlink that systemd created for a unit with a dynamic user.
fn delete(path: &Path) -> Result<()> {
    let what = || format!("cannot delete {}", path.display());
    match fs::canonicalize(path) {
        Ok(folder) => fs::remove_dir_all(folder).with_context(what)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(what),
    }
    if path.is_symlink() { fs::remove_file(path).with_context(what) } else { Ok(()) }
}
