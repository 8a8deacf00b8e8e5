//! `local`: workers that run as processes on this machine. It shows autoscaling without an account, and `stoke dev`
//! gets its workers from it.
//!
//! A worker ends with this process, however that ends: it is tied to the thread that starts it (where the kernel
//! supports that) and to a pipe that closes. Calls must therefore be made on the main thread, which lives as long as
//! the process.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use stokehold_planner::observation::{Offer, Traits};
use stokehold_queue::gateway::Gpu;
use stokehold_queue::requirements::{SandboxLevel, Trust};
use stokehold_queue::vram::{kind_of_gpus, sold_gib};
use stokehold_units::{Mib, UsdMicros};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::provider::{Order, Provider, ProviderError, Rental, RentalState};
use crate::sync::lock;

/// Name of the provider.
pub const NAME: &str = "local";

/// Timeout for ending workers: longer than a worker lets its jobs run on.
const LEAVE_LIMIT: Duration = Duration::from_secs(40);

/// Time that a worker has to join, including the installation at its first start.
const JOIN_LIMIT: Duration = Duration::from_secs(180);

/// Options for starting workers.
#[derive(Debug)]
pub struct LocalConfig {
    /// Program and its first arguments; `--name` and the name of the worker follow.
    pub program: Vec<OsString>,
    /// Environment variables, including the gateway's address and the join token.
    pub set: BTreeMap<String, OsString>,
    /// Variables of this process that workers get; no others.
    pub inherits: Vec<&'static str>,
    /// Parent folder of the workers' folders.
    pub data_dir: PathBuf,
    /// Maximum number of workers.
    pub max: u32,
    /// GPUs of each worker; empty computes on the CPU.
    pub gpus: Vec<Gpu>,
    /// Jobs that each worker runs at once.
    pub slots: u32,
    /// File for their log lines; by default they go to the output of this process.
    pub log: Option<File>,
}

/// Workers that run as processes on this machine.
pub struct Local {
    config: LocalConfig,
    running: Mutex<BTreeMap<String, Process>>,
    hurry: watch::Sender<bool>,
}

struct Process {
    /// `None` while a task waits for its exit.
    child: Option<Child>,
    pid: Option<i32>,
    ended: watch::Receiver<bool>,
    ending: watch::Sender<bool>,
}

impl Local {
    /// Creates the provider without workers.
    #[must_use]
    pub fn new(config: LocalConfig) -> Self {
        Self { config, running: Mutex::default(), hurry: watch::Sender::new(false) }
    }

    /// Kills workers that are being ended.
    pub fn hurry(&self) {
        self.hurry.send_replace(true);
    }

    fn offer(&self, count: u32) -> Offer {
        let LocalConfig { gpus, slots, .. } = &self.config;
        let cards = u32::try_from(gpus.len()).unwrap_or(u32::MAX);
        Offer {
            id: NAME.into(),
            provider: NAME.into(),
            kind: kind_of_gpus(gpus).into(),
            host: "".into(),
            count,
            cards,
            gpu_ids: Vec::new(),
            vram: Mib::from_gib(f64::from(gpus.iter().map(|gpu| sold_gib(gpu.vram_mib)).min().unwrap_or(0))),
            slots: slots.div_ceil(cards.max(1)),
            speed: 1.0,
            usd_per_hour: UsdMicros::ZERO,
            min_bid_usd_per_hour: None,
            losses_per_hour: 0.0,
            stopped_usd_per_hour: None,
            boot_s: 2.0,
            inbound_usd_per_gb: UsdMicros::ZERO,
            inbound_mbit_per_s: 0.0,
            reliability: 1.0,
            listed_for_s: None,
            traits: Traits {
                compute_capability: gpus.first().and_then(|gpu| gpu.compute_capability.as_deref()?.parse().ok()),
                cuda: None,
                region: String::new(),
                trust: Trust::Owned,
                sandbox: SandboxLevel::default(),
            },
            is_owned: true,
        }
    }

