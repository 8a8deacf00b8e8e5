use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use serde_json::value::RawValue;
use stokehold_objects::Error as ObjectsError;
use stokehold_queue::capability::{Capability, class_of};
use stokehold_queue::gateway::{
    FinishOutcome, FinishReport, LeaseReply, LeaseRequest, LeasedJob, ModelRef, Offer, WarmModel,
};
use stokehold_queue::job::{ErrorCode, InputFile, JobError, Timing};
use stokehold_queue::queue::{LEASE_BYTES, Lease, LeaseQuery, WarmLane, patience_ms};
use stokehold_queue::{BATCH_MAX, Queue, WorkerRecord};
use tokio::time::Instant;

use super::{BODY_MAX, URL_TTL, finish};
use crate::database::Database;
use crate::endpoints::catalog::Catalog;
use crate::error::Problem;
use crate::jobs::{inputs, large_inputs};
use crate::metrics;
use crate::server::json;
use crate::server::json::Json;
use crate::state::App;
use crate::tenants::auth::JoinedWorker;
use crate::traces::context;
use crate::workers::capacity::Capacity;
use crate::workers::fleet;
use crate::workers::lease_polls::Granted;

const GPUS_MAX: usize = 64;

/// Maximum number of loaded models in an offer. A GPU rarely has as many.
const WARM_MAX: usize = 32;

/// Longest validity of a signed URL: S3 allows no more than a week.
const SIGNED_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// `lease`: records finished jobs and leases more, concurrently.
pub(super) async fn lease(
    State(app): State<App>,
    worker: JoinedWorker,
    Json(mut request): Json<LeaseRequest, BODY_MAX>,
) -> Result<Response, Problem> {
    let finish = std::mem::take(&mut request.finish);
    if request.want as usize > BATCH_MAX {
        return Err(Problem::field("/want", format!("must be at most {BATCH_MAX}")));
    }
    check(&request.offer, "")?;
    let pull = async {
        if request.want == 0 {
            return Ok(None);
        }
        // The poll of a worker that has disconnected must end before its leases expire: otherwise it would lease the
        // same jobs again.
        let wait_ms = request.wait_ms.min(app.db.queue.lease_ms() / 2);
        let held = if wait_ms > 0 { Some(app.wait_permits.take_poll()?) } else { None };
        let deadline = held.as_ref().map(|_| Instant::now() + Duration::from_millis(wait_ms));
        // A poll that does not wait receives no changes of the offer.
        let offers = held.as_ref().map_or_else(Capacity::default, |_| app.capacity.clone());
        let offer = offers.stand(&worker.worker_id, std::mem::take(&mut request.offer));
        let asked = || query(&app, &worker, &request, offer.now());
        app.lease_polls.lease(asked, deadline, offer.changes()).await.map(Some)
    };
    let (finished, granted) = tokio::try_join!(finish::report(&app, &worker.worker_id, finish), pull)?;
    let Some(granted) = granted else {
        return respond(&LeaseReply { leases: Vec::new(), finished }, None);
    };
    let mut leases: Vec<LeasedJob> = Vec::with_capacity(granted.leases().len());
    let (mut fetched, mut away) = (0, None);
    let record = app.fleets.worker(&worker.worker_id).await?;
    for lease in granted.leases() {
        if is_refused(&app.catalog, record.as_deref(), lease).await {
            tracing::error!(worker.id = worker.worker_id, job.id = %lease.job_id, "a job was leased to a worker that may not run it; requeueing it");
            give_back(&app.db, lease).await?;
            continue;
        }
        if fetched > LEASE_BYTES {
            // The inputs were fetched for a worker that does not fetch them itself. The remaining leases return to the
            // queue and come with the next reply.
            give_back(&app.db, lease).await?;
            continue;
        }
        match told(&app, lease, request.fetches_inputs).await {
            Ok(told) => {
                fetched += told.input.get().len().saturating_sub(lease.input.get().len());
                leases.push(told);
            }
            // The other leases need not wait for this one.
            Err(Untold::Passing(problem)) => {
                tracing::warn!(job.id = %lease.job_id, detail = problem.detail(), "a lease cannot be serialised for its worker; requeueing the job");
                give_back(&app.db, lease).await?;
                if let Some(earlier) = away.replace(problem) {
                    earlier.log();
                }
            }
            // The job would return with the next lease, and block all others on every worker.
            Err(Untold::Unreadable(why)) => end(&app.db, lease, why).await?,
        }
    }
    // Without any lease, the reply is an error, and the worker retries after a pause.
    if let Some(problem) = away {
        if leases.is_empty() {
            return Err(problem);
        }
        problem.log();
    }
    for lease in granted.leases() {
        metrics::leased(lease.spec.priority, lease.queued_ms);
    }
    respond(&LeaseReply { leases, finished }, Some(granted))
}

