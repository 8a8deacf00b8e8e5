//! Schedules: jobs that repeat at times of a clock. Uses Redis only.
//!
//! A schedule is a record with a due time. Every replica polls for due schedules. A tick is submitted first, under an
//! idempotency key made of the schedule and the tick's time. Then [`Schedules::advance`] moves the schedule on, which
//! does nothing if the schedule has moved since the caller read it. So exactly one job results from a tick with any
//! number of replicas, and if one dies in between, the next one completes the tick. The caller decides which ticks
//! there are.

use std::collections::HashMap;

use redis::{AsyncCommands, FromRedisValue};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::clock::Clock;
use crate::connection::Connection;
use crate::error::Error;
use crate::id::JobId;
use crate::job::{Idempotency, NewJob};
use crate::keys::{self, Keys};
use crate::queue::{BatchGuard, Submitted};
use crate::redis_queue::RedisQueue;
use crate::scripts::{self, Script};

/// Maximum number of schedules of one tenant.
pub const SCHEDULES_MAX: usize = 10_000;

/// Maximum number of schedules that one poll returns. The size of their jobs is bounded as well, but at least one
/// schedule is returned.
const DUE_MAX: usize = 100;
const DUE_BYTES_MAX: usize = 8 << 20;

/// Time for which the time of the first poll of a tick is used, milliseconds: as long as a round of polling can take.
const SEEN_MS: u64 = 10_000;

/// The treatment of missed ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missed {
    /// Missed ticks are dropped.
    Skip,
    /// The latest missed tick runs.
    #[default]
    RunOnce,
    /// All missed ticks run.
    RunAll,
}

/// The part of a schedule that its owner fixes. Stored as one JSON field of the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleSpec {
    /// The name that its owner gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The cron expression.
    pub cron: String,
    /// The IANA name of the time zone of the cron expression.
    pub time_zone: String,
    /// Treatment of missed ticks.
    pub missed: Missed,
    /// Delay after which a tick counts as missed, milliseconds.
    pub grace_ms: u64,
    /// Time of the creation, Unix milliseconds.
    pub created_ms: u64,
}

/// The reason why a tick created no job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TickError {
    /// The time of the tick, Unix milliseconds.
    pub at_ms: u64,
    /// The kind of error; a code of the API.
    pub code: String,
    /// Description of the error.
    pub message: String,
}

/// A schedule.
#[derive(Debug, Clone)]
pub struct Schedule {
    /// The id, `sch_<32 hex>`; ids sort by creation.
    pub id: String,
    /// The tenant that owns it.
    pub tenant: String,
    /// The part that its owner fixed.
    pub spec: ScheduleSpec,
    /// The request that each tick submits, as the owner wrote it.
    pub job: Box<RawValue>,
    /// The time of the next tick, Unix milliseconds; `None` while paused.
    pub due_ms: Option<u64>,
    /// Whether it is paused.
    pub paused: bool,
    /// Number of ticks that created a job.
    pub ticks: u64,
    /// The time of the last tick that created a job, Unix milliseconds.
    pub last_at_ms: Option<u64>,
    /// The job of that tick.
    pub last_job_id: Option<JobId>,
    /// Reason why the last tick created no job; `None` if it created one.
    pub last_error: Option<TickError>,
}

/// A schedule that is due.
#[derive(Debug, Clone)]
pub struct Due {
    /// The schedule.
    pub schedule: Schedule,
    /// Due time of the schedule, Unix milliseconds.
    pub due_ms: u64,
    /// Time of the first poll of this due time, Unix milliseconds. Use it as the current time of decisions.
    pub seen_ms: u64,
    guard: Option<u64>,
}

/// The result of one poll.
#[derive(Debug, Clone)]
pub struct DueRound {
    /// The current time by the queue's clock, Unix milliseconds.
    pub now_ms: u64,
    /// Time at which the next schedule is due, Unix milliseconds, if known.
    pub next_due_ms: Option<u64>,
    /// The due schedules.
    pub due: Vec<Due>,
}

/// The outcome of the ticks up to a schedule's next due time.
#[derive(Debug, Clone, Default)]
pub struct Ticked {
    /// The time of the next tick, Unix milliseconds; `None` if there is none.
    pub next_ms: Option<u64>,
    /// Number of jobs created.
    pub jobs: u64,
    /// The last tick that created a job, and the job.
    pub last: Option<(u64, JobId)>,
    /// The reason why the last tick created no job.
    pub error: Option<TickError>,
}

