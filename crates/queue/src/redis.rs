//! The queue in Redis: each verb one script, everything it promises kept inside that script.

mod holdings;

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use redis::AsyncCommands;
use redis::streams::{StreamId, StreamRangeReply};
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use crate::batches::Batches;
use crate::budgets::{self, Budget, Budgeted, Running, Stood};
use crate::clock::Clock;
use crate::connection::{Connection, Place};
use crate::costs::{self, Spent};
use crate::error::Error;
use crate::failpoint;
use crate::feedback::FeedbackCounters;
use crate::flow::Flow;
use crate::gate::Gate;
use crate::gateway::{ExtendAnswer, FinishAnswer, FinishReport, JobEventReport, LeaseRef};
use crate::history::History;
use crate::id::JobId;
use crate::job::{Job, JobError, JobSpec, JobState, NewJob};
use crate::keys::{Keys, RegistryKeys};
use crate::limits::{GateNow, HeldBy, Limits, Usage};
use crate::outbox::Outbox;
use crate::quarantine::Quarantine;
use crate::queue::{
    AGE_AFTER_MS, BATCH_MAX, BatchGuard, CancelAnswer, Due, HOLD_AFTER_MS, HOLD_MS, JobPage, KeptEvent, KeptOutputs,
    LaneDepth, Lease, LeaseQuery, ListFilter, OutputsPlace, Queue, SUBMIT_MAX, Settlement, Signal, Submitted, Swept,
    WATCH_MS, Waiter,
};
use crate::reach::Reach;
use crate::record;
use crate::redis_checks::{Durability, RedisChecks};
use crate::redis_health::{Pulse, RedisHealth, Refusal, info_field};
use crate::registry::Registry;
use crate::scripts::{self, Cursor, Recovered};
use crate::timings::{self, VersionTimings};
use crate::traces::Traces;
use crate::{flow, redis_checks, signals, stored_spec};
pub use holdings::Holding;

/// A list looks at this many records a call, however few match.
const LIST_SCAN_MAX: usize = 1_000;
const LIST_STEP: usize = 100;

/// More jobs than one `expire` or `finish` ends in a millisecond.
const DEAD_SAME_MS_MAX: usize = 1_000;

/// How to reach the queue, and its times.
#[derive(Clone)]
pub struct RedisConfig {
    /// `redis://[user:password@]host:port/db`, `rediss://` or `redis+unix:///path`; behind Sentinels
    /// `redis+sentinel://[user:password@]host:port,.../service/db`; a cluster `redis+cluster://[user:password@]host:port,...`.
    pub url: String,
    /// What all keys start with. Default `stoke`.
    pub prefix: String,
    /// Among how many shards the tenants are spread, 1 to 64. Default 1.
    pub shards: u8,
    /// How long a lease lasts unless extended. Default 30 s.
    pub lease_ms: u64,
    /// How long an ended job stays before the history sweep takes it, unless the job sets it. Default 24 h.
    pub retention_ms: u64,
    /// How long work waits before it may go ahead of more urgent work. Default 5 minutes.
    pub age_after_ms: u64,
    /// What an accepted job is to survive. Default `strict`.
    pub durability: Durability,
    /// How many replicas must have what is promised before it is; `None` for one where the class is `strict` and there is one.
    pub replicas_to_wait: Option<u32>,
    /// Where time comes from; tests put a clock of their own here.
    pub clock: Clock,
}

impl Default for RedisConfig {
    fn default() -> Self {
        Self {
            url: "redis://127.0.0.1:6379".to_owned(),
            prefix: "stoke".to_owned(),
            shards: 1,
            lease_ms: 30_000,
            retention_ms: 24 * 60 * 60 * 1000,
            age_after_ms: AGE_AFTER_MS,
            durability: Durability::Strict,
            replicas_to_wait: None,
            clock: Clock::Own,
        }
    }
}

impl std::fmt::Debug for RedisConfig {
    /// Without the URL: it may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisConfig")
            .field("prefix", &self.prefix)
            .field("lease_ms", &self.lease_ms)
            .finish_non_exhaustive()
    }
}

/// The queue in Redis. Clones share one connection.
#[derive(Clone)]
pub struct RedisQueue {
    connection: Connection,
    /// To where the registry is; in a cluster that may be elsewhere.
    registry: Connection,
    keys: Keys,
    pulse: Pulse,
    config: RedisConfig,
    shard: u8,
}

/// How the Redis behind a queue was when it was last looked at.
#[derive(Debug, Clone)]
pub struct Health {
    /// Its last INFO.
    pub vitals: RedisHealth,
    /// How many replicas are waited for before anything is promised.
    pub replicas_to_wait: u32,
    /// Why no new work is taken; `None` when it is.
    pub refusal: Option<Refusal>,
}

impl RedisQueue {
    /// Connects to the first shard, and to nothing else: what knows of one shard only.
    ///
    /// # Errors
    /// [`Error::Unfit`] when the URL is none, [`Error::Unavailable`] when nothing answers.
    pub async fn connect(config: RedisConfig) -> Result<Self, Error> {
        let place = Place::parse(&config.url)?;
        let registry = Connection::open(&place, RegistryKeys::new(&config.prefix).root()).await?;
        Self::shard(&place, &registry, config, 0).await
    }

