//! `/v1/schedules`: jobs that are submitted at regular times.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json as JsonAnswer;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use stokehold_queue::Schedules;
use stokehold_queue::job::Idempotency;
use stokehold_queue::schedules::{Missed, Schedule, ScheduleSpec};
use utoipa::ToSchema;

use crate::database::Database;
use crate::error::{Code, INTERNAL, Problem, ProblemBody};
use crate::jobs::submit::{SubmitRequest, canonical, idempotency_key};
use crate::names;
use crate::schedules::cron::{Cron, Wrong};
use crate::schedules::{JOB_AT, to_job};
use crate::server::json;
use crate::server::json::Json;
use crate::server::path::Path;
use crate::server::query::Params;
use crate::state::App;
use crate::tenants::auth::{Caller, JobsCancel, JobsRead, JobsSubmit};
use crate::time_format::rfc3339;
use crate::wakeups::Wakeups;

const NAME_MAX: usize = 255;

/// Largest grace period, seconds: ticks more than a week late are always missed.
const GRACE_MAX_S: u64 = 7 * 24 * 3600;
const GRACE_S: u64 = 60;

const UTC: &str = "UTC";

/// Members that a job of a schedule cannot have, and the reasons.
const FOREIGN: [(&str, &str); 3] = [
    ("run_after", "is not allowed: the schedule sets when its jobs run; leave it out"),
    ("idempotency_key", "is not allowed: every tick has its own key; leave it out"),
    ("depends_on", "is not allowed: a schedule's job waits for no other job; leave it out"),
];

/// A schedule to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScheduleRequest {
    /// Your own name for the schedule, up to 255 characters. Names need not be unique.
    name: Option<String>,
    /// Minute, hour, day of month, month, day of week, e.g. `30 9 * * MON-FRI`; six fields begin with the second.
    cron: String,
    /// The IANA time zone, e.g. `Europe/Berlin`. Default `UTC`.
    time_zone: Option<String>,
    /// What to do with missed ticks: those later than `grace_s`. Default `run_once`.
    #[schema(value_type = Option<MissedWord>)]
    missed: Option<Missed>,
    /// Seconds after which a tick counts as missed; 1 to 604800, default 60.
    #[schema(minimum = 1, maximum = 604_800)]
    grace_s: Option<u64>,
    /// Create the schedule paused.
    #[serde(default)]
    paused: bool,
    /// The job of each tick, as for `POST /v1/jobs` but without `run_after`, `idempotency_key` and `depends_on`. A job
    /// without `version` runs on the version that is current at the tick.
    job: SubmitRequest,
}

/// The job's own text, stored as it was sent.
#[derive(Deserialize)]
struct JobText {
    job: Box<RawValue>,
}

/// A schedule.
#[derive(Serialize, ToSchema)]
#[schema(as = Schedule)]
pub(crate) struct ScheduleView {
    /// `sch_` and 32 hex digits.
    id: String,
    /// Your own name for the schedule.
    name: Option<String>,
    /// The cron expression.
    cron: String,
    /// The IANA time zone.
    time_zone: String,
    /// What happens with missed ticks.
    #[schema(value_type = MissedWord)]
    missed: Missed,
    /// Seconds after which a tick counts as missed.
    grace_s: u64,
    /// Whether the schedule is paused.
    paused: bool,
    /// The next tick, RFC 3339; null while paused.
    next_at: Option<String>,
    /// The last tick that created a job, RFC 3339.
    last_at: Option<String>,
    /// The job of that tick.
    last_job_id: Option<String>,
    /// Why the last tick created no job: the `code` that `POST /v1/jobs` would have returned, a colon, and what to
    /// change. Null if it created one.
    last_error: Option<String>,
    /// How many ticks have created a job.
    ticks: u64,
    /// When it was created, RFC 3339.
    created_at: String,
    /// The job of each tick, as submitted.
    #[schema(value_type = serde_json::Value)]
    job: Box<RawValue>,
}

/// What happens with ticks that were missed.
#[derive(ToSchema)]
#[schema(as = Missed, rename_all = "snake_case")]
#[expect(dead_code, reason = "variant names of the queue's type, for the OpenAPI document")]
pub(crate) enum MissedWord {
    Skip,
    RunOnce,
    RunAll,
}

/// One page of schedules, newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct ScheduleList {
    schedules: Vec<ScheduleView>,
    /// The cursor of the next page; null at the end.
    next_cursor: Option<String>,
}

impl From<Schedule> for ScheduleView {
    fn from(schedule: Schedule) -> Self {
        let ScheduleSpec { name, cron, time_zone, missed, grace_ms, created_ms } = schedule.spec;
        Self {
            id: schedule.id,
            name,
            cron,
            time_zone,
            missed,
            grace_s: grace_ms / 1000,
            paused: schedule.paused,
            next_at: schedule.due_ms.map(rfc3339),
            last_at: schedule.last_at_ms.map(rfc3339),
            last_job_id: schedule.last_job_id.map(|id| id.to_string()),
            last_error: schedule.last_error.map(|error| format!("{}: {}", error.code, error.message)),
            ticks: schedule.ticks,
            created_at: rfc3339(created_ms),
            job: schedule.job,
        }
    }
}

