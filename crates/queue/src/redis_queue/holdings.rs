//! The leases of a worker: which worker has a lease, what it may read, and how all its leases are released.

use redis::AsyncCommands;

use super::{RedisQueue, bounded};
use crate::error::Error;
use crate::gateway::{FinishAnswer, LeaseRef, ModelRef};
use crate::id::{Fence, JobId};
use crate::job::{JobSpec, SLOT_PARTS};
use crate::queue::{BATCH_MAX, LEASES_MAX, Queue};
use crate::stored_spec;

/// Number of leases that one call reads.
const PAGE: usize = 500;

/// The worker that has a lease, and the age of the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    /// The worker that the lease was granted to.
    pub worker_id: String,
    /// Age of the lease by the queue's clock, milliseconds.
    pub held_ms: u64,
    /// Number of jobs that share a slot with it, including itself, as in its spec; `None` if unknown.
    pub share: Option<u32>,
}

impl Holding {
    /// Parses the field `run` of a record.
    fn parse(run: &str, now_ms: u64) -> Option<Self> {
        let mut words = run.split(' ');
        let (worker_id, leased_ms) = (words.next()?.to_owned(), words.next()?.parse::<u64>().ok()?);
        let part: Option<u64> =
            words.nth(2).and_then(|part| part.parse().ok()).filter(|part| (1..SLOT_PARTS).contains(part));
        let share = part.and_then(|part| u32::try_from(SLOT_PARTS.div_ceil(part)).ok());
        Some(Self { worker_id, held_ms: now_ms.saturating_sub(leased_ms), share })
    }
}

fn is(spec: &JobSpec, model: &ModelRef) -> bool {
    (&spec.tenant, &spec.endpoint, spec.version) == (&model.tenant, &model.endpoint, model.version)
}

impl RedisQueue {
    /// The worker and the age of each of these leases; `None` for a lease that is not valid now.
    ///
    /// # Errors
    /// [`Error::TooLarge`] above [`LEASES_MAX`], [`Error::Unavailable`].
    pub async fn holdings(&self, leases: &[LeaseRef]) -> Result<Vec<Option<Holding>>, Error> {
        bounded("leases", leases.len(), LEASES_MAX)?;
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        let step = "read the workers of leases";
        let mut jobs = redis::pipe();
        for lease in leases {
            jobs.hmget(self.keys.job(lease.job_id), &["fence", "run"]);
        }
        let jobs: Vec<Option<(Option<String>, Option<String>)>> =
            self.connection.read_each(&mut jobs).await.map_err(Error::redis(step))?;
        // The clock is read after the jobs, so that no age is negative.
        let now_ms = self.connection.now_ms(&self.config.clock).await?;
        let held = leases.iter().zip(jobs).map(|(lease, job)| {
            let (fence, run) = job?;
            Holding::parse(&run.filter(|_| fence.as_ref() == Some(&lease.fence.0))?, now_ms)
        });
        Ok(held.collect())
    }

    /// The parts of its slots that a worker's leases take, in [`SLOT_PARTS`](crate::job::SLOT_PARTS).
    pub(crate) async fn taken(&self, worker_id: &str) -> Result<u64, Error> {
        let mut redis = self.connection.redis();
        let parts: Vec<String> =
            redis.hvals(self.keys.runs(worker_id)).await.map_err(Error::redis("count a worker's leases"))?;
        Ok(parts.iter().filter_map(|part| part.parse::<u64>().ok()).sum())
    }

    /// Whether a worker has a lease of a job of this version.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn runs(&self, worker_id: &str, model: &ModelRef) -> Result<bool, Error> {
        let (mut redis, step) = (self.connection.redis(), "look for a lease of a version");
        let ids: Vec<String> = redis.hkeys(self.keys.runs(worker_id)).await.map_err(Error::redis(step))?;
        let ids: Vec<JobId> = ids.iter().filter_map(|id| id.parse().ok()).collect();
        for ids in ids.chunks(BATCH_MAX) {
            let mut pipe = redis::pipe();
            for id in ids {
                pipe.hmget(self.keys.job(*id), &["run", "lane", "spec"]);
            }
            let rows: Vec<Option<[Option<String>; 3]>> =
                self.connection.read_each(&mut pipe).await.map_err(Error::redis(step))?;
            let is_of_it = |row: &Option<[Option<String>; 3]>| {
                let Some([run, lane, spec]) = row else { return false };
                let (Some(run), Some(lane), Some(spec)) = (run, lane, spec) else { return false };
                let is_its_own = run.split(' ').next() == Some(worker_id);
                is_its_own && stored_spec::decode(lane, spec).is_ok_and(|spec| is(&spec, model))
            };
            if rows.iter().any(is_of_it) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Releases all leases of a worker at no cost to their jobs, and returns their number. A lease that is being
    /// granted at this moment may be missed: call again once the worker can no longer lease.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: some may have been released; retry.
    pub async fn evict(&self, worker_id: &str) -> Result<u32, Error> {
        let (mut redis, step) = (self.connection.redis(), "scan the leases");
        let (mut cursor, mut released) = (0_u64, 0);
        loop {
            let (next, page): (u64, Vec<(String, f64)>) = redis::cmd("ZSCAN")
                .arg(self.keys.leases())
                .arg(cursor)
                .arg("COUNT")
                .arg(PAGE)
                .query_async(&mut redis)
                .await
                .map_err(Error::redis(step))?;
            let ids: Vec<JobId> = page.iter().filter_map(|(id, _)| id.parse().ok()).collect();
            let mut pipe = redis::pipe();
            for id in &ids {
                pipe.hmget(self.keys.job(*id), &["fence", "run"]);
            }
            let rows: Vec<Option<(Option<String>, Option<String>)>> =
                self.connection.read_each(&mut pipe).await.map_err(Error::redis(step))?;
            let is_its_own =
                |run: &Option<String>| run.as_deref().and_then(|run| run.split(' ').next()) == Some(worker_id);
            let read = ids.iter().zip(rows).filter_map(|(id, row)| Some((id, row?)));
            let held = read.filter(|(_, (_, run))| is_its_own(run));
            let leases: Vec<LeaseRef> =
                held.filter_map(|(id, (fence, _))| Some(LeaseRef { job_id: *id, fence: Fence(fence?) })).collect();
            for leases in leases.chunks(BATCH_MAX) {
                let answers = self.release(leases).await?;
                let done = answers.iter().filter(|answer| **answer == FinishAnswer::Ok).count();
                released += u32::try_from(done).unwrap_or(u32::MAX);
            }
            cursor = next;
            if cursor == 0 {
                return Ok(released);
            }
        }
    }

    /// The spec and the attempt of the job under this lease; `None` if the lease is not valid. A job that cannot be
    /// read goes to the quarantine and counts as not leased: an error would fail every report of the call.
    pub(super) async fn leased_spec(&self, lease: &LeaseRef) -> Result<Option<(JobSpec, u32)>, Error> {
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
}