    /// One shard. Where all roots have one primary, it shares the registry's connection.
    pub(crate) async fn shard(
        place: &Place,
        registry: &Connection,
        config: RedisConfig,
        shard: u8,
    ) -> Result<Self, Error> {
        let keys = Keys::new(&config.prefix, shard);
        let connection = match place.is_one() {
            true => registry.clone(),
            false => Connection::open(place, keys.root()).await?,
        };
        if let Some(replicas) = config.replicas_to_wait {
            connection.commits().wait_for(replicas);
        }
        Ok(Self { connection, registry: registry.clone(), keys, pulse: Pulse::default(), config, shard })
    }

    /// The shard's number, which is part of its jobs' ids.
    #[must_use]
    pub fn number(&self) -> u8 {
        self.shard
    }

    /// The address of the primary it is on at present.
    #[must_use]
    pub fn primary(&self) -> String {
        self.connection.primary().info().addr().to_string()
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.config.clock
    }

    pub(crate) fn is_up(&self) -> bool {
        self.connection.is_up()
    }

    /// What is deployed, who may call, which workers are here.
    #[must_use]
    pub fn registry(&self) -> Registry {
        Registry::new(self.registry.clone(), &self.config.prefix)
    }

    /// The webhook deliveries.
    #[must_use]
    pub fn outbox(&self) -> Outbox {
        Outbox::new(self.connection.clone(), self.keys.clone(), self.config.clock.clone())
    }

    /// The traces that wait to be exported.
    #[must_use]
    pub fn traces(&self) -> Traces {
        Traces::new(self.connection.clone(), self.keys.clone(), self.config.clock.clone())
    }

    /// Its batches.
    #[must_use]
    pub fn batches(&self) -> Batches {
        Batches::new(self.connection.clone(), self.keys.clone(), self.config.clock.clone())
    }

    /// The jobs that have ended and wait to be archived.
    #[must_use]
    pub fn history(&self) -> History {
        History::new(self.connection.clone(), self.keys.clone(), self.config.clock.clone())
    }

    /// What people thought of results.
    #[must_use]
    pub fn feedback(&self) -> FeedbackCounters {
        FeedbackCounters::new(self.registry.clone(), &self.config.prefix)
    }

    /// How long an ended job stays unless it sets it, milliseconds.
    #[must_use]
    pub fn retention_ms(&self) -> u64 {
        self.config.retention_ms
    }

    /// The jobs whose records cannot be read.
    #[must_use]
    pub fn quarantine(&self) -> Quarantine {
        let RedisConfig { clock, retention_ms, .. } = &self.config;
        Quarantine::new(self.connection.clone(), self.keys.clone(), clock.clone(), *retention_ms)
    }

    /// How long a lease lasts unless extended, milliseconds.
    #[must_use]
    pub fn lease_ms(&self) -> u64 {
        self.config.lease_ms
    }

    /// The boot checks: whether this Redis can provide what a 202 promises. With `allow_ephemeral`, a Redis that loses
    /// its data is accepted. From now on writes wait for the number of replicas in the result.
    ///
    /// # Errors
    /// [`Error::Unfit`] with what to change.
    pub async fn check_fitness(&self, allow_ephemeral: bool) -> Result<RedisChecks, Error> {
        let wanted = redis_checks::Wanted {
            class: self.config.durability,
            ephemeral: allow_ephemeral,
            replicas_to_wait: self.config.replicas_to_wait,
        };
        let fitness = redis_checks::check(&self.connection, &self.keys, wanted).await?;
        self.connection.commits().wait_for(fitness.replicas_to_wait);
        self.connection.load_scripts().await?;
        Ok(fitness)
    }

    /// Inspects Redis and opens or closes admission: every process that accepts new work calls this once per second.
    /// Returns whether the server was replaced or restarted; true at the first call.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: unknown, try again.
    pub async fn look(&self) -> Result<bool, Error> {
        let mut ask = redis::cmd("INFO");
        ask.arg(&RedisHealth::SECTIONS);
        let info: String =
            ask.query_async(&mut self.connection.redis()).await.map_err(Error::redis("inspect Redis"))?;
        let (vitals, commits) = (RedisHealth::parse(&info), self.connection.commits());
        // Once there is a replica, what is promised is on it, also when it goes: fewer are never waited for.
        let by_class = self.config.replicas_to_wait.is_none() && self.config.durability == Durability::Strict;
        if by_class && commits.replicas() == 0 && vitals.replicas > 0 {
            commits.wait_for(1);
        }
        Ok(self.pulse.note(vitals, commits.replicas()))
    }

    /// What the latest [`RedisQueue::look`] found.
    #[must_use]
    pub fn health(&self) -> Health {
        Health {
            vitals: self.pulse.vitals(),
            replicas_to_wait: self.connection.commits().replicas(),
            refusal: self.pulse.refusal(),
        }
    }

    /// Whether new work is taken.
    ///
    /// # Errors
    /// [`Error::Closed`] when not, with the reason.
    pub fn admits(&self) -> Result<(), Error> {
        self.pulse.refusal().map_or(Ok(()), |refusal| Err(Error::Closed(refusal.to_string())))
    }

