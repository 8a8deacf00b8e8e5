//! One job's trace. Nothing is recorded for it while the job runs: [`story`] tells it from the job's record and from what its webhooks'
//! deliveries have kept, so that it is there for every job, and the same whoever asks. [`otlp`] writes it as OpenTelemetry has it,
//! [`export`] sends those of ended jobs to a collector, where there is one.

mod attempt;
mod collector;
pub(crate) mod context;
pub(crate) mod export;
pub(crate) mod otlp;
pub(crate) mod routes;
pub(crate) mod sampler;
mod span;
pub(crate) mod story;
#[cfg(test)]
mod story_tests;

use stokehold_queue::job::Job;
use stokehold_queue::outbox::Delivery;

use crate::error::Problem;
use crate::state::App;

/// The deliveries that belong to a job's trace: those that told of its starts and its end.
pub(crate) async fn deliveries(app: &App, job: &Job) -> Result<Vec<Delivery>, Problem> {
    if job.spec.hook.is_none() {
        return Ok(Vec::new());
    }
    let outbox = app.home(&job.spec.tenant).await?.outbox();
    let attempts = job.attempts.iter().map(|attempt| attempt.attempt);
    app.ask("read a job's webhooks", outbox.of_job(job.id, attempts)).await
}
