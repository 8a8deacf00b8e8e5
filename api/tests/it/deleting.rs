//! Deleting: dependents, force, objects in the store, and what a replica left half done.

use std::time::Duration;

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use stokehold_api::token::Scope;
use stokehold_objects::Objects;
use stokehold_queue::registry::{Deletion, Undeployed};
use tokio::time::{Instant, sleep};

use crate::access::as_whom;
use crate::stack::{PACKAGE, PATIENCE, Stack, echo, sha256};
use crate::worker::Worker;

fn named(name: &str) -> Value {
    let mut endpoint = echo();
    endpoint["name"] = name.into();
    endpoint
}

fn delete(stack: &Stack, path: &str) -> RequestBuilder {
    stack.request(Method::DELETE, path)
}

/// Number of objects of the tenant of this kind.
async fn stored(stack: &Stack, kind: &str) -> usize {
    let objects = Objects::connect(stack.config.s3.clone()).await.unwrap();
    objects.list(&format!("{kind}/acme/"), None, 100).await.unwrap().objects.len()
}

/// A problem's code and its dependents.
async fn refused(request: RequestBuilder) -> (String, Value) {
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status(), 409);
    let problem: Value = answer.json().await.unwrap();
    (problem["code"].as_str().unwrap().to_owned(), problem["dependents"].clone())
}

/// Repeats `look` until it holds. The duty has no signal for tests.
async fn until(what: &str, look: impl AsyncFn() -> bool) {
    let began = Instant::now();
    while !look().await {
        assert!(began.elapsed() < PATIENCE, "{what}");
        sleep(Duration::from_millis(50)).await;
    }
}

fn kinds(dependents: &Value) -> Vec<(&str, u64)> {
    let list = dependents.as_array().unwrap().iter();
    list.map(|one| (one["kind"].as_str().unwrap(), one["count"].as_u64().unwrap())).collect()
}

#[tokio::test]
async fn dependents_are_reported_first_and_ended_by_force() {
    let stack = Stack::start().await;
    stack.deploy(named("gate")).await;
    let mut gated = echo();
    gated["before"] = json!([{"endpoint": "gate"}]);
    stack.deploy(gated).await;
    let (gate, stepped) = (
        stack.json(stack.post("/v1/jobs", &json!({"endpoint": "gate", "input": {"text": "a"}}))).await,
        stack.submit("b").await,
    );
    let cron = json!({"cron": "30 9 1 1 *", "job": {"endpoint": "gate", "input": {"text": "c"}}});
    let schedule = stack.json(stack.post("/v1/schedules", &cron)).await;
    let lines = json!({"endpoint": "gate", "lines": [{"input": {"text": "d"}}]});
    let batch = stack.json(stack.post("/v1/batches", &lines)).await;
    let at = |list: &str, one: &Value| format!("/v1/{list}/{}", one["id"].as_str().unwrap());
    until("the line of the batch and the step are jobs", async || {
        let jobs = stack.json(stack.get("/v1/jobs?endpoint=gate")).await;
        jobs["jobs"].as_array().unwrap().len() == 3
    })
    .await;

    let dry = stack.json(delete(&stack, "/v1/endpoints/gate?dry_run=true")).await;
    assert_eq!((&dry["deleted"], &dry["freed_bytes"]), (&json!(false), &json!(0)), "echo has the same package");
    let (code, dependents) = refused(delete(&stack, "/v1/endpoints/gate")).await;
    assert_eq!((code.as_str(), &dependents), ("in_use", &dry["dependents"]));
    // The job, the line of the batch, and the step of the other endpoint's job.
    let counts = [("job", 3), ("step", 1), ("schedule", 1), ("batch", 1), ("endpoint", 1)];
    assert_eq!(kinds(&dependents), counts, "{dependents}");
    assert_eq!(dependents[4]["examples"], json!(["echo"]));
    let log = stack.json(stack.get("/v1/audit")).await;
    assert!(log["changes"].as_array().unwrap().iter().all(|change| change["action"] != "DELETE /v1/endpoints/{name}"));

    let done = stack.json(delete(&stack, "/v1/endpoints/gate?force=true")).await;
    assert_eq!(done, json!({"deleted": true, "dependents": dependents, "freed_bytes": 0}));
    for job in [gate["id"].as_str().unwrap(), &stepped] {
        assert_eq!(stack.job(job).await["state"], "cancelled");
    }
    assert_eq!(stack.json(stack.get(&at("schedules", &schedule))).await["paused"], true);
    let batch = stack.json(stack.get(&format!("{}?wait_s=30", at("batches", &batch)))).await;
    assert_eq!(batch["state"], "cancelled", "{batch}");
    let log = stack.json(stack.get("/v1/audit")).await;
    let line = &log["changes"][0];
    assert_eq!((&line["action"], &line["outcome"]), (&json!("DELETE /v1/endpoints/{name}"), &json!("done")));
    assert_eq!(line["object"], "gate@1 (0 bytes)");
    assert_eq!(stack.problem(delete(&stack, "/v1/endpoints/gate")).await, (404, "unknown_endpoint".to_owned()));
}