    fn spawn(&self, label: &str) -> std::io::Result<Process> {
        let Some((program, arguments)) = self.config.program.split_first() else {
            return Err(std::io::Error::other("no program is named"));
        };
        let mut command = Command::new(program);
        command.args(arguments).arg("--name").arg(label);
        command.stdin(Stdio::piped()).process_group(0).kill_on_drop(true);
        command.env_clear();
        command.envs(self.config.inherits.iter().filter_map(|name| Some((*name, std::env::var_os(name)?))));
        command.envs(&self.config.set).env("STOKE_DATA_DIR", self.config.data_dir.join(label));
        if let Some(log) = &self.config.log {
            command.stdout(Stdio::null()).stderr(log.try_clone()?);
        }
        let child = command.spawn()?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        let (ending, ended) = watch::channel(false);
        Ok(Process { child: Some(child), pid, ended, ending })
    }

    /// Ends a worker with SIGTERM, and kills it after a while. The receiver changes when it has exited.
    fn end(&self, label: &str) -> Option<watch::Receiver<bool>> {
        let mut running = self.lock();
        let process = running.get_mut(label)?;
        if let Some(mut child) = process.child.take() {
            if let Some(pid) = process.pid {
                // The worker may have exited already.
                let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
            }
            // Waiting for a child closes its standard input.
            let tie = child.stdin.take();
            let (ending, mut hurry) = (process.ending.clone(), self.hurry.subscribe());
            tokio::spawn(async move {
                let hurried = async { drop(hurry.wait_for(|hurry| *hurry).await.map(drop)) };
                let has_ended = tokio::select! {
                    ended = timeout(LEAVE_LIMIT, child.wait()) => ended.is_ok(),
                    () = hurried => false,
                };
                if !has_ended {
                    let _ = child.kill().await;
                }
                drop(tie);
                ending.send_replace(true);
            });
        }
        Some(process.ended.clone())
    }

    /// Removes workers that have exited from the list.
    fn tidy(&self) -> MutexGuard<'_, BTreeMap<String, Process>> {
        let mut running = self.lock();
        running.retain(|label, process| {
            let Some(child) = &mut process.child else { return !*process.ended.borrow() };
            match child.try_wait() {
                Ok(Some(status)) => {
                    tracing::warn!(machine.id = label, "local worker exited ({status})");
                    false
                }
                Ok(None) => true,
                Err(error) => {
                    tracing::warn!(machine.id = label, %error, "cannot read the status of a local worker");
                    true
                }
            }
        });
        running
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Process>> {
        lock(&self.running)
    }
}

