use axum::Json as JsonAnswer;
use axum::extract::State;
use futures::future::try_join_all;
use stokehold_objects::Objects;
use stokehold_queue::gateway::{FinishAnswer, FinishOutcome, FinishReply, FinishReport, FinishRequest, LeaseRef};
use stokehold_queue::job::{ErrorCode, INLINE_RESULT_BYTES, Job, JobError, OUTPUT_NAME};
use stokehold_queue::vram::kind_of_gpus;
use stokehold_queue::{BATCH_MAX, Holding, Queue, WorkerRecord};

use super::{BODY_MAX, lease, needs, own};
use crate::database::Database;
use crate::endpoints::catalog::Catalog;
use crate::error::Problem;
use crate::metrics;
use crate::server::json::Json;
use crate::state::App;
use crate::tenants::auth::JoinedWorker;

const CLASS_MAX: usize = 200;
const MESSAGE_MAX: usize = 2 << 10;
const TRACEBACK_MAX: usize = 16 << 10;
const STDERR_MAX: usize = 8 << 10;

/// Largest difference between a worker's measure of its attempt and the queue's measure of its lease, milliseconds.
const CLOCKS_DIFFER_MS: u64 = 1_000;

/// `finish`: reports finished jobs without leasing.
pub(super) async fn finish(
    State(app): State<App>,
    worker: JoinedWorker,
    Json(request): Json<FinishRequest, BODY_MAX>,
) -> Result<JsonAnswer<FinishReply>, Problem> {
    if let Some(offer) = &request.offer {
        lease::check(offer, "/offer")?;
    }
    let finished = report(&app, &worker.worker_id, request.finish).await?;
    let offer_taken = request.offer.is_some_and(|offer| app.capacity.update(&worker.worker_id, offer));
    Ok(JsonAnswer(FinishReply { finished, offer_taken }))
}

/// Ends attempts. Repeating a report whose outcome is unknown is safe, so it is retried here already.
pub(super) async fn report(
    app: &App,
    worker_id: &str,
    reports: Vec<FinishReport>,
) -> Result<Vec<FinishAnswer>, Problem> {
    if reports.is_empty() {
        return Ok(Vec::new());
    }
    if reports.len() > BATCH_MAX {
        return Err(Problem::field("/finish", format!("must be at most {BATCH_MAX} reports")));
    }
    let worker = app.fleets.worker(worker_id).await?;
    let leases: Vec<LeaseRef> = reports.iter().map(lease_of).collect();
    let holdings = app.ownership.holdings(&leases).await?;
    // The holder of the fence is checked before any part of a report is used.
    let is_own: Vec<bool> = holdings.iter().map(|holding| !own::is_anothers(holding.as_ref(), worker_id)).collect();
    let own = reports.into_iter().zip(holdings).enumerate().filter(|(n, _)| is_own[*n]);
    let checks = own.map(|(n, (report, holding))| checked(app, worker.as_deref(), n, report, holding));
    let mut reports: Vec<(FinishReport, Option<Holding>)> = try_join_all(checks).await?;
    let card_kind = worker.as_ref().map(|worker| kind_of_gpus(&worker.gpus)).unwrap_or_default();
    let machine = worker.as_ref().map(|worker| worker.name.clone()).unwrap_or_default();
    let mut cut = 0;
    for (report, holding) in &mut reports {
        report.card_kind.clone_from(&card_kind);
        report.machine.clone_from(&machine);
        // `finish` refuses a lease that is no longer held.
        let held_ms = holding.as_ref().map(|holding| holding.held_ms);
        let most_ms = held_ms.unwrap_or(0).saturating_add(CLOCKS_DIFFER_MS);
        let told = report.timing;
        report.timing = told.within(most_ms);
        cut += usize::from(held_ms.is_some() && report.timing != told);
        let occupied_ms = report.timing.occupied_ms().min(most_ms);
        report.cost_usd_micros = worker.as_ref().and_then(|worker| worker.cost_usd_micros(occupied_ms));
    }
    if cut > 0 {
        metrics::timings_cut(cut);
        tracing::warn!(worker.id = worker_id, reports = cut, "a worker reported more time than its lease was held");
    }
    let reports: Vec<FinishReport> = reports.into_iter().map(|(report, _)| report).collect();
    let answers = app.db.ask_again("finish", || app.db.queue.finish(&reports)).await?;
    for (report, answer) in reports.iter().zip(&answers) {
        let has_succeeded = match &report.outcome {
            FinishOutcome::Succeeded { .. } | FinishOutcome::Stored { .. } => true,
            FinishOutcome::Failed { error } => {
                if *answer == FinishAnswer::Ok {
                    metrics::attempt_failed(error.code);
                }
                false
            }
        };
        metrics::finished(has_succeeded, *answer, &report.timing);
    }
    let anothers = is_own.iter().filter(|is_own| !**is_own).count();
    if anothers > 0 {
        tracing::warn!(
            worker.id = worker_id,
            reports = anothers,
            "a worker reported the end of leases that other workers hold"
        );
    }
    let mut answers = answers.into_iter();
    let answer = |is_own: bool| is_own.then(|| answers.next()).flatten().unwrap_or(FinishAnswer::StaleFence);
    Ok(is_own.into_iter().map(answer).collect())
}

