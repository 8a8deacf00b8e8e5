//! People's feedback on results: one object per job in the object store, together with the input and the result, so
//! that it outlives both.
//!
//! `feedback/<tenant>/<endpoint>/<version>/<job id>.json`. The counters per endpoint version are in the queue's
//! registry.

pub(crate) mod routes;
mod sample;

use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use stokehold_objects::{Error as ObjectsError, ObjectPage, Objects};
use stokehold_queue::JobId;
use stokehold_queue::feedback::Verdict;
use stokehold_queue::job::{Job, JobResult};

use crate::database;
use crate::jobs::large_inputs;
use crate::state::App;
use sample::Reservoir;

/// Maximum size of a feedback object, bytes. An input and an inline result fit several times.
const OBJECT_MAX: u64 = 16 << 20;

/// Feedback objects that one export reads concurrently.
const READS_AT_ONCE: usize = 16;

/// Keys of one page of a listing.
const PAGE: u32 = 1_000;

/// Maximum number of pages that one export reads: ten million jobs.
const PAGES_MAX: usize = 10_000;

/// Feedback on a job, with the job's input and result.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Feedback {
    pub(crate) job_id: JobId,
    pub(crate) endpoint: String,
    pub(crate) version: u32,
    pub(crate) input: Box<RawValue>,
    /// The result, when it is small.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<Box<RawValue>>,
    /// Key of the result, when it is large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) result_key: Option<String>,
    #[serde(default)]
    pub(crate) accepted: Option<bool>,
    #[serde(default)]
    pub(crate) score: Option<u8>,
    #[serde(default)]
    pub(crate) labels: Vec<String>,
    #[serde(default)]
    pub(crate) comment: Option<String>,
    pub(crate) at_ms: u64,
}

/// The members that the caller sets.
#[derive(Debug)]
pub(crate) struct Rating {
    pub(crate) accepted: Option<bool>,
    pub(crate) score: Option<u8>,
    pub(crate) labels: Vec<String>,
    pub(crate) comment: Option<String>,
}

/// Selection of the feedback to export.
#[derive(Debug)]
pub(crate) struct Export {
    pub(crate) endpoint: Option<String>,
    /// Endpoint version; only together with an endpoint.
    pub(crate) version: Option<u32>,
    pub(crate) sample: usize,
    pub(crate) seed: u64,
}

impl Feedback {
    fn new(job: &Job, input: Box<RawValue>, rating: Rating, at_ms: u64) -> Self {
        let (result, result_key) = match &job.result {
            Some(JobResult::Inline(result)) => (Some(result.clone()), None),
            Some(JobResult::Object { key, .. }) => (None, Some(key.clone())),
            None => (None, None),
        };
        Self {
            job_id: job.id,
            endpoint: job.spec.endpoint.clone(),
            version: job.spec.version,
            input,
            result,
            result_key,
            accepted: rating.accepted,
            score: rating.score,
            labels: rating.labels,
            comment: rating.comment,
            at_ms,
        }
    }

    fn verdict(&self) -> Verdict {
        Verdict { accepted: self.accepted, score: self.score }
    }
}

/// Reasons for which feedback was not stored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The counters failed.
    #[error(transparent)]
    Database(#[from] database::Error),
    /// The object store failed.
    #[error(transparent)]
    Objects(#[from] ObjectsError),
    /// The job's input cannot be read.
    #[error(transparent)]
    Input(#[from] large_inputs::Error),
    /// The job's input no longer exists.
    #[error("the file that holds the job's input no longer exists")]
    InputMissing,
    /// The feedback cannot be serialised, which indicates a bug.
    #[error("failed to serialise feedback")]
    Json(#[from] serde_json::Error),
}

/// Stores feedback on a job that succeeded, and replaces earlier feedback. Repeating it is safe.
pub(crate) async fn give(app: &App, job: &Job, rating: Rating, at_ms: u64) -> Result<Feedback, Error> {
    let spec = &job.spec;
    let input = app.large_inputs.whole(&spec.tenant, &job.input).await?;
    let input = input.ok_or(Error::InputMissing)?;
    let feedback = Feedback::new(job, input.into_owned(), rating, at_ms);
    let key = format!("{}{}.json", prefix(&spec.tenant, Some(&spec.endpoint), Some(spec.version)), job.id);
    let text = serde_json::to_vec(&feedback)?;
    // Feedback is counted before it is stored. Stored feedback has therefore been counted, and shows later which
    // verdict to subtract.
    let former = read(&app.objects, &key).await?.map(|former| former.verdict());
    let counters = app.db.queue.feedback();
    let version = (spec.endpoint.as_str(), spec.version);
    let judge = || counters.judge(&spec.tenant, job.id, version, feedback.verdict(), former);
    app.db.ask_again("count feedback", judge).await?;
    app.objects.put(&key, text.into(), "application/json").await?;
    Ok(feedback)
}

/// A random sample of a tenant's feedback. All of it is listed, but only the sample's keys are held in memory; then
/// each is read.
///
/// # Errors
/// When the first page cannot be listed. A later failure interrupts the stream.
pub(crate) async fn export(
    objects: Arc<Objects>,
    tenant: &str,
    export: Export,
) -> Result<BoxStream<'static, Result<Feedback, ObjectsError>>, ObjectsError> {
    let prefix = prefix(tenant, export.endpoint.as_deref(), export.version);
    let first = objects.list(&prefix, None, PAGE).await?;
    let chosen = async move {
        let keys = sampled(&objects, &prefix, first, &export).await?;
        let reads = stream::iter(keys).map(move |key| {
            let objects = objects.clone();
            async move { read(&objects, &key).await }
        });
        Ok::<_, ObjectsError>(reads.buffered(READS_AT_ONCE).try_filter_map(async |read| Ok(read)))
    };
    Ok(stream::once(chosen).try_flatten().boxed())
}

async fn sampled(
    objects: &Objects,
    prefix: &str,
    first: ObjectPage,
    export: &Export,
) -> Result<Vec<String>, ObjectsError> {
    let mut reservoir = Reservoir::new(export.sample, StdRng::seed_from_u64(export.seed));
    let mut page = first;
    for _ in 0..PAGES_MAX {
        page.objects.into_iter().for_each(|object| reservoir.offer(object.key));
        let Some(cursor) = page.next_cursor else { return Ok(reservoir.into_sample()) };
        page = objects.list(prefix, Some(&cursor), PAGE).await?;
    }
    tracing::warn!(prefix, "there is more feedback than one export reads");
    Ok(reservoir.into_sample())
}

/// Reads the feedback at a key. Returns `None` when there is none, or when the object is not valid feedback, which is
/// logged and does not stop an export.
async fn read(objects: &Objects, key: &str) -> Result<Option<Feedback>, ObjectsError> {
    let Some(text): Option<Bytes> = objects.get(key, OBJECT_MAX).await? else { return Ok(None) };
    match serde_json::from_slice(&text) {
        Ok(feedback) => Ok(Some(feedback)),
        Err(error) => {
            tracing::error!(%error, key, "stored feedback cannot be read");
            Ok(None)
        }
    }
}

fn prefix(tenant: &str, endpoint: Option<&str>, version: Option<u32>) -> String {
    let mut prefix = format!("feedback/{tenant}/");
    if let Some(endpoint) = endpoint {
        prefix = format!("{prefix}{endpoint}/");
        if let Some(version) = version {
            prefix = format!("{prefix}{version}/");
        }
    }
    prefix
}
