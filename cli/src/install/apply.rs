//! Applies an installation plan: packages, user, files and services, then checks the result.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use super::Plan;
use super::answers::{Answers, Tls};
use super::files::{CERTIFICATES, File, PROMETHEUS, SCRAPE_TOKEN, SYSCTL};
use super::machine::{USER, WITH_SERVICES};
use super::secrets::Settings;
use crate::services::command;
use crate::{output, services};

/// Timeout of one command: package mirrors and draining services may be slow.
pub(super) const COMMAND_LIMIT: Duration = Duration::from_secs(15 * 60);

/// Readiness timeout of the API: Redis may have to load a large file first.
const READY_LIMIT: Duration = Duration::from_secs(300);
/// Readiness timeout of the proxy: getting a public certificate takes some seconds.
const FRONT_LIMIT: Duration = Duration::from_secs(90);
const PAUSE: Duration = Duration::from_millis(250);
const ASK_LIMIT: Duration = Duration::from_secs(5);

/// URL of the API on this machine, and the settings file that marks an installed worker.
const API: &str = "http://127.0.0.1:7070";
const WORKER: &str = "/etc/stokehold/worker.env";

/// Lifetime of the token that is used to run `stoke doctor`.
const DOCTOR_TTL: &str = "10m";

/// Certificate of Caddy's local authority, and the place where Debian looks for trusted certificates.
const AUTHORITY: &str = "/var/lib/stokehold-proxy/caddy/pki/authorities/local/root.crt";
pub(super) const TRUSTED: &str = "/usr/local/share/ca-certificates/stokehold.crt";

/// The inputs of an installation.
pub(super) struct Installed<'a> {
    pub(super) answers: &'a Answers,
    pub(super) settings: &'a Settings,
    pub(super) program: &'a Path,
}

/// Returns whether a file is up to date.
pub(super) fn is_as_it_should_be(file: &File, root: &Path) -> bool {
    let path = root.join(file.path);
    if file.is_yours {
        return path.exists();
    }
    let mode = fs::metadata(&path).map(|found| found.permissions().mode() & 0o777).ok();
    mode == Some(file.mode) && fs::read_to_string(&path).is_ok_and(|found| found == file.text)
}

/// Writes the changed files.
pub(super) fn write(plan: &Plan, root: &Path) -> Result<()> {
    let certificates = root.join(CERTIFICATES);
    fs::create_dir_all(&certificates)
        .and_then(|()| fs::create_dir_all(root.join("etc/stokehold/prometheus/rules")))
        .and_then(|()| fs::set_permissions(&certificates, fs::Permissions::from_mode(0o700)))
        .with_context(|| format!("cannot create {}", certificates.display()))?;
    let mut changed = plan.files.iter().filter(|file| plan.changed.contains(&file.path));
    changed.try_for_each(|file| services::write(&root.join(file.path), &file.text, file.mode))
}

/// Commands to run before the files are written.
pub(super) fn before(plan: &Plan) -> Vec<Vec<&'static str>> {
    let mut commands = Vec::new();
    if !plan.packages.is_empty() {
        let install = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-qq", "--no-install-recommends"];
        commands.push([&install, plan.packages.as_slice()].concat());
    }
    let own: Vec<_> = WITH_SERVICES.into_iter().filter(|package| plan.packages.contains(package)).collect();
    if !own.is_empty() {
        commands.push([&["systemctl", "disable", "--quiet", "--now"], own.as_slice()].concat());
    }
    if plan.lacks_user {
        let home = ["--no-create-home", "--home-dir", "/var/lib/stokehold", "--shell", "/usr/sbin/nologin"];
        commands.push([&["useradd", "--system", "--user-group"], home.as_slice(), &[USER]].concat());
    }
    commands
}

/// Commands to run after the files are written. Only services that read a changed file are restarted.
pub(super) fn after(plan: &Plan) -> Vec<Vec<&'static str>> {
    let systemctl = |verb: &[&'static str], units: &[&'static str]| [&["systemctl"], verb, units].concat();
    let reads_changed = |service: &&str| {
        plan.files.iter().any(|file| plan.changed.contains(&file.path) && file.readers.contains(service))
    };
    let again: Vec<_> = plan.services.iter().copied().filter(reads_changed).collect();
    let mut commands = vec![systemctl(&["daemon-reload"], &[])];
    if plan.changed.contains(&SYSCTL) {
        commands.push(systemctl(&["restart"], &["systemd-sysctl.service"]));
    }
    if !plan.idle.is_empty() {
        commands.push(systemctl(&["disable", "--quiet", "--now"], &plan.idle));
    }
    commands.push(systemctl(&["enable", "--quiet"], &plan.services));
    if !again.is_empty() {
        commands.push(systemctl(&["restart"], &again));
    }
    commands.push(systemctl(&["start"], &plan.services));
    commands
}