    /// Bytes of this Redis that a tenant may take which has no limit of its own; `None` while there is enough for all.
    pub(crate) fn share_bytes(&self) -> Option<u64> {
        self.pulse.vitals().share_bytes()
    }

    /// Bytes that a tenant's jobs take, ended ones too, and its schedules and webhook messages, as they are counted against its share. Outputs that
    /// jobs have streamed in the last hours are counted on top of that.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn memory_of(&self, tenant: &str) -> Result<u64, Error> {
        let (jobs, beside): (Option<u64>, Option<u64>) = redis::pipe()
            .hget(self.keys.bytes(), Gate::Tenant(tenant.to_owned()).to_string())
            .hget(self.keys.beside(), tenant)
            .query_async(&mut self.connection.redis())
            .await
            .map_err(Error::redis("read the usage of a tenant"))?;
        Ok(jobs.unwrap_or(0) + beside.unwrap_or(0))
    }

    /// The next step of the recovery sweep: checks up to 50 records from `cursor` on, restores missing entries, and
    /// returns where to continue.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: repeat; what is in place is left there.
    pub async fn recover(&self, cursor: Option<&Cursor>) -> Result<Recovered, Error> {
        let RedisConfig { lease_ms, retention_ms, .. } = self.config;
        scripts::Recover { keys: &self.keys, clock: &self.config.clock, lease_ms, retention_ms, cursor }
            .run(&self.connection)
            .await
    }

    /// Asks whether Redis answers.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn ping(&self) -> Result<(), Error> {
        redis::cmd("PING").query_async(&mut self.connection.redis()).await.map_err(Error::redis("ping"))
    }

    /// Whether an API replica of the release before listens here: its name begins with `r_`.
    pub(crate) async fn has_older_replicas(&self) -> Result<bool, Error> {
        let older = self.keys.signal("r_*");
        let listening: Vec<String> = redis::cmd("PUBSUB")
            .arg("CHANNELS")
            .arg(older)
            .query_async(&mut self.connection.redis())
            .await
            .map_err(Error::redis("list the replicas"))?;
        Ok(!listening.is_empty())
    }

    /// Whether `replica` is the one that does `role` for the next `ttl_ms`: a sweep that needs no second pair of hands. Correctness
    /// never rests on it, since two may believe it at once.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: unknown, ask again.
    pub async fn claim_role(&self, role: &str, replica: &str, ttl_ms: u64) -> Result<bool, Error> {
        let mut call = scripts::ROLE.call(&[self.keys.root()]);
        call.arg(role).arg(replica).arg(ttl_ms);
        let reply: Vec<String> = self.connection.eval(&scripts::ROLE, &call).await?;
        match reply.first().map(String::as_str) {
            Some("yes") => Ok(true),
            Some("no") => Ok(false),
            _ => Err(scripts::unexpected(&scripts::ROLE, &reply)),
        }
    }

    /// How long the attempts of an endpoint took that ended in the last `hours`, at most [`timings::HOURS_MAX`], the newest version first.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn timings(
        &self,
        tenant: &str,
        endpoint: &str,
        hours: u64,
        now_ms: u64,
    ) -> Result<Vec<VersionTimings>, Error> {
        timings::read(&self.connection, &self.keys, (tenant, endpoint), hours, now_ms).await
    }

    /// Submits the next lines of a batch unless another replica has. The same jobs may be submitted again after an
    /// unknown outcome.
    ///
    /// # Errors
    /// [`Error::StaleGuard`] if these lines were already fed; as [`Queue::submit`] otherwise.
    pub async fn feed(&self, guard: &BatchGuard, jobs: &[NewJob]) -> Result<Vec<Submitted>, Error> {
        self.accept(Some(guard), jobs).await
    }

    /// A tenant's dead letters: failed and expired jobs that were not tried again, newest first, after the place of the last one
    /// seen. `None` for one whose record has gone since.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn dead(
        &self,
        tenant: &str,
        after: Option<(u64, JobId)>,
        most: usize,
    ) -> Result<Vec<((u64, JobId), Option<Job>)>, Error> {
        let (mut redis, step) = (self.connection.redis(), "list dead letters");
        let from = after.map_or_else(|| "+inf".to_owned(), |(ended_ms, _)| ended_ms.to_string());
        // Those that ended in the same millisecond as the last one seen come again: a bound on them is one call's work.
        let rows: Vec<(String, f64)> = redis::cmd("ZREVRANGEBYSCORE")
            .arg(self.keys.dead(tenant))
            .arg(from)
            .arg("-inf")
            .arg("WITHSCORES")
            .arg("LIMIT")
            .arg(0)
            .arg(most + DEAD_SAME_MS_MAX)
            .query_async(&mut redis)
            .await
            .map_err(Error::redis(step))?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "unix ms fits a double's 53 bits")]
        let places: Vec<(u64, JobId)> = rows
            .into_iter()
            .filter_map(|(id, ended_ms)| Some((ended_ms as u64, id.parse().ok()?)))
            .filter(|place| after.is_none_or(|after| *place < after))
            .take(most)
            .collect();
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipe = redis::pipe();
        for (_, id) in &places {
            pipe.hgetall(self.keys.job(*id));
        }
        let records: Vec<Option<HashMap<String, String>>> =
            self.connection.read_each(&mut pipe).await.map_err(Error::redis(step))?;
        let read = |(place, fields): ((u64, JobId), Option<HashMap<String, String>>)| {
            let job = fields.map_or(Ok(None), |fields| record::decode(place.1, &fields));
            Ok((place, readable(place.1, job)?))
        };
        places.into_iter().zip(records).map(read).collect()
    }

    async fn accept(&self, guard: Option<&BatchGuard>, jobs: &[NewJob]) -> Result<Vec<Submitted>, Error> {
        bounded("jobs", jobs.len(), SUBMIT_MAX)?;
        self.admits()?;
        #[cfg(feature = "mutants")]
        if guard.is_none() && crate::mutants::is("submit-before-script") {
            return Ok(self.submit_later(jobs.to_vec()));
        }
        failpoint::reach("submit.before").await;
        let share_bytes = self.share_bytes();
        let submitted = scripts::Submit { keys: &self.keys, clock: &self.config.clock, guard, share_bytes, jobs }
            .run(&self.connection)
            .await;
        failpoint::reach("submit.after").await;
        submitted
    }

    /// A planted bug: what a replica counts is written by and by.
    #[cfg(feature = "mutants")]
    fn count_later(&self, reports: &[FinishReport], answers: &[FinishAnswer]) {
        let done = reports.iter().zip(answers).filter(|(_, answer)| **answer == FinishAnswer::Ok);
        let (ids, this): (Vec<JobId>, _) = (done.map(|(report, _)| report.job_id).collect(), self.clone());
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(250)).await;
            for id in ids {
                let mut redis = this.connection.redis();
                let told: Result<(Option<String>, Option<String>), _> =
                    redis.hmget(this.keys.job(id), &["batch", "state"]).await;
                if let Ok((Some(batch), Some(state))) = told
                    && matches!(state.as_str(), "succeeded" | "failed")
                {
                    let _: Result<u64, _> = redis.hincr(this.keys.batch(&batch), state, 1).await;
                }
            }
        });
    }

    /// A planted bug: the answer first, the script when it suits.
    #[cfg(feature = "mutants")]
    fn submit_later(&self, jobs: Vec<NewJob>) -> Vec<Submitted> {
        let accepted = jobs.iter().map(|job| Submitted::New(job.id)).collect();
        let this = self.clone();
        tokio::spawn(async move {
            let call = scripts::Submit {
                keys: &this.keys,
                clock: &this.config.clock,
                guard: None,
                share_bytes: None,
                jobs: &jobs,
            };
            let _ = call.run(&this.connection).await;
        });
        accepted
    }

    async fn record(&self, id: JobId) -> Result<Option<Job>, Error> {
        let fields: HashMap<String, String> =
            self.connection.redis().hgetall(self.keys.job(id)).await.map_err(Error::redis("read a job"))?;
        record::decode(id, &fields)
    }

    /// The jobs of these ids that match, in order.
    async fn matching(&self, ids: &[JobId], filter: &ListFilter) -> Result<Vec<JobId>, Error> {
        if filter.takes_all() || ids.is_empty() {
            return Ok(ids.to_vec());
        }
        let mut pipe = redis::pipe();
        for id in ids {
            pipe.hmget(self.keys.job(*id), &["state", "lane", "spec", "error"]);
        }
        let rows: Vec<Option<[Option<String>; 4]>> =
            self.connection.read_each(&mut pipe).await.map_err(Error::redis("list jobs"))?;
        let matches = |row: &Option<[Option<String>; 4]>| {
            let Some([state, lane, spec, error]) = row else { return false };
            // Of a large record only what was asked for is decoded.
            let error = error.as_ref().filter(|_| filter.error_code.is_some());
            let code = error.and_then(|error| serde_json::from_str::<JobError>(error).ok()).map(|error| error.code);
            let (Some(state), Some(lane), Some(spec)) = (state, lane, spec) else { return false };
            JobState::from_word(state).is_some_and(|state| {
                stored_spec::decode(lane, spec).is_ok_and(|spec| filter.matches(state, &spec, code))
            })
        };
        Ok(ids.iter().zip(&rows).filter(|(_, row)| matches(row)).map(|(id, _)| *id).collect())
    }

    /// Milliseconds since this Redis started, as far as it reports.
    async fn uptime_ms(&self) -> Result<u64, Error> {
        let info: String = redis::cmd("INFO")
            .arg("server")
            .query_async(&mut self.connection.redis())
            .await
            .map_err(Error::redis("read the uptime of Redis"))?;
        Ok(info_field(&info, "uptime_in_seconds").and_then(|text| text.parse::<u64>().ok()).unwrap_or(0) * 1000)
    }
}

