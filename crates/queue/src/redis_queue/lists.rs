//! Lists of jobs: a tenant's, its dead letters, and the depth of lanes.

use std::collections::HashMap;

use redis::AsyncCommands;
use redis::streams::{StreamId, StreamRangeReply};

use super::RedisQueue;
use crate::connection::Connection;
use crate::error::Error;
use crate::id::JobId;
use crate::job::{Job, JobError, JobState};
use crate::queue::{JobPage, LaneDepth, ListFilter};
use crate::{flow, record, stored_spec};

/// Maximum number of records that one list call reads, however few match.
const LIST_SCAN_MAX: usize = 1_000;
const LIST_STEP: usize = 100;

/// Upper bound on the jobs that end in one millisecond: more than one `expire` or `finish` ends.
const DEAD_SAME_MS_MAX: usize = 1_000;

impl RedisQueue {
    /// A tenant's dead letters: failed and expired jobs that were not retried, newest first, after the position of the
    /// last one read. An entry is `None` if the record is deleted.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn dead(
        &self,
        tenant: &str,
        after: Option<(u64, JobId)>,
        most: usize,
    ) -> Result<Vec<((u64, JobId), Option<Job>)>, Error> {
        let (mut redis, step) = (self.connection.long(), "list dead letters");
        let from = after.map_or_else(|| "+inf".to_owned(), |(ended_ms, _)| ended_ms.to_string());
        // Jobs that ended in the same millisecond as the last one read are returned again. Their number is bounded,
        // because one call ends a bounded number of jobs.
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
            redis.read_each(&mut pipe).await.map_err(Error::redis(step))?;
        let read = |(place, fields): ((u64, JobId), Option<HashMap<String, String>>)| {
            let job = fields.map_or(Ok(None), |fields| record::decode(place.1, &fields));
            Ok((place, readable(place.1, job)?))
        };
        places.into_iter().zip(records).map(read).collect()
    }

    pub(super) async fn list_jobs(
        &self,
        tenant: &str,
        filter: &ListFilter,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<JobPage, Error> {
        let limit = limit as usize;
        let mut redis = self.connection.long();
        let mut before = cursor.map_or_else(|| "+".to_owned(), |cursor| format!("({cursor}"));
        let (mut jobs, mut scanned) = (Vec::new(), 0);
        loop {
            let page: StreamRangeReply = redis
                .xrevrange_count(self.keys.index(tenant), &before, "-", LIST_STEP)
                .await
                .map_err(Error::redis("list jobs"))?;
            let entries: Vec<(String, JobId)> = page.ids.iter().filter_map(index_entry).collect();
            let ids: Vec<JobId> = entries.iter().map(|(_, id)| *id).collect();
            for id in self.matching(&redis, &ids, filter).await? {
                jobs.extend(readable(id, self.record(&redis, id).await)?.map(|job| (id, job)));
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

    /// The jobs with these ids that match, in order.
    async fn matching(&self, connection: &Connection, ids: &[JobId], filter: &ListFilter) -> Result<Vec<JobId>, Error> {
        if filter.takes_all() || ids.is_empty() {
            return Ok(ids.to_vec());
        }
        let mut pipe = redis::pipe();
        for id in ids {
            pipe.hmget(self.keys.job(*id), &["state", "lane", "spec", "error"]);
        }
        let rows: Vec<Option<[Option<String>; 4]>> =
            connection.read_each(&mut pipe).await.map_err(Error::redis("list jobs"))?;
        let matches = |row: &Option<[Option<String>; 4]>| {
            let Some([state, lane, spec, error]) = row else { return false };
            // Large records are decoded only as far as the filter needs.
            let error = error.as_ref().filter(|_| filter.error_code.is_some());
            let code = error.and_then(|error| serde_json::from_str::<JobError>(error).ok()).map(|error| error.code);
            let (Some(state), Some(lane), Some(spec)) = (state, lane, spec) else { return false };
            JobState::from_word(state).is_some_and(|state| {
                stored_spec::decode(lane, spec).is_ok_and(|spec| filter.matches(state, &spec, code))
            })
        };
        Ok(ids.iter().zip(&rows).filter(|(_, row)| matches(row)).map(|(id, _)| *id).collect())
    }

    pub(super) async fn lane_depths(&self) -> Result<Vec<LaneDepth>, Error> {
        let (mut redis, step) = (self.connection.long(), "read the lanes");
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
}

pub(crate) fn index_entry(entry: &StreamId) -> Option<(String, JobId)> {
    Some((entry.id.clone(), JobId::from_bytes(entry.get::<Vec<u8>>("j")?.try_into().ok()?)))
}

/// A job of a list. A corrupt record is left out, so that it does not hide the others.
fn readable(id: JobId, read: Result<Option<Job>, Error>) -> Result<Option<Job>, Error> {
    match read {
        Err(error @ Error::Corrupt { .. }) => {
            let error = &error as &dyn std::error::Error;
            tracing::error!(job.id = %id, error, "a job cannot be read; leaving it out of a list");
            Ok(None)
        }
        read => read,
    }
}
