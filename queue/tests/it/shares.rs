//! A tenant's share of Redis: what its records take is counted, and one that has enough makes no others wait.

use redis::aio::MultiplexedConnection;
use serde_json::value::to_raw_value;
use stokehold_queue::job::{JobSpec, NewJob};
use stokehold_queue::queue::{Gate, Limits};
use stokehold_queue::{Clock, Error, JobId, Queue, RedisQueue};

use crate::conformance::{held, job, of, query, spec, succeed};
use crate::redis::{queue, raw, server};

fn large(tenant: &str, bytes: usize) -> NewJob {
    let input = to_raw_value(&"x".repeat(bytes)).unwrap();
    NewJob { input, ..of(JobSpec { tenant: tenant.to_owned(), ..spec("echo") }) }
}

/// Sets maxmemory so that this part of it is in use.
async fn fill(redis: &mut MultiplexedConnection, queue: &RedisQueue, part: f64) -> u64 {
    queue.look().await.unwrap();
    let max = (queue.health().vitals.used_bytes as f64 / part) as u64;
    let _: () = redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(max).query_async(redis).await.unwrap();
    queue.look().await.unwrap();
    max
}

#[tokio::test]
async fn one_tenant_leaves_the_others_room() {
    let (server, _dir) = server(&[]);
    let queue = queue(&server, Clock::Own).await;
    let mut redis = raw(&server).await;
    for _ in 0..20 {
        queue.submit((0..10).map(|_| large("greedy", 40_000)).collect()).await.unwrap();
    }
    queue.submit(vec![large("modest", 100)]).await.unwrap();

    // While there is enough, a tenant takes what it needs.
    fill(&mut redis, &queue, 0.5).await;
    queue.submit(vec![large("greedy", 100)]).await.unwrap();

    let max = fill(&mut redis, &queue, 0.65).await;
    let held_by = queue.memory_of("greedy").await.unwrap();
    assert!(held_by > max / 5, "{held_by} of {max}");
    let refused = queue.submit(vec![large("greedy", 100)]).await.unwrap_err();
    let Error::Memory { tenant, most_bytes, held_bytes } = refused else { panic!("{refused}") };
    assert_eq!((tenant.as_str(), most_bytes, held_bytes), ("greedy", max / 100 * 20, held_by));
    assert_eq!(queue.memory_of("greedy").await.unwrap(), held_by, "nothing was accepted");
    queue.submit(vec![large("modest", 10_000)]).await.unwrap();

    // An operator can allow more, or less.
    let gate = |tenant: &str| Gate::Tenant(tenant.to_owned());
    let most = |bytes: u64| Limits { max_memory_bytes: Some(bytes), ..Limits::default() };
    queue.limit(&gate("greedy"), Some(&most(1 << 40))).await.unwrap();
    assert_eq!(queue.usage(&gate("greedy")).await.unwrap().0, most(1 << 40));
    queue.submit(vec![large("greedy", 100)]).await.unwrap();
    queue.limit(&gate("modest"), Some(&most(1_000))).await.unwrap();
    assert!(matches!(queue.submit(vec![large("modest", 1)]).await, Err(Error::Memory { most_bytes: 1_000, .. })));
}

#[tokio::test]
async fn what_a_record_takes_is_given_back_when_it_goes() {
    let (server, _dir) = server(&[]);
    let queue = queue(&server, Clock::Own).await;
    let mut redis = raw(&server).await;
    let jobs = [large("acme", 5_000), large("acme", 7_000), large("acme", 9_000)];
    let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    queue.submit(jobs.to_vec()).await.unwrap();
    let taken = queue.memory_of("acme").await.unwrap();
    assert!(taken > 21_000 && taken < 21_000 + 3 * 4_096, "{taken}");
    // The same again is no other record.
    queue.submit(jobs.to_vec()).await.unwrap();
    assert_eq!(queue.memory_of("acme").await.unwrap(), taken);

    // A result is counted as well, one that fits in beside the record is not.
    let lease = queue.lease(query(1, 0)).await.unwrap().remove(0);
    queue.release(&[held(&lease)]).await.unwrap();
    let leases = queue.lease(query(2, 0)).await.unwrap();
    queue.finish(&[succeed(&leases[0])]).await.unwrap();
    assert_eq!(queue.memory_of("acme").await.unwrap(), taken);
    let mut report = succeed(&leases[1]);
    report.outcome =
        stokehold_queue::gateway::FinishOutcome::Succeeded { result: to_raw_value(&"y".repeat(4_998)).unwrap() };
    queue.finish(&[report]).await.unwrap();
    assert_eq!(queue.memory_of("acme").await.unwrap(), taken + 5_000);

    // One of the release before was not counted, and gives nothing back.
    queue.cancel("acme", &ids).await.unwrap();
    let pattern = format!("*:j:{}", ids[0]);
    let first: Vec<String> = redis::cmd("KEYS").arg(&pattern).query_async(&mut redis).await.unwrap();
    let size: u64 = redis::cmd("HGET").arg(&first[0]).arg("size").query_async(&mut redis).await.unwrap();
    let _: () = redis::cmd("HDEL").arg(&first[0]).arg("size").query_async(&mut redis).await.unwrap();
    queue.history().forget(&ids).await.unwrap();
    assert_eq!(queue.memory_of("acme").await.unwrap(), size);

    // The recovery sweep finds what is counted wrongly, the second time.
    queue.submit(vec![job("echo")]).await.unwrap();
    let right = queue.memory_of("acme").await.unwrap() - size;
    for _ in 0..2 {
        assert_eq!(queue.memory_of("acme").await.unwrap(), right + size);
        let mut place = None;
        loop {
            place = queue.recover(place.as_ref()).await.unwrap().next;
            if place.is_none() {
                break;
            }
        }
    }
    assert_eq!(queue.memory_of("acme").await.unwrap(), right);
}
