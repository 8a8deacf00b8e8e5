//! A failing primary, with Sentinels that name the next one.

use std::time::{Duration, Instant};

use stokehold_queue::gateway::FinishAnswer;
use stokehold_queue::queue::{Lease, Signal};
use stokehold_queue::{Error, Queue, RedisConfig, RedisQueue};
use stokehold_tests::redis_sentinel::RedisService;
use tokio::time::timeout;

use crate::conformance::{job, query, succeed};

const PATIENCE: Duration = Duration::from_secs(60);

async fn connect(service: &RedisService) -> RedisQueue {
    RedisQueue::connect(RedisConfig { url: service.url(), ..RedisConfig::default() }).await.unwrap()
}

/// Waits until calls go to the server that the Sentinels name. On a busy machine they may name another one during the
/// test.
async fn follows(queue: &RedisQueue, service: &RedisService) {
    let called_is_named = async {
        while !queue.primary().ends_with(&format!(":{}", service.primary_port())) {
            let _ = queue.depth().await;
        }
    };
    timeout(PATIENCE, called_is_named).await.expect("the queue finds the primary");
}

/// Repeats a finish while its outcome is unknown, as workers do: a replica that is just coming back may not be able to
/// acknowledge it yet.
async fn finish(queue: &RedisQueue, lease: &Lease) {
    let mut expected = FinishAnswer::Ok;
    loop {
        match queue.finish(&[succeed(lease)]).await {
            Ok(answers) => return assert!(answers == [FinishAnswer::Ok] || answers == [expected]),
            Err(Error::Unavailable { .. }) => expected = FinishAnswer::AlreadyEnded,
            Err(other) => panic!("{other}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_and_signals_follow_the_primary() {
    let dir = tempfile::tempdir().unwrap();
    let mut service = RedisService::start(dir.path());
    let queue = connect(&service).await;
    let mut heard = queue.listen("api-1").await.unwrap();
    queue.check_fitness(false).await.unwrap();
    let before = job("echo");
    queue.submit(vec![before.clone()]).await.unwrap();
    assert!(queue.primary().ends_with(&format!(":{}", service.primary_port())));

    // Opens a connection of the pool for long calls, which `follows` uses afterwards.
    queue.depth().await.unwrap();
    let (number, port) = service.kill_primary();
    // Submits continue meanwhile: each is accepted, or refused as unknown and repeated with the same id until it is
    // accepted.
    let meanwhile = {
        let queue = queue.clone();
        tokio::spawn(async move {
            let (job, mut refused) = (job("echo"), 0);
            loop {
                match queue.submit(vec![job.clone()]).await {
                    Ok(_) => return (job.id, refused, Instant::now()),
                    Err(Error::Unavailable { .. }) => refused += 1,
                    Err(other) => panic!("{other}"),
                }
            }
        })
    };
    tokio::task::block_in_place(|| service.wait_for_promotion(port));
    let found = Instant::now();
    let (late, refused, taken) = timeout(PATIENCE, meanwhile).await.unwrap().unwrap();
    eprintln!(
        "{refused} calls refused; the first one taken {} ms after the promotion was seen",
        taken.saturating_duration_since(found).as_millis()
    );
    follows(&queue, &service).await;
    assert_eq!(timeout(PATIENCE, heard.recv()).await.unwrap(), Some(Signal::Missed), "signals come from there");

    // The old primary comes back as a primary until the Sentinels reconfigure it.
    tokio::task::block_in_place(|| service.restart(number));
    let again = connect(&service).await;
    follows(&again, &service).await;
    let mut finished = Vec::new();
    while finished.len() < 2 {
        for lease in queue.lease(query(10, 0)).await.unwrap() {
            timeout(PATIENCE, finish(&queue, &lease))
                .await
                .expect("the replica that came back acknowledges in the end");
            finished.push(lease.job_id);
        }
    }
    finished.sort_unstable();
    assert_eq!(finished, [before.id, late], "replication had the first, and the second is there once");
}