/// Checks that the lists of an offer are within their limits. `at` is the JSON pointer of the offer in the request.
pub(super) fn check(offer: &Offer, at: &str) -> Result<(), Problem> {
    if offer.cards.len() > GPUS_MAX {
        return Err(Problem::field(format!("{at}/cards"), format!("must be at most {GPUS_MAX}")));
    }
    if offer.warm.len() > WARM_MAX {
        return Err(Problem::field(format!("{at}/warm"), format!("must be at most {WARM_MAX}")));
    }
    Ok(())
}

/// The lease query of this worker.
async fn query(app: &App, caller: &JoinedWorker, request: &LeaseRequest, offer: Offer) -> Result<LeaseQuery, Problem> {
    let worker_id = &caller.worker_id;
    let (demands, worker, drains, is_wanted, evicted) = tokio::try_join!(
        app.fleets.demands(),
        app.fleets.worker(worker_id),
        app.fleets.drains(),
        app.instances.is_wanted(&caller.token),
        app.evictions.evicted()
    )?;
    if !is_wanted || evicted.has(worker_id) || worker.as_ref().is_some_and(|worker| drains.contains_key(&worker.name)) {
        // The poll may have been woken for a job: that wakeup goes to another worker.
        app.lease_polls.hand_on();
        return Ok(LeaseQuery::new(worker_id, request.want, Capability::default()));
    }
    // An unknown worker meets no requirements; its next heartbeat makes it join again.
    let reach = worker.as_ref().map(|worker| fleet::reach(&demands, worker, offer.reach_gib, &offer.cards));
    let mut warm = Vec::with_capacity(offer.warm.len());
    for WarmModel { model: ModelRef { tenant, endpoint, version }, takes, card_gib } in offer.warm {
        // A version that is not deployed has no jobs. The worker's report of a loaded model is only a preference among
        // the jobs that the worker may run, never a permission.
        if let Some(worker) = &worker
            && let Some(deployed) = app.catalog.find(&tenant, &endpoint, Some(version)).await
            && deployed.vram_class_gib <= card_gib
            && deployed.version.spec.demands.refusal(&worker.offer()).is_none()
        {
            let class = class_of(deployed.demands, deployed.vram_class_gib);
            let place = format!("{class}:{tenant}:{endpoint}");
            // Two versions of an endpoint have one lane.
            match warm.iter_mut().find(|lane: &&mut WarmLane| lane.place == place) {
                Some(lane) => lane.takes = lane.takes.saturating_add(takes),
                None => warm.push(WarmLane { place, takes }),
            }
        }
    }
    Ok(LeaseQuery {
        warm,
        patience_ms: patience_ms(offer.cold_ms),
        only: request.only,
        slots: Some(worker.as_ref().map_or(0, |worker| fleet::leased_slots(worker))),
        rank: worker.map_or(0, |worker| fleet::rank(&worker)),
        ..LeaseQuery::new(worker_id, request.want, reach.unwrap_or_default())
    })
}

/// Gives a lease back to the queue.
async fn give_back(db: &Database, lease: &Lease) -> Result<(), Problem> {
    let named = [lease.named()];
    db.ask_again("release a job", || db.queue.release(&named)).await?;
    Ok(())
}

/// Returns whether an endpoint's requirements forbid a worker to run its jobs. The queue has already matched them. This
/// second check does not rely on the queue, because a job carries its input and opens its endpoint's secrets.
async fn is_refused(catalog: &Catalog, worker: Option<&WorkerRecord>, lease: &Lease) -> bool {
    let Some(worker) = worker else { return true };
    let spec = &lease.spec;
    let deployed = catalog.find(&spec.tenant, &spec.endpoint, Some(spec.version)).await;
    deployed.is_some_and(|deployed| deployed.version.spec.demands.refusal(&worker.offer()).is_some())
}

