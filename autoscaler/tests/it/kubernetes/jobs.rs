//! The mode `jobs`.

use serde_json::{Value, json};
use stokehold_autoscaler::provider::{Provider, ProviderError, RentalState};

use super::cluster::Instead;
use super::{JOIN, impatient, label, listed, provider, rent, server, states};

#[tokio::test]
async fn a_machine_is_a_job_that_asks_for_its_gpus_and_owns_the_secret_of_its_worker() {
    let (server, provider) = server().await;
    assert!(provider.takes_join_token());
    assert_eq!(rent(&provider, "a100", "m-1").await.unwrap(), "job/m-1");
    let (job, secret) = {
        let cluster = server.cluster();
        (cluster.get("jobs", "m-1").unwrap().clone(), cluster.get("secrets", "m-1").unwrap().clone())
    };
    let labels = json!({"app.kubernetes.io/managed-by": "stokehold", "stokehold.dev/machine": "m-1",
        "stokehold.dev/namespace": "stoke", "stokehold.dev/pool": "a100",
        "app.kubernetes.io/name": "stokehold", "app.kubernetes.io/component": "worker"});
    assert_eq!((&job["metadata"]["labels"], &secret["metadata"]["labels"]), (&labels, &labels));
    assert_eq!(secret["data"], json!({"join-token": JOIN}));
    assert_eq!(secret["metadata"]["ownerReferences"][0]["uid"], job["metadata"]["uid"]);
    assert!(!job.to_string().contains("verysecret"));
    let pod = &job["spec"]["template"]["spec"];
    let asked = json!({"limits": {"nvidia.com/gpu": "2", "memory": "64Gi", "ephemeral-storage": "200Gi"},
        "requests": {"nvidia.com/gpu": "2", "memory": "64Gi", "ephemeral-storage": "200Gi", "cpu": "8"}});
    assert_eq!(pod["containers"][0]["resources"], asked);
    assert_eq!((&job["spec"]["backoffLimit"], &pod["restartPolicy"]), (&json!(0), &json!("Never")));
    assert_eq!(
        pod["containers"][0]["env"],
        json!([
            {"name": "STOKE_SANDBOX", "value": "L1"},
            {"name": "STOKE_GATEWAY_URL", "value": "https://stoke.example.com"},
            {"name": "STOKE_JOIN_TOKEN", "valueFrom": {"secretKeyRef": {"key": "join-token", "name": "m-1"}}},
            {"name": "STOKE_WORKER_NAME", "value": "m-1"},
        ])
    );
    assert_eq!(
        pod["tolerations"],
        json!([{"effect": "NoSchedule", "key": "nvidia.com/gpu", "operator": "Exists"},
        {"key": "team", "operator": "Equal", "value": "ml"}])
    );
}

#[tokio::test]
async fn a_machine_starts_runs_and_goes_with_all_that_it_owns() {
    let (server, provider) = server().await;
    rent(&provider, "a100", "m-1").await.unwrap();
    assert_eq!(states(&provider).await, [label("m-1", RentalState::Starting)]);
    server.cluster().run();
    assert_eq!(states(&provider).await, [label("m-1", RentalState::Running)]);
    provider.release("job/m-1").await.unwrap();
    assert_eq!(states(&provider).await, [label("m-1", RentalState::Lost)], "its pod still has its cards");
    provider.release("job/m-1").await.unwrap();
    server.cluster().bury();
    assert_eq!(states(&provider).await, []);
    assert!(server.cluster().all("secrets").is_empty());
    provider.stop("job/m-1").await.unwrap();
    assert!(matches!(provider.resume("job/m-1").await, Err(ProviderError::Vanished(_))));
}

#[tokio::test]
async fn a_pod_that_has_outlived_its_job_is_still_a_machine_and_can_be_given_back() {
    let (server, provider) = server().await;
    rent(&provider, "a100", "m-1").await.unwrap();
    server.cluster().run();
    server.cluster().remove("jobs", "m-1");
    assert_eq!(states(&provider).await, [label("m-1", RentalState::Running)]);
    provider.release("job/m-1").await.unwrap();
    server.cluster().bury();
    assert_eq!(states(&provider).await, []);
}

