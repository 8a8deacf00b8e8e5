//! `static`: hosts of the operator, each with a command that starts it and one that stops it, e.g. wake-on-LAN and
//! `systemctl suspend` over ssh. There is no list of them: the last request counts, and a host is ready when the worker
//! of its name has joined.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use futures::future::BoxFuture;
use serde::Deserialize;
use stokehold_planner::Name;
use stokehold_planner::observation::{Offer, Traits};
use stokehold_queue::requirements::{SandboxLevel, Trust, Version};
use stokehold_units::{Mib, UsdMicros};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

use crate::provider::{Order, Provider, ProviderError, Rental};

/// Maximum output of a command that is kept for the log, bytes.
const OUTPUT_MAX: usize = 2 << 10;

/// Variables of this process that commands get in addition to those in the settings. Keys of providers, tokens and the
/// address of Redis are not passed on, because a script may be third-party code.
const INHERITED: [&str; 21] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
    "SSL_CERT_FILE",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];

/// Name of the provider.
pub const NAME: &str = "static";

/// A host of the operator.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Name of the host and of its worker (`STOKE_WORKER_NAME`).
    pub name: String,
    /// Command that starts it: a program and its arguments, without a shell.
    pub start: Vec<String>,
    /// Command that stops it. It may suspend the host or stop only its worker.
    pub stop: Vec<String>,
    /// Kind of GPU, e.g. `RTX 4090`; `CPU` for a host without GPUs.
    #[serde(default = "cpu")]
    pub kind: String,
    /// Number of GPUs.
    #[serde(default)]
    pub cards: u32,
    /// Memory of each GPU, GiB.
    #[serde(default, alias = "vram_gb")]
    pub vram_gib: f64,
    /// Jobs that run at once on a GPU, or on the whole host if it has none; 0: as many as the memory allows.
    #[serde(default)]
    pub slots: u32,
    /// Assumed speed until it is measured; 1.0 is an RTX 4090.
    #[serde(default = "one")]
    pub speed: f64,
    /// Assumed time until its worker joins, seconds, until it is measured.
    #[serde(default = "half_a_minute")]
    pub boot_s: f64,
    /// Region of the host.
    #[serde(default)]
    pub region: String,
    /// Compute capability of its GPUs.
    #[serde(default)]
    pub compute_capability: Option<Version>,
    /// Newest CUDA version that the driver supports.
    #[serde(default)]
    pub cuda: Option<Version>,
    /// Sandbox level of its worker.
    #[serde(default)]
    pub sandbox: SandboxLevel,
}

fn cpu() -> String {
    stokehold_queue::vram::KIND_CPU.to_owned()
}

fn one() -> f64 {
    1.0
}

fn half_a_minute() -> f64 {
    30.0
}

/// The configured hosts.
#[derive(Debug)]
pub struct Static {
    hosts: Vec<Host>,
    join_limit: Duration,
    command_limit: Duration,
    /// Variables that commands get in addition to [`INHERITED`].
    inherits: Vec<String>,
}

impl Static {
    /// Creates the provider. A command that takes longer than `command_limit` is killed.
    #[must_use]
    pub fn new(hosts: Vec<Host>, join_limit: Duration, command_limit: Duration) -> Self {
        Self { hosts, join_limit, command_limit, inherits: Vec::new() }
    }

    /// Adds variables of this process that commands get.
    #[must_use]
    pub fn inheriting(self, inherits: Vec<String>) -> Self {
        Self { inherits, ..self }
    }

    fn host(&self, name: &str) -> Result<&Host, ProviderError> {
        let found = self.hosts.iter().find(|host| host.name == name);
        found.ok_or_else(|| ProviderError::Vanished(format!("host {name} is not configured")))
    }

    async fn command(&self, host: &Host, verb: &str, argv: &[String]) -> Result<(), ProviderError> {
        match self.output_of(argv).await {
            Ok(()) => Ok(()),
            Err(why) => {
                tracing::warn!(machine.id = host.name, verb, "command of a host failed: {why}");
                // The command may have worked nevertheless: wake-on-LAN confirms nothing, and a suspend cuts off ssh.
                Err(ProviderError::Unknown(format!("the {verb} command of {}: {why}", host.name)))
            }
        }
    }

    async fn output_of(&self, argv: &[String]) -> Result<(), String> {
        let Some((program, arguments)) = argv.split_first() else { return Err("the command is empty".to_owned()) };
        let inherited = INHERITED.into_iter().chain(self.inherits.iter().map(String::as_str));
        let spawned = Command::new(program)
            .args(arguments)
            .env_clear()
            .envs(inherited.filter_map(|name| Some((name, std::env::var_os(name)?))))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn();
        let mut child = spawned.map_err(|error| format!("cannot run {program}: {error}"))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let done = async { tokio::join!(child.wait(), first_of(stdout), first_of(stderr)) };
        let Ok((status, stdout, stderr)) = tokio::time::timeout(self.command_limit, done).await else {
            return Err(format!("{program} did not exit within {} s and was killed", self.command_limit.as_secs()));
        };
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("{program} exited with {status}: {}", [stdout, stderr].join(" ").trim())),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Reads a stream to its end and keeps the start, because a process blocks on a pipe that is not read.
async fn first_of(stream: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut stream) = stream else { return String::new() };
    let (mut kept, mut piece) = (Vec::new(), [0; 1024]);
    while let Ok(read @ 1..) = stream.read(&mut piece).await {
        let room = OUTPUT_MAX.saturating_sub(kept.len());
        kept.extend_from_slice(&piece[..read.min(room)]);
    }
    String::from_utf8_lossy(&kept).into_owned()
}

