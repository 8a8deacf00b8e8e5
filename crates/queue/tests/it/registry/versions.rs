//! Versions of endpoints and their traffic.

use stokehold_queue::Clock;
use stokehold_queue::endpoint::{EndpointSpec, EndpointVersion, Traffic};
use stokehold_queue::registry::{Deletion, Deployed, TrafficSet, Undeployed};

use crate::redis::{queue, server};

fn endpoint_spec(entry: &str) -> EndpointSpec {
    serde_json::from_value(serde_json::json!({
        "package_sha256": "00", "package_size_bytes": 1, "entry": entry, "input_schema": {},
    }))
    .unwrap()
}

fn deployed(deployed: Deployed) -> (EndpointVersion, Traffic, bool) {
    let Deployed::Done { version, traffic, is_new } = deployed else { panic!("{deployed:?}") };
    (*version, traffic, is_new)
}

#[tokio::test]
async fn versions_are_immutable_numbered_and_only_added_when_something_changed() {
    let (server, _dir) = server(&[]);
    let registry = queue(&server, Clock::Own).await.registry();
    let deploy = async |entry: &str| deployed(registry.deploy("t", "echo", endpoint_spec(entry), 100).await.unwrap());
    let (first, _, created) = deploy("a.py:f").await;
    assert_eq!((first.version, created), (1, true));
    let (same, _, created) = deploy("a.py:f").await;
    assert_eq!((&same, created), (&first, false));
    let (second, _, created) = deploy("a.py:g").await;
    assert_eq!((second.version, created), (2, true));

    assert_eq!(registry.endpoint("t", "echo", None).await.unwrap(), Some(second.clone()));
    assert_eq!(registry.endpoint("t", "echo", Some(1)).await.unwrap(), Some(first.clone()));
    assert_eq!(registry.endpoint("other", "echo", None).await.unwrap(), None);
    assert_eq!(registry.versions("t", "echo").await.unwrap(), [second.clone(), first]);
    assert_eq!(registry.endpoints("t").await.unwrap(), [second]);
}

#[tokio::test]
async fn a_deleted_version_gives_back_its_memory_and_keeps_its_number() {
    let (server, _dir) = server(&[]);
    let registry = queue(&server, Clock::Own).await.registry();
    let deploy =
        async |entry: &str| deployed(registry.deploy("t", "echo", endpoint_spec(entry), 100).await.unwrap()).0.version;
    let undeploy = async |version| registry.undeploy("t", "echo", version).await.unwrap();
    let deleted = async |version| match undeploy(version).await {
        Undeployed::Done(Deletion { versions, .. }, _) => versions,
        other => panic!("{other:?}"),
    };
    let numbers = async || -> Vec<u32> {
        registry.versions("t", "echo").await.unwrap().iter().map(|version| version.version).collect()
    };
    assert_eq!(undeploy(None).await, Undeployed::UnknownEndpoint);
    let long = format!("a.py:{}", "f".repeat(10_000));
    for entry in ["a.py:f", &long, "a.py:g", "a.py:h"] {
        deploy(entry).await;
    }
    let taken = registry.version_bytes("t").await.unwrap();
    assert_eq!(undeploy(Some(5)).await, Undeployed::UnknownVersion);
    assert_eq!(undeploy(Some(4)).await, Undeployed::HasTraffic);
    registry.set_traffic("t", "echo", 1, 10).await.unwrap();
    assert_eq!(undeploy(Some(1)).await, Undeployed::HasTraffic, "a part of it");
    registry.set_traffic("t", "echo", 4, 100).await.unwrap();
    assert_eq!(deleted(Some(2)).await, [2]);
    assert_eq!(undeploy(Some(2)).await, Undeployed::UnknownVersion, "it is deleted");
    let given_back = taken - registry.version_bytes("t").await.unwrap();
    assert!((9_900..10_500).contains(&given_back), "{given_back}");
    assert_eq!(numbers().await, [4, 3, 1]);
    assert_eq!(registry.endpoint("t", "echo", Some(2)).await.unwrap(), None);
    assert_eq!(registry.set_traffic("t", "echo", 2, 1).await.unwrap(), TrafficSet::UnknownVersion);
    // There is no rollback to a missing version.
    assert_eq!(registry.traffic("t", "echo").await.unwrap().unwrap().previous, Some(3));
    assert_eq!(deleted(Some(3)).await, [3]);
    assert_eq!(registry.traffic("t", "echo").await.unwrap().unwrap().previous, None);
    assert_eq!(deploy("a.py:i").await, 5);

    // The whole endpoint is deleted, including its warm settings and learned needs; its version numbers continue.
    registry.set_floor("t", "echo", 5, 1).await.unwrap();
    assert_eq!(deleted(None).await.len(), 3);
    assert_eq!(registry.traffic("t", "echo").await.unwrap(), None);
    assert_eq!(numbers().await, [0; 0]);
    assert!(registry.endpoints("t").await.unwrap().is_empty() && registry.floors().await.unwrap().is_empty());
    assert_eq!(deploy("a.py:f").await, 6);
    assert_eq!(numbers().await, [6]);
}

