//! Cached weights and packages of one tenant, which another tenant names by their hash alone.

use axum::Router;
use axum::http::{StatusCode, Uri};
use serde_json::{Value, json};

use crate::api::Api;
use crate::attacks;
use crate::report::{Outcome, Promise, Report};
use crate::stage::{self, CANARY, Stage, Who};

const SURFACE: &str = "caches";

struct Target {
    stage: Stage,
    attacker: Api,
    /// The attacker's server, which has none of them.
    server: String,
    made: Value,
}

pub(crate) async fn run(report: &mut Report) {
    let target = Target::start().await;
    attacks!(
        report,
        SURFACE,
        "L1 root",
        Promise::Holds,
        &target,
        [names_weights_by_their_hash, names_packages_by_their_hash]
    );
}

async fn nothing(uri: Uri) -> (StatusCode, &'static str) {
    match uri.path() {
        "/empty" => (StatusCode::OK, ""),
        "/other" => (StatusCode::OK, "other bytes than these, as many or not"),
        "/same" => (StatusCode::NOT_MODIFIED, ""),
        "/part" => (StatusCode::PARTIAL_CONTENT, ""),
        "/denied" => (StatusCode::FORBIDDEN, ""),
        _ => (StatusCode::NOT_FOUND, ""),
    }
}

impl Target {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(nothing)).await });
        let stage = Stage::start(Who::Root, &["--slots", "2"], &[("STOKE_SANDBOX", "L1")]);
        let (victim, attacker) = (stage.tenant("victim", &["admin"]).await, stage.tenant("attacker", &["admin"]).await);
        let text = format!("{CANARY} {}", std::process::id());
        let made = stage::python("caches/make.py", &[stage.dir.path().to_str().unwrap(), &text]);
        let request = json!({"sha256": made["weights"]["sha256"], "size_bytes": made["weights"]["size"]});
        let answer = victim.request("POST", "/v1/weights").json(&request).send().await.unwrap();
        let answer: Value = answer.error_for_status().unwrap().json().await.unwrap();
        let mut put = reqwest::Client::new().put(answer["upload_url"].as_str().unwrap()).body(text);
        for (name, value) in answer["headers"].as_object().unwrap() {
            put = put.header(name, value.as_str().unwrap());
        }
        put.send().await.unwrap().error_for_status().unwrap();
        let target = Self { stage, attacker, server, made };
        let (status, answer) = target.deployed(&victim, "weighty", json!(null), true).await;
        assert_eq!(status, 201, "{answer}");
        let job = victim.submit("weighty", json!({})).await;
        let ended = victim.ended(&job).await;
        assert!(ended["result"].to_string().contains(CANARY), "the worker has them: {ended}");
        target
    }

    /// Deploys an endpoint with these weights at an address; null names weights that the tenant has uploaded.
    async fn deployed(&self, api: &Api, name: &str, url: Value, uploads: bool) -> (u16, Value) {
        let package = &self.made["package"];
        if uploads {
            let bytes = std::fs::read(package["path"].as_str().unwrap()).unwrap();
            stage::put_package(api, package["sha256"].as_str().unwrap(), bytes).await;
        }
        let weights = &self.made["weights"];
        let weight = json!({"path": "w.txt", "source": "file:w", "url": url, "sha256": weights["sha256"], "size_bytes": weights["size"]});
        let members = json!({"package_sha256": package["sha256"], "package_size_bytes": package["size"], "entry": "main.py:weighty",
            "weights": [weight], "max_attempts": 1});
        let version = stage::version(name, members);
        let answer = api.request("POST", "/v1/endpoints").json(&version).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap_or(Value::Null))
    }
}

async fn names_weights_by_their_hash(target: &Target) -> Outcome {
    let mut outcome = Outcome::default();
    let mut urls: Vec<Value> = ["", "/empty", "/other", "/same", "/part", "/denied"]
        .map(|path| json!(format!("{}{path}", target.server)))
        .into();
    urls.extend(
        ["https://127.0.0.1:9/x", "hf://org/private@main/x", "s3://bucket/x", "file:///x", ""].map(|url| json!(url)),
    );
    urls.push(Value::Null);
    for (n, url) in urls.into_iter().enumerate() {
        let name = format!("steals-{n}");
        let (status, _) = target.deployed(&target.attacker, &name, url.clone(), true).await;
        if status >= 300 {
            outcome.open_if(status >= 500, || format!("{url}: {status}"));
            continue;
        }
        let job = target.attacker.submit(&name, json!({})).await;
        // A failed fetch is retried for a while; cached weights are available at once.
        let ended = target.attacker.get(&format!("/v1/jobs/{job}?wait_s=10")).await;
        outcome.open_if(ended["result"].to_string().contains(CANARY), || format!("{url}: {}", ended["result"]));
        let _ = target.attacker.request("POST", &format!("/v1/jobs/{job}/cancel")).send().await;
    }
    outcome
}

/// The API keeps the packages of each tenant apart: a tenant cannot deploy a package that it has not uploaded.
async fn names_packages_by_their_hash(target: &Target) -> Outcome {
    let stranger = target.stage.tenant("stranger", &["admin"]).await;
    let mut outcome = Outcome::default();
    let asked = json!({"sha256": target.made["package"]["sha256"], "size_bytes": target.made["package"]["size"]});
    for path in ["/v1/packages", "/v1/weights"] {
        let answer = stranger.request("POST", path).json(&asked).send().await.unwrap();
        let answer: Value = answer.json().await.unwrap();
        outcome.open_if(answer["exists"] == true, || format!("{path} tells a stranger that it exists"));
    }
    let (status, answer) = target.deployed(&stranger, "weighty", json!(format!("{}/", target.server)), false).await;
    outcome.open_if(!(400..500).contains(&status), || format!("{status} {answer}"));
    outcome
}
