//! Reasons for which a job has not started: what delays it, or which requirements no worker meets; and estimates of when
//! it starts. `docs/explanation/waiting.md` describes them.

mod advice;
pub(crate) mod estimate;
pub(crate) mod forecasts;
mod line;

use futures::future::join_all;
use stokehold_queue::job::{Job, JobSpec, JobState};
use stokehold_queue::queue::{HeldBy, LimitScope};
use stokehold_queue::{JobId, Queue, now_ms};

use crate::costs::budgets;
use crate::costs::budgets::spent_budget;
use crate::database::{Database, Error};
use crate::error::Problem;
use crate::state::App;
use crate::time_format::rfc3339;
use crate::workers::coming;
use crate::workers::fleet::{MISSED_MAX, Waiting};
use advice::with_advice;
pub(crate) use estimate::Explanation;

/// Maximum number of jobs that a message names; the others are counted.
const NAMED_MAX: usize = 3;

/// Reason for which a job waits, and for how long; `None` if it does not wait. The first reason that applies, in this
/// order: its dependencies; a spent budget; no worker could ever run it; a limit; what comes and what is occupied
/// ([`estimate::ready`]). For a leased job: the phase of its model, as its worker reports it.
pub(crate) async fn of(app: &App, job: &Job) -> Result<Option<Explanation>, Problem> {
    match job.state {
        JobState::Blocked => Ok(Some(blocked(&app.db, job).await?.into())),
        JobState::Queued => queued(app, job).await.map(Some),
        JobState::Running => {
            // An error here must not hide the job.
            let read = leased(app, job).await.inspect_err(|error| {
                let error = error as &dyn std::error::Error;
                tracing::warn!(error, job.id = %job.id, "the phase of a leased job cannot be read");
            });
            Ok(read.ok().flatten())
        }
        _ => Ok(None),
    }
}

async fn queued(app: &App, job: &Job) -> Result<Explanation, Problem> {
    let (spec, now_ms) = (&job.spec, now_ms());
    let waited_ms = now_ms.saturating_sub(ready_ms(job));
    let since = |waiting: Waiting| Explanation { phase_s: Some(waited_ms / 1_000), ..waiting.into() };
    let budgets = budgets::of_tenant(&app.db, &spec.tenant).await?;
    if let Some(spent) = spent_budget(&spec.tenant, &spec.endpoint, &budgets, now_ms) {
        return Ok(since(spent));
    }
    let (fleet, instances) = tokio::join!(app.fleets.fleet(), app.forecasts.instances());
    let (fleet, instances) = (fleet?, known(job.id, instances));
    let of_fleet = fleet.why(spec.vram_class_gib, spec.demands);
    let silent_ms = app.config.extend_every_ms.saturating_mul(MISSED_MAX);
    let coming = fleet.demands(spec.demands).map_or_else(Vec::new, |demands| {
        // An instance whose worker is lost has booted.
        let machines = instances.machines.values().filter(|machine| machine.worker(fleet.lost()).is_none());
        let status = instances.status.as_ref();
        coming::coming(machines, fleet.workers(), status, (demands, spec.vram_class_gib), (now_ms, silent_ms))
    });
    // A job that no connected or coming worker could ever run is reported first: opening a limit will not start it.
    if matches!(of_fleet, Waiting::Unschedulable(_)) && coming.is_empty() {
        let status = instances.status.as_ref().filter(|status| status.is_current(now_ms));
        return Ok(since(with_advice(of_fleet, fleet.workers().is_empty(), status)));
    }
    if let Some(held) = held_back(&app.db, spec).await? {
        return Ok(since(held));
    }
    let place = app.db.home(&spec.tenant).await?.lane_place(job.id);
    let (place, lanes, usual) = tokio::join!(
        app.db.ask("read the place of a job in its lane", place),
        app.forecasts.lanes(),
        app.forecasts.usual_start(&spec.tenant, &spec.endpoint, spec.version),
    );
    let (place, lanes, usual) = (known(job.id, place), known(job.id, lanes), known(job.id, usual));
    let line = place.map(|place| line::before(&place, &lanes, |one, other| fleet.shares(one, other)));
    let slots = fleet.slots(spec.vram_class_gib, spec.demands);
    // A job that has no place has just started, or waits for its concurrency key.
    let line = (line.unwrap_or_default(), slots);
    Ok(estimate::ready(of_fleet, coming.first(), line, usual, (waited_ms, now_ms)))
}

