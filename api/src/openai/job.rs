//! The job of a call: submitted, waited for, and cancelled when its client hangs up.

use std::sync::Arc;
use std::time::Duration;

use stokehold_queue::job::{Job, JobState, NewJob};
use stokehold_queue::queue::{KeptOutputs, OutputsPosition, Submitted};
use stokehold_queue::{JobId, TokenRecord, now_ms};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use super::error::Error;
use crate::error::Code;
use crate::jobs::view::WaitingView;
use crate::jobs::watchers::{Follow, Next};
use crate::jobs::{routes, submit, waiting};
use crate::server::wait_permits::WaitPermit;
use crate::state::App;
use crate::tenants::auth::{self, Caller, JobsSubmit};
use crate::workers::fleet::Waiting;

/// Longest wait for an answer that is not streamed: the read timeout of the official clients.
pub(super) const HOLD_MAX: Duration = Duration::from_secs(600);

/// Longest stream.
pub(super) const STREAM_MAX: Duration = Duration::from_secs(3600);

/// When a call first looks at why its job waits and whether its token is still valid, and the interval after that.
const FIRST_CHECK: Duration = Duration::from_secs(2);
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// Time within which the job of a client that hung up is cancelled, and the pause before a job is looked for again: its
/// submit may be under way.
const CANCEL_MAX: Duration = Duration::from_secs(10);
const CANCEL_PAUSE: Duration = Duration::from_millis(200);

/// How often a job is read while Redis is unavailable, and the pause between: a failover takes some seconds.
const LOOKS_MAX: u32 = 20;
const LOOK_PAUSE: Duration = Duration::from_millis(500);

const DAY_S: u64 = 24 * 3600;

/// A job that a client waits for. When it is dropped before the job has ended, the job is cancelled, unless the client
/// gave an idempotency key: then it can repeat the call and get the answer.
pub(super) struct Open {
    pub(super) app: App,
    tenant: String,
    token: Arc<TokenRecord>,
    pub(super) id: JobId,
    cancel: Cancel,
    next_check: Instant,
    _permit: WaitPermit,
}

/// What ended a wait.
pub(super) enum Wake {
    /// The job may have changed.
    Changed,
    /// Outputs were relayed.
    Outputs(Arc<KeptOutputs>),
    /// Nothing happened for a while; the text is why the job has not started, if it has not.
    Quiet(Option<String>),
}

impl Open {
    /// Submits a job.
    pub(super) async fn submit(app: &App, caller: Caller<JobsSubmit>, job: NewJob) -> Result<Self, Error> {
        // Before anything is accepted.
        let permit = app.wait_permits.take(&caller.tenant)?;
        let tenant = caller.tenant.clone();
        let mut cancel = Cancel { app: app.clone(), tenant: tenant.clone(), id: None };
        if job.idempotency.is_none() {
            // Already now: the outcome of a submit whose client hangs up meanwhile is unknown.
            cancel.id = Some(job.id);
        }
        let submitted = submit::enter(app, std::slice::from_ref(&job)).await?;
        caller.turn.end();
        let id = submitted.into_iter().next().map_or(job.id, Submitted::id);
        let next_check = Instant::now() + FIRST_CHECK;
        Ok(Self { app: app.clone(), tenant, token: caller.token, id, cancel, next_check, _permit: permit })
    }

    /// Waits for the end of the job.
    pub(super) async fn until_end(mut self) -> Result<Job, Error> {
        let (app, deadline) = (self.app.clone(), Instant::now() + HOLD_MAX);
        let mut follow = app.job_watchers.follow(self.id);
        loop {
            let job = self.look(&mut follow).await?;
            if job.state.is_terminal() {
                auth::check_still(&app, &self.token).await?;
                return Ok(job);
            }
            self.wait(&mut follow, &job, None, deadline).await?;
        }
    }

