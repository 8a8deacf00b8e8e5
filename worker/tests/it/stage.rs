//! A worker in its test environment: its gateway, the endpoints of `handlers/`, and the cache that all tests share.

use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use stokehold_protocol::endpoint::EndpointSpec;
use stokehold_protocol::gateway::{FinishOutcome, FinishReport, LeaseRef};
use stokehold_protocol::job::{ErrorCode, JobError};
use stokehold_supervise::Supervisor;
use stokehold_tests::temp_links::TempLinks;
use stokehold_worker::{Config, RawConfig, run_supervised};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::gateway::{Gateway, HeartbeatConfig, Seen};

/// Longer than any job here takes.
const NO_LIMIT: Duration = Duration::from_secs(600);

pub(crate) struct Stage {
    pub(crate) gateway: Gateway,
    pub(crate) dir: TempDir,
    shutdown: CancellationToken,
    worker: JoinHandle<anyhow::Result<()>>,
    _links: TempLinks,
}

type Before = Box<dyn FnOnce(&mut Seen) + Send>;

/// Worker settings that a test can change.
#[derive(Default)]
pub(crate) struct Setup {
    pub(crate) heartbeat: HeartbeatConfig,
    /// Its data folder, instead of a temporary one.
    pub(crate) data_dir: Option<PathBuf>,
    /// Environment variables of `stoke worker run`.
    pub(crate) variables: Vec<(&'static str, String)>,
    /// Sets up the gateway before the worker starts.
    pub(crate) before: Option<Before>,
    /// Supervisor of the worker's background duties.
    pub(crate) supervisor: Supervisor,
}

impl Stage {
    /// A worker with one slot.
    pub(crate) async fn single() -> Self {
        Self::with(Setup { variables: vec![("STOKE_SLOTS", "1".to_owned())], ..Setup::default() }).await
    }

    pub(crate) async fn with(setup: Setup) -> Self {
        let gateway = Gateway::start(setup.heartbeat).await;
        if let Some(before) = setup.before {
            before(&mut gateway.seen());
        }
        gateway.deploy("plain", pack(include_str!("handlers/plain.py")), spec("plain"));
        let together = EndpointSpec { max_concurrency: 4, ..spec("together") };
        gateway.deploy("together", pack(include_str!("handlers/together.py")), together);
        gateway.deploy("broken", pack(include_str!("handlers/broken.py")), spec("Broken"));
        let dir = tempfile::tempdir().unwrap();
        let data_dir = setup.data_dir.as_deref().unwrap_or(dir.path());
        let (config, _links) = (config(&gateway, data_dir, &setup.variables), TempLinks(data_dir.to_owned()));
        let shutdown = CancellationToken::new();
        let worker = tokio::spawn(run_supervised(config, setup.supervisor, shutdown.clone()));
        Self { gateway, dir, shutdown, worker, _links }
    }

    /// Submits a job of the handler in `plain.py`.
    pub(crate) fn submit(&self, how: &str) -> LeaseRef {
        self.submit_with(json!({"how": how}))
    }

    pub(crate) fn submit_with(&self, input: Value) -> LeaseRef {
        self.gateway.submit("plain", &input, NO_LIMIT)
    }

    pub(crate) fn submit_to(&self, endpoint: &str, input: Value) -> LeaseRef {
        self.gateway.submit(endpoint, &input, NO_LIMIT)
    }

    /// Runs a job of the handler in `plain.py` to its end.
    pub(crate) async fn end_of(&self, how: &str) -> FinishReport {
        self.gateway.end(&self.submit(how)).await
    }

    /// A file that handlers can wait for.
    pub(crate) fn signal_file(&self) -> PathBuf {
        self.dir.path().join("gate")
    }

    /// Requests the worker to drain.
    pub(crate) fn stop(&self) {
        self.shutdown.cancel();
    }

    /// Waits until the worker has exited.
    pub(crate) async fn gone(self) -> Gateway {
        self.worker.await.unwrap().unwrap();
        self.gateway
    }
}

/// The result of a job that succeeded with a small one.
pub(crate) fn result(report: &FinishReport) -> Value {
    match &report.outcome {
        FinishOutcome::Succeeded { result } => serde_json::from_str(result.get()).unwrap(),
        outcome @ (FinishOutcome::Stored { .. } | FinishOutcome::Failed { .. }) => panic!("{outcome:?}"),
    }
}

/// The error of a job that failed, with the code a test expects.
pub(crate) fn error(report: &FinishReport, code: ErrorCode) -> &JobError {
    match &report.outcome {
        FinishOutcome::Failed { error } if error.code == code => error,
        outcome => panic!("{outcome:?} is not {code:?}"),
    }
}

/// An endpoint whose handler is `endpoint.py:<object>`.
pub(crate) fn spec(object: &str) -> EndpointSpec {
    let entry = format!("endpoint.py:{object}");
    let given = json!({"package_sha256": "", "package_size_bytes": 0, "entry": entry, "input_schema": null});
    serde_json::from_value(given).unwrap()
}

/// A package of one file, `endpoint.py`.
pub(crate) fn pack(source: &str) -> Vec<u8> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let mut header = tar::Header::new_gnu();
    header.set_size(source.len() as u64);
    header.set_mode(0o644);
    archive.append_data(&mut header, "endpoint.py", source.as_bytes()).unwrap();
    archive.into_inner().unwrap().finish().unwrap()
}

fn config(gateway: &Gateway, dir: &Path, variables: &[(&'static str, String)]) -> Config {
    let var = |name: &str| match name {
        "STOKE_GATEWAY_URL" => Some(gateway.url().to_owned()),
        "STOKE_JOIN_TOKEN" => Some("jt_test".to_owned()),
        "STOKE_SANDBOX" => Some("L0".to_owned()),
        "STOKE_DATA_DIR" => Some(dir.to_string_lossy().into_owned()),
        "STOKE_CACHE_DIR" => Some(concat!(env!("CARGO_TARGET_TMPDIR"), "/worker-cache").to_owned()),
        "STOKE_RUNNER_WHEEL" => Some(wheel().to_string_lossy().into_owned()),
        _ => variables.iter().find(|(set, _)| *set == name).map(|(_, value)| value.clone()),
    };
    let config: Config = RawConfig::from_env(var).unwrap().try_into().unwrap();
    // The sandbox is started through a subcommand of `stoke`, which only the end-to-end suite has. Without it, handlers
    // run as the tests' own user and exchange files with the tests.
    config.confined_by("/nonexistent/stoke".into())
}

/// The wheel of `STOKE_RUNNER_WHEEL`, or the one that `make wheel` built.
fn wheel() -> PathBuf {
    if let Some(named) = std::env::var_os("STOKE_RUNNER_WHEEL") {
        return named.into();
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/wheels");
    let wheels = std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let wheel = wheels.filter(|path| path.extension().is_some_and(|extension| extension == "whl")).max();
    wheel.unwrap_or_else(|| {
        panic!("no wheel in {}: run `make wheel` first, or set STOKE_RUNNER_WHEEL", folder.display())
    })
}
