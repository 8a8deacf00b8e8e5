use redis::FromRedisValue;

use super::{Connection, SUBMIT, unexpected};
use crate::clock::Clock;
use crate::error::Error;
use crate::id::JobId;
use crate::job::NewJob;
use crate::keys::{self, IDEMPOTENCY_TTL_MS, Keys};
use crate::queue::{BatchGuard, Submitted};

/// Call of `submit.lua`.
pub(crate) struct Submit<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) clock: &'a Clock,
    pub(crate) guard: Option<&'a BatchGuard>,
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
        for job in self.jobs {
            let spec = serde_json::to_string(&job.spec)
                .map_err(|error| Error::Corrupt { key: "a job's spec".to_owned(), why: error.to_string() })?;
            call.arg(job.id.to_string())
                .arg(&job.spec.tenant)
                .arg(keys::lane(&job.spec))
                .arg(spec)
                .arg(job.input.get());
            call.arg(job.run_after_ms);
            match &job.idempotency {
                Some(idempotency) => call.arg(keys::idempotency(&idempotency.key)).arg(&idempotency.request_hash),
                None => call.arg("").arg(""),
            };
        }
        let reply: Vec<redis::Value> = connection.eval(&SUBMIT, &call).await?;
        self.decode(&reply).ok_or_else(|| unexpected(&SUBMIT, &reply))?
    }

    /// `None` when the reply is none of this script's.
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
            "conflict" => {
                let number = usize::from_redis_value_ref(rest.first()?).ok()?;
                let key = self.jobs.get(number - 1)?.idempotency.as_ref()?.key.clone();
                Some(Err(Error::IdempotencyConflict { key }))
            }
            _ => None,
        }
    }
}
