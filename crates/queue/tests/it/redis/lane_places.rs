//! The place of a queued job in its lane.

use stokehold_queue::job::{Concurrency, JobSpec, NewJob};
use stokehold_queue::{Clock, JobId, LanePlace, ManualClock, Queue, RedisQueue};

use super::{queue, server};
use crate::conformance::{START_MS, held, job, of, query, spec, succeed};

async fn ahead(queue: &RedisQueue, id: JobId) -> Option<u64> {
    queue.lane_place(id).await.unwrap().map(|place: LanePlace| place.ahead)
}

#[tokio::test]
async fn a_job_has_a_place_until_it_starts() {
    let (server, _dir) = server(&[]);
    let clock = ManualClock::new(START_MS);
    let queue = queue(&server, Clock::Manual(clock.clone())).await;
    assert_eq!(ahead(&queue, JobId::new(0)).await, None, "there is no such job");
    let jobs: Vec<NewJob> = (0..3).map(|_| job("echo")).collect();
    let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    for job in jobs {
        queue.submit(vec![job]).await.unwrap();
        clock.advance_ms(1);
    }
    assert_eq!((ahead(&queue, ids[0]).await, ahead(&queue, ids[2]).await), (Some(0), Some(2)));
    let lane = queue.lane_place(ids[0]).await.unwrap().unwrap().lane;
    assert!(lane.ends_with(":acme:echo"), "{lane}");

    let leases = queue.lease(query(2, 0)).await.unwrap();
    assert_eq!((ahead(&queue, ids[0]).await, ahead(&queue, ids[2]).await), (None, Some(0)), "they run");
    // A job that is returned goes first.
    queue.release(&[held(&leases[0])]).await.unwrap();
    assert_eq!((ahead(&queue, ids[0]).await, ahead(&queue, ids[2]).await), (Some(0), Some(1)));

    assert!(queue.expected_runs().await.unwrap().is_empty(), "nothing has ended");
    clock.advance_ms(2_000);
    queue.finish(&[succeed(&leases[1])]).await.unwrap();
    let runs = queue.expected_runs().await.unwrap();
    assert!(runs.get("acme:echo").is_some_and(|ms| (1_990.0..=2_010.0).contains(ms)), "{runs:?}");
}

#[tokio::test]
async fn places_far_back_are_estimated_and_those_of_a_full_key_are_none() {
    let (server, _dir) = server(&[]);
    let clock = ManualClock::new(START_MS);
    let queue = queue(&server, Clock::Manual(clock.clone())).await;
    let jobs: Vec<NewJob> = (0..1_000).map(|_| job("echo")).collect();
    let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    for job in jobs {
        queue.submit(vec![job]).await.unwrap();
        clock.advance_ms(10);
    }
    assert_eq!(ahead(&queue, ids[499]).await, Some(499), "counted");
    for at in [600_usize, 750, 999] {
        let place = ahead(&queue, ids[at]).await.unwrap();
        assert!(place.abs_diff(at as u64) <= 5, "{place} is not about {at}");
    }

    let keyed = || {
        let concurrency = Some(Concurrency { key: "one".into(), max: 1 });
        of(JobSpec { concurrency, ..spec("write") })
    };
    let (first, second) = (keyed(), keyed());
    let waits = second.id;
    queue.submit(vec![first, second]).await.unwrap();
    while ahead(&queue, waits).await.is_some() {
        assert!(!queue.lease(query(100, 0)).await.unwrap().is_empty(), "the second job has to wait for its key");
    }
}
