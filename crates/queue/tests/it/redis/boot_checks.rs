//! The checks at boot: whether a Redis can keep what a 202 promises.

use futures::future::join_all;
use stokehold_queue::{Clock, Durability, Error, Queue, RedisConfig, RedisQueue};

use super::{queue, raw, server};
use crate::conformance::job;

/// Each check writes and reads back its own probe.
#[tokio::test]
async fn replicas_that_start_together_are_all_fit() {
    let (server, _dir) = server(&[]);
    let queues = join_all((0..8).map(|_| queue(&server, Clock::Own))).await;
    for _ in 0..20 {
        for fitness in join_all(queues.iter().map(|queue| queue.check_fitness(false))).await {
            fitness.unwrap();
        }
    }
}

#[tokio::test]
async fn the_boot_checks_tell_a_fit_redis_from_an_unfit_one() {
    let (fit, _dir) = server(&[]);
    let class = async |queue: RedisQueue, ephemeral| queue.check_fitness(ephemeral).await.map(|fit| fit.durability);
    assert_eq!(class(queue(&fit, Clock::Own).await, false).await.unwrap(), Durability::Strict);

    let (lazy, _dir) = server(&["--appendfsync", "everysec"]);
    let refused = class(queue(&lazy, Clock::Own).await, false).await.unwrap_err();
    assert!(refused.to_string().contains("CONFIG SET appendfsync always"), "{refused}");
    let standard = RedisConfig { url: lazy.url(), durability: Durability::Standard, ..RedisConfig::default() };
    let queue_of = RedisQueue::connect(standard).await.unwrap();
    assert_eq!(class(queue_of, false).await.unwrap(), Durability::Standard);

    // A managed service, which does not allow CONFIG.
    let (managed, _dir) = server(&["--rename-command", "CONFIG", ""]);
    let refused = class(queue(&managed, Clock::Own).await, false).await.unwrap_err();
    assert!(refused.to_string().contains("STOKE_DURABILITY=standard"), "{refused}");

    let (evicting, _dir) = server(&["--maxmemory-policy", "allkeys-lru"]);
    let refused = queue(&evicting, Clock::Own).await.check_fitness(false).await.unwrap_err();
    assert!(refused.to_string().contains("noeviction"), "{refused}");

    let (forgetful, _dir) = server(&["--appendonly", "no"]);
    let queue = queue(&forgetful, Clock::Own).await;
    let refused = queue.check_fitness(false).await.unwrap_err();
    assert!(refused.to_string().contains("--ephemeral"), "{refused}");
    assert_eq!(class(queue, true).await.unwrap(), Durability::Ephemeral);
}

/// An API replica must start then: it serves reads, and its sweeper frees memory. `disk_full.rs` has the third case.
#[tokio::test]
async fn a_redis_that_rejects_writes_at_present_passes_and_the_reason_is_noted() {
    let (server, _dir) = server(&[]);
    let queue = queue(&server, Clock::Own).await;
    let mut redis = raw(&server).await;
    let mut set = async |name: &str, value: &str| {
        ::redis::cmd("CONFIG").arg("SET").arg(name).arg(value).query_async::<()>(&mut redis).await.unwrap();
    };
    for (name, bad, good, reason) in
        [("maxmemory", "1", "1gb", "out of memory"), ("min-replicas-to-write", "1", "0", "too few replicas")]
    {
        set(name, bad).await;
        let passed = queue.check_fitness(false).await.unwrap();
        assert_eq!(passed.durability, Durability::Strict);
        assert!(passed.notes.iter().any(|note| note.contains(reason)), "{:?}", passed.notes);
        let refused = queue.submit(vec![job("echo")]).await.unwrap_err();
        assert!(matches!(refused, Error::Closed(_)), "{refused:?}");
        set(name, good).await;
        assert!(queue.check_fitness(false).await.unwrap().notes.is_empty());
    }
}