fn bounded(what: &str, len: usize, max: usize) -> Result<(), Error> {
    if len > max {
        return Err(Error::TooLarge(format!("{len} {what} in one call, over the limit of {max}")));
    }
    Ok(())
}

impl Queue for RedisQueue {
    async fn submit(&self, jobs: Vec<NewJob>) -> Result<Vec<Submitted>, Error> {
        self.accept(None, &jobs).await
    }

    async fn lease(&self, query: LeaseQuery) -> Result<Vec<Lease>, Error> {
        bounded("leases wanted", query.want as usize, BATCH_MAX)?;
        let RedisConfig { lease_ms, age_after_ms, .. } = self.config;
        let leases =
            scripts::TakeLeases { keys: &self.keys, clock: &self.config.clock, lease_ms, age_after_ms, query: &query }
                .run(&self.connection)
                .await;
        if leases.as_ref().is_ok_and(|leases| !leases.is_empty()) {
            failpoint::reach("lease.after").await;
        }
        leases
    }

    async fn hold(&self, worker_id: &str, now: &Reach, could: &Reach) -> Result<Option<u32>, Error> {
        let mut call = scripts::HOLD.call(&[self.keys.root()]);
        call.arg(self.config.clock.script_arg()).arg(worker_id).arg(now.to_string()).arg(could.to_string());
        call.arg(HOLD_AFTER_MS).arg(HOLD_MS);
        let (class,): (String,) = self.connection.eval(&scripts::HOLD, &call).await?;
        Ok(class.parse().ok())
    }

