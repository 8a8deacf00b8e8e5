//! A full disk: `standard` refuses writes and recovers by itself, `strict` loses its server and nothing else. The disk
//! is a small tmpfs. Where mounting one is not allowed, the tests print so and do nothing.

use stokehold_queue::job::NewJob;
use stokehold_queue::{Durability, Error, JobId, NoAdmission, Queue, RedisConfig, RedisQueue};
use stokehold_tests::process::alive;
use stokehold_tests::redis_server::RedisServer;
use stokehold_tests::small_disk::SmallDisk;

use crate::conformance::{job, query, raw, succeed};

fn large() -> NewJob {
    NewJob { input: raw(&format!("\"{}\"", "x".repeat(16 << 10))), ..job("echo") }
}

async fn connect(server: &RedisServer, durability: Durability) -> RedisQueue {
    let config = RedisConfig { url: server.url(), durability, ..RedisConfig::default() };
    let queue = RedisQueue::connect(config).await.unwrap();
    assert_eq!(queue.check_fitness(false).await.unwrap().durability, durability);
    queue
}

/// Submits until a submit is refused. Returns the acknowledged jobs and the refusal.
async fn until_refused(queue: &RedisQueue) -> (Vec<JobId>, Error) {
    let mut told = Vec::new();
    loop {
        let job = large();
        let id = job.id;
        match queue.submit(vec![job]).await {
            Ok(_) => told.push(id),
            Err(error) => return (told, error),
        }
    }
}

#[tokio::test]
async fn standard_refuses_while_the_disk_is_full_and_comes_back_by_itself() {
    let Some(disk) = SmallDisk::mount(8) else { return };
    let server = RedisServer::start(disk.path(), &["--appendfsync", "everysec"]);
    let queue = connect(&server, Durability::Standard).await;
    queue.submit(vec![job("echo")]).await.unwrap();
    let leases = queue.lease(query(1, 0)).await.unwrap();
    disk.fill();
    let (told, refused) = until_refused(&queue).await;
    assert!(matches!(refused, Error::Closed(_)), "{refused:?}");
    assert!(refused.to_string().contains("disk"), "{refused}");
    queue.look().await.unwrap();
    assert_eq!(queue.health().refusal, Some(NoAdmission::Disk), "from now on without asking Redis");
    // An API replica that restarts now starts.
    let passed = queue.check_fitness(false).await.unwrap();
    assert!(passed.notes.iter().any(|note| note.contains("disk")), "{:?}", passed.notes);

    disk.make_room();
    // Redis retries by itself every second.
    while queue.health().refusal.is_some() {
        queue.look().await.unwrap();
    }
    queue.finish(&[succeed(&leases[0])]).await.unwrap();
    queue.submit(vec![job("echo")]).await.unwrap();
    for id in told {
        assert!(queue.get(id).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn strict_loses_its_server_and_no_acknowledged_job() {
    let Some(disk) = SmallDisk::mount(8) else { return };
    let server = RedisServer::start(disk.path(), &[]);
    let queue = connect(&server, Durability::Strict).await;
    disk.fill();
    let (told, refused) = until_refused(&queue).await;
    assert!(matches!(refused, Error::Unavailable { .. }), "its outcome is unknown: {refused:?}");
    while alive(server.pid()) {
        tokio::task::yield_now().await;
    }
    disk.make_room();
    // A supervisor would restart it in the same way.
    let server = RedisServer::start(disk.path(), &[]);
    let queue = connect(&server, Durability::Strict).await;
    for id in told {
        assert!(queue.get(id).await.unwrap().is_some(), "{id} was acknowledged and is gone");
    }
    queue.submit(vec![job("echo")]).await.unwrap();
}