impl Provider for Local {
    fn name(&self) -> &'static str {
        NAME
    }

    fn offers(&self) -> BoxFuture<'_, Result<Vec<Offer>, ProviderError>> {
        let there = u32::try_from(self.tidy().len()).unwrap_or(u32::MAX);
        let left = self.config.max.saturating_sub(there);
        Box::pin(async move { Ok(if left > 0 { vec![self.offer(left)] } else { Vec::new() }) })
    }

    fn rentals(&self) -> BoxFuture<'_, Result<Option<Vec<Rental>>, ProviderError>> {
        let rental = |label: &String| Rental {
            id: label.clone(),
            label: label.clone(),
            state: RentalState::Running,
            usd_per_hour: None,
        };
        let rentals = self.tidy().keys().map(rental).collect();
        Box::pin(async { Ok(Some(rentals)) })
    }

    fn rent<'a>(&'a self, order: &'a Order) -> BoxFuture<'a, Result<String, ProviderError>> {
        Box::pin(async {
            let label = &order.label;
            let mut running = self.tidy();
            if running.contains_key(label) {
                return Ok(label.clone());
            }
            let process =
                self.spawn(label).map_err(|error| ProviderError::Refused(format!("cannot start a worker: {error}")))?;
            running.insert(label.clone(), process);
            Ok(label.clone())
        })
    }

    fn stop<'a>(&'a self, rental: &'a str) -> BoxFuture<'a, Result<(), ProviderError>> {
        self.release(rental)
    }

    fn resume<'a>(&'a self, rental: &'a str) -> BoxFuture<'a, Result<(), ProviderError>> {
        Box::pin(
            async move { Err(ProviderError::Vanished(format!("{rental} has exited; a process cannot be resumed"))) },
        )
    }

    fn release<'a>(&'a self, rental: &'a str) -> BoxFuture<'a, Result<(), ProviderError>> {
        self.end(rental);
        Box::pin(async { Ok(()) })
    }

    /// The first free number, so that a new worker gets the folder and caches of an earlier one.
    fn label(&self, _: &Offer, taken: &BTreeSet<String>) -> String {
        let names = (1_u32..).map(|number| format!("worker-{number}"));
        let mut free = names.filter(|name| !taken.contains(name));
        free.next().unwrap_or_default()
    }

    fn join_limit(&self) -> Duration {
        JOIN_LIMIT
    }

    fn settles_after(&self) -> Duration {
        Duration::ZERO
    }

    fn leave(&self) -> BoxFuture<'_, ()> {
        let labels: Vec<String> = self.lock().keys().cloned().collect();
        let ends: Vec<_> = labels.iter().filter_map(|label| self.end(label)).collect();
        Box::pin(async move {
            join_all(ends.into_iter().map(|mut ended| async move { drop(ended.wait_for(|ended| *ended).await) })).await;
        })
    }

    fn leaves_with_us(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::secret::Secret;

    fn local(script: &str, max: u32) -> Local {
        Local::new(LocalConfig {
            program: ["sh", "-c", script].map(OsString::from).to_vec(),
            set: BTreeMap::new(),
            inherits: vec!["PATH"],
            data_dir: PathBuf::new(),
            max,
            gpus: Vec::new(),
            slots: 2,
            log: None,
        })
    }

    async fn start(local: &Local) -> String {
        let offer = local.offers().await.unwrap().remove(0);
        let taken = local.lock().keys().cloned().collect();
        let label = local.label(&offer, &taken);
        local.rent(&Order { label, offer, bid_usd_per_hour: None, join_token: Secret::default() }).await.unwrap()
    }

    async fn labels(local: &Local) -> Vec<String> {
        local.rentals().await.unwrap().unwrap().into_iter().map(|rental| rental.label).collect()
    }

    #[tokio::test]
    async fn there_are_no_more_than_may_be_and_names_are_used_again() {
        let local = local("exec sleep 60", 2);
        assert_eq!(local.offers().await.unwrap()[0].count, 2);
        assert_eq!([start(&local).await, start(&local).await], ["worker-1", "worker-2"]);
        assert!(local.offers().await.unwrap().is_empty());
        local.release("worker-1").await.unwrap();
        local.release("worker-1").await.unwrap();
        let mut ended = local.end("worker-1").unwrap();
        ended.wait_for(|ended| *ended).await.unwrap();
        assert_eq!(labels(&local).await, ["worker-2"]);
        assert_eq!(start(&local).await, "worker-1");
        local.leave().await;
        assert_eq!(labels(&local).await, [""; 0]);
    }

    #[tokio::test]
    async fn a_worker_sees_of_our_environment_what_it_inherits_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let seen = dir.path().join("seen");
        let mut local = local("env > \"$SEEN\"", 1);
        local.config.set.insert("SEEN".to_owned(), seen.clone().into_os_string());
        assert!(std::env::vars_os().count() > 2 && std::env::var_os("PATH").is_some());
        start(&local).await;
        let mut child = local.lock().get_mut("worker-1").unwrap().child.take().unwrap();
        child.wait().await.unwrap();
        let seen = std::fs::read_to_string(seen).unwrap();
        let names: BTreeSet<&str> = seen.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
        let of_the_shell = ["PWD", "OLDPWD", "SHLVL", "_"];
        let names: Vec<&&str> = names.iter().filter(|name| !of_the_shell.contains(name)).collect();
        assert_eq!(names, [&"PATH", &"SEEN", &"STOKE_DATA_DIR"]);
    }

    #[tokio::test]
    async fn one_that_dies_is_not_listed_and_one_that_clings_is_killed() {
        let local = local("exit 3", 2);
        start(&local).await;
        let mut child = local.lock().get_mut("worker-1").unwrap().child.take().unwrap();
        child.wait().await.unwrap();
        local.lock().get_mut("worker-1").unwrap().child = Some(child);
        assert_eq!(labels(&local).await, [""; 0]);

        let clinging = super::tests::local("trap '' TERM; while :; do sleep 1; done", 1);
        start(&clinging).await;
        clinging.hurry();
        clinging.leave().await;
        assert_eq!(labels(&clinging).await, [""; 0]);
    }
}