    async fn unpark(&self, waiter: &Waiter, reach: &Reach) -> Result<bool, Error> {
        let listed = waiter.listed(reach);
        let mut pipe = redis::pipe();
        for (demands, _) in reach.iter() {
            pipe.atomic().zrem(self.keys.parked(demands), &listed);
        }
        if reach.iter().next().is_none() {
            return Ok(true);
        }
        // A wake takes it off all of them in one step.
        let removed: Vec<u32> = pipe.query_async(&mut self.connection.redis()).await.map_err(Error::redis("unpark"))?;
        Ok(removed.contains(&1))
    }

    async fn wake_next(&self) -> Result<(), Error> {
        let _: Vec<String> = self.connection.eval(&scripts::WAKE, &scripts::WAKE.call(&[self.keys.root()])).await?;
        Ok(())
    }

    async fn extend(&self, leases: &[LeaseRef]) -> Result<Vec<ExtendAnswer>, Error> {
        let mut answers = Vec::with_capacity(leases.len());
        for leases in leases.chunks(BATCH_MAX) {
            let lease_ms = self.config.lease_ms;
            let call = scripts::Extend { keys: &self.keys, clock: &self.config.clock, lease_ms, leases };
            answers.extend(call.run(&self.connection).await?);
        }
        Ok(answers)
    }

    async fn finish(&self, reports: &[FinishReport]) -> Result<Vec<FinishAnswer>, Error> {
        bounded("reports", reports.len(), BATCH_MAX)?;
        if reports.is_empty() {
            return Ok(Vec::new());
        }
        let retention_ms = self.config.retention_ms;
        failpoint::reach("finish.before").await;
        let answers = scripts::Finish { keys: &self.keys, clock: &self.config.clock, retention_ms, reports }
            .run(&self.connection)
            .await;
        failpoint::reach("finish.after").await;
        #[cfg(feature = "mutants")]
        if let (Ok(answers), true) = (&answers, crate::mutants::is("count-outside-script")) {
            self.count_later(reports, answers);
        }
        answers
    }

    async fn release(&self, leases: &[LeaseRef]) -> Result<Vec<FinishAnswer>, Error> {
        bounded("leases", leases.len(), BATCH_MAX)?;
        scripts::Release { keys: &self.keys, clock: &self.config.clock, leases }.run(&self.connection).await
    }

    async fn cancel(&self, tenant: &str, ids: &[JobId]) -> Result<Vec<CancelAnswer>, Error> {
        bounded("jobs", ids.len(), BATCH_MAX)?;
        let retention_ms = self.config.retention_ms;
        let answers = scripts::Cancel { keys: &self.keys, clock: &self.config.clock, retention_ms, tenant, ids }
            .run(&self.connection)
            .await;
        failpoint::reach("cancel.after").await;
        answers
    }

    async fn promote(&self) -> Result<Swept, Error> {
        scripts::Promote { keys: &self.keys, clock: &self.config.clock }.run(&self.connection).await
    }

    /// Does nothing in the first lease period after Redis came up or another took its place: every lease may have run out while it was away, and the
    /// workers that hold them must get the chance to extend first.
    async fn reap(&self) -> Result<Swept, Error> {
        #[cfg(feature = "mutants")]
        let hasty = crate::mutants::is("reaper-without-grace");
        #[cfg(not(feature = "mutants"))]
        let hasty = false;
        let lease = Duration::from_millis(self.config.lease_ms);
        let is_new = self.pulse.changed_within(lease) || self.uptime_ms().await? < self.config.lease_ms;
        if !hasty && matches!(self.config.clock, Clock::Own) && is_new {
            return Ok(Swept::default());
        }
        let retention_ms = self.config.retention_ms;
        let most = scripts::SWEEP_MAX;
        scripts::Reap { keys: &self.keys, clock: &self.config.clock, retention_ms, most }.run(&self.connection).await
    }

