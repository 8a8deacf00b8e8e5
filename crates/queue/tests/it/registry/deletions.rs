//! The objects of deleted versions, and the record of a deletion.

use stokehold_queue::endpoint::EndpointSpec;
use stokehold_queue::registry::{Deletion, Deployed, Undeployed};
use stokehold_queue::{Clock, Registry, now_ms};

use crate::redis::{queue, server};

/// A version with the package `package`, uploaded weights `weights`, and weights by URL.
fn spec(package: &str, weights: &str, entry: &str) -> EndpointSpec {
    serde_json::from_value(serde_json::json!({
        "package_sha256": package, "package_size_bytes": 10, "entry": entry, "input_schema": {},
        "weights": [
            {"path": "a", "source": "a", "sha256": weights, "size_bytes": 100},
            {"path": "b", "source": "b", "url": "https://models.test/b", "sha256": "cc", "size_bytes": 1_000},
        ],
    }))
    .unwrap()
}

async fn deploy(registry: &Registry, name: &str, spec: EndpointSpec) {
    let deployed = registry.deploy("t", name, spec, 100).await.unwrap();
    assert!(matches!(deployed, Deployed::Done { is_new: true, .. }), "{deployed:?}");
}

#[tokio::test]
async fn an_endpoint_serves_its_current_version_and_its_canary() {
    let (server, _dir) = server(&[]);
    let registry = queue(&server, Clock::Own).await.registry();
    for (entry, percent) in [("one", 100), ("two", 100), ("three", 10)] {
        registry.deploy("t", "echo", spec("aa", "ww", entry), percent).await.unwrap();
    }
    deploy(&registry, "ask", spec("aa", "ww", "one")).await;
    let served = registry.served("t").await.unwrap();
    let served: Vec<(&str, u32)> = served.iter().map(|version| (version.name.as_str(), version.version)).collect();
    assert_eq!(served, [("ask", 1), ("echo", 2), ("echo", 3)]);
    let current = registry.endpoints("t").await.unwrap();
    assert_eq!(current.iter().map(|version| version.version).collect::<Vec<_>>(), [1, 2]);
}

async fn undeploy(registry: &Registry, name: &str, version: Option<u32>) -> (Deletion, Vec<String>) {
    match registry.undeploy("t", name, version).await.unwrap() {
        Undeployed::Done(deletion, objects) => (deletion, objects),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_objects_of_a_deleted_version_are_noted_and_those_of_the_others_are_named() {
    let (server, _dir) = server(&[]);
    let registry = queue(&server, Clock::Own).await.registry();
    for (package, weights) in [("aa", "ww"), ("bb", "ww"), ("bb", "xx")] {
        deploy(&registry, "echo", spec(package, weights, weights)).await;
    }
    let all = registry.named_objects("t").await.unwrap();
    let sizes = [("packages/aa", 10), ("packages/bb", 10), ("weights/ww", 100), ("weights/xx", 100)];
    assert_eq!(all.iter().map(|(object, bytes)| (object.as_str(), *bytes)).collect::<Vec<_>>(), sizes);
    let alone = registry.named_only_by("t", |name, version| name == "echo" && version < 3).await.unwrap();
    assert_eq!(alone.into_keys().collect::<Vec<_>>(), ["packages/aa", "weights/ww"], "the third one names bb");
    registry.learn("t", "echo", 1, "RTX 4090", 5).await.unwrap();
    registry.learn("t", "echo", 2, "RTX 4090", 6).await.unwrap();
    registry.set_floor("t", "echo", 1, 1).await.unwrap();

    let (deletion, objects) = undeploy(&registry, "echo", Some(1)).await;
    assert_eq!((deletion.versions.as_slice(), deletion.is_whole, objects.len()), ([1].as_slice(), false, 2));
    assert_eq!(registry.orphans(now_ms() + 1).await.unwrap()["t"], ["packages/aa", "weights/ww"]);
    let left = registry.named_objects("t").await.unwrap();
    assert!(!left.contains_key("packages/aa") && left.contains_key("weights/ww"));
    assert_eq!(registry.all_needs("t", "echo").await.unwrap().into_keys().map(|(n, _)| n).collect::<Vec<_>>(), [2]);
    assert!(registry.floors().await.unwrap().is_empty(), "it must not stay loaded");

    assert_eq!(registry.deletions().await.unwrap(), std::slice::from_ref(&deletion));
    registry.follow_deletion(&deletion).await.unwrap();
    assert!(registry.deletions().await.unwrap()[0].is_followed);
    registry.end_deletion(&deletion.id).await.unwrap();
    assert!(registry.deletions().await.unwrap().is_empty());
}

#[tokio::test]
async fn an_object_is_claimed_once_and_no_version_names_it_meanwhile() {
    let (server, _dir) = server(&[]);
    let registry = queue(&server, Clock::Own).await.registry();
    deploy(&registry, "echo", spec("aa", "ww", "a.py:f")).await;
    let (_, objects) = undeploy(&registry, "echo", None).await;
    let claim = registry.claim_orphans("t", &objects, 60_000).await.unwrap();
    assert_eq!(claim.objects, objects);
    assert!(registry.claim_orphans("t", &objects, 60_000).await.unwrap().objects.is_empty());
    assert!(!registry.keep_object("t", "packages/aa", 60_000).await.unwrap());
    let again = |name: &'static str, swept| {
        let registry = registry.clone();
        async move { registry.deploy_stored("t", name, spec("bb", "ww", "a.py:f"), 100, Some(swept)).await.unwrap() }
    };
    assert_eq!(again("echo", 0).await, Deployed::Swept, "its weights are claimed");

    // It was noted again by another deletion, so it is checked again.
    let orphans = server.ask::<Vec<String>>(&["KEYS", "*:orphans"]).remove(0);
    assert_eq!(server.ask::<u32>(&["ZADD", &orphans, "1", "t/packages/aa"]), 0);
    registry.end_claim("t", &claim, true).await.unwrap();
    assert_eq!(registry.orphans(now_ms() + 1).await.unwrap()["t"], ["packages/aa"]);
    assert_eq!(registry.swept("t").await.unwrap(), 1);
    assert_eq!(again("echo", 0).await, Deployed::Swept, "its objects were looked for before the deletion");
    assert!(matches!(again("echo", 1).await, Deployed::Done { .. }));

    // Whoever is about to deploy an object defers its deletion.
    assert!(registry.keep_object("t", "packages/aa", 60_000).await.unwrap());
    assert!(registry.orphans(now_ms() + 1).await.unwrap().is_empty());
    assert!(registry.claim_orphans("t", &objects, 60_000).await.unwrap().objects.is_empty());
    assert!(registry.keep_object("t", "packages/bb", 60_000).await.unwrap(), "it is no orphan");
    assert_eq!(registry.orphans(now_ms() + 120_000).await.unwrap()["t"], ["packages/aa"]);

    // The claim of a replica that died ends.
    let (_, objects) = undeploy(&registry, "echo", None).await;
    assert!(registry.claim_orphans("t", &objects, 0).await.unwrap().objects.contains(&"weights/ww".to_owned()));
    assert!(registry.claim_orphans("t", &objects, 0).await.unwrap().objects.contains(&"weights/ww".to_owned()));
}
