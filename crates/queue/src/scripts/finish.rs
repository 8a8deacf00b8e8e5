use serde::Serialize;

use super::{FINISH, Script, unexpected};
use crate::clock::Clock;
use crate::connection::Connection;
use crate::costs::Took;
use crate::error::Error;
use crate::flow::RunCount;
use crate::gateway::{FinishAnswer, FinishOutcome, FinishReport, Outgrown};
use crate::job::{Fault, JobError};
use crate::keys::Keys;
use crate::record;
use crate::retry::{MAX_INFRA_ATTEMPTS, MAX_OOM_ATTEMPTS, POISON_CRASHES, POISON_WORKERS, jitter};

/// Call of `finish.lua`.
pub(crate) struct Finish<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) clock: &'a Clock,
    pub(crate) retention_ms: u64,
    pub(crate) reports: &'a [FinishReport],
}

impl Finish<'_> {
    pub(crate) async fn run(&self, connection: &Connection) -> Result<Vec<FinishAnswer>, Error> {
        let mut call = FINISH.call(&[self.keys.root()]);
        call.arg(self.clock.script_arg()).arg(self.retention_ms).arg(MAX_INFRA_ATTEMPTS).arg(MAX_OOM_ATTEMPTS);
        call.arg(POISON_CRASHES).arg(POISON_WORKERS).arg(json(&JobError::poison())?);
        for report in self.reports {
            call.arg(report.job_id.to_string()).arg(&report.fence.0);
            match &report.outcome {
                FinishOutcome::Succeeded { result } => call.arg("inline").arg(result.get()).arg(tail(report, None)?),
                FinishOutcome::Stored { size_bytes } => call.arg("stored").arg(size_bytes).arg(tail(report, None)?),
                FinishOutcome::Failed { error } => {
                    let kind = if report.outgrown.is_some() { "outgrown" } else { kind(error) };
                    call.arg(kind).arg(json(error)?).arg(tail(report, Some(error))?)
                }
            };
            call.arg(jitter(report.job_id, &report.fence));
            match (&report.outcome, report.outgrown) {
                (FinishOutcome::Failed { .. }, Some(Outgrown::To(class_gib))) => call.arg(class_gib),
                (FinishOutcome::Failed { error }, None) => call.arg(error.code.as_str()),
                (FinishOutcome::Failed { .. }, Some(Outgrown::All))
                | (FinishOutcome::Succeeded { .. } | FinishOutcome::Stored { .. }, _) => call.arg(""),
            };
            call.arg(report.sharers()).arg(report.timing.turn_ms);
            let run = RunCount::of(report);
            call.arg(run.kind).arg(run.run_ms.map_or(String::new(), |ms| ms.to_string()));
            call.arg(run.load.map_or("", |load| load.word())).arg(run.load_ms);
            let took = Took::of(report);
            call.arg(took.machine).arg(took.run_ms).arg(took.run_usd_micros).arg(took.load_usd_micros);
        }
        let reply: Vec<String> = connection.eval_durably(&FINISH, &call).await?;
        reply.iter().map(|word| answer(&FINISH, word)).collect()
    }
}

/// Which budget the failure is charged to.
fn kind(error: &JobError) -> &'static str {
    match error.code.fault() {
        Fault::Final => "final",
        Fault::Model => "model",
        Fault::Crash => "crash",
        Fault::Oom => "oom",
        Fault::Infra => "infra",
    }
}

/// What closes the attempt's history entry.
fn tail(report: &FinishReport, error: Option<&JobError>) -> Result<String, Error> {
    record::attempt_tail(&report.timing, report.cost_usd_micros, error).map_err(corrupt)
}

pub(super) fn json<T: Serialize>(value: &T) -> Result<String, Error> {
    serde_json::to_string(value).map_err(corrupt)
}

fn corrupt(error: serde_json::Error) -> Error {
    Error::Corrupt { key: "a report".to_owned(), why: error.to_string() }
}

pub(super) fn answer(script: &Script, word: &str) -> Result<FinishAnswer, Error> {
    match word {
        "ok" => Ok(FinishAnswer::Ok),
        "stale_fence" => Ok(FinishAnswer::StaleFence),
        "already_ended" => Ok(FinishAnswer::AlreadyEnded),
        "not_found" => Ok(FinishAnswer::NotFound),
        other => Err(unexpected(script, &other)),
    }
}
