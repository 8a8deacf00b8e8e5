//! The mode `deployment`.

use serde_json::{Value, json};
use stokehold_autoscaler::provider::{Provider, ProviderError, RentalState};

use super::cluster::Instead;
use super::server::Server;
use super::{impatient, label, listed, rent, server, states};

const GATE: &str = "stokehold.dev/machine";

/// Creates the Deployment of docs/how-to/kubernetes.md.
pub(super) fn deploy(server: &Server, replicas: u32, gates: &Value) {
    let name = json!([{"name": "STOKE_WORKER_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['stokehold.dev/machine']"}}}]);
    let spec = json!({"schedulingGates": gates, "containers": [{"name": "worker", "image": "w", "env": name}]});
    let template = json!({"metadata": {"labels": {"app": "workers"}}, "spec": spec});
    let mut cluster = server.cluster();
    cluster.put(
        "deployments",
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "workers"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "workers"}}, "template": template},
        }),
    );
    cluster.control();
}

fn gate() -> Value {
    json!([{"name": GATE}])
}

fn replicas(server: &Server) -> u64 {
    server.cluster().get("deployments", "workers").unwrap()["spec"]["replicas"].as_u64().unwrap()
}

fn pod_of(server: &Server, machine: &str) -> Option<Value> {
    server.cluster().all("pods").into_iter().find(|pod| pod["metadata"]["labels"][GATE] == machine)
}

#[tokio::test]
async fn a_machine_is_a_pod_that_is_claimed_before_it_may_run() {
    let (server, provider) = server().await;
    deploy(&server, 0, &gate());
    assert_eq!(rent(&provider, "own", "m-1").await.unwrap(), "pod/m-1");
    assert_eq!(rent(&provider, "own", "m-1").await.unwrap(), "pod/m-1", "by its name it is the same");
    assert_eq!(replicas(&server), 1);
    let pod = pod_of(&server, "m-1").unwrap();
    assert_eq!(pod["spec"]["schedulingGates"], json!([]));
    assert_eq!(states(&provider).await, [label("m-1", RentalState::Starting)]);
    server.cluster().run();
    assert_eq!(states(&provider).await, [label("m-1", RentalState::Running)]);
    assert!(server.cluster().all("secrets").is_empty(), "what its worker joins with is the operator's to give");
}

/// Releases listed machines without a record, as the loop does.
async fn tidy(provider: &super::Kubernetes) {
    for rental in listed(provider).await.unwrap().iter().filter(|rental| rental.id.starts_with("spare/")) {
        provider.release(&rental.id).await.unwrap();
    }
}

#[tokio::test]
async fn the_machine_that_goes_is_the_one_that_was_meant_though_another_boots() {
    let (server, provider) = server().await;
    deploy(&server, 0, &gate());
    for machine in ["m-1", "m-2"] {
        rent(&provider, "own", machine).await.unwrap();
    }
    server.cluster().run();
    rent(&provider, "own", "m-3").await.unwrap();
    // m-3 is on no node yet: scaled down, the Deployment would delete it.
    provider.release("pod/m-1").await.unwrap();
    provider.release("pod/m-1").await.unwrap();
    server.cluster().bury();
    tidy(&provider).await;
    tidy(&provider).await;
    server.cluster().bury();
    assert_eq!(states(&provider).await, [label("m-2", RentalState::Running), label("m-3", RentalState::Starting)]);
    assert_eq!((replicas(&server), pod_of(&server, "m-1")), (2, None));
    provider.release("pod/m-1").await.unwrap();
    assert_eq!(replicas(&server), 2, "it is gone already");
}

#[tokio::test]
async fn a_spare_is_claimed_before_another_is_made_and_is_not_given_back_when_it_is_a_machine() {
    let (server, provider) = server().await;
    deploy(&server, 1, &gate());
    let spare = listed(&provider).await.unwrap().remove(0);
    rent(&provider, "own", "m-1").await.unwrap();
    assert_eq!(replicas(&server), 1);
    provider.release(&spare.id).await.unwrap();
    assert_eq!((replicas(&server), states(&provider).await.len()), (1, 1), "it is m-1 by now");
}

#[tokio::test]
async fn two_that_scale_at_once_do_not_undo_each_other() {
    let (server, provider) = server().await;
    deploy(&server, 0, &gate());
    server.instead(
        "update",
        "deployments/scale",
        Instead::Status(409, "the object has been modified", "Conflict", None),
    );
    server.instead("patch", "pods", Instead::Status(409, "the object has been modified", "Conflict", None));
    rent(&provider, "own", "m-1").await.unwrap();
    let other = super::provider(&server, super::TOKEN, "");
    let (a, b) = tokio::join!(rent(&provider, "own", "m-2"), rent(&other, "own", "m-3"));
    assert_eq!((a.unwrap(), b.unwrap()), ("pod/m-2".to_owned(), "pod/m-3".to_owned()));
    tidy(&provider).await;
    let machines: Vec<String> = states(&provider).await.into_iter().map(|(label, _)| label).collect();
    assert_eq!((replicas(&server), machines), (3, ["m-1", "m-2", "m-3"].map(str::to_owned).to_vec()));
}

#[tokio::test]
async fn scaling_that_was_not_answered_is_not_done_twice() {
    let (server, _) = server().await;
    let provider = impatient(&server);
    deploy(&server, 0, &gate());
    server.instead("update", "deployments/scale", Instead::SilenceAfterwards);
    server.instead("patch", "pods", Instead::SilenceAfterwards);
    assert_eq!(rent(&provider, "own", "m-1").await.unwrap(), "pod/m-1");
    assert_eq!((replicas(&server), states(&provider).await.len()), (1, 1));
}

#[tokio::test]
async fn a_pod_that_does_not_come_leaves_the_rent_unknown_and_comes_as_a_spare() {
    let (server, provider) = server().await;
    deploy(&server, 0, &gate());
    server.cluster().is_paused = true;
    assert!(matches!(rent(&provider, "own", "m-1").await, Err(ProviderError::Unknown(_))));
    assert_eq!(replicas(&server), 1, "it is asked for once");
    server.cluster().is_paused = false;
    server.cluster().control();
    assert_eq!(listed(&provider).await.unwrap().len(), 1);
    tidy(&provider).await;
    server.cluster().bury();
    assert_eq!((replicas(&server), listed(&provider).await.unwrap().len()), (0, 0));
}

#[tokio::test]
async fn pods_that_run_by_themselves_are_neither_rented_nor_given_back() {
    let (server, provider) = server().await;
    deploy(&server, 2, &json!([]));
    let Err(ProviderError::Refused(why)) = rent(&provider, "own", "m-1").await else { panic!() };
    assert!(why.contains("lack the scheduling gate"), "{why}");
    assert_eq!(listed(&provider).await.unwrap(), []);
    assert_eq!(replicas(&server), 2);
}

#[tokio::test]
async fn a_deployment_that_is_not_there_has_no_machines() {
    let (_server, provider) = server().await;
    assert!(matches!(rent(&provider, "own", "m-1").await, Err(ProviderError::Vanished(_))));
    assert_eq!(listed(&provider).await.unwrap(), []);
    provider.release("spare/workers/workers-1").await.unwrap();
    provider.release("pod/m-1").await.unwrap();
}
