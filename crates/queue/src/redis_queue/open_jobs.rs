//! A walk over a tenant's open jobs that reads their specs only, and what a queue keeps of an endpoint.

use redis::AsyncCommands;
use redis::streams::StreamRangeReply;

use super::{RedisQueue, index_entry};
use crate::error::Error;
use crate::id::JobId;
use crate::job::{JobSpec, JobState};
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

impl RedisQueue {
    /// The next step of a walk over a tenant's open jobs; `before` comes from the step before it.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn open_jobs(&self, tenant: &str, before: Option<&str>) -> Result<OpenJobs, Error> {
        let (mut redis, step) = (self.connection.long(), "read open jobs");
        let from = before.map_or_else(|| "+".to_owned(), |before| format!("({before}"));
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
            is_open.then(|| Some((id, stored_spec::decode(&lane, &spec).ok()?))).flatten()
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
