//! `stoke worker install` and `uninstall`: the worker as a systemd service.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::json;
use stokehold_worker::VARIABLES;

use super::check;
use crate::services::{self, has_systemd, program, systemctl, unit, variables, write};
use crate::{Global, findings, output};

/// The unit, from `deploy/`.
const UNIT: &str = include_str!("../../../deploy/systemd/stoke-worker.service");

const SERVICE: &str = "stoke-worker.service";
const UNIT_PATH: &str = "etc/systemd/system/stoke-worker.service";
const SETTINGS_PATH: &str = "etc/stokehold/worker.env";

/// Maximum size of a token file, bytes. Tokens are much shorter.
const TOKEN_BYTES_MAX: u64 = 4096;

/// Settings that the unit has itself: systemd creates these folders.
const OF_THE_UNIT: [&str; 2] = ["STOKE_DATA_DIR", "STOKE_CACHE_DIR"];

/// Variable with the path of a token file. It is not passed on, because the service's user could not read the file.
const TOKEN_FILE: &str = "STOKE_JOIN_TOKEN_FILE";

/// Install a worker as a systemd service on this machine
///
/// Writes the unit and /etc/stokehold/worker.env, readable by root only, with the join token and every other setting of
/// `stoke worker run` in the environment (STOKE_SLOTS, STOKE_SANDBOX, ...); then starts the service. Run it again with a
/// token to change the settings; without a token, the old settings are kept. The token is read from STOKE_JOIN_TOKEN or
/// a file, never from an argument, because every user of a machine can see arguments.
#[derive(Args)]
#[command(after_help = "Examples:
  sudo -E stoke worker install --gateway https://gpu.example.com
  stoke worker install --gateway https://gpu.example.com --join-token-file join.token --dry-run")]
pub(crate) struct InstallArgs {
    /// URL of the gateway [STOKE_GATEWAY_URL]
    #[arg(long, value_name = "URL")]
    gateway: Option<String>,
    /// File with the join token, or - for standard input [default: the token in STOKE_JOIN_TOKEN]
    #[arg(long, value_name = "FILE")]
    join_token_file: Option<PathBuf>,
    /// Name of this worker [STOKE_WORKER_NAME; default: the host name]
    #[arg(long)]
    name: Option<String>,
    /// `stoke` program that the service starts [default: this program]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Print the files, without the token, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Write files below this folder and start nothing (to build an image)
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    root: PathBuf,
    /// Install even if a check of this machine fails
    #[arg(long)]
    force: bool,
}

/// Stop and remove the service of `stoke worker install`
#[derive(Args)]
#[command(after_help = "Examples:\n  sudo stoke worker uninstall")]
pub(crate) struct UninstallArgs {}

pub(super) async fn run(global: &Global, args: InstallArgs) -> Result<()> {
    let is_live = args.root == Path::new("/");
    let (unit_path, settings_path) = (args.root.join(UNIT_PATH), args.root.join(SETTINGS_PATH));
    let unit = unit(UNIT, &program(args.program.as_deref())?)?;
    let token = token(args.join_token_file.as_deref())?;
    let settings = match &token {
        None if settings_path.exists() => {
            let changes = args.gateway.is_some() || args.name.is_some();
            ensure!(!changes, "to change {}, pass the join token again", settings_path.display());
            None
        }
        None => bail!("no join token: create one with `stoke token create --kind join` and set STOKE_JOIN_TOKEN"),
        Some(token) => {
            let mut settings = carried(|name| std::env::var(name).ok());
            let mut set = |name: &'static str, value: &Option<String>| {
                if let Some(value) = value {
                    settings.retain(|(known, _)| *known != name);
                    settings.push((name, value.clone()));
                }
            };
            set("STOKE_GATEWAY_URL", &args.gateway);
            set("STOKE_WORKER_NAME", &args.name);
            set("STOKE_JOIN_TOKEN", &Some(token.clone()));
            let url = settings.iter().find(|(name, _)| *name == "STOKE_GATEWAY_URL");
            let (_, url) = url.context("no gateway given: use --gateway or STOKE_GATEWAY_URL")?;
            ensure!(
                url.starts_with("http://") || url.starts_with("https://"),
                "the gateway URL must start with http:// or https://, not {url:?}"
            );
            let pairs = settings.iter().map(|(name, value)| (*name, value.as_str()));
            Some((url.clone(), variables("stoke worker install", pairs)?))
        }
    };
    if args.dry_run {
        return show(global, &unit_path, &unit, &settings_path, settings.as_ref().map(|(_, text)| text.as_str()));
    }
    if is_live {
        ensure!(
            nix::unistd::Uid::effective().is_root(),
            "installing a service requires root: use sudo -E, or --dry-run to see the files"
        );
        ensure!(
            has_systemd(),
            "systemd is not running: start `stoke worker run` with the service manager of this machine"
        );
        let found = check::look(settings.as_ref().map(|(url, _)| url.as_str())).await?;
        if findings::failed(&found) > 0 && !args.force {
            findings::tell(global, &found).context("nothing was installed; use --force to install anyway")?;
        }
    }
    if let Some((_, text)) = &settings {
        write(&settings_path, text, 0o600)?;
    }
    write(&unit_path, &unit, 0o644)?;
    if is_live {
        systemctl(&["daemon-reload"]).await?;
        systemctl(&["enable", "--quiet", SERVICE]).await?;
        systemctl(&["restart", SERVICE]).await?;
        output::note(format_args!("started {SERVICE}; see its log with `journalctl -u {SERVICE} -f`"));
    }
    if global.json {
        let settings = settings.is_some().then_some(&settings_path);
        return output::json(&json!({"unit": unit_path, "settings": settings, "started": is_live}));
    }
    Ok(())
}

