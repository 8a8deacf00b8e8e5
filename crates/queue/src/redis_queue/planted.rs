//! Planted bugs of the queue in Redis, see [`crate::mutants`].

use std::time::Duration;

use redis::AsyncCommands;

use super::RedisQueue;
use crate::gateway::{FinishAnswer, FinishReport};
use crate::id::JobId;
use crate::job::NewJob;
use crate::queue::Submitted;
use crate::scripts;

impl RedisQueue {
    /// A planted bug: a replica counts in memory and writes the counts later.
    pub(super) fn count_later(&self, reports: &[FinishReport], answers: &[FinishAnswer]) {
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

    /// A planted bug: answers first and runs the script later.
    pub(super) fn submit_later(&self, jobs: Vec<NewJob>) -> Vec<Submitted> {
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
}
