//! Live data for the dashboard: one poll per second of each subject, however many clients follow it on this replica,
//! and none without clients.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use stokehold_queue::queue::{Gate, ListFilter};
use stokehold_queue::{Queue, now_ms};
use stokehold_supervise::{Panic, guard_beside};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::batches::routes as batches;
use crate::costs::routes as costs;
use crate::error::{Code, INTERNAL, Problem};
use crate::jobs::queue;
use crate::server::query::LIMIT;
use crate::state::App;
use crate::tenants::shares::{Share, Shares};
use crate::workers::fleet_routes as fleet;

/// Between two looks.
const EVERY: Duration = Duration::from_secs(1);

/// How long one look may take.
const LOOK_MAX: Duration = Duration::from_secs(10);

/// Subjects that are looked at by one replica at a time.
const SUBJECTS_MAX: usize = 1_000;

/// Streams of one tenant on one replica.
pub(crate) const STREAMS_MAX: usize = 32;

/// Jobs in which a change is seen, the newest; of those before them how many are open and run.
const JOBS: u32 = 50;

/// What is looked at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    /// What waits.
    Queue,
    /// The machines.
    Fleet,
    /// A tenant's jobs.
    Jobs(String),
    /// A tenant's batches.
    Batches(String),
    /// The costs of a tenant's jobs today; `None`: of all tenants.
    Costs(Option<String>),
}

/// How a subject is, as JSON; `None` before the first look.
pub(crate) type Told = Option<Arc<str>>;

/// Who follows what.
pub(crate) struct Live {
    subjects: Mutex<HashMap<Subject, watch::Sender<Told>>>,
    streams: Shares,
}

impl Default for Live {
    fn default() -> Self {
        Self { subjects: Mutex::default(), streams: Shares::new(STREAMS_MAX) }
    }
}

impl Live {
    /// The right to another stream for a tenant.
    pub(crate) fn permit(&self, tenant: &str) -> Result<Share, Problem> {
        self.streams.take(tenant).ok_or_else(|| {
            Problem::new(
                Code::RateLimited,
                format!("this tenant already has {STREAMS_MAX} open streams on this replica; close one"),
            )
        })
    }

    /// Stops polling if no client follows.
    fn leave(&self, subject: &Subject) -> bool {
        let mut subjects = lock(&self.subjects);
        let unheard = subjects.get(subject).is_none_or(|told| told.receiver_count() == 0);
        if unheard {
            subjects.remove(subject);
        }
        unheard
    }
}

impl App {
    /// Follows a subject: how it is when it has been looked at, and each change after that.
    pub(crate) fn follow(&self, subject: Subject) -> Result<watch::Receiver<Told>, Problem> {
        let mut subjects = lock(&self.live.subjects);
        if let Some(told) = subjects.get(&subject) {
            return Ok(told.subscribe());
        }
        if subjects.len() >= SUBJECTS_MAX {
            return Err(Problem::new(
                Code::RateLimited,
                "too many live streams are open on this replica; try again later",
            ));
        }
        let (told, heard) = watch::channel(None);
        subjects.insert(subject.clone(), told.clone());
        tokio::spawn(keep_looking(self.clone(), subject, told));
        Ok(heard)
    }
}

async fn keep_looking(app: App, subject: Subject, told: watch::Sender<Told>) {
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
                told.send_replace(Some(text.into()));
            }
            // What was seen last stands until the next look; a panic has been logged.
            Ok(Ok(Ok(_))) | Err(Panic { .. }) => {}
            Ok(Ok(Err(problem))) => tracing::debug!(detail = problem.detail(), "live data cannot be read"),
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

/// How a subject is. Of jobs only what differs when one of them has changed.
async fn look(app: &App, subject: &Subject) -> Result<String, Problem> {
    match subject {
        Subject::Queue => json(&queue::look(app).await?),
        Subject::Fleet => json(&fleet::look(app).await?),
        Subject::Batches(tenant) => json(&batches::page(app, tenant, None, None, LIMIT).await?),
        Subject::Costs(tenant) => json(&costs::today(app, tenant.as_deref()).await?),
        Subject::Jobs(tenant) => {
            let gate = Gate::Tenant(tenant.clone());
            let filter = ListFilter::default();
            let (page, (_, usage)) = tokio::try_join!(
                app.ask("list jobs", app.queue.list(tenant, &filter, None, JOBS)),
                app.ask("read the usage", app.queue.usage(&gate)),
            )?;
            let jobs = page.jobs.iter().map(|job| format!("{} {} {}", job.id, job.state.as_str(), job.revision));
            Ok(format!("{usage:?} {}", jobs.collect::<Vec<_>>().join(",")))
        }
    }
}

/// On one line: what was submitted may hold line breaks between its tokens, which mean nothing there.
fn json(view: &impl Serialize) -> Result<String, Problem> {
    let text = serde_json::to_string(view).map_err(|error| {
        tracing::error!(%error, "live data cannot be serialised");
        Problem::new(Code::Internal, INTERNAL)
    })?;
    Ok(text.replace(['\r', '\n'], " "))
}

/// What it guards is whole at every unlock, so a panic elsewhere does not spoil it.
fn lock<T>(guarded: &Mutex<T>) -> MutexGuard<'_, T> {
    guarded.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_so_many_streams_and_gets_those_back_that_it_closes() {
        let live = Live::default();
        let permits: Vec<Share> = (0..STREAMS_MAX).map(|_| live.permit("acme").unwrap()).collect();
        assert_eq!(live.permit("acme").err().map(|problem| problem.code()), Some(Code::RateLimited));
        assert!(live.permit("rival").is_ok());
        drop(permits);
        assert!(live.permit("acme").is_ok());
    }

    #[test]
    fn what_nobody_follows_is_let_go_of() {
        let live = Live::default();
        let (told, heard) = watch::channel(None);
        lock(&live.subjects).insert(Subject::Queue, told);
        assert!(!live.leave(&Subject::Queue));
        drop(heard);
        assert!(live.leave(&Subject::Queue) && lock(&live.subjects).is_empty());
    }
}
