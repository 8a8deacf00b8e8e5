//! One job on this machine, in a runner as a worker has it, without a gateway: for whoever writes a handler.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use stokehold_queue::endpoint::Runner as RunnerKind;
use stokehold_queue::gateway::{JobMessage, Secrets};
use stokehold_queue::job::{ErrorCode, JobError};
use tokio::sync::mpsc;

use crate::failure::{died, failed, infra, raised, start_failure};
use crate::messages::Messages;
use crate::runner::{Launch, RunEnd, RunRequest, Runner};
use crate::sandbox::{Reach, Sandbox};
use crate::weights::{Owner, Right, WeightFile, WeightSet, Weights, WeightsConfig};

/// What is run.
#[derive(Debug)]
pub struct LocalJob {
    /// The environment's Python.
    pub python: PathBuf,
    /// The handler's folder.
    pub package: PathBuf,
    /// Of which kind it is, and where it is in the folder.
    pub runner: RunnerKind,
    /// See `runner`.
    pub entry: String,
    /// Variables of its own.
    pub env: BTreeMap<String, String>,
    /// Secrets of its own, as variables.
    pub secrets: Secrets,
    /// The folder of its weights, if it has any.
    pub weights: Option<PathBuf>,
    /// Jobs that one call of it takes.
    pub max_batch_size: u32,
    /// The GPUs that it may use, by index.
    pub gpus: Vec<u32>,
    /// The input: a JSON object.
    pub input: Box<RawValue>,
    /// The input's files: what it calls them, to where they lie.
    pub files: BTreeMap<String, String>,
    /// An empty folder: the runner's home, and where its files are put.
    pub scratch: PathBuf,
    /// How long loading may take.
    pub load_timeout: Duration,
}

/// One file of weights for a job on this machine.
#[derive(Debug)]
pub struct LocalWeight {
    /// What the handler opens.
    pub path: String,
    /// Where it is.
    pub from: WeightFrom,
    /// A bearer token for its URL's own host.
    pub token: Option<String>,
    /// What it must be.
    pub sha256: String,
    /// How large it is.
    pub size_bytes: u64,
}

/// Where a file of weights is.
#[derive(Debug)]
pub enum WeightFrom {
    /// On the web.
    Url(String),
    /// On this machine.
    File(PathBuf),
}

/// Weights in one folder. They stay while this is held.
#[derive(Debug)]
pub struct LocalWeights {
    /// Where the handler looks for them.
    pub folder: PathBuf,
    _set: WeightSet,
}

/// Fetches weights into the cache of this machine, and links all of them below `folder`. `said` hears how far it is.
///
/// # Errors
/// Why they cannot be had.
pub async fn weights(
    cache_dir: &Path,
    files: Vec<LocalWeight>,
    folder: &Path,
    said: &(dyn Fn(String) + Send + Sync),
) -> anyhow::Result<LocalWeights> {
    // What a person runs by hand is not to push out what workers here have: the disk is the bound.
    let weights = Weights::open(&WeightsConfig { dir: cache_dir.to_owned(), cap_bytes: u64::MAX })?;
    let (mut fetched, mut here) = (Vec::new(), Vec::new());
    for LocalWeight { path, from, token, sha256, size_bytes } in files {
        match from {
            WeightFrom::File(file) => here.push((path, file)),
            WeightFrom::Url(url) => {
                let headers = token.map(|token| ("authorization".to_owned(), format!("Bearer {token}")));
                let right = Right::Address(url.clone());
                let headers = headers.into_iter().collect();
                fetched.push(WeightFile { path, url, sha256, size_bytes, headers, owner: Owner::Machine, right });
            }
        }
    }
    let set = weights.get(&fetched, &|progress| said(format!("weights: {progress}"))).await?;
    here.extend(fetched.iter().map(|file| (file.path.clone(), set.folder.join(&file.path))));
    for (path, file) in here {
        let link = folder.join(path);
        std::fs::create_dir_all(link.parent().unwrap_or(folder))?;
        std::os::unix::fs::symlink(std::fs::canonicalize(file)?, link)?;
    }
    Ok(LocalWeights { folder: folder.to_owned(), _set: set })
}

/// What became of it.
#[derive(Debug)]
pub struct LocalEnd {
    /// The result, JSON. A file in it is `{"$file": "<name>"}`.
    pub result: Vec<u8>,
    /// Where each of these files lies.
    pub files: BTreeMap<String, PathBuf>,
    /// How long the process took to start and its handler to load, and how long the run.
    pub load: Duration,
    /// See `load`.
    pub run: Duration,
}

/// Loads the handler and runs one job. What it says meanwhile is sent to `said`. Dropping the future kills the process.
///
/// # Errors
/// As a job's error would say it.
pub async fn run(job: LocalJob, said: mpsc::UnboundedSender<JobMessage>) -> Result<LocalEnd, JobError> {
    let launch = Launch {
        ours: job.python.clone(),
        python: job.python,
        sandbox: Arc::new(Sandbox::none()),
        reach: Reach::all(job.package),
        home: job.scratch.clone(),
        scratch: job.scratch.clone(),
        scratch_bytes: u64::MAX,
        runner: job.runner,
        entry: job.entry,
        env: job.env,
        secrets: job.secrets,
        heard_by: Some(said.clone()),
        weights: job.weights,
        max_concurrency: 1,
        max_batch_size: job.max_batch_size,
        max_wait: Duration::ZERO,
        visible: job.gpus.iter().map(u32::to_string).collect(),
        vram: None,
    };
    let runner = Runner::start(&launch, None, job.load_timeout).await.map_err(start_failure)?;
    let scratch = job.scratch.join("run");
    std::fs::create_dir_all(&scratch).map_err(|error| infra(format!("cannot create scratch space: {error}")))?;
    let request = RunRequest {
        job: "local".to_owned(),
        attempt: 1,
        scratch,
        files: job.files,
        input: job.input,
        traceparent: None,
        messages: Arc::new(Messages::heard_here(said)),
        begun: Arc::default(),
    };
    let end = runner.run(1, request).await.await;
    let load = runner.boot + runner.load;
    match end {
        Ok(RunEnd::Done { result, files, run_ms }) => {
            // Its files are still there: the scratch folder is the caller's.
            runner.stop().await;
            let files = files.into_iter().map(|file| (file.name, PathBuf::from(file.path))).collect();
            Ok(LocalEnd { result, files, load, run: Duration::from_millis(run_ms) })
        }
        Ok(RunEnd::Failed { failure, stderr, .. }) => Err(raised(failure, stderr)),
        Ok(end) => Err(died(end)),
        Err(_) => Err(failed(ErrorCode::Protocol, "the runner exited before the job started".to_owned())),
    }
}
