//! Settles jobs that wait for others: unblocks them, fills in their results and runs their steps. Any replica does it;
//! if two decide at the same time, the queue accepts one.

mod files;
mod outcomes;

use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::{StreamExt, stream};
use serde_json::Value;
use serde_json::value::RawValue;
use stokehold_objects::Error as ObjectsError;
use stokehold_queue::job::{ErrorCode, INLINE_RESULT_BYTES, Job, JobError, JobSpec, JobState, NewJob, StepRun};
use stokehold_queue::pipeline::{self, Blocked, Next};
use stokehold_queue::queue::{Due, Settlement, Verdict, Work};
use stokehold_queue::{Error as QueueError, JobId, Queue};
use stokehold_supervise::{BoxError, Duty, Panic, guard_beside};
use tokio::time::{sleep, timeout};

use crate::endpoints::catalog;
use crate::jobs::{inputs, large_inputs};
use crate::server::json;
use crate::state::App;
use crate::traces::context;
use crate::traces::sampler::Sampler;
use crate::{history, metrics};

/// Duration of a claim, milliseconds. Work without progress for this long is assigned again. A claim is renewed for as
/// long as its settlement runs, which copies files and may wait minutes for S3.
const CLAIM_MS: u64 = 30_000;
const CLAIM_AGAIN: Duration = Duration::from_secs(10);

/// Timeout of one settlement: several of the longest calls to S3.
const SETTLE_MAX: Duration = Duration::from_secs(240);

/// Timeout of a round: the maximum number of settlements that one of [`AT_ONCE`] may run, one after the other.
const ROUND_MAX: Duration = Duration::from_secs(30 * 60);

/// Longest wait for a signal, because a signal may be lost.
const RELOOK: Duration = Duration::from_secs(2);

/// Settlements that run concurrently. Each reads other jobs' results first, some of them from S3.
const AT_ONCE: usize = 16;

/// Maximum size of an input that is built from other jobs' results: the same as for a submit.
const INPUT_MAX: usize = json::BODY_MAX;

/// The settlement loop.
pub(crate) struct Settler {
    app: App,
    /// Jobs that this replica is settling.
    claims: Mutex<HashSet<Due>>,
}

impl Settler {
    /// Creates the loop for the queue of `app`.
    pub(crate) fn new(app: App) -> Self {
        Self { app, claims: Mutex::default() }
    }

    /// Runs one round of at most 100 due settlements, and returns their number.
    ///
    /// # Errors
    /// [`QueueError::Unavailable`]: unsettled jobs become due again when their claims expire.
    async fn run_once(&self) -> Result<usize, QueueError> {
        let due = self.app.db.queue.due(CLAIM_MS).await?;
        let claimed = due.len();
        *self.lock() = due.iter().copied().collect();
        let settled = due.into_iter().map(|due| async move {
            let done = guard_beside(Self::NAME, timeout(SETTLE_MAX, self.settle_one(due))).await;
            self.lock().remove(&due);
            match done {
                Ok(Ok(done)) => return done,
                Ok(Err(_)) => tracing::warn!(job.id = %due.id(), "settling a job timed out"),
                Err(Panic { .. }) => tracing::error!(job.id = %due.id(), "settling a job panicked"),
            }
            // The job is retried when its claim has expired.
            Ok(())
        });
        let settled = stream::iter(settled).buffer_unordered(AT_ONCE).collect::<Vec<_>>();
        let settled = tokio::select! {
            settled = settled => settled,
            never = self.keep_claims() => match never {},
        };
        // A failed settlement does not stop the others.
        settled.into_iter().collect::<Result<(), _>>().map(|()| claimed)
    }

    /// Renews the claims of the jobs that are being settled.
    async fn keep_claims(&self) -> Infallible {
        loop {
            sleep(CLAIM_AGAIN).await;
            let claims: Vec<Due> = self.lock().iter().copied().collect();
            if let Err(error) = self.app.db.queue.keep_due(&claims, CLAIM_MS).await {
                // Another replica may settle the same job meanwhile; the queue accepts one of the two.
                tracing::warn!(error = &error as &dyn std::error::Error, "cannot renew the claims on waiting jobs");
            }
        }
    }