pub(super) async fn run(plan: &Plan, installed: &Installed<'_>, worker: bool) -> Result<()> {
    if !plan.packages.is_empty() {
        let names = plan.packages.join(", ");
        ensure!(
            Path::new("/usr/bin/apt-get").exists(),
            "missing packages: {names}. Install them with your distribution's package manager (Redis 7.0 or newer), then run this again"
        );
        output::note(format_args!("installing {names}"));
    }
    all(&before(plan)).await?;
    write(plan, Path::new("/"))?;
    all(&after(plan)).await?;
    until_ready(API, READY_LIMIT).await.context("see `journalctl -u stoke-api -u stoke-redis -u stoke-store`")?;
    if installed.answers.monitoring {
        installed.let_prometheus_look().await?;
    }
    if worker {
        installed.add_worker().await?;
    }
    if installed.answers.tls == Tls::Internal {
        trust().await?;
    }
    let url = installed.answers.url();
    until_ready(&url, FRONT_LIMIT).await.with_context(|| {
        format!(
            "all services run, but {url} does not reach them from here: check the DNS record, that ports 80 and 443 are open, and that \
             this machine trusts the certificate (update-ca-certificates); see `journalctl -u stoke-proxy`"
        )
    })?;
    installed.doctor().await
}

/// Runs commands, one after the other.
async fn all(commands: &[Vec<&str>]) -> Result<()> {
    for line in commands {
        if let [program, arguments @ ..] = line.as_slice() {
            let done = command(program, arguments, COMMAND_LIMIT).await;
            done.context(
                "the installation is incomplete; run the same command again to continue, and see `journalctl -xe`",
            )?;
        }
    }
    Ok(())
}

/// Polls `/readyz` until it succeeds.
async fn until_ready(url: &str, limit: Duration) -> Result<()> {
    let deadline = Instant::now() + limit;
    loop {
        // A new client each time, because it reads the trusted certificates when it is created.
        let asked = reqwest::Client::new().get(format!("{url}/readyz")).timeout(ASK_LIMIT).send().await;
        let last = match asked {
            Ok(answer) if answer.status().is_success() => return Ok(()),
            Ok(answer) => format!("status {}", answer.status()),
            Err(error) => format!("{:#}", anyhow::Error::new(error)),
        };
        if Instant::now() >= deadline {
            bail!("{url} was not ready within {} s: {last}", limit.as_secs());
        }
        sleep(PAUSE).await;
    }
}

/// Makes this machine trust the proxy's local authority.
async fn trust() -> Result<()> {
    let deadline = Instant::now() + FRONT_LIMIT;
    let certificate = loop {
        match fs::read_to_string(AUTHORITY) {
            Ok(text) => break text,
            Err(_) if Instant::now() < deadline => sleep(PAUSE).await,
            Err(error) => return Err(error).with_context(|| format!("the proxy did not create {AUTHORITY}")),
        }
    };
    if fs::read_to_string(TRUSTED).is_ok_and(|trusted| trusted == certificate) {
        return Ok(());
    }
    services::write(Path::new(TRUSTED), &certificate, 0o644)?;
    command("update-ca-certificates", &[], COMMAND_LIMIT).await
}

