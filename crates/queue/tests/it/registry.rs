//! Lists of the registry: one record that cannot be read hides no other record.

mod deletions;
mod machines;
mod versions;

use redis::AsyncCommands;
use stokehold_queue::endpoint::EndpointSpec;
use stokehold_queue::registry::{Change, Deployed, ENDPOINTS_MAX, SealedSecret, VERSIONS_MAX, Which};
use stokehold_queue::requirements::Trust;
use stokehold_queue::{Clock, RedisConfig, RedisQueue, TokenKind, TokenRecord, nonce};

use crate::redis::{raw, server};
use crate::requirements::endpoint;

const GARBAGE: &str = r#"{"of_a_later_release":["#;

fn token(hash: &str) -> TokenRecord {
    TokenRecord {
        trust: Trust::Owned,
        region: String::new(),
        id: nonce(),
        hash: hash.into(),
        kind: TokenKind::Join,
        tenant: "t".into(),
        scopes: vec![],
        user: String::new(),
        name: "box".into(),
        created_ms: 1,
        expires_ms: None,
        single_use: true,
        machine: None,
        spent: None,
    }
}

#[tokio::test]
async fn a_record_that_cannot_be_read_hides_no_other() {
    let (server, _dir) = server(&[]);
    let config = RedisConfig { url: server.url(), prefix: "t".into(), clock: Clock::Own, ..RedisConfig::default() };
    let registry = RedisQueue::connect(config).await.unwrap().registry();
    let mut redis = raw(&server).await;
    let root = "{t:registry}";

    for name in ["good", "bad", "lost"] {
        registry.deploy("acme", name, endpoint(), 100).await.unwrap();
    }
    let _: u32 = redis.hset(format!("{root}:versions:acme:bad"), 1, GARBAGE).await.unwrap();
    let _: u32 = redis.hset(format!("{root}:versions:acme:good"), 2, GARBAGE).await.unwrap();
    let _: u32 = redis.hset(format!("{root}:endpoints:acme"), "lost", "x y").await.unwrap();
    let endpoints = registry.endpoints("acme").await.unwrap();
    assert_eq!(endpoints.iter().map(|version| &*version.name).collect::<Vec<_>>(), ["good"]);
    assert_eq!(registry.versions("acme", "good").await.unwrap().len(), 1);
    assert_eq!(registry.routed_demands("acme").await.unwrap().len(), 1);

    let good = token("00");
    registry.put_token(&good).await.unwrap();
    registry.put_token(&token("11")).await.unwrap();
    let ids: Vec<String> = redis.smembers(format!("{root}:tokens")).await.unwrap();
    let other = ids.iter().find(|id| **id != good.id).unwrap();
    let _: () = redis.set(format!("{root}:token:{other}"), GARBAGE).await.unwrap();
    assert_eq!(registry.tokens().await.unwrap(), [good]);

    let sealed = SealedSecret { key_id: "k".into(), sealed_key: "a".into(), sealed_value: "b".into(), updated_ms: 1 };
    registry.put_secret("acme", "GOOD", &sealed).await.unwrap();
    let _: u32 = redis.hset(format!("{root}:secrets:acme"), "BAD", GARBAGE).await.unwrap();
    assert_eq!(registry.secrets("acme").await.unwrap().into_keys().collect::<Vec<_>>(), ["GOOD"]);

    let change: Change = serde_json::from_value(serde_json::json!({
        "id": "c1", "tenant": "acme", "at_ms": 1, "action": "PUT /v1/secrets/{name}", "object": "GOOD", "address": "",
        "request_id": "", "end": null, "actor": {"tenant": "acme", "token_id": "", "token_name": "", "user": ""},
    }))
    .unwrap();
    assert!(registry.begin_change(&change).await.unwrap());
    let _: u32 = redis.hset(format!("{root}:changes"), "c0", GARBAGE).await.unwrap();
    assert_eq!(registry.abandoned_changes(2).await.unwrap(), 1, "the one that can be read is ended");
    let log = format!("{root}:audit:acme");
    let _: String = redis::cmd("XADD").arg(log).arg(&["*", "c", GARBAGE]).query_async(&mut redis).await.unwrap();
    let page = registry.audit(Some("acme"), Which::Before(None), 1).await.unwrap();
    assert!(page.changes.is_empty() && page.next.is_some(), "the newest cannot be read");
    let page = registry.audit(Some("acme"), Which::Before(page.next.as_deref()), 1).await.unwrap();
    assert_eq!(page.changes.len(), 1);

    let _: u32 = redis.sadd(format!("{root}:workers"), "w_bad").await.unwrap();
    let _: () = redis.set(format!("{root}:worker:w_bad"), GARBAGE).await.unwrap();
    assert!(registry.workers().await.unwrap().is_empty(), "an answer, and not an error");
    let _: u32 = redis.hset(format!("{root}:bills"), "m_bad", GARBAGE).await.unwrap();
    assert!(registry.bills().await.unwrap().is_empty());
}

#[tokio::test]
async fn versions_and_names_are_bounded_until_some_are_deleted() {
    let (server, _dir) = server(&[]);
    let config = RedisConfig { url: server.url(), prefix: "t".into(), clock: Clock::Own, ..RedisConfig::default() };
    let registry = RedisQueue::connect(config).await.unwrap().registry();
    let named = |entry: &str| EndpointSpec { entry: entry.to_owned(), ..endpoint() };
    let deploy = async |entry: &str| registry.deploy("t", "echo", named(entry), 100).await.unwrap();
    let is_new = |deployed: Deployed| match deployed {
        Deployed::Done { version, is_new, .. } => (version.version as usize, is_new),
        other => panic!("{other:?}"),
    };
    for n in 1..=VERSIONS_MAX {
        assert_eq!(is_new(deploy(&format!("a.py:f{n}")).await), (n, true));
    }
    assert_eq!(deploy("a.py:another").await, Deployed::TooManyVersions);
    let same = deploy(&format!("a.py:f{VERSIONS_MAX}")).await;
    assert_eq!(is_new(same), (VERSIONS_MAX, false), "repeating is safe");
    registry.undeploy("t", "echo", Some(1)).await.unwrap();
    assert_eq!(is_new(deploy("a.py:another").await), (VERSIONS_MAX + 1, true));
    assert_eq!(deploy("a.py:yet_another").await, Deployed::TooManyVersions);

    // Names of deleted endpoints count, because their version numbers continue.
    let (mut redis, keys) = (raw(&server).await, "{t:registry}:deleted:t");
    let names = (2..=ENDPOINTS_MAX).flat_map(|n| [format!("gone-{n}"), "1".to_owned()]);
    let _: u32 = redis::cmd("HSET").arg(keys).arg(names.collect::<Vec<_>>()).query_async(&mut redis).await.unwrap();
    // `echo` is one name, although some of its versions are also deleted.
    let _: u32 = redis::cmd("HDEL").arg(keys).arg("gone-2").query_async(&mut redis).await.unwrap();
    let last = registry.deploy("t", "last", named("a.py:f"), 100).await.unwrap();
    assert_eq!(is_new(last), (1, true));
    let other = registry.deploy("t", "other", named("a.py:f"), 100).await.unwrap();
    assert_eq!(other, Deployed::TooManyNames);
    let of_another = registry.deploy("u", "other", named("a.py:f"), 100).await.unwrap();
    assert_eq!(is_new(of_another), (1, true));
}
