//! Traces of jobs. Nothing is recorded while a job runs: [`job_trace`] builds the trace from the job's record and its
//! webhook deliveries, so that every job has one and it is always the same. [`otlp`] writes it in the OpenTelemetry
//! format, and [`export`] sends the traces of ended jobs to a collector, if one is configured.

mod attempt;
mod collector;
pub(crate) mod context;
pub(crate) mod export;
pub(crate) mod job_trace;
#[cfg(test)]
mod job_trace_tests;
pub(crate) mod otlp;
pub(crate) mod routes;
pub(crate) mod sampler;
mod span;

use stokehold_queue::job::Job;
use stokehold_queue::outbox::Delivery;

use crate::database::Database;
use crate::database::Error;

/// Deliveries that belong to a job's trace: those about its starts and its end.
pub(crate) async fn deliveries(db: &Database, job: &Job) -> Result<Vec<Delivery>, Error> {
    if job.spec.hook.is_none() {
        return Ok(Vec::new());
    }
    let outbox = db.home(&job.spec.tenant).await?.outbox();
    let attempts = job.attempts.iter().map(|attempt| attempt.attempt);
    db.ask("read a job's webhooks", outbox.of_job(job.id, attempts)).await
}