#[tokio::test]
async fn every_page_is_read_and_the_offer_counts_what_is_there() {
    let (server, provider) = server().await;
    for n in 0..5 {
        rent(&provider, "a100", &format!("m-{n}")).await.unwrap();
    }
    assert_eq!(listed(&provider).await.unwrap().len(), 5);
    assert!(server.cluster().pages >= 4, "two to a page");
    let offers = provider.offers().await.unwrap();
    assert_eq!(offers.iter().map(|offer| (&*offer.id, offer.count)).collect::<Vec<_>>(), [("own", 3)]);
    provider.release("job/m-3").await.unwrap();
    server.cluster().bury();
    listed(&provider).await.unwrap();
    assert_eq!(provider.offers().await.unwrap()[0].count, 1);
    let other = super::Kubernetes::new(settings(&server), "other", "");
    assert_eq!(listed(&other).await.unwrap(), [], "those of another queue are its own");
}

fn settings(server: &super::Server) -> stokehold_autoscaler::providers::kubernetes::settings::KubernetesSettings {
    let file = format!("[kubernetes]\nurl = '{}'\ntoken = '{}'\nnamespace = 'ml'", server.url, super::TOKEN);
    super::Config::load(Some(&file), |_| None).unwrap().kubernetes
}

#[tokio::test]
async fn a_list_that_is_not_whole_is_no_list() {
    let (server, provider) = server().await;
    for n in 0..3 {
        rent(&provider, "a100", &format!("m-{n}")).await.unwrap();
    }
    for text in [
        "",
        "[]",
        "{}",
        r#"{"kind":"JobList","metadata":{}}"#,
        r#"{"kind":"JobList","metadata":{},"items":null}"#,
        r#"{"kind":"JobList","metadata":{},"items":[{"metadata":{"name":"x"}}]}"#,
        r#"{"kind":"Job","metadata":{},"items":[]}"#,
        r#"{"kind":"JobList","metadata":{},"items":["#,
    ] {
        server.instead("list", "jobs", Instead::Text(text));
        assert!(matches!(listed(&provider).await, Err(ProviderError::Unknown(_))), "{text}");
    }
    server.instead(
        "list",
        "pods",
        Instead::Status(403, "pods is forbidden: User \"x\" cannot list resource", "Forbidden", None),
    );
    let Err(ProviderError::Refused(why)) = listed(&provider).await else { panic!() };
    assert!(why.contains("lacks the verb list on pods"), "{why}");
    server.instead("list", "jobs", Instead::Status(500, "", "", None));
    server.instead("list", "jobs", Instead::Status(429, "", "", Some("0")));
    assert_eq!(listed(&provider).await.unwrap().len(), 3, "twice is not too often");
    // The second page has expired: the whole list is read again.
    server.instead("list", "jobs", Instead::Itself);
    server.instead("list", "jobs", Instead::Status(410, "too old", "Expired", None));
    assert_eq!(listed(&provider).await.unwrap().len(), 3);
    for _ in 0..3 {
        server.instead("list", "jobs", Instead::Status(410, "too old", "Expired", None));
    }
    assert!(listed(&provider).await.is_err());
}

#[tokio::test]
async fn a_rent_that_was_not_answered_is_found_to_be_done_and_not_done_twice() {
    let (server, _) = server().await;
    let provider = impatient(&server);
    server.instead("create", "jobs", Instead::SilenceAfterwards);
    assert_eq!(rent(&provider, "a100", "m-1").await.unwrap(), "job/m-1");
    assert_eq!(server.cluster().all("jobs").len(), 1);
    server.instead("create", "secrets", Instead::SilenceAfterwards);
    assert_eq!(rent(&provider, "a100", "m-2").await.unwrap(), "job/m-2");
    assert_eq!(rent(&provider, "a100", "m-2").await.unwrap(), "job/m-2", "by its name it is the same");
    assert_eq!(server.cluster().all("secrets").len(), 2);
    for _ in 0..3 {
        server.instead("create", "jobs", Instead::Silence);
    }
    assert!(matches!(rent(&provider, "a100", "m-3").await, Err(ProviderError::Unknown(_))));
}

#[tokio::test]
async fn a_refusal_after_silence_says_nothing_of_what_was_done_before() {
    let (server, _) = server().await;
    let provider = impatient(&server);
    server.instead("create", "jobs", Instead::SilenceAfterwards);
    server.instead("create", "jobs", Instead::Status(403, "exceeded quota: gpus", "Forbidden", None));
    assert!(matches!(rent(&provider, "a100", "m-1").await, Err(ProviderError::Unknown(_))));
    assert_eq!(states(&provider).await.len(), 1, "it is found by its label");
}