#[tokio::test]
async fn an_object_goes_with_the_last_version_that_names_it() {
    let stack = Stack::start().await;
    let bytes: &'static [u8] = b"not really weights";
    let asked =
        stack.json(stack.post("/v1/weights", &json!({"sha256": sha256(bytes), "size_bytes": bytes.len()}))).await;
    stack.upload(&asked["upload_url"], &asked["headers"], bytes).await;
    let mut heavy = named("heavy");
    let weight = |url: Option<&str>| json!({"path": "a", "source": "a", "url": url, "sha256": sha256(bytes), "size_bytes": bytes.len()});
    heavy["weights"] = json!([weight(None)]);
    stack.deploy(heavy.clone()).await;
    heavy["weights"] = json!([weight(Some("https://models.test/a"))]);
    stack.deploy(heavy).await;
    stack.deploy_echo().await;
    assert_eq!((stored(&stack, "packages").await, stored(&stack, "weights").await), (1, 1));

    let path = "/v1/endpoints/heavy/versions/1?force=true";
    let dry = stack.json(delete(&stack, &format!("{path}&dry_run=true"))).await;
    let done = stack.json(delete(&stack, path)).await;
    assert_eq!((&dry["freed_bytes"], &done["freed_bytes"]), (&json!(bytes.len()), &json!(bytes.len())));
    assert_eq!((stored(&stack, "packages").await, stored(&stack, "weights").await), (1, 0));
    assert_eq!(stack.json(delete(&stack, "/v1/endpoints/heavy")).await["freed_bytes"], 0);
    assert_eq!(stored(&stack, "packages").await, 1, "echo has it");
    assert_eq!(stack.json(delete(&stack, "/v1/endpoints/echo")).await["freed_bytes"], PACKAGE.len());
    assert_eq!(stored(&stack, "packages").await, 0);
    // The same package can be uploaded and deployed again.
    assert_eq!(stack.deploy_echo().await["version"], 2);
    assert_eq!(stored(&stack, "packages").await, 1);
}

#[tokio::test]
async fn a_deploy_never_names_an_object_that_is_being_deleted() {
    let stack = Stack::start().await;
    let registry = stack.queue.registry();
    let objects = Objects::connect(stack.config.s3.clone()).await.unwrap();
    for is_deleted in [false, true] {
        stack.deploy_echo().await;
        let Undeployed::Done(_, orphans) = registry.undeploy("acme", "echo", None).await.unwrap() else { panic!() };
        let claim = registry.claim_orphans("acme", &orphans, 60_000).await.unwrap();
        assert_eq!(claim.objects, orphans);
        let other = registry.claim_orphans("acme", &orphans, 60_000).await.unwrap();
        assert!(other.objects.is_empty(), "one at a time");
        let deploying = tokio::spawn(stack.post("/v1/endpoints", &echo()).send());
        // The deploy has found the package, and waits.
        sleep(Duration::from_millis(300)).await;
        assert!(!deploying.is_finished());
        if is_deleted {
            objects.delete(&[format!("packages/acme/{}.tar.gz", sha256(PACKAGE))]).await.unwrap();
        }
        registry.end_claim("acme", &claim, is_deleted).await.unwrap();
        let status = deploying.await.unwrap().unwrap().status();
        assert_eq!(status, if is_deleted { 409 } else { 201 });
        assert!(registry.orphans(u64::MAX >> 12).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn the_duty_finishes_what_a_replica_left_half_done() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let job = stack.submit("a").await;
    let registry = stack.queue.registry();
    // As far as a replica gets that dies after the change of the registry.
    let Undeployed::Done(Deletion { versions, .. }, _) = registry.undeploy("acme", "echo", None).await.unwrap() else {
        panic!()
    };
    assert_eq!(versions, [1]);
    until("the job is cancelled", async || stack.job(&job).await["state"] == "cancelled").await;
    until("the package is deleted", async || stored(&stack, "packages").await == 0).await;
    assert!(registry.deletions().await.unwrap().iter().all(|deletion| deletion.is_followed));
}

#[tokio::test]
async fn what_is_learned_after_a_deletion_is_not_kept() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let registry = stack.queue.registry();
    registry.learn("acme", "echo", 1, "RTX 4090", 1_000).await.unwrap();
    stack.json(delete(&stack, "/v1/endpoints/echo")).await;
    registry.learn("acme", "echo", 1, "RTX 4090", 2_000).await.unwrap();
    assert!(registry.all_needs("acme", "echo").await.unwrap().is_empty());
}

#[tokio::test]
async fn a_worker_with_a_job_of_a_deleted_version_gets_the_reason() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let job = stack.submit("a").await;
    let worker = Worker::join(&stack).await;
    assert_eq!(worker.lease().await["job_id"], job);
    stack.queue.registry().undeploy("acme", "echo", None).await.unwrap();
    // A code that does not count as a failure of the infrastructure.
    assert_eq!(stack.problem(worker.get("endpoints/acme/echo/1")).await, (404, "unknown_version".to_owned()));
}

