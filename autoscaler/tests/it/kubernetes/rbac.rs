//! The Role of deploy/kubernetes allows exactly the verbs in use.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use stokehold_autoscaler::provider::Provider;

use super::{deployment, listed, rent, schema, server};

const MANIFESTS: &str = include_str!("../../../../deploy/kubernetes/rbac.yaml");

fn manifests() -> Vec<Value> {
    MANIFESTS.split("\n---\n").map(|text| serde_saphyr::from_str(text).unwrap()).collect()
}

#[test]
fn the_manifests_are_as_published_and_belong_together() {
    let manifests = manifests();
    for manifest in &manifests {
        let kind = manifest["kind"].as_str().unwrap();
        assert_eq!(schema::faults(kind, manifest), Vec::<String>::new());
    }
    let [account, role, binding] = &manifests[..] else { panic!() };
    assert_eq!(binding["roleRef"]["name"], role["metadata"]["name"]);
    assert_eq!(binding["subjects"][0]["name"], account["metadata"]["name"]);
}

#[tokio::test]
async fn the_role_allows_what_is_used_and_nothing_else() {
    let (server, provider) = server().await;
    rent(&provider, "a100", "m-1").await.unwrap();
    rent(&provider, "a100", "m-1").await.unwrap();
    server.cluster().remove("jobs", "m-1");
    provider.release("job/m-1").await.unwrap();
    rent(&provider, "a100", "m-2").await.unwrap();
    provider.release("job/m-2").await.unwrap();
    deployment::deploy(&server, 0, &json!([{"name": "stokehold.dev/machine"}]));
    rent(&provider, "own", "m-3").await.unwrap();
    provider.release("pod/m-3").await.unwrap();
    for rental in listed(&provider).await.unwrap() {
        provider.release(&rental.id).await.unwrap();
    }
    let role = manifests().remove(1);
    let words = |of: &Value| -> Vec<String> {
        of.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    let mut allowed = BTreeSet::new();
    for rule in role["rules"].as_array().unwrap() {
        for group in words(&rule["apiGroups"]) {
            for resource in words(&rule["resources"]) {
                allowed.extend(words(&rule["verbs"]).into_iter().map(|verb| (group.clone(), resource.clone(), verb)));
            }
        }
    }
    assert_eq!(server.cluster().used, allowed);
}
