//! A worker that lies: a rented machine whose host joins as it, claims what it is not, and wants what it was not given.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::api::Api;
use crate::attacks;
use crate::report::{Outcome, Promise, Report};
use crate::stage::{self, CANARY, Stage, Who};

const SURFACE: &str = "worker";

/// Endpoints of the victim's that a stranger's machine may not run, by what they ask.
const CLOSED: [(&str, &str); 3] = [("owned", "min_trust"), ("shut-in", "min_sandbox"), ("at-home", "regions")];

struct Target {
    stage: Stage,
    /// The tenant whose jobs they are.
    victim: Api,
}

/// A worker that speaks to the gateway and runs nothing.
pub(crate) struct Liar<'a> {
    stage: &'a Stage,
    token: String,
    pub(crate) id: String,
}

pub(crate) async fn run(report: &mut Report) {
    let target = Target::start().await;
    attacks!(
        report,
        SURFACE,
        "-",
        Promise::Holds,
        &target,
        [
            leases_what_it_may_not_run,
            asks_for_secrets_without_a_lease,
            guesses_fences,
            charges_what_it_likes,
            stores_where_it_likes,
            sends_odd_messages,
            uses_its_token_elsewhere,
        ]
    );
}

impl Target {
    async fn start() -> Self {
        // Nobody extends what the attacks hold.
        let stage = Stage::start(Who::Root, &["--workers", "0"], &[("STOKE_LEASE_MS", "20000")]);
        let victim = stage.tenant("victim", &["admin"]).await;
        let secret = victim.request("PUT", "/v1/secrets/TOKEN").json(&json!({"value": CANARY})).send().await.unwrap();
        secret.error_for_status().unwrap();
        let demands = [json!({"min_trust": "owned"}), json!({"min_sandbox": "L2"}), json!({"regions": ["home"]})];
        for ((name, _), demands) in CLOSED.iter().zip(demands) {
            let version = stage::version(name, json!({"demands": demands, "secrets": ["TOKEN"]}));
            let (status, answer) = stage::deploy(&victim, &version).await;
            assert_eq!(status, 201, "{answer}");
            for n in 0..5 {
                victim.submit(name, json!({"canary": CANARY, "n": n})).await;
            }
        }
        let anybodys = json!({"secrets": ["TOKEN"], "demands": {"min_trust": "community"}});
        let (status, answer) = stage::deploy(&victim, &stage::version("anybodys", anybodys)).await;
        assert_eq!(status, 201, "{answer}");
        Self { stage, victim }
    }
}

impl<'a> Liar<'a> {
    /// Joins with a new token of a machine of this trust; what else it says of itself.
    pub(crate) async fn join(stage: &'a Stage, trust: &str, says: Value) -> Self {
        let token = json!({"name": "stranger", "roles": ["worker"], "trust": trust, "region": "abroad"});
        let joined = Self::try_join(stage, &stage.token(&token).await, says).await;
        joined.unwrap_or_else(|answer| panic!("it may not join: {answer}"))
    }

    /// Joins with this token.
    ///
    /// # Errors
    /// What the gateway answers otherwise.
    pub(crate) async fn try_join(stage: &'a Stage, token: &str, says: Value) -> Result<Self, String> {
        let mut request = json!({"protocol": 1, "release": "1.2.3", "name": "liar", "slots": 4, "gpus": []});
        for (name, value) in says.as_object().unwrap() {
            request[name] = value.clone();
        }
        let joined = stage.as_token(token).request("POST", "/worker/v1/join").json(&request).send().await.unwrap();
        if !joined.status().is_success() {
            return Err(joined.text().await.unwrap());
        }
        let joined: Value = joined.json().await.unwrap();
        let text = |name: &str| joined[name].as_str().unwrap().to_owned();
        Ok(Self { stage, token: text("token"), id: text("worker_id") })
    }

    /// Asks for something; the status and the answer.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        let api = self.stage.as_token(&self.token);
        let answer = api.request("GET", &format!("/worker/v1/{path}")).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap_or_default())
    }

    /// Sends a message; the status and the answer.
    pub(crate) async fn post(&self, verb: &str, body: &Value) -> (u16, Value) {
        self.post_text(verb, body.to_string()).await
    }

    async fn post_text(&self, verb: &str, body: String) -> (u16, Value) {
        let api = self.stage.as_token(&self.token);
        let answer = api.request("POST", &format!("/worker/v1/{verb}")).header("content-type", "application/json");
        let answer = answer.body(body).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap_or(Value::Null))
    }

    /// Leases as many jobs as it is given, at once.
    pub(crate) async fn lease(&self, offer: Value) -> Vec<Value> {
        let mut request = json!({"want": 10, "reach_gib": 0, "wait_ms": 0});
        for (name, value) in offer.as_object().unwrap() {
            request[name] = value.clone();
        }
        let (_, answer) = self.post("lease", &request).await;
        answer["leases"].as_array().cloned().unwrap_or_default()
    }
}

