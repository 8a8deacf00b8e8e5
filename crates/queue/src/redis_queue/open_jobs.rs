//! A walk over a tenant's open jobs that reads their specs only, and what a queue keeps of an endpoint.

use redis::AsyncCommands;
use redis::streams::StreamRangeReply;

use super::{RedisQueue, index_entry};
use crate::error::Error;
use crate::id::JobId;
use crate::job::{JobSpec, JobState};
use crate::limit_scope::LimitScope;
use crate::stored_spec;

/// Number of records that one step reads.
const STEP: usize = 500;

/// One step of a walk, newest first.
#[derive(Debug, Clone)]
pub struct OpenJobs {
    /// The jobs that have not ended. A job whose record cannot be read is left out.
    pub jobs: Vec<(JobId, JobSpec)>,
    /// Where the next step begins; `None` at the end.
    pub next: Option<String>,
}

/// The beginning of a walk: the jobs that were open at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenJobsStart {
    /// Number of open jobs.
    pub jobs: u64,
    /// Where the first step begins: behind the newest job of that moment. Later jobs are not among `jobs`, so a walk
    /// that counted them would end before the oldest ones.
    pub from: String,
}

impl RedisQueue {
    /// Begins a walk over a tenant's open jobs; `None` if it has no job.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn begin_open_jobs(&self, tenant: &str) -> Result<Option<OpenJobsStart>, Error> {
        let step = "count open jobs";
        let scope = LimitScope::Tenant(tenant.to_owned());
        let (jobs, newest): (Option<u64>, StreamRangeReply) = redis::pipe()
            .atomic()
            .hget(self.keys.open(), scope.to_string())
            .xrevrange_count(self.keys.index(tenant), "+", "-", 1)
            .query_async(&mut self.connection.redis())
            .await
            .map_err(Error::redis(step))?;
        let Some(newest) = newest.ids.first() else { return Ok(None) };
        let corrupt = || Error::Corrupt { key: self.keys.index(tenant), why: format!("the entry {:?}", newest.id) };
        let (ms, sequence) = newest.id.split_once('-').ok_or_else(corrupt)?;
        let sequence: u64 = sequence.parse().map_err(|_| corrupt())?;
        // Steps exclude the entry that they begin at.
        let from = format!("{ms}-{}", sequence.saturating_add(1));
        Ok(Some(OpenJobsStart { jobs: jobs.unwrap_or(0), from }))
    }

    /// The next step of a walk over a tenant's open jobs; `before` comes from its beginning or the step before it.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn open_jobs(&self, tenant: &str, before: &str) -> Result<OpenJobs, Error> {
        let (mut redis, step) = (self.connection.long(), "read open jobs");
        let from = format!("({before}");
        let page: StreamRangeReply =
            redis.xrevrange_count(self.keys.index(tenant), from, "-", STEP).await.map_err(Error::redis(step))?;
        let ids: Vec<JobId> = page.ids.iter().filter_map(index_entry).map(|(_, id)| id).collect();
        let mut pipe = redis::pipe();
        for id in &ids {
            pipe.hmget(self.keys.job(*id), &["state", "lane", "spec"]);
        }
        let rows: Vec<Option<[Option<String>; 3]>> = redis.read_each(&mut pipe).await.map_err(Error::redis(step))?;
        let open = |(id, row): (JobId, Option<[Option<String>; 3]>)| {
            let [Some(state), Some(lane), Some(spec)] = row? else { return None };
            let is_open = JobState::from_word(&state).is_some_and(|state| !state.is_terminal());
            if !is_open {
                return None;
            }
            let spec = stored_spec::decode(&lane, &spec);
            let spec = spec.inspect_err(|error| {
                tracing::error!(job.id = %id, %error, "the spec of an open job cannot be read; it is left out");
            });
            Some((id, spec.ok()?))
        };
        let jobs = ids.into_iter().zip(rows).filter_map(open).collect();
        let next = page.ids.last().filter(|_| page.ids.len() == STEP).map(|entry| entry.id.clone());
        Ok(OpenJobs { jobs, next })
    }

    /// Removes the expected run time of an endpoint, which fair sharing learned from its jobs.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: safe to retry.
    pub async fn forget_run_time(&self, tenant: &str, endpoint: &str) -> Result<(), Error> {
        let removed = self.connection.redis().hdel(self.keys.cost(), format!("{tenant}:{endpoint}")).await;
        removed.map_err(Error::redis("remove the expected run time of an endpoint"))
    }
}