    async fn abandon(&self, worker_id: &str) -> Result<u32, Error> {
        let ended = scripts::Abandon { keys: &self.keys, worker_id }.run(&self.connection).await?;
        // Not `reap`, which holds back for a while after Redis came up: this worker will not extend its leases.
        let (retention_ms, mut most) = (self.config.retention_ms, ended);
        while most > 0 {
            let reap = scripts::Reap { keys: &self.keys, clock: &self.config.clock, retention_ms, most };
            most = match reap.run(&self.connection).await?.jobs {
                0 => 0,
                jobs => most.saturating_sub(jobs),
            };
        }
        Ok(ended)
    }

    async fn expire(&self) -> Result<Swept, Error> {
        let retention_ms = self.config.retention_ms;
        scripts::Expire { keys: &self.keys, clock: &self.config.clock, retention_ms }.run(&self.connection).await
    }

    async fn due(&self, claim_ms: u64) -> Result<Vec<Due>, Error> {
        scripts::TakeDue { keys: &self.keys, clock: &self.config.clock, claim_ms, keep: &[] }
            .run(&self.connection)
            .await
    }

    async fn keep_due(&self, due: &[Due], claim_ms: u64) -> Result<(), Error> {
        if due.is_empty() {
            return Ok(());
        }
        scripts::TakeDue { keys: &self.keys, clock: &self.config.clock, claim_ms, keep: due }
            .run(&self.connection)
            .await
            .map(drop)
    }

    async fn unblock(&self, id: JobId) -> Result<bool, Error> {
        scripts::Unblock { keys: &self.keys, clock: &self.config.clock, id }.run(&self.connection).await
    }

    async fn settle(&self, settlement: &Settlement) -> Result<bool, Error> {
        let retention_ms = self.config.retention_ms;
        scripts::Settle { keys: &self.keys, clock: &self.config.clock, retention_ms, settlement }
            .run(&self.connection)
            .await
    }

    async fn limit(&self, gate: &Gate, limits: Option<&Limits>) -> Result<(), Error> {
        let mut call = scripts::LIMIT.call(&[self.keys.root()]);
        let budget = limits.and_then(|limits| limits.budget).map_or(String::new(), |budget| budget.to_string());
        let limits = limits.filter(|limits| **limits != Limits { budget: limits.budget, ..Limits::default() });
        call.arg(gate.to_string()).arg(limits.map_or(String::new(), Limits::encode)).arg(budget);
        let _: Vec<String> = self.connection.eval(&scripts::LIMIT, &call).await?;
        Ok(())
    }

    async fn usage(&self, gate: &Gate) -> Result<(Limits, Usage), Error> {
        let field = gate.to_string();
        let (limits, budget, open, running): (Option<String>, Option<String>, Option<u64>, Option<u64>) = redis::pipe()
            .hget(self.keys.limits(), &field)
            .hget(self.keys.budgets(), &field)
            .hget(self.keys.open(), &field)
            .hget(self.keys.running(), &field)
            .query_async(&mut self.connection.redis())
            .await
            .map_err(Error::redis("read limits"))?;
        let usage = Usage { open: open.unwrap_or(0), running: running.unwrap_or(0) };
        let budget = budget.and_then(|text| Budget::parse(&text));
        Ok((Limits { budget, ..limits.map_or_else(Limits::default, |text| Limits::decode(&text)) }, usage))
    }

    async fn held_by(&self, spec: &JobSpec) -> Result<Option<HeldBy>, Error> {
        let gates = Gate::of(spec);
        let names = gates.each_ref().map(Gate::to_string);
        let key = spec.concurrency.as_ref();
        let key_gate = key.map(|concurrency| format!("k:{}:{}", spec.tenant, concurrency.key)).unwrap_or_default();
        type Read = (Vec<Option<String>>, Vec<Option<u64>>, Vec<Option<f64>>);
        let (limits, running, rates): Read = redis::pipe()
            .hmget(self.keys.limits(), &[&names[0], &names[1], &format!("d:{}", names[0])])
            .hmget(self.keys.running(), &[&names[0], &names[1], &key_gate])
            .hmget(self.keys.rate(), &names)
            .query_async(&mut self.connection.redis())
            .await
            .map_err(Error::redis("read what blocks a job"))?;
        if limits.get(2).is_some_and(Option::is_some) {
            return Ok(Some(HeldBy::Disabled));
        }
        let now_ms = self.config.clock.now_ms();
        for (n, gate) in gates.into_iter().enumerate() {
            let stands = GateNow {
                limits: limits.get(n).and_then(Option::as_deref).map(Limits::decode).unwrap_or_default(),
                running: running.get(n).copied().flatten().unwrap_or(0),
                arrival_ms: rates.get(n).copied().flatten().unwrap_or(0.0),
            };
            if let Some(held) = HeldBy::at(gate, &stands, now_ms) {
                return Ok(Some(held));
            }
        }
        let running = running.get(2).copied().flatten().unwrap_or(0);
        let full = key.filter(|concurrency| running >= u64::from(concurrency.max));
        Ok(full.map(|concurrency| HeldBy::Key { most: concurrency.max }))
    }

