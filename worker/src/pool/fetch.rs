//! Fetches the parts of a model: its environment, package and weights, from the caches or the network.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use reqwest::StatusCode;
use stokehold_protocol::gateway::{JobMessage, LeaseRef, Secrets, SecretsRequest, StartPhase};
use stokehold_protocol::job::{ErrorCode, JobError};
use stokehold_protocol::requirements::SandboxLevel;

use super::Pool;
use super::endpoint::Endpoint;
use super::model::Model;
use crate::environment::{Environment, EnvironmentSpec};
use crate::failure::{failed, infra};
use crate::gateway::Error as GatewayError;
use crate::messages::Messages;
use crate::package::Package;
use crate::runner::environment as process_variables;
use crate::sandbox::FsAccess;
use crate::weights::{Error, Owner, Progress, Right, WeightFile, WeightSet, scan};

/// Maximum number of URL renewals during one download; presigned URLs are valid for hours.
const RENEWALS_MAX: u32 = 10;

/// Interval of log messages about a long download.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Name of the secret with the model hub's token, as its library expects it.
const HUB_TOKEN: &str = "HF_TOKEN";

/// The parts of a model. They are kept while this value exists.
pub(super) struct Fetched {
    pub(super) secrets: Secrets,
    pub(super) environment: Environment,
    pub(super) package: Package,
    pub(super) weights: Option<WeightSet>,
    /// Time for environment and package, and the additional time for the weights.
    pub(super) took: (Duration, Duration),
}

impl Pool {
    /// Fetches the parts of a model. If a job waits for them, reports the download progress for it.
    pub(super) async fn fetch_for(&self, model: &Model, lease: Option<&LeaseRef>) -> Result<Fetched, JobError> {
        let endpoint = &*model.endpoint;
        self.enters(model, StartPhase::Environment);
        let secrets = self.secrets(endpoint, lease).await?;
        let messages =
            lease.filter(|_| !model.is_growing()).map(|lease| Messages::new(Arc::clone(&self.gateway), lease.clone()));
        let has_environment = || self.enters(model, StartPhase::Weights);
        let fetched = self.fetch(endpoint, secrets, messages.as_ref(), &has_environment).await;
        if let Some(messages) = messages {
            messages.flush().await;
        }
        fetched
    }

    /// Fetches the environment, package and weights. Sends download progress to `messages`. Calls `has_environment` if
    /// the environment and the package are ready before the weights may be.
    pub(super) async fn fetch(
        &self,
        endpoint: &Endpoint,
        secrets: Secrets,
        messages: Option<&Messages>,
        has_environment: &(dyn Fn() + Sync),
    ) -> Result<Fetched, JobError> {
        let (version, started) = (&endpoint.spec.version, Instant::now());
        let spec = &version.spec;
        let environment = EnvironmentSpec {
            tenant: endpoint.tenant.clone(),
            requirements_lock: spec.requirements_lock.clone(),
            python: spec.python.clone(),
        };
        let progress =
            |phase| tracing::info!(endpoint.id = %version.name, version = version.version, "environment: {phase}");
        let others = async {
            let both = tokio::join!(self.environments.get(&environment, &progress), self.package(endpoint));
            if !spec.weights.is_empty() {
                has_environment();
            }
            (both, started.elapsed())
        };
        let (((environment, package), others_took), weights) =
            tokio::join!(others, self.weights(endpoint, &secrets, messages));
        let environment = environment.map_err(|error| {
            // Log the full error for the operator; the tenant gets a filtered one.
            tracing::warn!(endpoint.id = ?version.name, version = version.version, error = ?error.to_string(), "cannot build an environment");
            failed(ErrorCode::EnvironmentFailed, error.for_tenants())
        })?;
        let took = (others_took, started.elapsed().saturating_sub(others_took));
        Ok(Fetched { secrets, environment, package: package?, weights: weights?, took })
    }

