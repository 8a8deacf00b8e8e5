//! Forged reports: about jobs that another worker runs, with timings and files that the worker invents.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Liar, Target, give_back};
use crate::report::Outcome;

/// Ends, extends, releases, sends messages for and uploads for a job that another worker runs.
pub(super) async fn guesses_fences(target: &Target) -> Outcome {
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

/// Reports more time than has passed.
pub(super) async fn charges_what_it_likes(target: &Target) -> Outcome {
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
        // An hour of loading before the lease, at $1, is the maximum that it may claim; the lease itself took no time.
        let cost = row["total_usd_micros"].as_f64().unwrap();
        outcome.open_if(!(0.0..=1_010_000.0).contains(&cost), || row.to_string());
    }
    outcome
}

/// Uploads under other names, into other attempts, of other kinds; reports results that were never stored.
pub(super) async fn stores_where_it_likes(target: &Target) -> Outcome {
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
    // The folder for an attempt's files: each has its own name there and nothing below it.
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
