//! Reasons for which a job has not started: what delays it, or which requirements no worker meets.

use futures::future::join_all;
use stokehold_queue::job::{Job, JobSpec, JobState};
use stokehold_queue::queue::{HeldBy, LimitScope};
use stokehold_queue::{Queue, now_ms};

use crate::costs::budgets;
use crate::costs::budgets::spent_budget;
use crate::database::Database;
use crate::error::Problem;
use crate::state::App;
use crate::time_format::rfc3339;
use crate::workers::fleet::Waiting;

/// Maximum number of jobs that a message names; the others are counted.
const NAMED_MAX: usize = 3;

/// Reason for which a job waits; `None` if it does not wait.
pub(crate) async fn of(app: &App, job: &Job) -> Result<Option<Waiting>, Problem> {
    match job.state {
        JobState::Blocked => blocked(&app.db, job).await.map(Some),
        JobState::Queued => {
            let spec = &job.spec;
            let budgets = budgets::of_tenant(&app.db, &spec.tenant).await?;
            if let Some(spent) = spent_budget(&spec.tenant, &spec.endpoint, &budgets, now_ms()) {
                return Ok(Some(spent));
            }
            // A job that no connected worker could ever run is reported first: opening a limit will not start it.
            let of_fleet = app.fleets.fleet().await?.why(spec.vram_class_gib, spec.demands);
            if matches!(of_fleet, Waiting::Unschedulable(_)) {
                return Ok(Some(of_fleet));
            }
            Ok(Some(held_back(&app.db, spec).await?.unwrap_or(of_fleet)))
        }
        _ => Ok(None),
    }
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