    async fn package(&self, endpoint: &Endpoint) -> Result<Package, JobError> {
        let version = &endpoint.spec.version;
        let spec = &version.spec;
        let get = |url| self.packages.get(&endpoint.tenant, &spec.package_sha256, spec.package_size_bytes, url);
        match get(&endpoint.spec.package_url).await {
            Ok(package) => Ok(package),
            Err(error) if error.is_the_deployers() => Err(failed(ErrorCode::EnvironmentFailed, error.to_string())),
            // The URL is valid for an hour, and the endpoint is known for longer: request a new URL before giving up.
            Err(first) => {
                let fresh = self.gateway.runner_spec(&endpoint.tenant, &version.name, version.version).await;
                let url = fresh.map_err(|_| infra(format!("the package is not available: {first}")))?.package_url;
                get(&url).await.map_err(|error| match error {
                    error if error.is_the_deployers() => failed(ErrorCode::EnvironmentFailed, error.to_string()),
                    error => infra(format!("the package is not available: {error}")),
                })
            }
        }
    }

    /// Fetches the weights, if any. Pickle files are allowed only if the endpoint permits them, in a sandbox, and after
    /// a scan.
    async fn weights(
        &self,
        endpoint: &Endpoint,
        secrets: &Secrets,
        messages: Option<&Messages>,
    ) -> Result<Option<WeightSet>, JobError> {
        let version = &endpoint.spec.version;
        let spec = &version.spec;
        if spec.weights.is_empty() {
            return Ok(None);
        }
        let (started, logged_ms, has_reported) = (Instant::now(), AtomicU64::new(0), AtomicBool::new(false));
        let progress = |progress: Progress| {
            if let Some(messages) = messages {
                has_reported.store(true, Ordering::Relaxed);
                let fraction = progress.done_bytes as f64 / progress.total_bytes.max(1) as f64;
                messages.take(JobMessage::Progress { fraction, message: format!("weights: {progress}") });
            }
            let now_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
            let due_ms = logged_ms.load(Ordering::Relaxed) + u64::try_from(LOG_INTERVAL.as_millis()).unwrap_or(0);
            if now_ms >= due_ms {
                logged_ms.store(now_ms, Ordering::Relaxed);
                tracing::info!(endpoint.id = %version.name, version = version.version, "weights: {progress}");
            }
        };
        let mut urls = endpoint.spec.weight_urls.clone();
        let mut renewals = 0;
        let set = loop {
            let files = files(endpoint, &urls, secrets);
            match self.weights.get(&files, &progress).await {
                Ok(set) => break set,
                // The endpoint is known for longer than its URLs are valid, or the download took longer. The received
                // data is kept.
                Err(Error::Expired { .. } | Error::Refused { status: StatusCode::FORBIDDEN, .. })
                    if renewals < RENEWALS_MAX && has_signed(endpoint) =>
                {
                    renewals += 1;
                    let fresh = self.gateway.runner_spec(&endpoint.tenant, &version.name, version.version).await;
                    let fresh = fresh.map_err(|error| infra(format!("cannot fetch the weights: {error}")))?;
                    if fresh.weight_urls == urls {
                        return Err(failed(
                            ErrorCode::WeightsFailed,
                            "the object store rejects the requests for the weights".to_owned(),
                        ));
                    }
                    urls = fresh.weight_urls;
                }
                Err(error) => return Err(job_error(error)),
            }
        };
        if let (Some(messages), true) = (messages, has_reported.into_inner()) {
            // The handler's own progress starts at zero again.
            messages.take(JobMessage::Progress {
                fraction: 0.0,
                message: "weights are ready; loading the model".to_owned(),
            });
        }
        self.check_pickles(endpoint, &set).await?;
        Ok(Some(set))
    }

