use redis::FromRedisValue;

use super::packed::Packed;
use super::{SUBMIT, unexpected};
use crate::clock::Clock;
use crate::connection::Connection;
use crate::error::Error;
use crate::id::JobId;
use crate::job::{Dependency, DependencyOn, Hook, Idempotency, JobSpec, NewJob, Stage};
use crate::keys::{self, IDEMPOTENCY_TTL_MS, Keys};
use crate::queue::{BatchGuard, Submitted, WATCH_MS};
use crate::stored_spec;

/// Call of `submit.lua`.
pub(crate) struct Submit<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) clock: &'a Clock,
    pub(crate) guard: Option<&'a BatchGuard>,
    /// Size of the records that a tenant without a limit of its own may have, bytes; `None` while there is enough
    /// memory for all.
    pub(crate) share_bytes: Option<u64>,
    pub(crate) jobs: &'a [NewJob],
}

impl Submit<'_> {
    pub(crate) async fn run(&self, connection: &Connection) -> Result<Vec<Submitted>, Error> {
        let mut call = SUBMIT.call(&[self.keys.root()]);
        call.arg(self.clock.script_arg()).arg(IDEMPOTENCY_TTL_MS);
        match self.guard {
            Some(guard) => call.arg(&guard.batch).arg(guard.from_line).arg(guard.to_line),
            None => call.arg("").arg("").arg(""),
        };
        call.arg(WATCH_MS).arg(self.share_bytes.map_or(String::new(), |bytes| bytes.to_string()));
        for job in self.jobs {
            let mut packed = pack(job)?;
            packed.number("run_after_ms", job.run_after_ms).flag("blocked", job.waits());
            if let Some(Idempotency { key, request_hash, part }) = &job.idempotency {
                packed.text("idempotency_key", keys::idempotency(key)).text("request_hash", request_hash);
                packed.number("part", (*part).into());
            }
            if let Some(replica) = &job.watcher {
                packed.text("watcher", replica);
            }
            packed.maps("depends_on", job.spec.depends_on.iter().map(|dependency| depends(dependency, job)).collect());
            call.arg(packed.into_bytes());
        }
        let reply: Vec<redis::Value> = connection.eval_durably(&SUBMIT, &call).await?;
        self.decode(&reply).ok_or_else(|| unexpected(&SUBMIT, &reply))?
    }

    /// Decodes a reply; `None` if it is not a reply of this script.
    fn decode(&self, reply: &[redis::Value]) -> Option<Result<Vec<Submitted>, Error>> {
        let (word, rest) = reply.split_first()?;
        match String::from_redis_value_ref(word).ok()?.as_str() {
            "ok" if rest.len() == self.jobs.len() => rest
                .iter()
                .zip(self.jobs)
                .map(|(id, job)| {
                    let id: JobId = String::from_redis_value_ref(id).ok()?.parse().ok()?;
                    Some(if id == job.id { Submitted::New(id) } else { Submitted::Repeat(id) })
                })
                .collect::<Option<_>>()
                .map(Ok),
            "stale_guard" => Some(Err(Error::StaleGuard)),
            "no_dependency" => {
                let number = usize::from_redis_value_ref(rest.first()?).ok()?.checked_sub(1)?;
                Some(Err(Error::NoDependency { number, job: String::from_redis_value_ref(rest.get(1)?).ok()? }))
            }
            "quota" => {
                let number = |at: usize| u64::from_redis_value_ref(rest.get(at)?).ok();
                let scope = String::from_redis_value_ref(rest.first()?).ok()?;
                Some(Err(Error::Quota { scope, most: number(1)?, open: number(2)? }))
            }
            "memory" => {
                let number = |at: usize| u64::from_redis_value_ref(rest.get(at)?).ok();
                let tenant = String::from_redis_value_ref(rest.first()?).ok()?;
                Some(Err(Error::Memory { tenant, most_bytes: number(1)?, held_bytes: number(2)? }))
            }
            "conflict" => {
                let number = usize::from_redis_value_ref(rest.first()?).ok()?;
                let key = self.jobs.get(number - 1)?.idempotency.as_ref()?.key.clone();
                Some(Err(Error::IdempotencyConflict { key }))
            }
            _ => None,
        }
    }
}

/// The parts of a job that every script that creates one reads.
pub(super) fn pack(job: &NewJob) -> Result<Packed, Error> {
    let spec = stored_spec::encode(&job.spec)
        .map_err(|error| Error::Corrupt { key: "a job's spec".to_owned(), why: error.to_string() })?;
    let mut packed = Packed::new();
    packed.text("id", job.id.to_string()).text("raw", job.id.as_bytes()).text("tenant", &job.spec.tenant);
    packed.text("lane", keys::lane(&job.spec)).text("spec", spec).text("input", job.input.get());
    packed.texts("fields", &fields(&job.spec));
    Ok(packed)
}

fn depends(dependency: &Dependency, job: &NewJob) -> Packed {
    let mut packed = Packed::new();
    packed.text("job", dependency.job.to_string()).text(
        "on",
        match dependency.on {
            _ if job.archived.contains(&dependency.job) => "archived",
            DependencyOn::Success => "success",
            DependencyOn::Completion => "completion",
        },
    );
    packed
}

/// The fields of the record on which scripts base decisions, each followed by its value.
fn fields(spec: &JobSpec) -> Vec<String> {
    let number = |value: Option<u64>| value.map(|value| value.to_string());
    [
        ("deadline", number(spec.deadline_ms)),
        ("start_by", number(spec.start_by_ms)),
        ("keep", number(spec.retention_ms)),
        ("ckey", spec.concurrency.as_ref().map(|concurrency| format!("{}:{}", concurrency.max, concurrency.key))),
        ("hook", spec.hook.as_ref().map(hook)),
        ("batch", spec.batch.as_ref().map(|batch| batch.id.clone())),
        ("retry_of", spec.retry_of.map(|id| id.to_string())),
        ("after", spec.steps.iter().any(|step| step.stage == Stage::After).then(|| "1".to_owned())),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some([name.to_owned(), value?]))
    .flatten()
    .collect()
}

fn hook(hook: &Hook) -> String {
    let events: Vec<&str> = hook.events.iter().map(|event| event.as_str()).collect();
    format!("{} {}", events.join(","), hook.url)
}
