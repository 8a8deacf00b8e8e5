//! The walk over a tenant's open jobs.

use stokehold_queue::job::NewJob;
use stokehold_queue::{Clock, JobId, Queue, RedisQueue};

use super::{queue, server};
use crate::conformance::job;

async fn submit<const N: usize>(queue: &RedisQueue, endpoints: [&str; N]) -> [JobId; N] {
    let jobs: [NewJob; N] = endpoints.map(job);
    let ids = jobs.each_ref().map(|job| job.id);
    queue.submit(jobs.into()).await.unwrap();
    ids
}

/// The jobs of the first step of a walk that began at `from`.
async fn walked(queue: &RedisQueue, from: &str) -> Vec<JobId> {
    let step = queue.open_jobs("acme", from).await.unwrap();
    assert_eq!(step.next, None, "one step is enough");
    step.jobs.into_iter().map(|(id, _)| id).collect()
}

#[tokio::test]
async fn a_walk_sees_the_jobs_that_were_open_when_it_began_and_no_later_one() {
    let (server, _dir) = server(&[]);
    let queue = queue(&server, Clock::Own).await;
    assert_eq!(queue.begin_open_jobs("acme").await.unwrap(), None, "there is no job");
    let old = submit(&queue, ["echo", "echo", "other"]).await;
    queue.cancel("acme", &old[..1]).await.unwrap();
    let start = queue.begin_open_jobs("acme").await.unwrap().unwrap();
    let new = submit(&queue, ["echo"]).await;
    assert_eq!((start.jobs, walked(&queue, &start.from).await), (2, vec![old[2], old[1]]));
    let again = queue.begin_open_jobs("acme").await.unwrap().unwrap();
    assert_eq!((again.jobs, walked(&queue, &again.from).await), (3, vec![new[0], old[2], old[1]]));
}