    /// Reads the job. Later changes end [`Open::wait`].
    pub(super) async fn look(&mut self, follow: &mut Follow<'_>) -> Result<Job, Error> {
        let mut tries = 1;
        let seen = loop {
            match follow.look().await {
                Err(error) if error.is_transient() && tries < LOOKS_MAX => sleep(LOOK_PAUSE).await,
                seen => break seen?,
            }
            tries += 1;
        };
        let job = match seen {
            Some(job) => job,
            None => {
                let found = self.app.jobs.find(&self.tenant, self.id).await?;
                found.ok_or_else(|| Error::failed("the job has ended and is no longer stored").of(self.id))?
            }
        };
        if job.state.is_terminal() {
            self.cancel.id = None;
        }
        Ok(job)
    }

    /// Waits for a change of the job, or for the outputs after the position `reads`, and now and then checks whether
    /// waiting makes sense.
    pub(super) async fn wait(
        &mut self,
        follow: &mut Follow<'_>,
        job: &Job,
        reads: Option<OutputsPosition>,
        deadline: Instant,
    ) -> Result<Wake, Error> {
        let until = deadline.min(self.next_check);
        match reads {
            Some(after) => match follow.next(after, until).await {
                Next::Outputs(outputs) => return Ok(Wake::Outputs(outputs)),
                Next::Changed => return Ok(Wake::Changed),
                Next::Over => {}
            },
            None if follow.changed(until).await => return Ok(Wake::Changed),
            None => {}
        }
        let now = Instant::now();
        if self.app.shutdown.is_cancelled() {
            return Err(Error::restarting().of(self.id));
        }
        if now < deadline && now < self.next_check {
            return Ok(Wake::Changed);
        }
        self.next_check = now + CHECK_EVERY;
        auth::check_still(&self.app, &self.token).await?;
        let why = self.why(job).await?;
        if now < deadline {
            return Ok(Wake::Quiet(why));
        }
        let state = job.state.as_str();
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        Err(Error::late(format!("the job has not ended in time, it is {state}{why}")).of(self.id))
    }

    /// Why the job has not started. A spent budget is an error, because nothing starts before the next day.
    async fn why(&self, job: &Job) -> Result<Option<String>, Error> {
        let Some(explanation) = waiting::of(&self.app, job).await? else { return Ok(None) };
        if let Waiting::Budget(why) = &explanation.waiting {
            let left_s = DAY_S - now_ms() / 1000 % DAY_S;
            return Err(Error::spent(why.clone(), u32::try_from(left_s).unwrap_or(u32::MAX)).of(self.id));
        }
        Ok(Some(WaitingView::from(explanation).message().to_owned()))
    }
}

/// Returns the error of a job that has no result.
pub(super) fn succeeded(job: &Job) -> Result<(), Error> {
    if job.state == JobState::Succeeded { Ok(()) } else { Err(Error::of_job(job)) }
}

/// Cancels a job when it is dropped.
struct Cancel {
    app: App,
    tenant: String,
    id: Option<JobId>,
}

impl Drop for Cancel {
    fn drop(&mut self) {
        if let Some(id) = self.id.take()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(cancel(self.app.clone(), std::mem::take(&mut self.tenant), id));
        }
    }
}

async fn cancel(app: App, tenant: String, id: JobId) {
    let cancelled = async {
        loop {
            match routes::cancel_one(&app.db, &app.jobs, &tenant, id).await {
                Err(problem) if problem.code() == Code::NotFound => sleep(CANCEL_PAUSE).await,
                outcome => return outcome,
            }
        }
    };
    match timeout(CANCEL_MAX, cancelled).await {
        Ok(Ok(_)) => tracing::debug!(job.id = %id, "cancelled the job of a client that hung up"),
        Ok(Err(problem)) if problem.code() == Code::AlreadyEnded => {}
        Ok(Err(problem)) => {
            let why = problem.detail();
            tracing::warn!(job.id = %id, why, "cannot cancel the job of a client that hung up");
        }
        // Nothing was submitted, or the queue does not answer; the job's deadline ends it.
        Err(_) => tracing::debug!(job.id = %id, "found no job to cancel of a client that hung up"),
    }
}
