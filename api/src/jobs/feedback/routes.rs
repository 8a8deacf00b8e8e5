//! `/v1/feedback`: people's feedback on results.

use std::sync::Arc;

use axum::Json as JsonAnswer;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures::TryStreamExt;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use stokehold_objects::Objects;
use stokehold_queue::feedback::Tally;
use stokehold_queue::job::JobState;
use stokehold_queue::now_ms;
use utoipa::ToSchema;

use crate::config::Config;
use crate::database::Database;
use crate::error::{Problem, ProblemBody};
use crate::jobs::feedback;
use crate::jobs::feedback::{Export, Feedback, Rating};
use crate::jobs::results::without_result;
use crate::jobs::routes::own;
use crate::names;
use crate::server::json;
use crate::server::json::Json;
use crate::server::path::Path;
use crate::server::query::Params;
use crate::server::wait_permits::WaitPermits;
use crate::state::App;
use crate::tenants::auth::{Caller, JobsRead, JobsSubmit};
use crate::time_format::rfc3339;

const LABELS_MAX: usize = 20;
const LABEL_CHARS_MAX: usize = 100;
const COMMENT_CHARS_MAX: usize = 2_000;

/// Maximum size of a sample: its keys are held in memory while it is drawn.
const SAMPLE_MAX: usize = 100_000;
const SAMPLE: usize = 1_000;

/// Feedback on a job's result. At least one member is required.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FeedbackRequest {
    /// Whether the result was useful.
    accepted: Option<bool>,
    /// 1 to 5; 5 is best.
    score: Option<u8>,
    /// 1 to 20 labels of 1 to 100 characters each.
    labels: Option<Vec<String>>,
    /// At most 2,000 characters.
    comment: Option<String>,
}

/// Stored feedback.
#[derive(Serialize, ToSchema)]
#[schema(as = Feedback)]
pub(crate) struct FeedbackView {
    /// The job that was rated.
    job_id: String,
    /// The endpoint of the job.
    endpoint: String,
    /// The version of the endpoint that the job ran on.
    version: u32,
    /// Whether the result was useful.
    accepted: Option<bool>,
    /// 1 to 5; 5 is best.
    score: Option<u8>,
    /// Your own labels.
    labels: Vec<String>,
    /// Your own words.
    comment: Option<String>,
    /// When it was given, RFC 3339.
    at: String,
}

/// The feedback on every version.
#[derive(Serialize, ToSchema)]
pub(crate) struct FeedbackSummary {
    /// By endpoint, newest version first; only those that have feedback.
    versions: Vec<VersionFeedback>,
}

/// The feedback on one version of an endpoint.
#[derive(Serialize, ToSchema)]
pub(crate) struct VersionFeedback {
    endpoint: String,
    version: u32,
    /// Jobs with feedback.
    rated: u64,
    /// Jobs whose result was accepted.
    accepted: u64,
    /// The share of accepted results among feedback with `accepted`, 0 to 1; null without any.
    success_rate: Option<f64>,
    /// 1 to 5; null if no feedback has a score.
    mean_score: Option<f64>,
}

/// One line of an export.
#[derive(Serialize, ToSchema)]
pub(crate) struct FeedbackLine {
    /// The job that was rated.
    job_id: String,
    /// The endpoint of the job.
    endpoint: String,
    /// The version of the endpoint that the job ran on.
    version: u32,
    /// The job's input.
    #[schema(value_type = serde_json::Value)]
    input: Box<RawValue>,
    /// The job's result, if it is small; otherwise see `result_url`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    result: Option<Box<RawValue>>,
    /// The address of a large result. Requires the same bearer token.
    #[serde(skip_serializing_if = "Option::is_none")]
    result_url: Option<String>,
    /// Whether the result was useful.
    accepted: Option<bool>,
    /// 1 to 5; 5 is best.
    score: Option<u8>,
    /// Your own labels.
    labels: Vec<String>,
    /// Your own words.
    comment: Option<String>,
    /// When it was given, RFC 3339.
    at: String,
}

/// Give feedback on a job's result
///
/// Repeating replaces the earlier feedback.
#[utoipa::path(post, operation_id = "give_feedback", path = "/v1/jobs/{id}/feedback", tag = "feedback",
    request_body = FeedbackRequest,
    params(("id" = String, Path, description = "The job's id.")),
    responses(
        (status = 200, description = "The stored feedback.", body = FeedbackView),
        (status = 409, description = "`not_ready` or `no_result`: the job has not succeeded.", body = ProblemBody, content_type = "application/problem+json"),
        crate::server::responses::Problems,
    ))]
pub(crate) async fn give(
    State(app): State<App>,
    caller: Caller<JobsSubmit>,
    Path(id): Path<String>,
    Json(request): Json<FeedbackRequest>,
) -> Result<JsonAnswer<FeedbackView>, Problem> {
    let rating = checked(request)?;
    let job = own(&app.jobs, &caller.tenant, &id).await?;
    if job.state != JobState::Succeeded {
        return Err(without_result(&job));
    }
    let kept = feedback::give(&app, &job, rating, now_ms()).await?;
    Ok(JsonAnswer(FeedbackView {
        job_id: kept.job_id.to_string(),
        endpoint: kept.endpoint,
        version: kept.version,
        accepted: kept.accepted,
        score: kept.score,
        labels: kept.labels,
        comment: kept.comment,
        at: rfc3339(kept.at_ms),
    }))
}

