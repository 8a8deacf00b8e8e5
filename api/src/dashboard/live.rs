//! Live data for the dashboard: one poll per second of each subject, regardless of the number of clients that follow it
//! on this replica, and none without clients.

use std::time::Duration;

use serde::Serialize;
use stokehold_queue::queue::{LimitScope, ListFilter};
use stokehold_queue::{Queue, now_ms};
use stokehold_supervise::{Panic, guard_beside};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::batches::routes as batches;
use crate::costs::routes as costs;
use crate::dashboard::subjects::{Latest, Subject};
use crate::error::{Code, INTERNAL, Problem};
use crate::jobs::queue;
use crate::server::query::LIMIT;
use crate::state::App;
use crate::workers::fleet_routes as fleet;

/// Interval between two polls.
const EVERY: Duration = Duration::from_secs(1);

/// Timeout of one poll.
const LOOK_MAX: Duration = Duration::from_secs(10);

/// Number of the newest jobs in which a change is detected. Older jobs are only counted, by open and running.
const JOBS: u32 = 50;

/// Follows a subject: receives its current data, then each change.
pub(crate) fn follow(app: &App, subject: Subject) -> Result<watch::Receiver<Latest>, Problem> {
    let (receiver, first) = app.live.follow(&subject)?;
    if let Some(sender) = first {
        tokio::spawn(keep_looking(app.clone(), subject, sender));
    }
    Ok(receiver)
}

async fn keep_looking(app: App, subject: Subject, sender: watch::Sender<Latest>) {
    let mut last = String::new();
    loop {
        let looked = guard_beside("live", Box::pin(timeout(LOOK_MAX, look(&app, &subject)))).await;
        match looked {
            Ok(Ok(Ok(seen))) if seen != last => {
                last = seen;
                let text = match subject {
                    Subject::Jobs(_) => format!(r#"{{"changed_ms":{}}}"#, now_ms()),
                    _ => last.clone(),
                };
                sender.send_replace(Some(text.into()));
            }
            // The last data stays until the next poll; a panic has been logged.
            Ok(Ok(Ok(_))) | Err(Panic { .. }) => {}
            Ok(Ok(Err(problem))) => {
                problem.log();
                tracing::debug!(detail = problem.detail(), "live data cannot be read");
            }
            Ok(Err(_)) => tracing::debug!("reading live data timed out"),
        }
        tokio::select! {
            () = sleep(EVERY) => {}
            () = app.shutdown.cancelled() => return,
        }
        if app.live.leave(&subject) {
            return;
        }
    }
}

/// Data of a subject. For jobs, only the members that differ when one of them has changed.
async fn look(app: &App, subject: &Subject) -> Result<String, Problem> {
    match subject {
        Subject::Queue => json(&queue::look(app).await?),
        Subject::Fleet => json(&fleet::look(app).await?),
        Subject::Batches(tenant) => json(&batches::page(app, tenant, None, None, LIMIT).await?),
        Subject::Costs(tenant) => json(&costs::today(&app.config, &app.costs, tenant.as_deref()).await?),
        Subject::Jobs(tenant) => {
            let scope = LimitScope::Tenant(tenant.clone());
            let filter = ListFilter::default();
            let (page, (_, usage)) = tokio::try_join!(
                app.db.ask("list jobs", app.db.queue.list(tenant, &filter, None, JOBS)),
                app.db.ask("read the usage", app.db.queue.usage(&scope)),
            )?;
            let jobs = page.jobs.iter().map(|job| format!("{} {} {}", job.id, job.state.as_str(), job.revision));
            Ok(format!("{usage:?} {}", jobs.collect::<Vec<_>>().join(",")))
        }
    }
}

/// Serialises a view on one line: submitted JSON may contain line breaks between its tokens, where they have no
/// meaning.
fn json(view: &impl Serialize) -> Result<String, Problem> {
    let text = serde_json::to_string(view).map_err(|error| {
        tracing::error!(%error, "live data cannot be serialised");
        Problem::new(Code::Internal, INTERNAL)
    })?;
    Ok(text.replace(['\r', '\n'], " "))
}