    async fn check_pickles(&self, endpoint: &Endpoint, set: &WeightSet) -> Result<(), JobError> {
        let pickles = set.pickles().await.map_err(job_error)?;
        let Some(first) = pickles.first() else { return Ok(()) };
        let refuse = |why: &str| Err(failed(ErrorCode::WeightsFailed, format!("{first} is a pickle file{why}")));
        if !endpoint.spec.version.spec.allow_pickle {
            return refuse(", which can run code when it is loaded; use safetensors, or set allow_pickle = true");
        }
        if self.sandbox.level() < SandboxLevel::L1 {
            return refuse("; this worker does not isolate handlers (sandbox L0) and therefore loads no pickle files");
        }
        let environment = EnvironmentSpec {
            tenant: String::new(),
            requirements_lock: scan::PICKLESCAN_REQUIREMENTS.to_owned(),
            python: scan::PICKLESCAN_PYTHON.to_owned(),
        };
        let scanner = self.environments.get(&environment, &|_| ()).await;
        let scanner = scanner.map_err(|error| infra(format!("cannot scan pickle files: {error}")))?;
        let home = endpoint.folder.home().map_err(|error| infra(format!("cannot create scratch space: {error}")))?;
        let reads =
            [&scanner.folder, &set.folder].into_iter().chain(&scanner.base).chain(&set.blobs).cloned().collect();
        let access = FsAccess {
            reads,
            writes: vec![home.path().to_owned()],
            links: Vec::new(),
            // Not its home: at L2, the program that starts it cannot enter a folder of the handler's user.
            folder: scanner.folder.clone(),
            network: false,
            devices: Vec::new(),
            uid: endpoint.folder.uid,
        };
        let variables = || process_variables(&scanner.python, (home.path(), home.path()), &[], &BTreeMap::new());
        let python = || self.sandbox.command(&scanner.python, &access, variables());
        scan::scan(&python, &set.folder, &pickles).await.map_err(job_error)
    }

    /// Fetches the secrets that the endpoint version names.
    pub(super) async fn secrets(&self, endpoint: &Endpoint, lease: Option<&LeaseRef>) -> Result<Secrets, JobError> {
        if endpoint.spec.version.spec.secrets.is_empty() {
            return Ok(Secrets::default());
        }
        let request = SecretsRequest { model: endpoint.named(), lease: lease.cloned() };
        self.gateway.secrets(&request).await.map_err(|error| match error {
            GatewayError::Refused { code, detail } if code == "secret_missing" => {
                failed(ErrorCode::SetupFailed, detail)
            }
            error => infra(format!("cannot fetch the endpoint's secrets: {error}")),
        })
    }
}

/// Whether the gateway signs some of the URLs.
fn has_signed(endpoint: &Endpoint) -> bool {
    let is_signed = |url: &Option<String>| url.as_deref().is_none_or(|url| url.starts_with("s3://"));
    endpoint.spec.version.spec.weights.iter().any(|weight| is_signed(&weight.url))
}

/// The files to fetch. Requests to a model hub carry the endpoint's token, if it has one.
fn files(endpoint: &Endpoint, urls: &[String], secrets: &Secrets) -> Vec<WeightFile> {
    let weights = endpoint.spec.version.spec.weights.iter().zip(urls);
    let file = |(weight, url): (&stokehold_protocol::endpoint::Weight, &String)| {
        let token = secrets.get(HUB_TOKEN).filter(|_| weight.source.starts_with("hf://"));
        let headers = token.map(|token| ("authorization".to_owned(), format!("Bearer {token}")));
        WeightFile {
            path: weight.path.clone(),
            url: url.clone(),
            sha256: weight.sha256.clone(),
            size_bytes: weight.size_bytes,
            headers: headers.into_iter().collect::<BTreeMap<_, _>>(),
            owner: Owner::Tenant(endpoint.tenant.clone()),
            right: weight.url.clone().map_or(Right::Uploaded, Right::Address),
        }
    };
    weights.map(file).collect()
}

/// Attributes an error: errors that another worker or a later try might not have are not the endpoint's.
fn job_error(error: Error) -> JobError {
    let code = match &error {
        Error::Fetch { .. }
        | Error::Changed { .. }
        | Error::InUse { .. }
        | Error::Disk { .. }
        | Error::NoSpace { .. }
        | Error::Shared(_)
        | Error::Io { .. } => ErrorCode::Infra,
        Error::List(_)
        | Error::Refused { .. }
        | Error::Expired { .. }
        | Error::Size { .. }
        | Error::Differs { .. }
        | Error::TooLarge { .. }
        | Error::Safetensors { .. }
        | Error::Dangerous { .. }
        | Error::Unscanned { .. } => ErrorCode::WeightsFailed,
    };
    failed(code, format!("{:#}", anyhow::Error::from(error)))
}