#[tokio::test]
async fn what_is_refused_is_said_to_be() {
    let (server, provider) = server().await;
    let quota =
        "jobs.batch \"m-1\" is forbidden: exceeded quota: gpus, requested: count/jobs.batch=1, used: 4, limited: 4";
    server.instead("create", "jobs", Instead::Status(403, quota, "Forbidden", None));
    let Err(ProviderError::Refused(why)) = rent(&provider, "a100", "m-1").await else { panic!() };
    assert!(why.contains("quota of the namespace is exhausted"), "{why}");
    for _ in 0..3 {
        server.instead("create", "jobs", Instead::Status(429, "", "", Some("0")));
    }
    assert!(matches!(rent(&provider, "a100", "m-1").await, Err(ProviderError::Refused(_))));
    assert!(server.cluster().all("jobs").is_empty());
    let stranger = super::provider(&server, "wrong", "");
    let Err(ProviderError::Refused(why)) = rent(&stranger, "a100", "m-1").await else { panic!() };
    assert!(why.contains("the cluster rejected the credentials"), "{why}");
}

#[tokio::test]
async fn a_job_whose_secret_is_refused_is_left_behind_and_said_to_be() {
    let (server, provider) = server().await;
    let invalid = "Secret \"m-1\" is invalid: data[join-token]: Invalid value: \"jt_verysecret\"";
    server.instead("create", "secrets", Instead::Status(422, invalid, "Invalid", None));
    let Err(ProviderError::Made { rental, why }) = rent(&provider, "a100", "m-1").await else { panic!() };
    assert_eq!(rental, "job/m-1");
    assert!(!why.contains("verysecret"), "{why}");
    provider.release(&rental).await.unwrap();
    assert!(server.cluster().all("jobs").is_empty());
}

#[tokio::test]
async fn a_job_of_that_name_that_is_somebody_elses_is_left_alone() {
    let (server, provider) = server().await;
    rent(&provider, "a100", "m-1").await.unwrap();
    server.cluster().change("jobs", "m-1", |job| job["metadata"]["labels"] = json!({}));
    let Err(ProviderError::Refused(why)) = rent(&provider, "a100", "m-1").await else { panic!() };
    assert!(why.contains("it belongs to another installation"), "{why}");
}

#[tokio::test]
async fn states_come_from_jobs_and_their_pods() {
    let (server, provider) = server().await;
    rent(&provider, "a100", "m-1").await.unwrap();
    let pod = super::cluster::name_of(&server.cluster().all("pods")[0]);
    let waiting = |reason: &str| {
        json!({"phase": "Pending", "containerStatuses": [{"name": "worker", "image": "", "imageID": "",
        "ready": false, "restartCount": 0, "state": {"waiting": {"reason": reason}}}]})
    };
    let unschedulable = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
        "reason": "Unschedulable", "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."}]});
    let gone = json!({"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}]});
    let cases: [(Value, RentalState); 5] = [
        (unschedulable, RentalState::Starting),
        (waiting("ImagePullBackOff"), RentalState::Broken),
        (json!({"phase": "Running"}), RentalState::Running),
        (json!({"phase": "Failed", "reason": "Evicted"}), RentalState::Broken),
        (gone, RentalState::Lost),
    ];
    for (status, state) in cases {
        server.cluster().change("pods", &pod, |pod| pod["status"] = status.clone());
        assert_eq!(states(&provider).await, [label("m-1", state)], "{status}");
    }
    server.cluster().change("jobs", "m-1", |job| {
        job["status"] = json!({"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]});
    });
    assert_eq!(states(&provider).await, [label("m-1", RentalState::Lost)], "its node is gone all the same");
}

#[tokio::test]
async fn a_release_of_unknown_outcome_is_said_to_be_and_can_be_repeated() {
    let (server, _) = server().await;
    let (provider, patient) = (impatient(&server), provider(&server, super::TOKEN, ""));
    rent(&patient, "a100", "m-1").await.unwrap();
    server.instead("delete", "jobs", Instead::SilenceAfterwards);
    provider.release("job/m-1").await.unwrap();
    for _ in 0..3 {
        server.instead("delete", "jobs", Instead::Status(500, "etcd leader changed", "InternalError", None));
    }
    assert!(matches!(provider.release("job/m-1").await, Err(ProviderError::Unknown(_))));
}