    async fn settle_one(&self, due: Due) -> Result<(), QueueError> {
        match due {
            Due::Ended(id) => {
                while !self.app.db.queue.unblock(id).await? {}
                Ok(())
            }
            Due::Ready(id) => Box::pin(self.settle(id)).await,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashSet<Due>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn settle(&self, id: JobId) -> Result<(), QueueError> {
        let job = match self.app.db.queue.get(id).await {
            Err(QueueError::Corrupt { key, why }) => return self.put_aside(id, &format!("{key}: {why}")).await,
            job => job?,
        };
        let Some(job) = job.filter(|job| job.state == JobState::Blocked) else {
            // The job has moved on or no longer exists: a settlement without a revision only removes it from the list.
            let verdict = Verdict::Queue { input: None };
            let gone = Settlement { id, revision: "gone".to_owned(), steps: Vec::new(), verdict };
            return self.app.db.queue.settle(&gone).await.map(drop);
        };
        let (steps, verdict) = match self.decide(&job).await {
            Ok(Some(decided)) => decided,
            Ok(None) => return Ok(()),
            Err(Error::Lost(why)) => (job.steps.clone(), fails(&job, ErrorCode::Infra, why)),
            Err(Error::TooLarge(why)) => (job.steps.clone(), fails(&job, ErrorCode::ResultTooLarge, why)),
            Err(Error::Passing(error)) => {
                // The job stays claimed, and is due again when the claim has expired.
                let error = &*error as &dyn std::error::Error;
                tracing::warn!(job.id = %job.id, error, "cannot settle a waiting job, trying again");
                return Ok(());
            }
        };
        let word = match &verdict {
            Verdict::Queue { .. } => "queue",
            Verdict::Step { .. } => "step",
            Verdict::Succeed { .. } => "succeed",
            Verdict::Fail { .. } => "fail",
        };
        let settlement = Settlement { id, revision: job.revision, steps, verdict };
        // From here on the queue handles its claim.
        self.lock().remove(&Due::Ready(id));
        if self.app.db.queue.settle(&settlement).await? {
            metrics::settled(word);
        }
        Ok(())
    }

    /// Quarantines a waiting job whose record cannot be read, for an operator, so that it is not read again and again.
    async fn put_aside(&self, id: JobId, why: &str) -> Result<(), QueueError> {
        match self.app.db.queue.all().get(usize::from(id.shard())) {
            Some(shard) => shard.quarantine().put(id, why).await,
            None => Ok(()),
        }
    }

    /// Decides how a waiting job continues. Returns `None` when one of its dependencies has not ended.
    async fn decide(&self, job: &Job) -> Result<Option<(Vec<StepRun>, Verdict)>, Error> {
        let input = self.app.large_inputs.whole(&job.spec.tenant, &job.input).await?;
        let input = input.ok_or_else(|| Error::Lost("the job's input is missing from the object store".to_owned()))?;
        let input: Value = serde_json::from_str(input.get())
            .map_err(|error| Error::Lost(format!("the job's input cannot be read: {error}")))?;
        let output = match &job.held {
            Some(held) => Some(self.portable(job, outcomes::value(&self.app.objects, job.id, held).await?).await?),
            None => None,
        };
        let dependencies = self.dependencies(job, &input).await?;
        let step = match job.steps.last().filter(|run| run.decision.is_none()) {
            Some(run) => outcomes::of(&self.app, &job.spec.tenant, run.job, true).await?.map(|(_, outcome)| outcome),
            None => None,
        };
        let blocked = Blocked { job, input, output, dependencies, step };
        let (mut steps, next) = pipeline::decide(&blocked);
        let verdict = match next {
            Next::Wait => return Ok(None),
            Next::Fail(error) => Verdict::Fail { error },
            Next::Queue(None) => Verdict::Queue { input: None },
            Next::Queue(Some(input)) => match self.acceptable(job, &input).await? {
                None => Verdict::Queue { input: Some(self.stored(job, &input).await?) },
                Some(error) => Verdict::Fail { error },
            },
            Next::Succeed(result) => succeed(result.as_ref()),
            Next::Step { index, input, asked } => {
                let mut step = step_job(&self.app.config.traces.sampler, job, index, &asked);
                self.app.large_inputs.store(std::slice::from_mut(&mut step)).await?;
                steps.push(StepRun::queued(step.id));
                let input = match &input {
                    Some(input) => Some(self.stored(job, input).await?),
                    None => None,
                };
                Verdict::Step { input, job: Box::new(step) }
            }
        };
        Ok(Some((steps, verdict)))
    }

    /// Converts an input to the form that the job's record stores.
    async fn stored(&self, job: &Job, input: &Value) -> Result<Box<RawValue>, Error> {
        let (input, _file) = self.app.large_inputs.store_one(&job.spec.tenant, json::raw(input)).await?;
        Ok(input)
    }

    async fn dependencies(&self, job: &Job, input: &Value) -> Result<BTreeMap<JobId, pipeline::Outcome>, Error> {
        let mut found = BTreeMap::new();
        if !pipeline::is_untouched(job) || pipeline::has_run(job) {
            return Ok(found);
        }
        let named = pipeline::references(input);
        for dependency in &job.spec.depends_on {
            let wanted = named.contains(&dependency.job.to_string().as_str());
            if let Some((other, mut outcome)) =
                outcomes::of(&self.app, &job.spec.tenant, dependency.job, wanted).await?
            {
                if let Some(result) = outcome.result.take() {
                    outcome.result = Some(self.portable(&other, result).await?);
                }
                found.insert(dependency.job, outcome);
            }
        }
        Ok(found)
    }

    /// Converts a result to an input of another job: the files that it names become files of that job's tenant.
    async fn portable(&self, job: &Job, result: Value) -> Result<Value, Error> {
        files::portable(&self.app, job, result).await
    }

    /// Returns the reason for which an input that was built from other jobs' results cannot be run, if there is one.
    async fn acceptable(&self, job: &Job, input: &Value) -> Result<Option<JobError>, Error> {
        let refused = |why: String| Some(JobError::new(ErrorCode::DependencyFailed, why));
        let size = input.to_string().len();
        if size > INPUT_MAX {
            return Ok(refused(format!(
                "the job's input has {size} bytes after its references were filled in, over the limit of {INPUT_MAX}"
            )));
        }
        let spec = &job.spec;
        let deployed = self.app.catalog.resolve(&spec.tenant, &spec.endpoint, Some(spec.version)).await?;
        Ok(match inputs::check(&deployed.input, input, "/input") {
            Ok(_) => None,
            Err(error) => refused(format!("the job's input is not valid after its references were filled in: {error}")),
        })
    }
}

impl Duty for Settler {
    const NAME: &'static str = "settle";
    const ROUND_TIMEOUT: Duration = ROUND_MAX;
    const RETRY_DELAY: Duration = RELOOK;

    async fn round(&mut self) -> Result<Duration, BoxError> {
        Ok(if self.run_once().await? > 0 { Duration::ZERO } else { RELOOK })
    }

    async fn wait(&mut self, pause: Duration) {
        if !pause.is_zero() {
            self.app.wakeups.wait(Work::Settle, 0, pause).await;
        }
    }
}

/// Reasons for which a waiting job cannot be decided.
#[derive(Debug, thiserror::Error)]
enum Error {
    /// A service that it needs failed or does not answer: it is retried.
    #[error(transparent)]
    Passing(BoxError),
    /// Data that it needs is lost; the text is the reason.
    #[error("{0}")]
    Lost(String),
    /// A result is larger than other jobs may receive; the text is the reason.
    #[error("{0}")]
    TooLarge(String),
}

macro_rules! passing {
    ($($error:ty),+ $(,)?) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::Passing(error.into())
            }
        })+
    };
}

