//! Jobs that wait for others: told when those have ended, given their results, led through their steps. Any replica does it; of
//! two that decide at once the queue hears one.

mod files;
mod outcomes;

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use serde_json::Value;
use stokehold_queue::job::{ErrorCode, INLINE_RESULT_BYTES, Job, JobError, JobSpec, JobState, NewJob, StepRun};
use stokehold_queue::pipeline::{self, Blocked, Next};
use stokehold_queue::queue::{Due, Settlement, Verdict, Work};
use stokehold_queue::{Error, JobId, Queue};
use tokio_util::sync::CancellationToken;

use crate::error::Problem;
use crate::state::App;
use crate::traces::context;
use crate::traces::sampler::Sampler;
use crate::{inputs, json, metrics};

/// What is not settled in this time is given out again: longer than any settlement takes.
const CLAIM_MS: u64 = 30_000;

/// A signal may be lost, so nobody waits for one longer than this.
const RELOOK: Duration = Duration::from_secs(2);

/// Settled at a time: each reads other jobs' results first, some of them from S3.
const AT_ONCE: usize = 16;

/// The largest input that may come together from others' results: as much as a submit may bring.
const INPUT_MAX: usize = json::BODY_MAX;

/// The loop.
pub struct Settler {
    app: App,
}

impl Settler {
    /// For the queue of `app`.
    #[must_use]
    pub fn new(app: App) -> Self {
        Self { app }
    }

    /// Rounds until `shutdown`. A round that fails is tried again with the next.
    pub async fn run(self, shutdown: CancellationToken) {
        loop {
            let more = match self.run_once().await {
                Ok(settled) => settled > 0,
                Err(error) => {
                    let chain = &error as &dyn std::error::Error;
                    tracing::warn!(error = chain, "waiting jobs could not be settled, trying again");
                    false
                }
            };
            if more && !shutdown.is_cancelled() {
                continue;
            }
            tokio::select! {
                () = self.app.work.wait(Work::Settle, 0, RELOOK) => {}
                () = shutdown.cancelled() => return,
            }
        }
    }

    /// One round: as much as is due, at most 100. Answers how much that was.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: what was not settled is due again after a while.
    pub async fn run_once(&self) -> Result<usize, Error> {
        let due = self.app.queue.due(CLAIM_MS).await?;
        let claimed = due.len();
        let settled = due.into_iter().map(|due| async move {
            match due {
                Due::Ended(id) => {
                    while !self.app.queue.unblock(id).await? {}
                    Ok(())
                }
                Due::Ready(id) => Box::pin(self.settle(id)).await,
            }
        });
        stream::iter(settled).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        Ok(claimed)
    }

    async fn settle(&self, id: JobId) -> Result<(), Error> {
        let job = self.app.queue.get(id).await?;
        let Some(job) = job.filter(|job| job.state == JobState::Blocked) else {
            // It has moved on, or is gone: a settlement of no revision only strikes it off the list.
            let verdict = Verdict::Queue { input: None };
            let gone = Settlement { id, revision: "gone".to_owned(), steps: Vec::new(), verdict };
            return self.app.queue.settle(&gone).await.map(drop);
        };
        let (steps, verdict) = match self.decide(&job).await {
            Ok(Some(decided)) => decided,
            Ok(None) => return Ok(()),
            Err(problem) => {
                // It stays claimed, and is due again when the claim has run out.
                tracing::warn!(job.id = %job.id, ?problem, "a waiting job could not be settled, trying again");
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
        if self.app.queue.settle(&settlement).await? {
            metrics::settled(word);
        }
        Ok(())
    }

    /// `None` when something it waits for has not ended.
    async fn decide(&self, job: &Job) -> Result<Option<(Vec<StepRun>, Verdict)>, Problem> {
        let input: Value = serde_json::from_str(job.input.get()).unwrap_or_default();
        let output = match &job.held {
            Some(held) => Some(self.portable(job, outcomes::value(&self.app, held).await?).await?),
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
                None => Verdict::Queue { input: Some(json::raw(&input)) },
                Some(error) => Verdict::Fail { error },
            },
            Next::Succeed(result) => succeed(result.as_ref()),
            Next::Step { index, input, asked } => {
                let step = step_job(&self.app.config.traces.sampler, job, index, &asked);
                steps.push(StepRun::queued(step.id));
                Verdict::Step { input: input.as_ref().map(json::raw), job: Box::new(step) }
            }
        };
        Ok(Some((steps, verdict)))
    }

    async fn dependencies(&self, job: &Job, input: &Value) -> Result<BTreeMap<JobId, pipeline::Outcome>, Problem> {
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

    /// A result as another job's input: the files it names are that tenant's files now.
    async fn portable(&self, job: &Job, result: Value) -> Result<Value, Problem> {
        files::portable(&self.app, job, result).await
    }

    /// Why an input that came together from others' results cannot be run, if it cannot.
    async fn acceptable(&self, job: &Job, input: &Value) -> Result<Option<JobError>, Problem> {
        let refused = |why: String| Some(JobError::new(ErrorCode::DependencyFailed, why));
        let size = input.to_string().len();
        if size > INPUT_MAX {
            return Ok(refused(format!("its input came to {size} bytes, more than {INPUT_MAX}")));
        }
        let spec = &job.spec;
        let deployed = self.app.catalog.resolve(&spec.tenant, &spec.endpoint, Some(spec.version)).await?;
        Ok(match inputs::check(&deployed.input, input, "/input") {
            Ok(_) => None,
            Err(problem) => refused(format!("its input, once come together, is not valid: {}", problem.detail())),
        })
    }
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

/// The job that runs a step: as urgent as the one that waits for it, and over when that one is.
fn step_job(sampler: &Sampler, job: &Job, index: usize, asked: &Value) -> NewJob {
    let (spec, step) = (&job.spec, &job.spec.steps[index]);
    NewJob {
        id: JobId::new(job.id.shard()),
        spec: JobSpec {
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
        },
        input: json::raw(asked),
        run_after_ms: 0,
        idempotency: None,
        archived: Vec::new(),
        watcher: None,
    }
}