    async fn budgets(&self, day: u32) -> Result<Vec<Budgeted>, Error> {
        budgets::read_budgets(&self.connection, &self.keys, day).await
    }

    async fn pause(&self, gate: &Gate, budget: &Budget, stood: &Stood) -> Result<Option<Option<Stood>>, Error> {
        let mut call = scripts::PAUSE.call(&[self.keys.root()]);
        call.arg(gate.to_string()).arg(budget.to_string()).arg(stood.to_string());
        call.arg(stood.pause_until_ms().map_or(String::new(), |until_ms| until_ms.to_string()));
        let reply: Vec<String> = self.connection.eval(&scripts::PAUSE, &call).await?;
        match reply.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["ok", before] => Ok(Some(Stood::parse(before))),
            ["stale"] => Ok(None),
            other => Err(scripts::unexpected(&scripts::PAUSE, &other)),
        }
    }

    async fn disable(&self, tenant: &str, disabled: bool) -> Result<(), Error> {
        let mut call = scripts::DISABLE.call(&[self.keys.root()]);
        call.arg(tenant).arg(u8::from(disabled));
        let _: Vec<String> = self.connection.eval(&scripts::DISABLE, &call).await?;
        Ok(())
    }

    async fn running(&self) -> Result<Vec<Running>, Error> {
        budgets::read_running(&self.connection, &self.keys).await
    }

    async fn get(&self, id: JobId) -> Result<Option<Job>, Error> {
        self.record(id).await
    }

    async fn watch(&self, id: JobId, replica: &str) -> Result<Option<Job>, Error> {
        let mut call = scripts::WATCH.call(&[self.keys.root()]);
        call.arg(self.config.clock.script_arg()).arg(WATCH_MS).arg(id.to_string()).arg(replica);
        let fields: HashMap<String, String> = self.connection.eval(&scripts::WATCH, &call).await?;
        record::decode(id, &fields)
    }

    async fn list(
        &self,
        tenant: &str,
        filter: &ListFilter,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<JobPage, Error> {
        let limit = limit as usize;
        let mut redis = self.connection.redis();
        let mut before = cursor.map_or_else(|| "+".to_owned(), |cursor| format!("({cursor}"));
        let (mut jobs, mut scanned) = (Vec::new(), 0);
        loop {
            let page: StreamRangeReply = redis
                .xrevrange_count(self.keys.index(tenant), &before, "-", LIST_STEP)
                .await
                .map_err(Error::redis("list jobs"))?;
            let entries: Vec<(String, JobId)> = page.ids.iter().filter_map(index_entry).collect();
            let ids: Vec<JobId> = entries.iter().map(|(_, id)| *id).collect();
            for id in self.matching(&ids, filter).await? {
                jobs.extend(readable(id, self.record(id).await)?.map(|job| (id, job)));
                if jobs.len() == limit {
                    let (last, _) = &jobs[limit - 1];
                    let next_cursor = entries.iter().find(|(_, id)| id == last).map(|(entry, _)| entry.clone());
                    return Ok(JobPage { jobs: jobs.into_iter().map(|(_, job)| job).collect(), next_cursor });
                }
            }
            scanned += page.ids.len();
            let last = page.ids.last().map(|entry| entry.id.clone());
            let more = page.ids.len() == LIST_STEP;
            match last {
                Some(last) if more && scanned < LIST_SCAN_MAX => before = format!("({last}"),
                last => {
                    let next_cursor = last.filter(|_| more);
                    return Ok(JobPage { jobs: jobs.into_iter().map(|(_, job)| job).collect(), next_cursor });
                }
            }
        }
    }

    async fn append_events(&self, events: &[JobEventReport]) -> Result<(), Error> {
        for events in events.chunks(BATCH_MAX) {
            let (keys, clock, share_bytes) = (&self.keys, &self.config.clock, self.share_bytes());
            scripts::AppendEvents { keys, clock, share_bytes, events }.run(&self.connection).await?;
        }
        Ok(())
    }

    async fn read_events(&self, id: JobId, after: &str, limit: u32) -> Result<Vec<KeptEvent>, Error> {
        let start = if after.is_empty() { "-".to_owned() } else { format!("({after}") };
        let reply: StreamRangeReply = self
            .connection
            .redis()
            .xrange_count(self.keys.events(id), start, "+", limit)
            .await
            .map_err(Error::redis("read events"))?;
        let readable = |entry| {
            kept_event(id, entry).inspect_err(|error| {
                tracing::error!(error = error as &dyn std::error::Error, "an event cannot be read; leaving it out");
            })
        };
        Ok(reply.ids.iter().filter_map(|entry| readable(entry).ok()).collect())
    }

    async fn read_outputs(&self, id: JobId, after: OutputsPlace, limit: u32) -> Result<Vec<KeptOutputs>, Error> {
        let start = format!("{}-{}", after.attempt, after.next.saturating_add(1));
        let reply: StreamRangeReply = self
            .connection
            .redis()
            .xrange_count(self.keys.outputs(id), start, "+", limit)
            .await
            .map_err(Error::redis("read outputs"))?;
        reply.ids.iter().map(|entry| kept_outputs(id, entry)).collect()
    }

    async fn depth(&self) -> Result<Vec<LaneDepth>, Error> {
        let (mut redis, step) = (self.connection.redis(), "read the lanes");
        let ready: HashMap<String, u64> = redis.hgetall(self.keys.ready()).await.map_err(Error::redis(step))?;
        let mut depths: Vec<LaneDepth> =
            ready.into_iter().map(|(lane, jobs)| LaneDepth { lane, jobs, since_ms: None }).collect();
        depths.sort_by(|a, b| (b.jobs, &a.lane).cmp(&(a.jobs, &b.lane)));
        depths.truncate(1_000);
        if !depths.is_empty() {
            let lanes = depths.iter().map(|depth| &*depth.lane);
            let heads = flow::heads(&mut redis, &self.keys, lanes).await.map_err(Error::redis(step))?;
            depths.iter_mut().zip(heads).for_each(|(depth, (_, since_ms))| depth.since_ms = since_ms);
        }
        Ok(depths)
    }

    async fn flow(&self) -> Result<Vec<Flow>, Error> {
        Ok(flow::assemble(flow::read(&self.connection, &self.keys, &self.config.clock).await?))
    }

    async fn spent(&self, days: RangeInclusive<u32>, tenant: Option<&str>) -> Result<Vec<Spent>, Error> {
        costs::read_spent(&self.connection, &self.keys, days, tenant).await
    }

    /// A job that cannot be read goes to the quarantine, and its lease is lost with that: who reports many ends would lose all of them.
    async fn held(&self, lease: &LeaseRef) -> Result<Option<(JobSpec, u32)>, Error> {
        let mut read = redis::pipe();
        read.hmget(self.keys.job(lease.job_id), &["state", "fence", "attempt", "lane", "spec"]);
        let mut rows: Vec<Option<[Option<String>; 5]>> =
            self.connection.read_each(&mut read).await.map_err(Error::redis("check a lease"))?;
        let unreadable = match rows.pop().flatten() {
            None => "it is not a record".to_owned(),
            Some([Some(state), Some(fence), Some(attempt), Some(lane), Some(spec)])
                if state == "running" && fence == lease.fence.0 =>
            {
                match (stored_spec::decode(&lane, &spec), attempt.parse()) {
                    (Ok(spec), Ok(attempt)) => return Ok(Some((spec, attempt))),
                    (Err(why), _) => format!("the field \"spec\" cannot be read: {why}"),
                    (_, Err(_)) => "the field \"attempt\" cannot be read".to_owned(),
                }
            }
            Some(_) => return Ok(None),
        };
        self.quarantine().put(lease.job_id, &unreadable).await?;
        Ok(None)
    }

    async fn listen(&self, replica: &str) -> Result<mpsc::Receiver<Signal>, Error> {
        let channels = [self.keys.signal(replica), self.keys.signal("all")];
        signals::listen(self.connection.primary(), channels).await
    }
}