fn checked(request: FeedbackRequest) -> Result<Rating, Problem> {
    let FeedbackRequest { accepted, score, labels, comment } = request;
    if accepted.is_none() && score.is_none() && labels.is_none() && comment.is_none() {
        return Err(Problem::field("", "give at least one of accepted, score, labels, comment"));
    }
    if score.is_some_and(|score| !(1..=5).contains(&score)) {
        return Err(Problem::field("/score", "must be 1 to 5"));
    }
    if labels.as_ref().is_some_and(|labels| !(1..=LABELS_MAX).contains(&labels.len())) {
        return Err(Problem::field("/labels", format!("must be 1 to {LABELS_MAX} labels")));
    }
    let labels = labels.unwrap_or_default();
    let wrong = labels.iter().position(|label| !(1..=LABEL_CHARS_MAX).contains(&label.chars().count()));
    if let Some(n) = wrong {
        return Err(Problem::field(format!("/labels/{n}"), format!("must be 1 to {LABEL_CHARS_MAX} characters")));
    }
    if comment.as_ref().is_some_and(|comment| comment.chars().count() > COMMENT_CHARS_MAX) {
        return Err(Problem::field("/comment", format!("must be at most {COMMENT_CHARS_MAX} characters")));
    }
    Ok(Rating { accepted, score, labels, comment })
}

/// Get the feedback totals
#[utoipa::path(get, operation_id = "get_feedback", path = "/v1/feedback", tag = "feedback",
    params(("endpoint" = Option<String>, Query, description = "Return only this endpoint.")),
    responses((status = 200, description = "Totals per version.", body = FeedbackSummary), crate::server::responses::Problems))]
pub(crate) async fn summary(
    State(db): State<Arc<Database>>,
    caller: Caller<JobsRead>,
    mut params: Params,
) -> Result<JsonAnswer<FeedbackSummary>, Problem> {
    let endpoint = endpoint(&mut params)?;
    params.finish()?;
    let counters = db.queue.feedback();
    let tallies = db.ask("read the feedback", counters.tallies(&caller.tenant, endpoint.as_deref())).await?;
    Ok(JsonAnswer(FeedbackSummary { versions: tallies.into_iter().map(VersionFeedback::from).collect() }))
}

impl From<Tally> for VersionFeedback {
    fn from(tally: Tally) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
        let part = |of: u64, by: u64| (by > 0).then(|| of as f64 / by as f64);
        Self {
            success_rate: part(tally.accepted, tally.judged),
            mean_score: part(tally.score_sum, tally.scored),
            endpoint: tally.endpoint,
            version: tally.version,
            rated: tally.rated,
            accepted: tally.accepted,
        }
    }
}

/// Export a random sample of feedback
///
/// Returns one line per job, with its input and result, in random order. The same `seed` returns the same sample of the
/// same feedback.
#[utoipa::path(get, operation_id = "export_feedback", path = "/v1/feedback/export", tag = "feedback",
    params(
        ("endpoint" = Option<String>, Query, description = "Return only feedback on this endpoint."),
        ("version" = Option<u32>, Query, description = "Return only feedback on this version of the endpoint."),
        ("sample" = Option<usize>, Query, description = "The maximum number of lines, 1 to 100,000; default 1,000."),
        ("seed" = Option<u64>, Query, description = "The same seed returns the same sample."),
    ),
    responses(
        (status = 200, description = "JSON lines.", content_type = "application/jsonl", body = FeedbackLine),
        crate::server::responses::Problems,
    ))]
pub(crate) async fn export(
    State(config): State<Arc<Config>>,
    State(objects): State<Arc<Objects>>,
    State(wait_permits): State<Arc<WaitPermits>>,
    caller: Caller<JobsRead>,
    mut params: Params,
) -> Result<Response, Problem> {
    let endpoint = endpoint(&mut params)?;
    let version = params.take("version", "a version's number", |text| text.parse().ok().filter(|n| *n > 0))?;
    if version.is_some() && endpoint.is_none() {
        return Err(Problem::query("version", "needs an endpoint"));
    }
    let sample = params
        .take("sample", &format!("1 to {SAMPLE_MAX}"), |text| {
            text.parse().ok().filter(|n| (1..=SAMPLE_MAX).contains(n))
        })?
        .unwrap_or(SAMPLE);
    let seed = params.take("seed", "a whole number from 0 to 2^64 - 1", |text| text.parse().ok())?;
    params.finish()?;
    let held = wait_permits.take(&caller.tenant)?;
    let export = Export { endpoint, version, sample, seed: seed.unwrap_or_else(rand::random) };
    let public_url = config.public_url.clone();
    let lines = feedback::export(objects.clone(), &caller.tenant, export)
        .await?
        .map_ok(move |feedback| {
            let _held = &held;
            line(feedback, &public_url)
        })
        .inspect_err(|error| {
            tracing::warn!(error = error as &dyn std::error::Error, "an export of feedback failed midway")
        });
    Ok(([(CONTENT_TYPE, "application/jsonl")], Body::from_stream(lines)).into_response())
}

fn line(feedback: Feedback, public_url: &str) -> String {
    let view = FeedbackLine {
        job_id: feedback.job_id.to_string(),
        endpoint: feedback.endpoint,
        version: feedback.version,
        input: feedback.input,
        result: feedback.result,
        result_url: feedback.result_key.map(|_| format!("{public_url}/v1/jobs/{}/result", feedback.job_id)),
        accepted: feedback.accepted,
        score: feedback.score,
        labels: feedback.labels,
        comment: feedback.comment,
        at: rfc3339(feedback.at_ms),
    };
    let mut text = json::write_line(&view);
    text.push('\n');
    text
}

fn endpoint(params: &mut Params) -> Result<Option<String>, Problem> {
    params.take("endpoint", "an endpoint's name", |name| names::is_name(name).then(|| name.to_owned()))
}
