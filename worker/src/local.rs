//! Runs one job on this machine, in a runner like a worker's but without a gateway, for developers of handlers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use stokehold_protocol::endpoint::EndpointSpec;
use stokehold_protocol::gateway::{JobMessage, Secrets};
use stokehold_protocol::job::{ErrorCode, JobError};
use tokio::sync::mpsc;

use crate::failure::{died, failed, infra, raised, start_failure};
use crate::messages::Messages;
use crate::runner::{Launch, RunEnd, RunRequest, Runner};
use crate::sandbox::{FsAccess, Sandbox};
use crate::weights::{Owner, Right, WeightFile, WeightSet, Weights, WeightsConfig};

/// The job to run.
#[derive(Debug)]
pub struct LocalJob {
    /// Python of the environment.
    pub python: PathBuf,
    /// Folder of the handler.
    pub package: PathBuf,
    /// Options of the endpoint.
    pub spec: EndpointSpec,
    /// Secrets, provided as environment variables.
    pub secrets: Secrets,
    /// Folder of the weights, if any.
    pub weights: Option<PathBuf>,
    /// Indices of the GPUs that it may use.
    pub gpus: Vec<u32>,
    /// The input: a JSON object.
    pub input: Box<RawValue>,
    /// Paths of the input's files, by their ids.
    pub files: BTreeMap<String, String>,
    /// An empty folder for the runner's home and output files.
    pub scratch: PathBuf,
    /// Timeout of the load.
    pub load_timeout: Duration,
}

/// One file of weights for a job on this machine.
#[derive(Debug)]
pub struct LocalWeight {
    /// Path that the handler opens.
    pub path: String,
    /// Source of the file.
    pub from: WeightFrom,
    /// A bearer token for its URL's own host.
    pub token: Option<String>,
    /// Expected SHA-256.
    pub sha256: String,
    /// Expected size.
    pub size_bytes: u64,
}

/// Source of a file of weights.
#[derive(Debug)]
pub enum WeightFrom {
    /// A URL.
    Url(String),
    /// A file on this machine.
    File(PathBuf),
}

/// Weights in one folder. The files are kept while this is held.
#[derive(Debug)]
pub struct LocalWeights {
    /// The folder to pass to the handler.
    pub folder: PathBuf,
    _set: WeightSet,
}

/// Fetches weights into the cache of this machine, and links all of them below `folder`. Passes progress messages to
/// `report`.
///
/// # Errors
/// If the weights cannot be fetched.
pub async fn weights(
    cache_dir: &Path,
    files: Vec<LocalWeight>,
    folder: &Path,
    report: &(dyn Fn(String) + Send + Sync),
) -> anyhow::Result<LocalWeights> {
    // A manual run must not evict weights of workers on this machine; only the disk limits it.
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
    let set = weights.get(&fetched, &|progress| report(format!("weights: {progress}"))).await?;
    here.extend(fetched.iter().map(|file| (file.path.clone(), set.folder.join(&file.path))));
    for (path, file) in here {
        let link = folder.join(path);
        std::fs::create_dir_all(link.parent().unwrap_or(folder))?;
        std::os::unix::fs::symlink(std::fs::canonicalize(file)?, link)?;
    }
    Ok(LocalWeights { folder: folder.to_owned(), _set: set })
}

/// The result of the job.
#[derive(Debug)]
pub struct LocalEnd {
    /// The result, JSON. A file in it is `{"$file": "<name>"}`.
    pub result: Vec<u8>,
    /// Paths of these files, by name.
    pub files: BTreeMap<String, PathBuf>,
    /// Time to start the process and load the handler.
    pub load: Duration,
    /// Duration of the run.
    pub run: Duration,
}

/// Loads the handler and runs one job. Sends its messages to `messages`. Dropping the future kills the process.
///
/// # Errors
/// The job's error.
pub async fn run(job: LocalJob, messages: mpsc::UnboundedSender<JobMessage>) -> Result<LocalEnd, JobError> {
    let launch = Launch {
        ours: job.python.clone(),
        python: job.python,
        sandbox: Arc::new(Sandbox::none()),
        access: FsAccess::all(job.package),
        home: job.scratch.clone(),
        temp: job.scratch.clone(),
        scratch: job.scratch.clone(),
        scratch_bytes: u64::MAX,
        // There is one job, which waits for no others.
        spec: EndpointSpec { max_concurrency: 1, max_wait_ms: 0.0, ..job.spec },
        secrets: job.secrets,
        output_to: Some(messages.clone()),
        weights: job.weights,
        visible: job.gpus.iter().map(u32::to_string).collect(),
        vram: None,
        turns: None,
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
        messages: Arc::new(Messages::local(messages)),
        begun: Arc::default(),
    };
    let end = runner.run(1, request).await.await;
    let load = runner.boot + runner.load;
    match end {
        Ok(RunEnd::Done { result, files, run_ms }) => {
            // The output files remain, because the scratch folder belongs to the caller.
            runner.stop().await;
            let files = files.into_iter().map(|file| (file.name, PathBuf::from(file.path))).collect();
            Ok(LocalEnd { result, files, load, run: Duration::from_millis(run_ms) })
        }
        Ok(RunEnd::Failed { failure, stderr, .. }) => Err(raised(failure, stderr)),
        Ok(end) => Err(died(end)),
        Err(_) => Err(failed(ErrorCode::Protocol, "the runner exited before the job started".to_owned())),
    }
}
