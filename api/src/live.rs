//! What changes while somebody looks: one look a second at each subject, however many there are who follow it on this replica, and none when
//! nobody does.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use stokehold_queue::queue::{Gate, ListFilter};
use stokehold_queue::{Queue, now_ms};
use stokehold_supervise::{Panic, guard_beside};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::error::{Code, INTERNAL, Problem};
use crate::query::LIMIT;
use crate::routes::{batches, costs, fleet, queue};
use crate::shares::{Share, Shares};
use crate::state::App;

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
    /// What a tenant's jobs cost today; `None`: everybody's.
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
    pub(crate) fn seat(&self, tenant: &str) -> Result<Share, Problem> {
        self.streams.take(tenant).ok_or_else(|| {
            Problem::new(
                Code::RateLimited,
                format!("{STREAMS_MAX} streams of this tenant are open here already; close one"),
            )
        })
    }

    /// No more looks if nobody follows.
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
            return Err(Problem::new(Code::RateLimited, "too much is followed here; ask again later"));
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
            Ok(Ok(Err(problem))) => tracing::debug!(detail = problem.detail(), "what is followed cannot be looked at"),
            Ok(Err(_)) => tracing::debug!("what is followed could not be looked at in time"),
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
                app.ask("read what is taken", app.queue.usage(&gate)),
            )?;
            let jobs = page.jobs.iter().map(|job| format!("{} {} {}", job.id, job.state.as_str(), job.revision));
            Ok(format!("{usage:?} {}", jobs.collect::<Vec<_>>().join(",")))
        }
    }
}

/// On one line: what was submitted may hold line breaks between its tokens, which mean nothing there.
fn json(view: &impl Serialize) -> Result<String, Problem> {
    let text = serde_json::to_string(view).map_err(|error| {
        tracing::error!(%error, "what is followed cannot be written");
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
        let seats: Vec<Share> = (0..STREAMS_MAX).map(|_| live.seat("acme").unwrap()).collect();
        assert_eq!(live.seat("acme").err().map(|problem| problem.code()), Some(Code::RateLimited));
        assert!(live.seat("rival").is_ok());
        drop(seats);
        assert!(live.seat("acme").is_ok());
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