pub(crate) fn index_entry(entry: &StreamId) -> Option<(String, JobId)> {
    Some((entry.id.clone(), JobId::from_bytes(entry.get::<Vec<u8>>("j")?.try_into().ok()?)))
}

/// A job of a list. One whose record cannot be read is left out: it must not hide the others.
fn readable(id: JobId, read: Result<Option<Job>, Error>) -> Result<Option<Job>, Error> {
    match read {
        Err(error @ Error::Corrupt { .. }) => {
            tracing::error!(job.id = %id, error = &error as &dyn std::error::Error, "a job cannot be read; leaving it out of a list");
            Ok(None)
        }
        read => read,
    }
}

fn kept_event(id: JobId, entry: &StreamId) -> Result<KeptEvent, Error> {
    let corrupt = |why: String| Error::Corrupt { key: format!("event {} of job {id}", entry.id), why };
    let attempt = entry.get("a").ok_or_else(|| corrupt("no attempt".to_owned()))?;
    let message: String = entry.get("m").ok_or_else(|| corrupt("no message".to_owned()))?;
    let message = serde_json::from_str(&message).map_err(|error| corrupt(error.to_string()))?;
    Ok(KeptEvent { id: entry.id.clone(), attempt, message })
}

fn kept_outputs(id: JobId, entry: &StreamId) -> Result<KeptOutputs, Error> {
    let corrupt = |why: String| Error::Corrupt { key: format!("outputs {} of job {id}", entry.id), why };
    let number = |text: &str| text.parse::<u64>().map_err(|error| corrupt(error.to_string()));
    let field = |name: &str| entry.get::<String>(name).ok_or_else(|| corrupt(format!("no {name}")));
    let attempt =
        entry.id.split('-').next().unwrap_or_default().parse().map_err(|_| corrupt("no attempt".to_owned()))?;
    let texts: Vec<String> = serde_json::from_str(&field("v")?).map_err(|error| corrupt(error.to_string()))?;
    let values = texts.into_iter().map(RawValue::from_string).collect::<Result<_, _>>();
    let values = values.map_err(|error| corrupt(error.to_string()))?;
    Ok(KeptOutputs { attempt, index: number(&field("i")?)?, values, at_ms: number(&field("t")?)? })
}