impl Installed<'_> {
    /// A `stoke` command with the settings of the installation.
    fn stoke(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.program);
        command.args(arguments).envs(self.settings).stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// Creates a token with `stoke token create` and these arguments.
    async fn token(&self, arguments: &[&str]) -> Result<String> {
        let mut create = self.stoke(&["token", "create", "--json"]);
        let made = tokio::time::timeout(COMMAND_LIMIT, create.args(arguments).output()).await;
        let made = made.context("`stoke token create` timed out")??;
        ensure!(made.status.success(), "cannot create a token: {}", String::from_utf8_lossy(&made.stderr).trim());
        let made: Value = serde_json::from_slice(&made.stdout).context("`stoke token create` did not print JSON")?;
        Ok(made["token"].as_str().context("`stoke token create` printed no token")?.to_owned())
    }

    /// Creates a token for Prometheus, if it has none.
    async fn let_prometheus_look(&self) -> Result<()> {
        let path = Path::new("/").join(SCRAPE_TOKEN);
        if fs::metadata(&path).is_ok_and(|file| file.len() > 0) {
            return Ok(());
        }
        let token = self.token(&["--name", "prometheus", "--scope", "workers:read"]).await?;
        services::write(&path, &token, 0o600)?;
        services::systemctl(&["restart", PROMETHEUS]).await
    }

    /// Installs a worker on this machine. An existing worker keeps its settings.
    async fn add_worker(&self) -> Result<()> {
        let mut install = self.stoke(&["worker", "install", "--program"]);
        install.arg(self.program).env_remove("STOKE_GATEWAY_URL");
        if !Path::new(WORKER).exists() {
            install.args(["--gateway", API]);
            install.env("STOKE_JOIN_TOKEN", self.token(&["--kind", "join", "--name", "this machine"]).await?);
        }
        let ended = tokio::time::timeout(READY_LIMIT, install.status()).await;
        let ended = ended.context("`stoke worker install` timed out")??;
        ensure!(ended.success(), "everything but the worker is installed; see the error above");
        Ok(())
    }

    /// Runs `stoke doctor`. Its findings do not undo the installation.
    async fn doctor(&self) -> Result<()> {
        let token = self.token(&["--name", "stoke server install", "--ttl", DOCTOR_TTL]).await?;
        let mut doctor = self.stoke(&["doctor"]);
        doctor.env("STOKE_URL", self.answers.url()).env("STOKE_TOKEN", token);
        let ended = tokio::time::timeout(READY_LIMIT, doctor.status()).await;
        if !ended.context("`stoke doctor` timed out")??.success() {
            output::note("installed, but some checks failed; see above");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn file(path: &'static str, readers: &'static [&'static str], is_yours: bool) -> File {
        File { path, text: "new".to_owned(), mode: 0o600, is_yours, readers }
    }

    fn plan() -> Plan {
        Plan {
            packages: vec!["redis-server", "bubblewrap"],
            lacks_user: true,
            files: vec![file("etc/a", &["a.service", "b.service"], false), file("etc/b", &["c.service"], true)],
            changed: vec!["etc/a"],
            services: vec!["a.service", "c.service"],
            idle: Vec::new(),
        }
    }

    fn lines(commands: &[Vec<&str>]) -> Vec<String> {
        commands.iter().map(|command| command.join(" ")).collect()
    }

    #[test]
    fn what_is_there_is_not_installed_again() {
        let first = lines(&before(&plan()));
        assert!(first[0].ends_with("redis-server bubblewrap"), "{first:?}");
        assert_eq!(first[1], "systemctl disable --quiet --now redis-server", "its own service gives way to ours");
        assert!(first[2].starts_with("useradd ") && first[2].ends_with(" stokehold"), "{first:?}");
        let second = Plan { packages: Vec::new(), lacks_user: false, ..plan() };
        assert!(before(&second).is_empty());
    }

    #[test]
    fn only_services_that_read_a_changed_file_start_again() {
        let first = lines(&after(&plan()));
        assert!(first.contains(&"systemctl restart a.service".to_owned()), "{first:?}");
        let second = lines(&after(&Plan { changed: Vec::new(), idle: vec!["d.service"], ..plan() }));
        assert!(second.iter().all(|line| !line.contains("restart")), "{second:?}");
        assert!(second.contains(&"systemctl disable --quiet --now d.service".to_owned()), "{second:?}");
        assert_eq!(second.last().map(String::as_str), Some("systemctl start a.service c.service"));
    }

    #[test]
    fn files_are_written_for_their_readers_alone_and_yours_only_once() {
        let root = tempfile::tempdir().unwrap();
        let mut plan = plan();
        plan.changed = vec!["etc/a", "etc/b"];
        write(&plan, root.path()).unwrap();
        let mode = fs::metadata(root.path().join("etc/a")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let stay = || plan.files.iter().map(|file| is_as_it_should_be(file, root.path())).collect::<Vec<bool>>();
        assert_eq!(stay(), [true, true]);
        fs::set_permissions(root.path().join("etc/a"), fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(stay(), [false, true], "what others may read is written again");
        write(&plan, root.path()).unwrap();
        fs::write(root.path().join("etc/a"), "edited").unwrap();
        fs::write(root.path().join("etc/b"), "edited").unwrap();
        assert_eq!(stay(), [false, true]);
    }
}