#[tokio::test]
async fn a_file_is_deleted_unless_an_open_job_names_it() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let bytes: &'static [u8] = b"a file";
    let request = json!({"name": "a.txt", "size_bytes": bytes.len(), "sha256": sha256(bytes)});
    let file = stack.json(stack.post("/v1/files", &request)).await;
    stack.upload(&file["upload_url"], &file["headers"], bytes).await;
    let path = format!("/v1/files/{}", file["id"].as_str().unwrap());
    let job = json!({"endpoint": "echo", "input": {"text": "a", "file": {"$file": file["id"]}}});
    let job = stack.json(stack.post("/v1/jobs", &job)).await["id"].as_str().unwrap().to_owned();
    let (code, dependents) = refused(delete(&stack, &path)).await;
    assert_eq!((code.as_str(), kinds(&dependents)), ("in_use", vec![("job", 1)]));
    assert_eq!(dependents[0]["examples"], json!([job]));

    let writer = stack.token_of("acme", &[Scope::FilesWrite], None).await;
    let forced = format!("{path}?force=true");
    let by_writer = as_whom(&stack, &writer, Method::DELETE, &forced);
    assert_eq!(stack.problem(by_writer).await, (403, "forbidden".to_owned()), "it may not cancel jobs");
    assert_eq!(stored(&stack, "inputs").await, 2);
    let dry = stack.json(delete(&stack, &format!("{forced}&dry_run=true"))).await;
    let done = stack.json(delete(&stack, &forced)).await;
    assert_eq!((&done["deleted"], &done["freed_bytes"]), (&json!(true), &dry["freed_bytes"]));
    assert!(done["freed_bytes"].as_u64().unwrap() > bytes.len() as u64, "{done}");
    assert_eq!(stack.job(&job).await["state"], "cancelled");
    assert_eq!(stored(&stack, "inputs").await, 0);
    for path in [&path, &format!("/v1/files/file_{}", "0".repeat(32)), "/v1/files/none"] {
        assert_eq!(stack.problem(delete(&stack, path)).await, (404, "not_found".to_owned()), "{path}");
    }
    assert_eq!(stack.problem(stack.get(&path)).await, (404, "not_found".to_owned()));
}

#[tokio::test]
async fn a_requirement_set_is_listed_and_deleted() {
    let stack = Stack::start().await;
    let mut picky = named("picky");
    picky["demands"] = json!({"regions": ["fsn"]});
    stack.deploy(picky.clone()).await;
    let list = async || stack.json(stack.get("/v1/requirement-sets")).await["requirement_sets"].clone();
    let sets = list().await;
    assert_eq!(sets.as_array().unwrap().len(), 1, "{sets}");
    assert_eq!((&sets[0]["demands"], &sets[0]["versions"]), (&json!({"regions": ["fsn"]}), &json!(["picky@1"])));
    let path = format!("/v1/requirement-sets/{}", sets[0]["id"].as_str().unwrap());
    let job = stack.json(stack.post("/v1/jobs", &json!({"endpoint": "picky", "input": {"text": "a"}}))).await;
    let (code, dependents) = refused(delete(&stack, &path)).await;
    assert_eq!((code.as_str(), kinds(&dependents)), ("in_use", vec![("job", 1), ("version", 1)]));
    let done = stack.json(delete(&stack, &format!("{path}?force=true"))).await;
    assert_eq!((&done["deleted"], &done["freed_bytes"]), (&json!(true), &json!(0)));
    assert_eq!(stack.job(job["id"].as_str().unwrap()).await["state"], "cancelled");
    assert_eq!(list().await, json!([]));
    assert_eq!(stack.problem(delete(&stack, &path)).await, (404, "not_found".to_owned()));
    // The number is not given to another set yet, because other replicas may submit jobs with it.
    let numbered = stack.queue.registry().demands().await.unwrap();
    assert!(numbered.values().any(|set| set.regions == ["fsn"]));
    // A deploy makes the set again, with the same id.
    picky["timeout_s"] = 7.into();
    stack.deploy(picky).await;
    assert_eq!(list().await[0]["id"], sets[0]["id"]);
}
