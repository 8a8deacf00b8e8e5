//! Requirement sets of endpoints: the limit per tenant, and retried jobs whose number now belongs to another set.

use reqwest::Method;
use serde_json::{Value, json};
use stokehold_api::token::Scope;
use stokehold_queue::Queue;
use stokehold_queue::registry::REQUIREMENT_SETS_OF_TENANT_MAX;

use crate::stack::{Stack, echo};

fn with_cuda(name: &str, min_cuda: &str) -> Value {
    let mut endpoint = echo();
    (endpoint["name"], endpoint["demands"]) = (name.into(), json!({"min_cuda": min_cuda}));
    endpoint
}

#[tokio::test]
async fn one_tenant_cannot_use_up_the_requirement_sets_of_all() {
    let stack = Stack::start().await;
    for n in 0..REQUIREMENT_SETS_OF_TENANT_MAX {
        stack.deploy(with_cuda("echo", &format!("1.{n}"))).await;
    }
    let one_more = stack.post("/v1/endpoints", &with_cuda("echo", "2.0")).send().await.unwrap();
    assert_eq!(one_more.status(), 400);
    let problem: Value = one_more.json().await.unwrap();
    assert_eq!(problem["errors"][0]["path"], "/demands", "{problem}");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("51") && detail.contains("limit of 50") && detail.contains("min_cuda"), "{detail}");
    stack.deploy(with_cuda("other", "1.7")).await;
    stack.deploy(echo()).await;

    let other = stack.token_of("zoo", &Scope::ALL, None).await;
    let package = json!({"sha256": echo()["package_sha256"], "size_bytes": echo()["package_size_bytes"]});
    let asked = stack.client.request(Method::POST, format!("{}/v1/packages", stack.url)).bearer_auth(&other);
    let package = stack.json(asked.body(package.to_string())).await;
    stack.upload(&package["upload_url"], &package["headers"], crate::stack::PACKAGE).await;
    let deploy = stack.client.request(Method::POST, format!("{}/v1/endpoints", stack.url)).bearer_auth(&other);
    stack.json(deploy.body(with_cuda("echo", "2.0").to_string())).await;
}

#[tokio::test]
async fn a_retried_job_asks_for_what_its_version_asks_for_though_the_number_went_to_another_set() {
    let stack = Stack::start().await;
    stack.deploy(with_cuda("echo", "11.0")).await;
    let asked = json!({"endpoint": "echo", "version": 1, "input": {"text": "hi"}});
    let job = stack.json(stack.post("/v1/jobs", &asked)).await["id"].as_str().unwrap().to_owned();
    stack.json(stack.post(&format!("/v1/jobs/{job}/cancel"), &json!({}))).await;
    let number = stack.queue.get(job.parse().unwrap()).await.unwrap().unwrap().spec.demands;
    // Version 1 loses its traffic, and its set loses the number.
    stack.deploy(echo()).await;
    assert_eq!(stack.shards().await.free_requirements(0).await.unwrap(), 1);
    stack.deploy(with_cuda("other", "12.0")).await;
    let sets = stack.queue.registry().demands().await.unwrap();
    assert_eq!(sets[&number].min_cuda.map(String::from).as_deref(), Some("12.0"));

    // On a replica that has not read the number recently.
    let replica = stack.replica(|_| {}).await;
    let retried = replica.json(replica.post(&format!("/v1/jobs/{job}/retry"), &json!({}))).await;
    let retried = stack.queue.get(retried["id"].as_str().unwrap().parse().unwrap()).await.unwrap().unwrap();
    let sets = stack.queue.registry().demands().await.unwrap();
    assert_eq!(sets[&retried.spec.demands].min_cuda.map(String::from).as_deref(), Some("11.0"));
}