/// Create a schedule
#[utoipa::path(post, operation_id = "create_schedule", path = "/v1/schedules", tag = "schedules", request_body = ScheduleRequest,
    params(("Idempotency-Key" = Option<String>, Header, description = "Repeating the request with this key within 24 hours returns the same schedule.")),
    responses(
        (status = 201, description = "The schedule.", body = ScheduleView),
        (status = 200, description = "The schedule that was created earlier with this key.", body = ScheduleView),
        (status = 422, description = "`idempotency_conflict`.", body = ProblemBody, content_type = "application/problem+json"),
        crate::server::responses::Problems,
    ))]
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller<JobsSubmit>,
    headers: HeaderMap,
    Json(body): Json<Box<RawValue>>,
) -> Result<(StatusCode, JsonAnswer<ScheduleView>), Problem> {
    let job = job_text(&body)?;
    let request: ScheduleRequest = json::parse(body.get().as_bytes())?;
    let sound = |name: &String| matches!(name.chars().count(), 1..=NAME_MAX) && !name.chars().any(char::is_control);
    if !request.name.as_ref().is_none_or(sound) {
        return Err(Problem::field("/name", format!("must be 1 to {NAME_MAX} printable characters")));
    }
    let grace_s = request.grace_s.unwrap_or(GRACE_S);
    if !(1..=GRACE_MAX_S).contains(&grace_s) {
        return Err(Problem::field("/grace_s", format!("must be 1 to {GRACE_MAX_S} seconds")));
    }
    let time_zone = request.time_zone.unwrap_or_else(|| UTC.to_owned());
    let cron = Cron::parse(&request.cron, &time_zone).map_err(|wrong| match wrong {
        Wrong::Expression(message) => Problem::field("/cron", message),
        Wrong::TimeZone(message) => Problem::field("/time_zone", message),
    })?;
    to_job(&app, &caller.tenant, request.job).await?;

    let schedules = app.db.home(&caller.tenant).await?.schedules();
    let now_ms = app.db.ask("read the clock", schedules.now_ms()).await?;
    let spec = ScheduleSpec {
        name: request.name,
        cron: request.cron,
        time_zone,
        missed: request.missed.unwrap_or_default(),
        grace_ms: grace_s * 1000,
        created_ms: now_ms,
    };
    let schedule = Schedule {
        id: Schedules::new_id(),
        tenant: caller.tenant.clone(),
        spec,
        job,
        due_ms: if request.paused { None } else { cron.next_after(now_ms) },
        paused: request.paused,
        ticks: 0,
        last_at_ms: None,
        last_job_id: None,
        last_error: None,
    };
    let idempotency = match idempotency_key(&headers, None)? {
        Some(key) => {
            let mut hash = Sha256::new();
            canonical(&json::parse(body.get().as_bytes())?, &mut hash);
            Some(Idempotency::new(key, hex::encode(hash.finalize())))
        }
        None => None,
    };
    app.db.home(&caller.tenant).await?.admits()?;
    let created = app.db.ask_again("create a schedule", || schedules.create(&schedule, idempotency.as_ref()));
    if let Some(first) = created.await? {
        let first = app.db.ask("read a schedule", schedules.get(&caller.tenant, &first)).await?;
        let gone = || Problem::new(Code::NotFound, "this key's schedule was deleted; use a new key");
        return Ok((StatusCode::OK, JsonAnswer(first.ok_or_else(gone)?.into())));
    }
    app.wakeups.reschedule(app.db.home(&caller.tenant).await?.number());
    Ok((StatusCode::CREATED, JsonAnswer(schedule.into())))
}

/// The job's text, after a check that it contains no member that a schedule's job cannot have. All other errors are
/// found when the text is parsed in full.
fn job_text(body: &RawValue) -> Result<Box<RawValue>, Problem> {
    let JobText { job } = json::parse(body.get().as_bytes())?;
    if let Ok(members) = serde_json::from_str::<BTreeMap<String, IgnoredAny>>(job.get())
        && let Some((name, why)) = FOREIGN.into_iter().find(|(name, _)| members.contains_key(*name))
    {
        return Err(Problem::field(format!("{JOB_AT}/{name}"), why));
    }
    Ok(job)
}

/// List schedules
#[utoipa::path(get, operation_id = "list_schedules", path = "/v1/schedules", tag = "schedules",
    params(
        ("cursor" = Option<String>, Query, description = "The `next_cursor` of the previous page."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "1 to 100; default 20."),
    ),
    responses((status = 200, description = "One page, newest first.", body = ScheduleList), crate::server::responses::Problems))]
