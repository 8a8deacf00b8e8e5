//! Checks whether this machine can run jobs: gathers facts, then judges them. Used by `stoke worker check`, `stoke
//! doctor` and the start of a worker.

mod facts;
mod judge;

use std::borrow::Cow;
use std::path::PathBuf;

use serde::Serialize;
use stokehold_protocol::gateway::Gpu;

use crate::config::{self, Config, ConfigError, RawConfig, user_cache_dir};
use crate::environment::RunnerWheel;
use crate::gpus::Gpus;
use crate::sandbox::{Level, Sandbox};
use crate::uv::{Uv, ensure_uv};

/// The verdict of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Everything is fine.
    Ok,
    /// Jobs run, but some may fail.
    Warn,
    /// The machine is not usable as intended.
    Fail,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Name of the check.
    pub what: &'static str,
    /// The verdict.
    pub verdict: Verdict,
    /// Description of the result.
    pub found: String,
    /// Remedy, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<Cow<'static, str>>,
}

impl Finding {
    /// Everything is fine.
    pub fn ok(what: &'static str, found: impl Into<String>) -> Self {
        Self { what, verdict: Verdict::Ok, found: found.into(), fix: None }
    }

    /// Jobs run, but some may fail.
    pub fn warn(what: &'static str, found: impl Into<String>, fix: impl Into<Cow<'static, str>>) -> Self {
        Self { what, verdict: Verdict::Warn, found: found.into(), fix: Some(fix.into()) }
    }

    /// The machine is not usable as intended.
    pub fn fail(what: &'static str, found: impl Into<String>, fix: impl Into<Cow<'static, str>>) -> Self {
        Self { what, verdict: Verdict::Fail, found: found.into(), fix: Some(fix.into()) }
    }
}

/// The settings that the checks use.
#[derive(Debug)]
pub struct Machine {
    uv: Option<PathBuf>,
    runner_wheel: Option<PathBuf>,
    data_dir: PathBuf,
    cache_dir: PathBuf,
    /// Whether GPUs are declared; NVML is not used then.
    are_gpus_declared: bool,
    nvml_library: Option<PathBuf>,
    sandbox: Option<Level>,
    bwrap: PathBuf,
}

impl Machine {
    /// The checks for a worker with these settings. Needs no join token.
    ///
    /// # Errors
    /// If a setting is invalid.
    pub fn of(raw: &RawConfig) -> Result<Self, ConfigError> {
        let set = |path: &PathBuf| Some(path.clone()).filter(|path| !path.as_os_str().is_empty());
        Ok(Self {
            uv: set(&raw.uv),
            runner_wheel: set(&raw.runner_wheel),
            data_dir: std::path::absolute(&raw.data_dir).unwrap_or_else(|_| raw.data_dir.clone()),
            cache_dir: set(&raw.cache_dir).unwrap_or_else(user_cache_dir),
            are_gpus_declared: !raw.fake_gpus.trim().is_empty(),
            nvml_library: set(&raw.nvml_library),
            sandbox: config::level(&raw.sandbox)?,
            bwrap: config::bwrap(set(&raw.bwrap)),
        })
    }

    /// Runs all checks that need no gateway.
    pub async fn check(&self) -> Vec<Finding> {
        let uv = ensure_uv(self.uv.as_deref(), &self.cache_dir).await;
        let wheel = RunnerWheel::find(self.runner_wheel.as_deref());
        vec![
            judge::glibc(facts::glibc().await.as_deref()),
            judge::python(&facts::python(uv.as_ref().ok()).await),
            facts::uv(uv).await,
            judge::wheel(&wheel),
            self.sandbox().await,
            self.gpus().await,
            judge::disk(&self.cache_dir, facts::free_bytes(&self.cache_dir)),
        ]
    }

    async fn sandbox(&self) -> Finding {
        let Ok(stoke) = std::env::current_exe() else { return judge::sandbox(Err("this program's path is unknown")) };
        match Sandbox::probe(self.sandbox, &self.bwrap, &stoke, &[&self.data_dir, &self.cache_dir]).await {
            Ok(sandbox) => judge::sandbox(Ok((sandbox.level(), sandbox.remains(), sandbox.lacks()))),
            Err(why) => judge::sandbox(Err(&why)),
        }
    }

    async fn gpus(&self) -> Finding {
        if self.are_gpus_declared {
            return Finding::ok(judge::GPUS, "declared by STOKE_FAKE_GPUS");
        }
        judge::gpus(&facts::gpus(self.nvml_library.clone()).await)
    }
}

/// The GPUs that a worker with these settings would use.
///
/// # Errors
/// If the GPUs are declared with an invalid list of sizes.
pub fn gpus(raw: &RawConfig) -> Result<Vec<Gpu>, ConfigError> {
    let declared = config::fake_gpus(&raw.fake_gpus)?;
    let library = Some(&raw.nvml_library).filter(|path| !path.as_os_str().is_empty());
    Ok(Gpus::find(declared.as_deref(), library.map(PathBuf::as_path)).list().to_vec())
}

/// Number of slots of a worker with these settings.
#[must_use]
pub fn slots(raw: &RawConfig) -> u32 {
    if raw.slots == 0 { config::automatic_slots() } else { raw.slots }
}

/// Checks whether a gateway responds and has the same release.
pub async fn gateway(url: &str) -> Finding {
    judge::gateway(url, facts::gateway(url).await)
}

/// Logs findings before a worker joins that would otherwise only appear as failed jobs. The worker detects and logs the
/// other problems of [`Machine::check`] by itself. It continues in any case: a machine with a broken driver can still
/// run CPU jobs.
pub(crate) async fn log_findings(config: &Config, uv: &Uv) {
    let mut findings = vec![
        judge::python(&facts::python(Some(uv)).await),
        judge::disk(&config.cache_dir, facts::free_bytes(&config.cache_dir)),
    ];
    if config.fake_gpus.is_none() {
        findings.push(judge::gpus(&facts::gpus(config.nvml_library.clone()).await));
    }
    for Finding { what, verdict, found, fix } in findings {
        let fix = fix.unwrap_or_default();
        match verdict {
            Verdict::Ok => tracing::debug!(what, "{found}"),
            Verdict::Warn => tracing::warn!(what, "{found}. {fix}"),
            Verdict::Fail => tracing::error!(what, "{found}. {fix}"),
        }
    }
}