passing!(QueueError, ObjectsError, history::Error, catalog::Error, large_inputs::Error);

/// Ends a job that has an error: in its own result, with `code`, or in a dependency.
fn fails(job: &Job, code: ErrorCode, why: String) -> Verdict {
    Verdict::Fail { error: JobError::new(if pipeline::has_run(job) { code } else { ErrorCode::DependencyFailed }, why) }
}

fn succeed(result: Option<&Value>) -> Verdict {
    let result = result.map(json::raw);
    match &result {
        Some(raw) if raw.get().len() > INLINE_RESULT_BYTES => {
            let why = format!("a step rewrote the result to more than {INLINE_RESULT_BYTES} bytes");
            Verdict::Fail { error: JobError::new(ErrorCode::ResultTooLarge, why) }
        }
        _ => Verdict::Succeed { result },
    }
}

/// Builds the job that runs a step. It has the priority of the waiting job, and ends when that one does.
fn step_job(sampler: &Sampler, job: &Job, index: usize, asked: &Value) -> NewJob {
    let (spec, step) = (&job.spec, &job.spec.steps[index]);
    let spec = JobSpec {
        tenant: spec.tenant.clone(),
        endpoint: step.endpoint.clone(),
        version: step.version,
        priority: spec.priority,
        vram_class_gib: step.vram_class_gib,
        demands: step.demands,
        timeout_ms: step.timeout_ms,
        max_attempts: step.max_attempts,
        files: inputs::files(asked, "/input").unwrap_or_default(),
        deadline_ms: spec.deadline_ms,
        retention_ms: spec.retention_ms,
        step_of: Some(job.id),
        trace: Some(context::of_job(sampler, job.id, spec)),
        ..JobSpec::default()
    };
    NewJob::new(JobId::new(job.id.shard()), spec, json::raw(asked))
}
