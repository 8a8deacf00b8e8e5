//! Weights in a deploy: uploaded, on the web, or in a bucket that the operator makes public.

use serde_json::{Value, json};
use stokehold_api::token::Role;

use crate::stack::{PACKAGE, Stack, echo, sha256};

const BYTES: &[u8] = b"not really weights";

fn naming(weights: Value) -> Value {
    let mut endpoint = echo();
    endpoint["weights"] = weights;
    endpoint
}

fn weight(path: &str, url: Option<&str>) -> Value {
    json!({"path": path, "source": "file:a", "url": url, "sha256": sha256(BYTES), "size_bytes": BYTES.len()})
}

/// The spec that a worker receives for the first version of `echo`, of which it has a job.
async fn spec(stack: &Stack) -> Value {
    let token = stack.join_token(false).await;
    let join = json!({"protocol": 1, "release": "0.1.0", "name": "w", "slots": 1, "gpus": []});
    let ask = |path: &str, token: &str| stack.client.post(format!("{}/worker/v1/{path}", stack.url)).bearer_auth(token);
    let joined = stack.json(ask("join", &token).body(join.to_string())).await;
    let token = joined["token"].as_str().unwrap();
    let job = json!({"endpoint": "echo", "version": 1, "input": {"text": "hi"}});
    stack.json(stack.post("/v1/jobs", &job)).await;
    let lease = json!({"want": 1, "reach_gib": 0, "wait_ms": 0});
    assert_eq!(stack.json(ask("lease", token).body(lease.to_string())).await["leases"][0]["version"], 1);
    let url = format!("{}/worker/v1/endpoints/acme/echo/1", stack.url);
    stack.json(stack.client.get(url).bearer_auth(token)).await
}

#[tokio::test]
async fn what_is_uploaded_is_there_before_it_can_be_named_and_workers_get_a_url_for_it() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let endpoint = naming(json!([weight("m/model.safetensors", None)]));
    let missing = stack.problem(stack.post("/v1/endpoints", &endpoint)).await;
    assert_eq!(missing, (409, "package_missing".to_owned()));
    let wanted = json!({"sha256": sha256(BYTES), "size_bytes": BYTES.len()});
    let place = stack.json(stack.post("/v1/weights", &wanted)).await;
    stack.upload(&place["upload_url"], &place["headers"], BYTES).await;
    assert_eq!(stack.json(stack.post("/v1/weights", &wanted)).await["exists"], true);
    let deployed = stack.deploy(endpoint).await;
    assert_eq!((&deployed["version"], &deployed["weights"][0]["path"]), (&json!(2), &json!("m/model.safetensors")));
    let spec = spec(&stack).await;
    assert!(spec.get("weight_urls").is_none(), "version 1 has none: {spec}");
}

/// A worker passes uploaded weights to a tenant on the API's word, so the tenant must have uploaded them.
#[tokio::test]
async fn the_hash_of_what_another_tenant_uploaded_is_not_enough() {
    let mut stack = Stack::start().await;
    stack.deploy_echo().await;
    let wanted = json!({"sha256": sha256(BYTES), "size_bytes": BYTES.len()});
    let place = stack.json(stack.post("/v1/weights", &wanted)).await;
    stack.upload(&place["upload_url"], &place["headers"], BYTES).await;
    stack.token = stack.token_of("zoo", &Role::Admin.scopes(), None).await;
    let package = stack.problem(stack.post("/v1/endpoints", &echo())).await;
    assert_eq!(package, (409, "package_missing".to_owned()));
    // After the tenant's own package, the deploy requires its weights.
    let about = json!({"sha256": sha256(PACKAGE), "size_bytes": PACKAGE.len()});
    let own = stack.json(stack.post("/v1/packages", &about)).await;
    assert_eq!(own["exists"], false);
    stack.upload(&own["upload_url"], &own["headers"], PACKAGE).await;
    let weights = stack.problem(stack.post("/v1/endpoints", &naming(json!([weight("a", None)])))).await;
    assert_eq!(weights, (409, "package_missing".to_owned()));
    // Other bytes cannot be uploaded under this hash either.
    let place = stack.json(stack.post("/v1/weights", &wanted)).await;
    let other = vec![b'x'; BYTES.len()];
    let mut put = stack.client.put(place["upload_url"].as_str().unwrap()).body(other);
    for (name, value) in place["headers"].as_object().unwrap() {
        put = put.header(name, value.as_str().unwrap());
    }
    assert!(put.send().await.unwrap().status().is_client_error());
    let weights = stack.problem(stack.post("/v1/endpoints", &naming(json!([weight("a", None)])))).await;
    assert_eq!(weights, (409, "package_missing".to_owned()));
}

#[tokio::test]
async fn a_bucket_is_read_where_the_operator_lets_it_be() {
    let stack = Stack::start_with(|config| config.weight_buckets = vec!["zoo".to_owned()]).await;
    let signed = stack.json(stack.get("/v1/weights/url?source=s3://zoo/llama/a%20b")).await;
    assert!(signed["url"].as_str().unwrap().contains("/zoo/llama/a%20b?"), "{signed}");
    for wrong in ["s3://stokehold/results/x", "s3://zoo", "s3:///a", "https://zoo/a"] {
        let refused = stack.problem(stack.get(&format!("/v1/weights/url?source={wrong}"))).await;
        assert_eq!(refused.0, 400, "{wrong}");
    }
    let weights = json!([weight("a", Some("s3://zoo/llama/a")), weight("b", Some("https://models.test/b?token=1")),]);
    stack.deploy(naming(weights)).await;
    let urls = spec(&stack).await["weight_urls"].clone();
    assert!(urls[0].as_str().unwrap().contains("X-Amz-Signature"), "{urls}");
    assert_eq!(urls[1], "https://models.test/b?token=1");
}

#[tokio::test]
async fn what_cannot_be_meant_is_refused() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let web = Some("https://models.test/a");
    let mut short = weight("a", web);
    short["sha256"] = json!("abc");
    for wrong in [
        json!([weight("../a", web)]),
        json!([weight("/a", web)]),
        json!([weight("a", web), weight("a", web)]),
        json!([short]),
        json!([weight("a", Some("file:///etc/passwd"))]),
        json!([weight("a", Some("s3://other/a"))]),
        json!([weight("a", Some("https://me:secret@models.test/a"))]),
    ] {
        let refused = stack.problem(stack.post("/v1/endpoints", &naming(wrong.clone()))).await;
        assert_eq!(refused, (400, "invalid_request".to_owned()), "{wrong}");
    }
    let mut pickles = naming(json!([weight("a.bin", web)]));
    pickles["allow_pickle"] = json!(true);
    assert_eq!(stack.deploy(pickles.clone()).await["demands"], json!({"min_sandbox": "L1"}));
    pickles["network"] = json!(true);
    assert_eq!(stack.problem(stack.post("/v1/endpoints", &pickles)).await.0, 400);
}