/// What was read for an estimate. Without it, nothing is estimated: an error must not hide the job.
fn known<T: Default, E: std::error::Error + 'static>(job: JobId, read: Result<T, E>) -> T {
    read.unwrap_or_else(|error| {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(error, job.id = %job, "a part of the estimate of when a job starts cannot be read");
        T::default()
    })
}

/// Time since which a queued job is ready, Unix milliseconds: its submit, its `run_after`, or the end of its last
/// attempt.
fn ready_ms(job: &Job) -> u64 {
    let ended_ms = job.attempts.last().and_then(|attempt| attempt.ended_ms);
    job.created_ms().max(job.run_after_ms.unwrap_or(0)).max(ended_ms.unwrap_or(0))
}

/// The phase of a leased job whose model is not loaded; `None` if the handler runs, or if its worker reports no phases,
/// as workers of the previous release.
async fn leased(app: &App, job: &Job) -> Result<Option<Explanation>, Error> {
    let Some(attempt) = job.attempts.last().filter(|attempt| attempt.ended_ms.is_none()) else { return Ok(None) };
    let fleet = app.fleets.fleet().await?;
    let worker = fleet.workers().iter().find(|worker| worker.worker_id == attempt.worker_id);
    let starting = worker.and_then(|worker| {
        let starting = worker.status.starting.iter().find(|starting| starting.job_id == job.id)?;
        Some((starting.phase, starting.phase_ms.saturating_add(now_ms().saturating_sub(worker.seen_ms))))
    });
    let Some((phase, phase_ms)) = starting else { return Ok(None) };
    let spec = &job.spec;
    let usual = app.forecasts.usual_start(&spec.tenant, &spec.endpoint, spec.version).await;
    Ok(Some(estimate::starting(phase, phase_ms, known(job.id, usual))))
}

/// Limits of the tenant, the endpoint or the concurrency key that delay jobs of this spec.
pub(crate) async fn held_back(db: &Database, spec: &JobSpec) -> Result<Option<Waiting>, Problem> {
    let held = db.ask("read what blocks a job", db.queue.held_by(spec)).await?;
    let whose = |scope: &LimitScope| match scope {
        LimitScope::Tenant(tenant) => format!("tenant {tenant}"),
        LimitScope::Endpoint { endpoint, .. } => format!("endpoint {endpoint}"),
    };
    Ok(held.map(|held| match held {
        HeldBy::Disabled => Waiting::Limit(format!("tenant {} is disabled", spec.tenant)),
        HeldBy::Running { scope, most } => Waiting::Limit(format!("{} is at its max_running of {most}", whose(&scope))),
        HeldBy::Rate { scope, per_minute, until_ms } => {
            let until =
                until_ms.map_or(String::new(), |until_ms| format!("; the next starts at {}", rfc3339(until_ms)));
            Waiting::Limit(format!("{} has used up its starts_per_minute of {per_minute}{until}", whose(&scope)))
        }
        HeldBy::Key { most } => {
            let key = spec.concurrency.as_ref().map_or("", |concurrency| concurrency.key.as_str());
            Waiting::Key(format!("{most} of {most} jobs with the concurrency key {key:?} are running"))
        }
    }))
}

/// Dependencies for which a blocked job waits.
async fn blocked(db: &Database, job: &Job) -> Result<Waiting, Problem> {
    if let (Some(step), Some(spec)) = (job.open_step(), job.spec.steps.get(job.steps.len().saturating_sub(1))) {
        return Ok(Waiting::Dependency(format!("its step {} runs as job {step}", spec.name)));
    }
    let others = job.spec.depends_on.iter().map(|dependency| db.queue.get(dependency.job));
    let others = db.ask("read the jobs that a job waits for", async {
        join_all(others).await.into_iter().collect::<Result<Vec<_>, _>>()
    });
    let open: Vec<Job> = others.await?.into_iter().flatten().filter(|other| !other.state.is_terminal()).collect();
    Ok(Waiting::Dependency(match open.as_slice() {
        [] => "the jobs that it waited for have ended; their results are being filled into its input".to_owned(),
        open => {
            let named = open.iter().take(NAMED_MAX).map(|other| format!("{} ({})", other.id, other.state.as_str()));
            let more = open.len().saturating_sub(NAMED_MAX);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("it waits for job {}{more}", named.collect::<Vec<_>>().join(", "))
        }
    }))
}