impl Host {
    fn offer(&self) -> Offer {
        let name = Name::from(self.name.as_str());
        Offer {
            id: name.clone(),
            provider: NAME.into(),
            kind: self.kind.as_str().into(),
            host: name,
            count: 1,
            cards: self.cards,
            gpu_ids: Vec::new(),
            vram: Mib::from_gib(self.vram_gib),
            slots: self.slots,
            speed: self.speed,
            usd_per_hour: UsdMicros::ZERO,
            min_bid_usd_per_hour: None,
            losses_per_hour: 0.0,
            stopped_usd_per_hour: None,
            boot_s: self.boot_s,
            inbound_usd_per_gb: UsdMicros::ZERO,
            inbound_mbit_per_s: 0.0,
            reliability: 1.0,
            listed_for_s: None,
            traits: Traits {
                compute_capability: self.compute_capability,
                cuda: self.cuda,
                region: self.region.clone(),
                trust: Trust::Owned,
                sandbox: self.sandbox,
            },
            is_owned: true,
        }
    }
}

impl Provider for Static {
    fn name(&self) -> &'static str {
        NAME
    }

    fn offers(&self) -> BoxFuture<'_, Result<Vec<Offer>, ProviderError>> {
        Box::pin(async { Ok(self.hosts.iter().map(Host::offer).collect()) })
    }

    fn rentals(&self) -> BoxFuture<'_, Result<Option<Vec<Rental>>, ProviderError>> {
        Box::pin(async { Ok(None) })
    }

    fn rent<'a>(&'a self, order: &'a Order) -> BoxFuture<'a, Result<String, ProviderError>> {
        Box::pin(async {
            let host = self.host(&order.offer.id)?;
            self.command(host, "start", &host.start).await.map(|()| host.name.clone())
        })
    }

    fn stop<'a>(&'a self, rental: &'a str) -> BoxFuture<'a, Result<(), ProviderError>> {
        self.release(rental)
    }

    fn resume<'a>(&'a self, rental: &'a str) -> BoxFuture<'a, Result<(), ProviderError>> {
        Box::pin(async {
            let host = self.host(rental)?;
            self.command(host, "start", &host.start).await
        })
    }

    fn release<'a>(&'a self, rental: &'a str) -> BoxFuture<'a, Result<(), ProviderError>> {
        Box::pin(async {
            match self.host(rental) {
                Ok(host) => self.command(host, "stop", &host.stop).await,
                // The host was removed from the settings and is no longer managed.
                Err(_) => Ok(()),
            }
        })
    }

    fn label(&self, offer: &Offer, _taken: &BTreeSet<String>) -> String {
        offer.id.to_string()
    }

    fn adopts(&self, worker: &str) -> Option<Offer> {
        self.host(worker).ok().map(Host::offer)
    }

    fn call_limit(&self) -> Duration {
        // The timeout of the command ends it first.
        self.command_limit + Duration::from_secs(5)
    }

    fn join_limit(&self) -> Duration {
        self.join_limit
    }

    fn keeps_list(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::secret::Secret;

    fn hosts(start: &[&str]) -> Static {
        let argv = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let text = "name = 'desk'\nstart = []\nstop = ['true']\ncards = 1\nvram_gb = 24.0";
        let host = Host { start: argv(start), ..toml::from_str(text).unwrap() };
        Static::new(vec![host], Duration::from_secs(60), Duration::from_millis(300))
            .inheriting(vec!["CARGO_PKG_NAME".to_owned()])
    }

    async fn started(start: &[&str]) -> Result<String, ProviderError> {
        let hosts = hosts(start);
        let offer = hosts.offers().await.unwrap().remove(0);
        let label = hosts.label(&offer, &BTreeSet::new());
        hosts.rent(&Order { label, offer, bid_usd_per_hour: None, join_token: Secret::default() }).await
    }

    #[tokio::test]
    async fn a_host_is_started_by_its_command() {
        assert_eq!(started(&["true"]).await.unwrap(), "desk");
        hosts(&[]).release("desk").await.unwrap();
        hosts(&[]).release("sold").await.unwrap();
    }

    #[tokio::test]
    async fn a_command_sees_nothing_of_our_environment_but_what_it_may() {
        let Err(ProviderError::Unknown(why)) = started(&["sh", "-c", "env >&2; exit 3"]).await else { panic!() };
        let names = why.lines().filter_map(|line| Some(line.rsplit(' ').next()?.split_once('=')?.0));
        let may =
            |name: &&str| INHERITED.contains(name) || ["CARGO_PKG_NAME", "PWD", "OLDPWD", "SHLVL", "_"].contains(name);
        let leaked: Vec<&str> = names.clone().filter(|name| !may(name)).collect();
        assert_eq!(leaked, [""; 0], "{why}");
        assert!(names.clone().any(|name| name == "PATH"), "{why}");
        assert!(
            std::env::var_os("CARGO_PKG_NAME").is_none() || names.into_iter().any(|it| it == "CARGO_PKG_NAME"),
            "{why}"
        );
    }

    #[tokio::test]
    async fn what_a_failing_command_said_is_told_and_cut() {
        let Err(ProviderError::Unknown(why)) = started(&["sh", "-c", "echo no route; exit 3"]).await else { panic!() };
        assert!(why.contains("exit status: 3: no route"), "{why}");
        let Err(ProviderError::Unknown(why)) = started(&["sh", "-c", "yes | head -c 100000; exit 1"]).await else {
            panic!()
        };
        assert!(why.len() < 2 * OUTPUT_MAX, "{}", why.len());
        let Err(ProviderError::Unknown(why)) = started(&["sleep", "60"]).await else { panic!() };
        assert!(why.contains("was killed"), "{why}");
        let Err(ProviderError::Unknown(why)) = started(&["/nonexistent"]).await else { panic!() };
        assert!(why.contains("cannot run"), "{why}");
    }
}