/// Reasons for which a lease cannot be sent to a worker.
enum Untold {
    /// A service does not answer, or is in an unexpected state: the lease returns to the queue.
    Passing(Problem),
    /// The job's input cannot be read; the text is the reason.
    Unreadable(String),
}

impl From<large_inputs::Error> for Untold {
    fn from(error: large_inputs::Error) -> Self {
        Self::Passing(error.into())
    }
}

impl From<ObjectsError> for Untold {
    fn from(error: ObjectsError) -> Self {
        Self::Passing(error.into())
    }
}

fn missing() -> Untold {
    Untold::Unreadable("the job's input is missing from the object store".to_owned())
}

/// Ends a job whose input was built from other jobs' results and cannot be read.
async fn end(db: &Database, lease: &Lease, why: String) -> Result<(), Problem> {
    tracing::error!(job.id = %lease.job_id, why, "failing a job whose input cannot be read");
    let outcome = FinishOutcome::Failed { error: JobError::new(ErrorCode::DependencyFailed, why) };
    let report = [FinishReport::new(lease.named(), Timing::default(), outcome)];
    db.ask_again("end a job", || db.queue.finish(&report)).await?;
    Ok(())
}

async fn told(app: &App, lease: &Lease, fetches_inputs: bool) -> Result<LeasedJob, Untold> {
    let spec = &lease.spec;
    let is_plain = spec.depends_on.is_empty() && spec.steps.is_empty();
    let file = InputFile::of(&lease.input);
    // A job's record does not list the files of an input that was built later.
    let (input, input_file) = match &file {
        Some(file) if is_plain && fetches_inputs => (lease.input.clone(), Some(file.id.clone())),
        _ => (app.large_inputs.whole(&spec.tenant, &lease.input).await?.ok_or_else(missing)?.into_owned(), None),
    };
    let mut named = if is_plain { spec.files.clone() } else { named_files(&input)? };
    if let (Some(file), None) = (&file, &input_file) {
        // This file is in the reply.
        named.retain(|id| *id != file.id);
    }
    let ttl = (URL_TTL + Duration::from_millis(spec.timeout_ms)).min(SIGNED_MAX);
    // One after the other: signing is local computation, without a network call.
    let mut files = BTreeMap::new();
    for id in named {
        let url = app.objects.presign_get(&inputs::file_key(&spec.tenant, &id), ttl).await?;
        files.insert(id, url);
    }
    let traceparent = context::of_run(&app.config.traces.sampler, lease.job_id, spec, lease.attempt);
    Ok(LeasedJob {
        job_id: lease.job_id,
        tenant: spec.tenant.clone(),
        endpoint: spec.endpoint.clone(),
        version: spec.version,
        attempt: lease.attempt,
        fence: lease.fence.clone(),
        timeout_ms: spec.timeout_ms,
        input,
        input_file,
        files,
        traceparent: Some(traceparent.to_string()),
        behind: lease.behind,
    })
}

/// Files named in an input that was built from other jobs' results. It may name more than the input did when it was
/// submitted.
fn named_files(input: &RawValue) -> Result<Vec<String>, Untold> {
    let unreadable = |why: &str| Untold::Unreadable(format!("the job's input cannot be read: {why}"));
    let input = serde_json::from_str(input.get()).map_err(|error| unreadable(&error.to_string()))?;
    inputs::files(&input, "/input").map_err(|error| unreadable(&error.to_string()))
}

fn respond(reply: &LeaseReply, granted: Option<Granted>) -> Result<Response, Problem> {
    let text = json::write(reply)?;
    let mut response = Response::new(Body::new(Telling { text: Some(text.into()), granted }));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// A reply that releases its leases if it is dropped before it was sent: the worker's connection was closed.
struct Telling {
    text: Option<Bytes>,
    granted: Option<Granted>,
}

impl hyper::body::Body for Telling {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(granted) = self.granted.take() {
            granted.told();
        }
        Poll::Ready(self.text.take().map(|text| Ok(Frame::data(text))))
    }

    fn is_end_stream(&self) -> bool {
        self.text.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.text.as_ref().map_or(0, |text| text.len() as u64))
    }
}