/// Every schedule of this queue.
#[derive(Clone)]
pub struct Schedules {
    queue: RedisQueue,
    connection: Connection,
    keys: Keys,
    clock: Clock,
}

impl RedisQueue {
    /// The schedules.
    #[must_use]
    pub fn schedules(&self) -> Schedules {
        Schedules::new(self.clone())
    }
}

impl Schedules {
    fn new(queue: RedisQueue) -> Self {
        let (connection, keys, clock) = (queue.connection().clone(), queue.keys().clone(), queue.clock().clone());
        Self { queue, connection, keys, clock }
    }

    /// Generates the id of a new schedule.
    #[must_use]
    pub fn new_id() -> String {
        format!("sch_{}", Uuid::now_v7().simple())
    }

    /// The current time by the clock of ticks, which is Redis's, Unix milliseconds.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn now_ms(&self) -> Result<u64, Error> {
        self.connection.now_ms(&self.clock).await
    }

    /// Stores a new schedule that is due at its `due_ms`, or paused if that is `None`. A repeat with the same id
    /// changes nothing. If an earlier call used the same idempotency key, returns the id of its schedule.
    ///
    /// # Errors
    /// [`Error::IdempotencyConflict`] if the key was used with another request; [`Error::TooLarge`] if the tenant has
    /// [`SCHEDULES_MAX`]; [`Error::Memory`]; [`Error::Full`]; [`Error::Unavailable`]: the outcome is unknown; retry.
    pub async fn create(
        &self,
        schedule: &Schedule,
        idempotency: Option<&Idempotency>,
    ) -> Result<Option<String>, Error> {
        let spec = serde_json::to_string(&schedule.spec).map_err(|error| corrupt(&schedule.id, &error))?;
        let mut call = scripts::SCHEDULE_PUT.call(&[self.keys.root()]);
        call.arg(&schedule.id).arg(&schedule.tenant).arg(spec).arg(schedule.job.get());
        call.arg(number(schedule.due_ms)).arg(SCHEDULES_MAX);
        match idempotency {
            Some(Idempotency { key, request_hash, .. }) => call.arg(keys::idempotency(key)).arg(request_hash),
            None => call.arg("").arg(""),
        };
        call.arg(keys::IDEMPOTENCY_TTL_MS).arg(self.clock.script_arg());
        call.arg(self.queue.share_bytes().map_or_else(String::new, |bytes| bytes.to_string()));
        let word = self.word(&scripts::SCHEDULE_PUT, &call).await?;
        if let Some((most, held)) = word.strip_prefix("memory ").and_then(|words| words.split_once(' ')) {
            let bytes = |text: &str| text.parse().map_err(|error| corrupt(&schedule.id, &error));
            let (most_bytes, held_bytes) = (bytes(most)?, bytes(held)?);
            return Err(Error::Memory { tenant: schedule.tenant.clone(), most_bytes, held_bytes });
        }
        match word.as_str() {
            "full" => Err(Error::TooLarge(format!("there are already {SCHEDULES_MAX} schedules; delete some"))),
            "ok" => Ok(None),
            "conflict" => {
                Err(Error::IdempotencyConflict { key: idempotency.map_or(String::new(), |it| it.key.clone()) })
            }
            first => Ok(Some(first.to_owned())),
        }
    }

    /// A tenant's schedule.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn get(&self, tenant: &str, id: &str) -> Result<Option<Schedule>, Error> {
        let fields: HashMap<String, String> =
            self.connection.redis().hgetall(self.keys.schedule(id)).await.map_err(Error::redis("read a schedule"))?;
        Ok(decode(id, &fields)?.filter(|schedule| schedule.tenant == tenant))
    }

    /// A tenant's schedules, newest first: at most `limit` that are older than `before`.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn list(&self, tenant: &str, before: Option<&str>, limit: usize) -> Result<Vec<Schedule>, Error> {
        let (step, mut redis) = ("list schedules", self.connection.long());
        let (mut schedules, mut from) = (Vec::new(), before.map_or_else(|| "+".to_owned(), |id| format!("({id}")));
        loop {
            let left = limit - schedules.len();
            let ids: Vec<String> = redis
                .zrevrangebylex_limit(self.keys.schedules_of(tenant), &from, "-", 0, left.cast_signed())
                .await
                .map_err(Error::redis(step))?;
            let mut pipe = redis::pipe();
            for id in &ids {
                pipe.hgetall(self.keys.schedule(id));
            }
            let records: Vec<Option<HashMap<String, String>>> =
                redis.read_each(&mut pipe).await.map_err(Error::redis(step))?;
            schedules.extend(ids.iter().zip(&records).filter_map(|(id, fields)| readable(id, fields.as_ref()?)));
            match ids.last() {
                // Read more in place of those that cannot be read.
                Some(last) if ids.len() == left && schedules.len() < limit => from = format!("({last}"),
                _ => return Ok(schedules),
            }
        }
    }

    /// Deletes a schedule. After this call it creates no jobs. `false` if it does not exist.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; retry.
    pub async fn delete(&self, tenant: &str, id: &str) -> Result<bool, Error> {
        let mut call = scripts::SCHEDULE_DROP.call(&[self.keys.root()]);
        call.arg(tenant).arg(id);
        Ok(self.word(&scripts::SCHEDULE_DROP, &call).await? == "ok")
    }

    /// Pauses a schedule. After this call it creates no jobs until it is resumed. `false` if it does not exist.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; retry.
    pub async fn pause(&self, tenant: &str, id: &str) -> Result<bool, Error> {
        self.hold(tenant, id, String::new()).await
    }

    /// Resumes a paused schedule with its next tick at `due_ms`; one that is not paused does not change. `false` if it
    /// does not exist.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; retry.
    pub async fn resume(&self, tenant: &str, id: &str, due_ms: u64) -> Result<bool, Error> {
        self.hold(tenant, id, due_ms.to_string()).await
    }

    async fn hold(&self, tenant: &str, id: &str, due_ms: String) -> Result<bool, Error> {
        let mut call = scripts::SCHEDULE_HOLD.call(&[self.keys.root()]);
        call.arg(tenant).arg(id).arg(due_ms);
        Ok(self.word(&scripts::SCHEDULE_HOLD, &call).await? == "ok")
    }

    /// The due schedules, the most overdue first.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn due(&self) -> Result<DueRound, Error> {
        let script = &scripts::SCHEDULE_DUE;
        let mut call = script.call(&[self.keys.root()]);
        call.arg(self.clock.script_arg()).arg(DUE_MAX).arg(DUE_BYTES_MAX).arg(SEEN_MS);
        let (now_ms, next_due, rows): (u64, String, Vec<redis::Value>) = self.connection.eval(script, &call).await?;
        let mut due = Vec::with_capacity(rows.len());
        for row in &rows {
            let (id, seen_ms, guard, fields) =
                <(String, u64, String, HashMap<String, Vec<u8>>)>::from_redis_value_ref(row)
                    .map_err(|error| Error::Corrupt { key: "the due schedules".to_owned(), why: error.to_string() })?;
            let fields = fields.into_iter().map(|(name, text)| (name, String::from_utf8_lossy(&text).into_owned()));
            let fields: HashMap<String, String> = fields.collect();
            match decode(&id, &fields) {
                Ok(Some(schedule)) => due.extend(schedule.due_ms.map(|due_ms| Due {
                    due_ms,
                    seen_ms,
                    guard: guard.parse().ok(),
                    schedule,
                })),
                Ok(None) => {}
                // A schedule written by a newer version must not block the others.
                Err(error) => {
                    tracing::error!(schedule.id = id, %error, "a schedule cannot be read; skipping it");
                    self.put_aside(&id, &fields, now_ms).await?;
                }
            }
        }
        let next_due_ms = match next_due.as_str() {
            "" => None,
            // A score is a double and can be formatted like 1.7e12.
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "unix ms fits a double's 53 bits"
            )]
            score => score.parse::<f64>().ok().map(|score| score as u64),
        };
        Ok(DueRound { now_ms, next_due_ms, due })
    }

    /// Submits the job of one tick. `None` if the schedule has been deleted or paused since it was polled: then the
    /// tick has no job and will not get one. Submitting a tick again, from any replica, returns the first job for 24
    /// hours.
    ///
    /// # Errors
    /// Those of [`crate::Queue::submit`].
    pub async fn submit(&self, due: &Due, tick_ms: u64, mut job: NewJob) -> Result<Option<Submitted>, Error> {
        let Some(guard) = due.guard else {
            return Ok(None);
        };
        let id = &due.schedule.id;
        job.spec.schedule = Some(id.clone());
        // The id serves as request hash: the endpoint's defaults can change between two tries, the schedule does not.
        job.idempotency = Some(Idempotency::new(format!("schedule:{id}:{tick_ms}"), id));
        let guard = BatchGuard { batch: id.clone(), from_line: guard, to_line: guard };
        match self.queue.feed(&guard, &[job]).await {
            Ok(submitted) => Ok(submitted.into_iter().next()),
            Err(Error::StaleGuard) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Moves a schedule on. `false` if it is no longer at `due`: another replica or its owner has moved it.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; the next round repeats it.
    pub async fn advance(&self, due: &Due, ticked: &Ticked) -> Result<bool, Error> {
        let error = match &ticked.error {
            Some(error) => serde_json::to_string(error).map_err(|error| corrupt(&due.schedule.id, &error))?,
            None => String::new(),
        };
        let (last_at, last_job) =
            ticked.last.map_or_else(Default::default, |(at, job)| (at.to_string(), job.to_string()));
        let mut call = scripts::SCHEDULE_TICK.call(&[self.keys.root()]);
        call.arg(&due.schedule.id).arg(due.due_ms).arg(number(ticked.next_ms)).arg(number(ticked.next_ms));
        call.arg(ticked.jobs).arg(last_at).arg(last_job).arg(error);
        Ok(self.word(&scripts::SCHEDULE_TICK, &call).await? == "ok")
    }

    /// Postpones the next poll of a due schedule to `look_ms`: a dependency of its tick is unavailable, and other
    /// schedules are due.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the schedule is polled earlier.
    pub async fn put_off(&self, due: &Due, look_ms: u64) -> Result<bool, Error> {
        self.look_again(&due.schedule.id, &due.due_ms.to_string(), look_ms).await
    }

    async fn put_aside(&self, id: &str, fields: &HashMap<String, String>, now_ms: u64) -> Result<(), Error> {
        const ASIDE_MS: u64 = 60_000;
        if let Some(due) = fields.get("due") {
            self.look_again(id, due, now_ms + ASIDE_MS).await?;
        }
        Ok(())
    }

    async fn look_again(&self, id: &str, due: &str, look_ms: u64) -> Result<bool, Error> {
        let mut call = scripts::SCHEDULE_TICK.call(&[self.keys.root()]);
        call.arg(id).arg(due).arg(due).arg(look_ms).arg(0).arg("").arg("").arg("");
        Ok(self.word(&scripts::SCHEDULE_TICK, &call).await? == "ok")
    }

    async fn word(&self, script: &'static Script, call: &redis::Cmd) -> Result<String, Error> {
        self.connection.eval_durably(script, call).await
    }
}

fn number(ms: Option<u64>) -> String {
    ms.map_or_else(String::new, |ms| ms.to_string())
}

fn corrupt(id: &str, why: &dyn std::fmt::Display) -> Error {
    Error::Corrupt { key: format!("schedule {id}"), why: why.to_string() }
}

/// A schedule of a list. A corrupt record is left out, so that it does not hide the others.
fn readable(id: &str, fields: &HashMap<String, String>) -> Option<Schedule> {
    decode(id, fields).unwrap_or_else(|error| {
        tracing::error!(
            schedule.id = id,
            error = &error as &dyn std::error::Error,
            "a schedule cannot be read; leaving it out of a list"
        );
        None
    })
}

/// Decodes a record; `None` if it does not exist.
fn decode(id: &str, fields: &HashMap<String, String>) -> Result<Option<Schedule>, Error> {
    if fields.is_empty() {
        return Ok(None);
    }
    let text = |name: &str| fields.get(name).ok_or_else(|| corrupt(id, &format!("no {name}")));
    let whole = |name: &str| fields.get(name).map(|text| text.parse::<u64>()).transpose();
    let broken = |error: &dyn std::fmt::Display| corrupt(id, error);
    Ok(Some(Schedule {
        id: id.to_owned(),
        tenant: text("tenant")?.clone(),
        spec: serde_json::from_str(text("spec")?).map_err(|error| broken(&error))?,
        job: RawValue::from_string(text("job")?.clone()).map_err(|error| broken(&error))?,
        due_ms: whole("due").map_err(|error| broken(&error))?,
        paused: fields.contains_key("paused"),
        ticks: whole("ticks").map_err(|error| broken(&error))?.unwrap_or(0),
        last_at_ms: whole("last_at").map_err(|error| broken(&error))?,
        last_job_id: fields.get("last_job").map(|id| id.parse()).transpose().map_err(|error| broken(&error))?,
        last_error: fields
            .get("last_error")
            .map(|text| serde_json::from_str(text))
            .transpose()
            .map_err(|error| broken(&error))?,
    }))
}