pub(super) async fn remove(_: UninstallArgs) -> Result<()> {
    let root = Path::new("/");
    ensure!(nix::unistd::Uid::effective().is_root(), "removing a service requires root: use sudo");
    let unit = root.join(UNIT_PATH);
    ensure!(unit.exists(), "nothing to remove: {} does not exist", unit.display());
    systemctl(&["disable", "--quiet", "--now", SERVICE]).await?;
    services::remove(&unit)?;
    services::remove(&root.join(SETTINGS_PATH))?;
    systemctl(&["daemon-reload"]).await?;
    output::note("removed; environments and packages are kept in /var/cache/private/stokehold");
    Ok(())
}

/// Reads the join token from the environment or a file.
fn token(file: Option<&Path>) -> Result<Option<String>> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let given = match (file, set("STOKE_JOIN_TOKEN")) {
        (Some(path), _) if path == Path::new("-") => read_token(std::io::stdin().lock()),
        (Some(path), _) => fs::File::open(path).and_then(read_token),
        (None, Some(token)) => return Ok(Some(token)),
        (None, None) => match set(TOKEN_FILE) {
            Some(path) => fs::File::open(path).and_then(read_token),
            None => return Ok(None),
        },
    };
    let given = given.context("cannot read the join token")?;
    let token = given.trim();
    ensure!(!token.is_empty(), "the join token file is empty");
    Ok(Some(token.to_owned()))
}

fn read_token(from: impl Read) -> std::io::Result<String> {
    let mut text = String::new();
    from.take(TOKEN_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Worker settings from the environment, without those that the unit has itself.
fn carried(var: impl Fn(&str) -> Option<String>) -> Vec<(&'static str, String)> {
    // Variables of a provider's container must not be kept in a service.
    let is_kept = |name: &&str| !OF_THE_UNIT.contains(name) && !name.starts_with("CONTAINER_") && *name != TOKEN_FILE;
    let names = VARIABLES.into_iter().filter(is_kept);
    names.filter_map(|name| Some((name, var(name).filter(|value| !value.is_empty())?))).collect()
}

fn show(global: &Global, unit_path: &Path, unit: &str, settings_path: &Path, settings: Option<&str>) -> Result<()> {
    let settings = settings.map(|text| {
        let shown = |line: &str| {
            if line.starts_with("STOKE_JOIN_TOKEN=") { "STOKE_JOIN_TOKEN=(secret)".into() } else { line.to_owned() }
        };
        text.lines().map(shown).collect::<Vec<_>>().join("\n")
    });
    if global.json {
        return output::json(&json!({
            "unit": {"path": unit_path, "text": unit}, "settings": {"path": settings_path, "text": settings},
        }));
    }
    output::line(format_args!("# {}\n{unit}", unit_path.display()))?;
    match settings {
        Some(text) => output::line(format_args!("# {}, readable by root only\n{text}", settings_path.display())),
        None => output::line(format_args!("# {} is unchanged", settings_path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_reads_the_file_of_settings_and_owns_its_folders() {
        let unit = unit(UNIT, Path::new("/opt/stokehold/current/bin/stoke")).unwrap();
        assert!(unit.contains("ExecStart=/opt/stokehold/current/bin/stoke worker run\n"), "{unit}");
        assert!(unit.contains(&format!("EnvironmentFile=/{SETTINGS_PATH}\n")));
        for name in OF_THE_UNIT {
            assert!(unit.contains(&format!("{name}=")), "{name}");
        }
    }

    #[test]
    fn every_setting_but_the_units_own_is_carried() {
        let carried = carried(|name| Some(if name == "STOKE_UV" { String::new() } else { "x".to_owned() }));
        let names: Vec<_> = carried.iter().map(|(name, _)| *name).collect();
        assert!(names.contains(&"STOKE_SANDBOX") && names.contains(&"STOKE_SLOTS"), "{names:?}");
        for name in ["STOKE_DATA_DIR", "STOKE_UV", TOKEN_FILE] {
            assert!(!names.contains(&name), "{name}: {names:?}");
        }
    }
}