#[tokio::test]
async fn traffic_is_given_to_a_version_in_part_or_whole_and_taken_back() {
    let (server, _dir) = server(&[]);
    let registry = queue(&server, Clock::Own).await.registry();
    let deploy = async |entry: &str, percent| {
        let (version, traffic, created) =
            deployed(registry.deploy("t", "echo", endpoint_spec(entry), percent).await.unwrap());
        (version.version, traffic.parts().collect::<Vec<_>>(), created)
    };
    let set = async |version, percent| match registry.set_traffic("t", "echo", version, percent).await.unwrap() {
        TrafficSet::Done(traffic) => traffic.parts().collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(registry.set_traffic("t", "echo", 1, 100).await.unwrap(), TrafficSet::UnknownEndpoint);
    // The first version receives all traffic, whatever the request specified.
    assert_eq!(deploy("a.py:f", 10).await, (1, vec![(1, 100)], true));
    assert_eq!(deploy("a.py:g", 10).await, (2, vec![(1, 90), (2, 10)], true));
    // The same deploy again is the same version, with the traffic of the last request.
    assert_eq!(deploy("a.py:g", 10).await, (2, vec![(1, 90), (2, 10)], false));
    assert_eq!(deploy("a.py:g", 50).await, (2, vec![(1, 50), (2, 50)], false));
    assert_eq!(registry.endpoint("t", "echo", None).await.unwrap().unwrap().version, 1);
    assert_eq!(set(2, 100).await, [(2, 100)]);
    assert_eq!(set(1, 100).await, [(1, 100)]);
    // A number is never reused, whichever version is current.
    assert_eq!(deploy("a.py:h", 0).await, (3, vec![(1, 100), (3, 0)], true));
    assert_eq!(set(1, 30).await, [(1, 100)]);
    assert_eq!(registry.set_traffic("t", "echo", 4, 1).await.unwrap(), TrafficSet::UnknownVersion);
    assert_eq!(registry.traffic("t", "none").await.unwrap(), None);
}

#[tokio::test]
async fn what_was_current_before_is_known_until_somebody_goes_back_to_it() {
    let (server, _dir) = server(&[]);
    let registry = queue(&server, Clock::Own).await.registry();
    let deploy = async |entry: &str, percent| {
        deployed(registry.deploy("t", "echo", endpoint_spec(entry), percent).await.unwrap()).1.previous
    };
    let set = async |version, percent| match registry.set_traffic("t", "echo", version, percent).await.unwrap() {
        TrafficSet::Done(traffic) => traffic.previous,
        other => panic!("{other:?}"),
    };
    assert_eq!(deploy("a.py:f", 100).await, None);
    assert_eq!(deploy("a.py:g", 0).await, None, "a version that is tried has not been current");
    assert_eq!(deploy("a.py:h", 100).await, Some(1), "not 2, which never was");
    assert_eq!(deploy("a.py:h", 100).await, Some(1), "repeated");
    assert_eq!(set(2, 10).await, Some(1));
    assert_eq!(deploy("a.py:g", 50).await, Some(1));
    assert_eq!(set(3, 100).await, Some(1), "the trial ends");
    assert_eq!(set(1, 100).await, None, "nobody wants the one that was left");
    assert_eq!(set(1, 100).await, None, "repeated");
    assert_eq!(deploy("a.py:g", 100).await, Some(1), "promoted by a deploy");
    assert_eq!(set(3, 100).await, Some(4));
}