fn lease_of(report: &FinishReport) -> LeaseRef {
    LeaseRef { job_id: report.job_id, fence: report.fence.clone() }
}

/// Maximum number of jobs with which an attempt can have shared its time: the concurrency of its version, regardless of
/// the report.
async fn most_sharers(
    db: &Database,
    catalog: &Catalog,
    report: &FinishReport,
    holding: Option<&Holding>,
) -> Result<u32, Problem> {
    if let Some(share) = holding.and_then(|holding| holding.share) {
        return Ok(share);
    }
    // The job was submitted to a release that did not store it, or to a version with a concurrency of one.
    let Some((spec, _)) = db.ask("check a lease", db.queue.held(&lease_of(report))).await? else {
        return Ok(u32::MAX);
    };
    // A finished job is accepted even if its version cannot be resolved.
    let deployed = catalog.find(&spec.tenant, &spec.endpoint, Some(spec.version)).await;
    Ok(deployed.map_or(u32::MAX, |deployed| deployed.version.spec.share()))
}

async fn checked(
    app: &App,
    worker: Option<&WorkerRecord>,
    n: usize,
    mut report: FinishReport,
    holding: Option<Holding>,
) -> Result<(FinishReport, Option<Holding>), Problem> {
    if report.timing.batch_size > 1 || report.timing.sharers_milli > 1_000 {
        let most = most_sharers(&app.db, &app.catalog, &report, holding.as_ref()).await?;
        report.timing = report.timing.shared_by(most);
    }
    match &mut report.outcome {
        FinishOutcome::Succeeded { result } if result.get().len() > INLINE_RESULT_BYTES => {
            return Err(Problem::field(
                format!("/finish/{n}/result"),
                format!(
                    "is over {INLINE_RESULT_BYTES} bytes; upload it to S3 as {OUTPUT_NAME} and report it as stored"
                ),
            ));
        }
        FinishOutcome::Succeeded { .. } => {}
        FinishOutcome::Failed { error } => {
            shorten(error);
            if let (ErrorCode::OomGpu, Some(need_mib), Some(worker)) = (error.code, report.vram_need_mib, worker) {
                report.outgrown = needs::outgrown(app, worker, &lease_of(&report), need_mib).await?;
            }
        }
        FinishOutcome::Stored { size_bytes } => {
            let size_bytes = *size_bytes;
            if !is_stored(&app.db, &app.objects, &lease_of(&report), size_bytes).await? {
                report.outcome = FinishOutcome::Failed { error: not_stored() };
            }
        }
    }
    Ok((report, holding))
}

/// Returns whether the result that a report names exists. `finish` itself refuses a lost lease.
async fn is_stored(db: &Database, objects: &Objects, lease: &LeaseRef, size_bytes: u64) -> Result<bool, Problem> {
    let Some((spec, attempt)) = db.ask("check a lease", db.queue.held(lease)).await? else {
        return Ok(true);
    };
    let key = format!("{}{OUTPUT_NAME}", Job::attempt_prefix(&spec.tenant, lease.job_id, attempt, &lease.fence));
    Ok(objects.head(&key).await?.is_some_and(|result| result.size_bytes == size_bytes))
}

fn not_stored() -> JobError {
    JobError {
        code: ErrorCode::Infra,
        class: String::new(),
        message: "the worker reported a result in S3 that does not exist".to_owned(),
        traceback: None,
        stderr: None,
    }
}

/// Truncates texts that are too long for a record. The end of a traceback or of stderr has more information than its
/// start.
fn shorten(error: &mut JobError) {
    keep_start(&mut error.class, CLASS_MAX);
    keep_start(&mut error.message, MESSAGE_MAX);
    if let Some(traceback) = &mut error.traceback {
        keep_end(traceback, TRACEBACK_MAX);
    }
    if let Some(stderr) = &mut error.stderr {
        keep_end(stderr, STDERR_MAX);
    }
}

fn keep_start(text: &mut String, most: usize) {
    text.truncate(text.floor_char_boundary(most));
}

fn keep_end(text: &mut String, most: usize) {
    let cut = text.len().saturating_sub(most);
    text.drain(..text.ceil_char_boundary(cut));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_errors_are_cut_between_characters() {
        let mut error = JobError {
            code: ErrorCode::HandlerError,
            class: "ValueError".to_owned(),
            message: "ü".repeat(MESSAGE_MAX),
            traceback: Some(format!("{}end", "ü".repeat(TRACEBACK_MAX))),
            stderr: Some("short".to_owned()),
        };
        shorten(&mut error);
        assert_eq!(error.message.len(), MESSAGE_MAX);
        assert!(error.traceback.is_some_and(|text| text.len() <= TRACEBACK_MAX && text.ends_with("üend")));
        assert_eq!(error.stderr.as_deref(), Some("short"));
    }
}