/// Every claim that a lease call can make, by workers that say different things of themselves.
async fn leases_what_it_may_not_run(target: &Target) -> Outcome {
    let gpu = json!({"index": 0, "uuid": "GPU-1", "name": "Test 24", "vram_mib": 24_576, "compute_capability": "9.0"});
    let says = [
        json!({}),
        json!({"sandbox": "L0"}),
        json!({"sandbox": "L1", "gpus": [gpu]}),
        json!({"name": "home", "region": "home", "trust": "owned", "sandbox": "L1"}),
        json!({"slots": 1_000}),
    ];
    let mut outcome = Outcome::default();
    for says in says {
        let liar = Liar::join(&target.stage, "community", says.clone()).await;
        for (endpoint, what) in CLOSED {
            for version in [1, 0, 2].into_iter().take(stage::size(1, 3)) {
                for card_gib in [0_u64, 1, 1_000, u64::from(u32::MAX)] {
                    for takes in [1, 5, u32::MAX] {
                        let model = json!({"tenant": "victim", "endpoint": endpoint, "version": version, "takes": takes, "card_gib": card_gib});
                        let warm = json!([model]);
                        let card = json!({"index": 0, "reach_gib": card_gib, "whole_gib": card_gib});
                        let offers = [
                            json!({"warm": warm}),
                            json!({"warm": warm, "reach_gib": card_gib, "cold_ms": 0}),
                            json!({"warm": [model, model], "cards": [card], "reach_gib": 1_000, "cold_ms": u64::MAX}),
                            json!({"only": card_gib, "warm": warm, "cards": [card]}),
                        ];
                        for offer in offers {
                            let leases = liar.lease(offer.clone()).await;
                            let wrong: Vec<_> = leases.iter().filter(|lease| is_closed(lease)).collect();
                            outcome.open_if(!wrong.is_empty(), || {
                                format!("{endpoint} ({what}) to one that says {says}, by {offer}")
                            });
                            give_back(&liar, &leases).await;
                        }
                    }
                }
            }
        }
    }
    outcome
}

fn is_closed(lease: &Value) -> bool {
    CLOSED.iter().any(|(name, _)| lease["endpoint"] == *name)
}

async fn give_back(liar: &Liar<'_>, leases: &[Value]) {
    let held: Vec<_> = leases.iter().map(|lease| json!({"job_id": lease["job_id"], "fence": lease["fence"]})).collect();
    if !held.is_empty() {
        liar.post("release", &json!({"leases": held})).await;
    }
}

