use serde::Serialize;

use super::packed::Packed;
use super::{FINISH, Script, unexpected};
use crate::clock::Clock;
use crate::connection::Connection;
use crate::costs::spent::AttemptUse;
use crate::error::Error;
use crate::flow::RunCount;
use crate::gateway::{FinishAnswer, FinishOutcome, FinishReport, Outgrown};
use crate::job::{JobError, Responsible, TokenUsage};
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
            call.arg(pack(report)?.into_bytes());
        }
        let reply: Vec<String> = connection.eval_durably(&FINISH, &call).await?;
        reply.iter().map(|word| answer(&FINISH, word)).collect()
    }
}

fn pack(report: &FinishReport) -> Result<Packed, Error> {
    let mut packed = Packed::new();
    packed.text("id", report.job_id.to_string()).text("fence", &report.fence.0);
    match &report.outcome {
        FinishOutcome::Succeeded { result } => packed.text("kind", "inline").text("value", result.get()),
        FinishOutcome::Stored { size_bytes } => packed.text("kind", "stored").text("value", size_bytes.to_string()),
        FinishOutcome::Failed { error } => {
            match report.outgrown {
                None => packed.text("kind", kind(error)).text("code", error.code.as_str()),
                Some(Outgrown::To(class_gib)) => packed.text("kind", "outgrown").number("class_gib", class_gib.into()),
                Some(Outgrown::All) => packed.text("kind", "outgrown"),
            };
            packed.text("value", json(error)?)
        }
    };
    packed.text("tail", tail(report)?).float("jitter", jitter(report.job_id, &report.fence));
    packed.float("sharers", report.sharers()).number("turn_ms", report.timing.turn_ms);
    let run = RunCount::of(report);
    packed.text("gpu", run.kind);
    if let Some(run_ms) = run.run_ms {
        packed.number("run_ms", run_ms);
    }
    if let Some(load) = run.load {
        packed.text("load", load.word()).number("load_ms", run.load_ms);
    }
    let took = AttemptUse::of(report);
    packed.text("machine", took.machine).number("slot_ms", took.run_ms);
    packed.number("run_usd_micros", took.run_usd_micros).number("load_usd_micros", took.load_usd_micros);
    if let Some(TokenUsage { prompt_tokens, cached_tokens, completion_tokens }) = report.tokens() {
        packed.number("prompt_tokens", prompt_tokens).number("cached_tokens", cached_tokens);
        packed.number("completion_tokens", completion_tokens);
    }
    Ok(packed)
}

/// The retry budget that the failure is charged to.
fn kind(error: &JobError) -> &'static str {
    match error.code.fault() {
        Responsible::Final => "final",
        Responsible::Model => "model",
        Responsible::Crash => "crash",
        Responsible::Oom => "oom",
        Responsible::Infra => "infra",
    }
}

/// The last words of the attempt's history entry.
fn tail(report: &FinishReport) -> Result<String, Error> {
    let error = match &report.outcome {
        FinishOutcome::Failed { error } => Some(error),
        FinishOutcome::Succeeded { .. } | FinishOutcome::Stored { .. } => None,
    };
    record::attempt_tail(&report.timing, report.cost_usd_micros, report.tokens(), error).map_err(corrupt)
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