pub(crate) async fn list(
    State(db): State<Arc<Database>>,
    caller: Caller<JobsRead>,
    mut params: Params,
) -> Result<JsonAnswer<ScheduleList>, Problem> {
    let read = |text: &str| names::is_schedule_id(text).then(|| text.to_owned());
    let cursor = params.take("cursor", "the next_cursor of a page", read)?;
    let limit = params.limit()? as usize;
    params.finish()?;
    // Read one more than requested, to find whether there is a next page.
    let schedules = db.home(&caller.tenant).await?.schedules();
    let mut page = db.ask("list schedules", schedules.list(&caller.tenant, cursor.as_deref(), limit + 1)).await?;
    let more = page.len() > limit;
    page.truncate(limit);
    let next_cursor = page.last().filter(|_| more).map(|schedule| schedule.id.clone());
    Ok(JsonAnswer(ScheduleList { schedules: page.into_iter().map(Into::into).collect(), next_cursor }))
}

/// Get a schedule
#[utoipa::path(get, operation_id = "get_schedule", path = "/v1/schedules/{id}", tag = "schedules",
    params(("id" = String, Path, description = "The schedule's id.")),
    responses((status = 200, description = "The schedule.", body = ScheduleView), crate::server::responses::Problems))]
pub(crate) async fn get(
    State(db): State<Arc<Database>>,
    caller: Caller<JobsRead>,
    Path(id): Path<String>,
) -> Result<JsonAnswer<ScheduleView>, Problem> {
    Ok(JsonAnswer(own(&db, &caller.tenant, &id).await?.into()))
}

/// Delete a schedule
///
/// Once this has answered, the schedule creates no more jobs. Jobs that it created stay.
#[utoipa::path(delete, operation_id = "delete_schedule", path = "/v1/schedules/{id}", tag = "schedules",
    params(("id" = String, Path, description = "The schedule's id.")),
    responses((status = 204, description = "The schedule was deleted."), crate::server::responses::Problems))]
pub(crate) async fn delete(
    State(db): State<Arc<Database>>,
    caller: Caller<JobsCancel>,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let schedules = db.home(&caller.tenant).await?.schedules();
    let id = known(&id)?;
    if db.ask("delete a schedule", schedules.delete(&caller.tenant, id)).await? {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(missing())
}

/// Pause a schedule
///
/// Once this has answered, the schedule creates no jobs until it is resumed. Pausing twice is safe.
#[utoipa::path(post, operation_id = "pause_schedule", path = "/v1/schedules/{id}/pause", tag = "schedules",
    params(("id" = String, Path, description = "The schedule's id.")),
    responses((status = 200, description = "The paused schedule.", body = ScheduleView), crate::server::responses::Problems))]
pub(crate) async fn pause(
    State(db): State<Arc<Database>>,
    caller: Caller<JobsCancel>,
    Path(id): Path<String>,
) -> Result<JsonAnswer<ScheduleView>, Problem> {
    let (schedules, known) = (db.home(&caller.tenant).await?.schedules(), known(&id)?);
    if !db.ask_again("pause a schedule", || schedules.pause(&caller.tenant, known)).await? {
        return Err(missing());
    }
    Ok(JsonAnswer(own(&db, &caller.tenant, &id).await?.into()))
}

/// Resume a schedule
///
/// Continues with the first tick from now; ticks during the pause do not count as missed. Resuming a running schedule
/// changes nothing.
#[utoipa::path(post, operation_id = "resume_schedule", path = "/v1/schedules/{id}/resume", tag = "schedules",
    params(("id" = String, Path, description = "The schedule's id.")),
    responses((status = 200, description = "The schedule with its next tick.", body = ScheduleView), crate::server::responses::Problems))]
pub(crate) async fn resume(
    State(db): State<Arc<Database>>,
    State(wakeups): State<Arc<Wakeups>>,
    caller: Caller<JobsSubmit>,
    Path(id): Path<String>,
) -> Result<JsonAnswer<ScheduleView>, Problem> {
    let schedules = db.home(&caller.tenant).await?.schedules();
    let schedule = own(&db, &caller.tenant, &id).await?;
    let now_ms = db.ask("read the clock", schedules.now_ms()).await?;
    let next_ms =
        Cron::parse(&schedule.spec.cron, &schedule.spec.time_zone).ok().and_then(|cron| cron.next_after(now_ms));
    let next_ms = next_ms.ok_or_else(|| {
        tracing::error!(
            schedule.id = id,
            cron = schedule.spec.cron,
            "a stored schedule's times can no longer be parsed"
        );
        Problem::new(Code::Internal, INTERNAL)
    })?;
    if !db.ask_again("resume a schedule", || schedules.resume(&caller.tenant, &id, next_ms)).await? {
        return Err(missing());
    }
    wakeups.reschedule(db.home(&caller.tenant).await?.number());
    Ok(JsonAnswer(own(&db, &caller.tenant, &id).await?.into()))
}

/// Returns the caller's own schedule with this ID. For all other tenants it does not exist.
async fn own(db: &Database, tenant: &str, id: &str) -> Result<Schedule, Problem> {
    let schedules = db.home(tenant).await?.schedules();
    db.ask("read a schedule", schedules.get(tenant, known(id)?)).await?.ok_or_else(missing)
}

fn known(id: &str) -> Result<&str, Problem> {
    if names::is_schedule_id(id) { Ok(id) } else { Err(missing()) }
}

fn missing() -> Problem {
    Problem::not_found("schedule")
}