/// Secrets of models: without a lease, with a lease of another model, with one that is over, with made-up ones.
async fn asks_for_secrets_without_a_lease(target: &Target) -> Outcome {
    let liar = Liar::join(&target.stage, "community", json!({})).await;
    let job = target.victim.submit("anybodys", json!({})).await;
    let leases = liar.lease(json!({})).await;
    let lease = leases.iter().find(|lease| lease["job_id"] == job.as_str()).expect("it may run these").clone();
    let held = json!({"job_id": lease["job_id"], "fence": lease["fence"]});
    // The attack works where it may: with a lease of that very model.
    let own = json!({"model": {"tenant": "victim", "endpoint": "anybodys", "version": 1}, "lease": held});
    let (_, answer) = liar.post("secrets", &own).await;
    assert!(answer.to_string().contains(CANARY), "{answer}");

    let others = target.victim.get("/v1/jobs?limit=100").await;
    let others: Vec<String> =
        others["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap().to_owned()).collect();
    let mut tried: Vec<Value> = Vec::new();
    for (endpoint, _) in CLOSED {
        let model = |version: u64| json!({"tenant": "victim", "endpoint": endpoint, "version": version});
        for version in [0, 1, 2, u64::from(u32::MAX)] {
            tried.push(json!({"model": model(version)}));
            tried.push(json!({"model": model(version), "lease": held}));
            tried.push(json!({"model": model(version), "lease": null}));
        }
        for other in &others {
            for fence in [lease["fence"].as_str().unwrap(), "1.0000000000000000", "", "0", "1", "*", "1.*"] {
                tried.push(json!({"model": model(1), "lease": {"job_id": other, "fence": fence}}));
            }
        }
    }
    let mut outcome = Outcome::default();
    for request in &tried {
        let (_, answer) = liar.post("secrets", request).await;
        outcome.open_if(answer.to_string().contains(CANARY), || request.to_string());
    }
    give_back(&liar, &leases).await;
    let (_, answer) = liar.post("secrets", &own).await;
    outcome.open_if(answer.to_string().contains(CANARY), || "a lease that was given back".to_owned());
    outcome
}

/// Ends, extends, gives back, speaks for and uploads for a job that somebody else runs.
async fn guesses_fences(target: &Target) -> Outcome {
    let (honest, liar) =
        (Liar::join(&target.stage, "owned", json!({})).await, Liar::join(&target.stage, "community", json!({})).await);
    let job = target.victim.submit("anybodys", json!({})).await;
    let leases = honest.lease(json!({})).await;
    let fence = leases.iter().find(|lease| lease["job_id"] == job.as_str()).expect("it may run these")["fence"]
        .as_str()
        .unwrap();
    let (counter, nonce) = fence.split_once('.').unwrap();
    let counter: u64 = counter.parse().unwrap();
    let mut fences: BTreeSet<String> =
        (0..=counter + 20).map(|counter| format!("{counter}.0000000000000000")).collect();
    fences.extend((0..=counter + 20).filter(|n| *n != counter).map(|counter| format!("{counter}.{nonce}")));
    let odd = [
        "",
        ".",
        "*",
        "1",
        "1.",
        "-1.x",
        "1.*",
        "[1]",
        "nil",
        "\"",
        "' or 1",
        "1.\u{0}",
        "1.\u{202e}",
        "18446744073709551616.0",
        "0x1.0",
    ];
    fences.extend(odd.map(str::to_owned));
    fences.extend([
        fence.to_uppercase(),
        format!("{fence} "),
        format!(" {fence}"),
        fence[..fence.len() - 1].to_owned(),
        format!("{fence}0"),
    ]);
    fences.remove(fence);
    let mut outcome = Outcome::default();
    for fence in &fences {
        let held = json!({"job_id": job, "fence": fence});
        let file = json!({"name": "output.json", "size_bytes": 2, "sha256": "0".repeat(64), "content_type": "application/json"});
        let merged = |more: Value| {
            let mut all = held.clone();
            all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            all
        };
        for (verb, body) in [
            ("finish", json!({"finish": [merged(json!({"outcome": "succeeded", "result": "forged"}))]})),
            (
                "finish",
                json!({"finish": [merged(json!({"outcome": "failed", "error": {"code": "rejected", "message": "forged"}}))]}),
            ),
            ("extend", json!({"leases": [held], "status": {"loaded": [], "running": 0, "gpus": []}})),
            ("release", json!({"leases": [held]})),
            ("events", json!({"events": [merged(json!({"event": "log", "stream": "stdout", "text": "forged"}))]})),
            ("uploads", merged(json!({"files": [file]}))),
        ] {
            let (_, answer) = liar.post(verb, &body).await;
            let said = answer.to_string();
            let is_open = said.contains("\"ok\"") || said.contains("\"held\"") || said.contains("\"url\"");
            outcome.open_if(is_open, || format!("{verb} with {fence:?}: {said}"));
        }
    }
    let now = target.victim.get(&format!("/v1/jobs/{job}")).await;
    outcome.open_if(now["state"] != "running" || now.to_string().contains("forged"), || now.to_string());
    give_back(&honest, &leases).await;
    outcome
}

/// Says that it took longer than there was time.
async fn charges_what_it_likes(target: &Target) -> Outcome {
    let price = json!({"price_usd_micros_per_hour": 1_000_000});
    let liar = Liar::join(&target.stage, "community", price).await;
    let mut outcome = Outcome::default();
    let large = [1_u64 << 20, 1 << 40, 1 << 50, (1 << 53) + 1, i64::MAX as u64, u64::MAX];
    for name in [
        "queued_ms",
        "env_ms",
        "weights_ms",
        "boot_ms",
        "load_ms",
        "warmup_ms",
        "turn_ms",
        "inputs_ms",
        "run_ms",
        "upload_ms",
        "all",
    ] {
        for ms in large {
            let job = target.victim.submit("anybodys", json!({})).await;
            let leases = liar.lease(json!({"want": 50})).await;
            let Some(lease) = leases.iter().find(|lease| lease["job_id"] == job.as_str()) else { continue };
            let names = ["env_ms", "weights_ms", "boot_ms", "load_ms", "warmup_ms", "run_ms", "upload_ms"];
            let timing: Value = if name == "all" {
                names.iter().map(|name| ((*name).to_owned(), json!(ms))).collect::<serde_json::Map<_, _>>().into()
            } else {
                json!({name: ms, "batch_size": 1, "sharers_milli": 1})
            };
            let report =
                json!({"job_id": job, "fence": lease["fence"], "outcome": "succeeded", "result": 1, "timing": timing});
            let (status, _) = liar.post("finish", &json!({"finish": [report]})).await;
            give_back(&liar, &leases).await;
            outcome.open_if(status >= 500, || format!("{name} = {ms}: {status}"));
        }
    }
    let costs = target.victim.get("/v1/costs?by=job").await;
    let rows = costs["rows"].as_array().unwrap();
    assert!(!rows.is_empty(), "what was charged is told: {costs}");
    for row in rows {
        // An hour of loading before the lease, at $1, is the most that it may claim; the lease itself took no time.
        let cost = row["total_usd_micros"].as_f64().unwrap();
        outcome.open_if(!(0.0..=1_010_000.0).contains(&cost), || row.to_string());
    }
    outcome
}

/// Uploads under other names, into other attempts, of other kinds; results that were never stored.
async fn stores_where_it_likes(target: &Target) -> Outcome {
    let liar = Liar::join(&target.stage, "community", json!({})).await;
    let job = target.victim.submit("anybodys", json!({})).await;
    let leases = liar.lease(json!({"want": 50})).await;
    let lease = leases.iter().find(|lease| lease["job_id"] == job.as_str()).expect("it may run these");
    let mut outcome = Outcome::default();
    let odd_names = [
        "../x",
        "/x",
        "..",
        ".",
        "",
        "a/b",
        "a\\b",
        "a b",
        "a\nb",
        "a\0b",
        "\u{202e}x",
        "%2e%2e%2f",
        "x?y",
        "x#y",
        "é",
        "a:b",
        "*",
        "~",
        "$(id)",
        "x;y",
    ];
    let long = "x".repeat(201);
    let file =
        |name: &str| json!({"name": name, "size_bytes": 2, "sha256": "0".repeat(64), "content_type": "text/plain"});
    let mut files: Vec<Value> = odd_names.into_iter().chain([long.as_str()]).map(file).collect();
    for (member, value) in [
        ("size_bytes", json!(u64::MAX)),
        ("size_bytes", json!(-1)),
        ("size_bytes", json!(1_u64 << 50)),
        ("sha256", json!("x")),
        ("sha256", json!("../")),
        ("sha256", json!("G".repeat(64))),
        ("content_type", json!("text/plain\r\nx-amz-acl: public-read")),
        ("content_type", json!("\u{0}")),
        ("content_type", json!("é")),
    ] {
        let mut one = file("plain.txt");
        one[member] = value;
        files.push(one);
    }
    let asked = async |file: &Value| {
        let request = json!({"job_id": job, "fence": lease["fence"], "files": [file]});
        liar.post("uploads", &request).await
    };
    // Where an attempt's files go: to this folder, each with a name of its own and nothing below.
    let (_, plain) = asked(&file("plain.txt")).await;
    let folder =
        plain["uploads"][0]["url"].as_str().expect("it may upload this").split("plain.txt").next().unwrap().to_owned();
    for file in files {
        let (status, answer) = asked(&file).await;
        let url = answer["uploads"][0]["url"].as_str().unwrap_or_default();
        let name = url.strip_prefix(&folder).and_then(|rest| rest.split('?').next());
        let is_one = name.is_some_and(|name| !name.is_empty() && !name.contains('/') && !name.starts_with('.'));
        let is_plain =
            file["content_type"] == "text/plain" && file["sha256"] == "0".repeat(64) && file["size_bytes"] == 2;
        outcome
            .open_if(status >= 500 || (status < 300 && !(is_one && is_plain)), || format!("{file}: {status} {answer}"));
    }
    for size in [0_u64, 1, 1 << 40, u64::MAX] {
        let report = json!({"job_id": job, "fence": lease["fence"], "outcome": "stored", "size_bytes": size});
        let (status, _) = liar.post("finish", &json!({"finish": [report]})).await;
        let now = target.victim.get(&format!("/v1/jobs/{job}")).await;
        outcome.open_if(now["state"] == "succeeded" || status >= 500, || {
            format!("a result of {size} bytes that is not there: {status} {now}")
        });
    }
    outcome
}

/// Messages that are none, to every route.
async fn sends_odd_messages(target: &Target) -> Outcome {
    let liar = Liar::join(&target.stage, "community", json!({})).await;
    let deep = "[".repeat(100_000);
    let wide = format!("{{\"leases\": [{}1]}}", "1,".repeat(200_000));
    let bodies = [
        "",
        "null",
        "1",
        "[]",
        "{}",
        "\"x\"",
        "{\"want\": -1}",
        "{\"want\": 1e309}",
        "{\"want\": 4294967296}",
        "{\"want\": 101, \"reach_gib\": 0, \"wait_ms\": 0}",
        "{\"want\": 1, \"want\": 2}",
        "{\"leases\": null}",
        "{\"\\ud800\": 1}",
        "\u{feff}{}",
        "{\"events\": [{\"job_id\": \"*\", \"fence\": \"*\"}]}",
        "{\"finish\": [{\"job_id\": \"0192f0c1a2b37cde8f00112233445500\", \"fence\": \"1.x\", \"outcome\": \"none\"}]}",
        "{\"want\": 1, \"reach_gib\": 4294967295, \"wait_ms\": 18446744073709551615, \"cold_ms\": 18446744073709551615}",
        deep.as_str(),
        wide.as_str(),
    ];
    let mut outcome = Outcome::default();
    for verb in
        ["join", "lease", "extend", "finish", "release", "events", "uploads", "secrets", "nothing", "../v1/jobs"]
    {
        for body in bodies {
            // The call that would wait ends with the test's patience otherwise.
            let sent =
                tokio::time::timeout(std::time::Duration::from_secs(30), liar.post_text(verb, body.to_owned())).await;
            let is_bad = sent.as_ref().is_ok_and(|(status, _)| *status >= 500) || sent.is_err();
            outcome.open_if(is_bad, || format!("{verb}: {:.60}: {sent:?}", body));
        }
    }
    for path in [
        "endpoints/victim/owned/0",
        "endpoints/*/owned/1",
        "endpoints/victim/../1",
        "endpoints/victim/owned/x",
        "endpoints/%00/x/1",
        "endpoints/victim%2fowned/1/1",
    ] {
        let (status, _) = liar.get(path).await;
        outcome.open_if(!(400..500).contains(&status), || format!("{path}: {status}"));
    }
    let lives = target.stage.api.request("GET", "/healthz").send().await.unwrap().status();
    outcome.open_if(!lives.is_success(), || format!("the API answers {lives} after it"));
    outcome
}

/// A worker's token and a join token at the API that people use, and an API token at the gateway.
async fn uses_its_token_elsewhere(target: &Target) -> Outcome {
    let liar = Liar::join(&target.stage, "owned", json!({})).await;
    let join = target.stage.token(&json!({"name": "join", "roles": ["worker"]})).await;
    let document = target.stage.api.get("/openapi.json").await;
    let mut outcome = Outcome::default();
    let nobody = target.stage.as_token("");
    for (path, methods) in document["paths"].as_object().unwrap() {
        let filled = path
            .replace("{tenant}", "victim")
            .replace("{name}", "owned")
            .replace("{id}", "0192f0c1a2b37cde8f00112233445500");
        for method in methods.as_object().unwrap().keys() {
            let public = nobody.request(&method.to_uppercase(), &filled).send().await.unwrap().status();
            if public.is_success() || public.is_redirection() {
                continue;
            }
            for token in [&liar.token, &join] {
                let api = target.stage.as_token(token);
                let answer = api.request(&method.to_uppercase(), &filled).json(&json!({})).send().await.unwrap();
                let (status, said) = (answer.status().as_u16(), answer.text().await.unwrap_or_default());
                outcome.open_if(!(400..500).contains(&status) || said.contains(CANARY), || {
                    format!("{method} {path}: {status} {said:.200}")
                });
            }
        }
    }
    for verb in ["join", "lease", "extend", "finish", "release", "events", "uploads", "secrets"] {
        let answer =
            target.victim.request("POST", &format!("/worker/v1/{verb}")).json(&json!({})).send().await.unwrap();
        let status = answer.status().as_u16();
        outcome.open_if(!(400..500).contains(&status), || format!("{verb} with a tenant's token: {status}"));
    }
    outcome
}
