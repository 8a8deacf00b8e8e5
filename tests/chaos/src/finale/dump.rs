//! The final contents of Redis, S3 and the replicas, as events.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, Result, bail};
use redis::aio::MultiplexedConnection;
use serde_json::{Value, json};

use super::ROOT;
use crate::cluster::Cluster;
use crate::history::{Event, Journal, Kind};

/// Records read at a time.
const PAGE: usize = 500;

/// Keys below the shard's root that are kept by design after a job's end: records, their list entries, data that waits
/// for history and webhooks, counters that only grow, and counts of a day or an hour.
const KEPT: [&str; 34] = [
    ":tenants",
    ":j:",
    ":i:",
    ":e:",
    ":index:",
    ":ended",
    ":dead:",
    ":cost",
    ":flow",
    ":spent:",
    ":timings:",
    ":timeouts_since",
    ":unmet",
    ":turn",
    ":limits",
    ":w:",
    ":wl:",
    ":b:",
    ":batches:",
    ":batches_tidy",
    ":role:",
    ":parked:",
    ":warm:",
    ":hold:",
    ":head:",
    ":probe",
    ":d:",
    ":rate",
    // Memory of the records that are kept, and for a week of a worker that was killed in the middle of an end.
    ":bytes",
    ":runs:",
    // Bytes of outputs per hour, and jobs that a replica of the previous release has ended without counting, which the
    // next sweep finds.
    ":streamed:",
    ":beside",
    // State of a recovery sweep, for minutes.
    ":recount",
    ":drift",
];

/// Those of them that belong to one job or one message: not counted when memory is compared.
const UNCOUNTED: [&str; 11] =
    [":j:", ":i:", ":e:", ":index:", ":ended", ":dead:", ":w:", ":wl:", ":b:", ":batches:", ":batches_tidy"];

fn number(fields: &HashMap<String, String>, name: &str) -> u64 {
    fields.get(name).and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Jobs and batches that have not ended.
pub(super) async fn open(redis: &mut MultiplexedConnection) -> Result<u64> {
    let (gates, batches): (BTreeMap<String, u64>, u64) = redis::pipe()
        .hgetall(format!("{ROOT}:open"))
        .cmd("ZCARD")
        .arg(format!("{ROOT}:batches"))
        .query_async(redis)
        .await?;
    // Every job counts at its tenant's limit and at its endpoint's.
    let jobs: u64 = gates.iter().filter(|(gate, _)| gate.starts_with("t:")).map(|(_, jobs)| jobs).sum();
    Ok(jobs + batches)
}

/// Index entries of jobs that have not ended, by index.
pub(super) async fn standing(redis: &mut MultiplexedConnection) -> Result<Value> {
    let (leases, scheduled, deadlines, ready): (u64, u64, u64, BTreeMap<String, u64>) = redis::pipe()
        .cmd("ZCARD")
        .arg(format!("{ROOT}:leases"))
        .cmd("ZCARD")
        .arg(format!("{ROOT}:scheduled"))
        .cmd("ZCARD")
        .arg(format!("{ROOT}:deadlines"))
        .hgetall(format!("{ROOT}:ready"))
        .query_async(redis)
        .await?;
    let streams = keys(redis)
        .await?
        .into_iter()
        .filter(|key| below(key).is_some_and(|key| key.starts_with(":q:") || key.starts_with(":f:")));
    let ready: u64 = ready.values().sum();
    Ok(
        json!({"leases": leases, "scheduled": scheduled, "deadlines": deadlines, "ready": ready, "streams": streams.count()}),
    )
}

async fn keys(redis: &mut MultiplexedConnection) -> Result<Vec<String>> {
    let (mut cursor, mut keys) = (0_u64, Vec::new());
    loop {
        let (next, page): (u64, Vec<String>) =
            redis::cmd("SCAN").arg(cursor).arg("COUNT").arg(1_000).query_async(redis).await?;
        keys.extend(page);
        if next == 0 {
            // SCAN may return a key twice.
            keys.sort_unstable();
            keys.dedup();
            return Ok(keys);
        }
        cursor = next;
    }
}

fn below(key: &str) -> Option<&str> {
    key.strip_prefix(ROOT)
}

/// The record of every job, without the fields that only batches have.
pub(super) async fn jobs(cluster: &Cluster, redis: &mut MultiplexedConnection, journal: &Journal) -> Result<()> {
    let prefix = format!("{ROOT}:j:");
    let keys: Vec<String> = keys(redis).await?.into_iter().filter(|key| key.starts_with(&prefix)).collect();
    for page in keys.chunks(PAGE) {
        let mut pipe = redis::pipe();
        page.iter().for_each(|key| {
            pipe.hgetall(key);
        });
        let records: Vec<HashMap<String, String>> = pipe.query_async(redis).await?;
        for (key, fields) in page.iter().zip(records) {
            // A batch's lines leave the queue when they are recorded; the batch's files contain them.
            if fields.contains_key("batch") {
                continue;
            }
            let id = &key[prefix.len()..];
            journal.write(Event::new("redis", Kind::Ok, "final").job(id).v(record(cluster, id, &fields).await?));
        }
    }
    Ok(())
}

async fn record(cluster: &Cluster, id: &str, fields: &HashMap<String, String>) -> Result<Value> {
    let parse =
        |name: &str| -> Value { fields.get(name).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default() };
    let input = parse("input");
    // <priority>:<class>:<tenant>:<endpoint>
    let lane: Vec<&str> = fields.get("lane").context("a record has a lane")?.splitn(4, ':').collect();
    let &[priority, _, tenant, _] = lane.as_slice() else { bail!("{lane:?} is no lane") };
    let priority = match priority {
        "0" => "interactive",
        "2" => "batch",
        _ => "standard",
    };
    let attempts: Vec<Value> =
        fields.iter().filter_map(|(name, text)| attempt(name.strip_prefix('h')?.parse().ok()?, text, fields)).collect();
    let mut v = json!({
        "state": fields.get("state"), "tenant": tenant, "priority": priority, "tag": input["tag"],
        "fails": input["fails"].as_u64().unwrap_or(0) >= 1_000, "attempt": number(fields, "attempt"), "fence": fields.get("fence"),
        "failures": number(fields, "failures"), "lost": number(fields, "lost"), "crashes": number(fields, "crashes"),
        "hook": fields.contains_key("hook"), "attempts": attempts, "run": parse("inline")["run"],
    });
    if v["state"] == "succeeded" && fields.contains_key("stored") {
        let (run, verdict) = object(cluster, id, tenant, &input).await;
        (v["run"], v["object"]) = (run, verdict.into());
    }
    Ok(v)
}

/// A closed attempt in the record: worker, fence (`=`: the record's), leased, queued, duration, outcome, and details.
fn attempt(number: u32, text: &str, fields: &HashMap<String, String>) -> Option<Value> {
    let [worker, fence, leased, queued, took, outcome] =
        text.split_whitespace().take(6).collect::<Vec<_>>().try_into().ok()?;
    let ms = |text: &str| text.parse::<u64>().ok();
    let fence = if fence == "=" { fields.get("fence")? } else { fence };
    Some(json!({
        "attempt": number, "worker_id": worker, "fence": fence, "leased_ms": ms(leased)?, "queued_ms": ms(queued)?,
        "ended_ms": ms(leased)? + ms(took)?, "outcome": outcome,
    }))
}

/// Compares a result in S3, read as its owner reads it, with the handler's expected result.
async fn object(cluster: &Cluster, id: &str, tenant: &str, input: &Value) -> (Value, String) {
    let tenant = cluster.tenants.iter().position(|other| other.name == tenant).unwrap_or(0);
    match cluster.get(tenant, &format!("/v1/jobs/{id}/result")).await {
        Ok(result) => {
            let length = result["fill"].as_str().map_or(0, str::len) as u64;
            let right = result["tag"] == input["tag"] && Some(length) == input["fill"].as_u64();
            (result["run"].clone(), if right { "right" } else { "another's" }.to_owned())
        }
        Err(error) => (Value::Null, format!("not there: {error}")),
    }
}

/// Every batch: its counts, and the lines of its files.
pub(super) async fn batches(cluster: &Cluster, journal: &Journal) -> Result<()> {
    let mut cursor = String::new();
    loop {
        let page = cluster.get(0, &format!("/v1/batches?limit=100{cursor}")).await?;
        for batch in page["batches"].as_array().context("no list of batches")? {
            let id = batch["id"].as_str().unwrap_or_default();
            let mut lines = Vec::new();
            for file in ["results", "errors"] {
                for line in file_lines(cluster, &format!("/v1/batches/{id}/{file}")).await? {
                    let run = match line["job_id"].as_str() {
                        // A large result, which the file only links to.
                        Some(job) if line["result_url"].is_string() => {
                            cluster.get(0, &format!("/v1/jobs/{job}/result")).await.map(|result| result["run"].clone())
                        }
                        _ => Ok(line["result"]["run"].clone()),
                    };
                    lines.push(json!({
                        "tag": line["custom_id"], "job": line["job_id"], "run": run.unwrap_or_default(),
                        "state": if file == "results" { json!("succeeded") } else { line["state"].clone() },
                    }));
                }
            }
            journal.write(Event::new("api", Kind::Ok, "final_batch").key(id).v(json!({
                "state": batch["state"], "counts": batch["counts"], "lines": lines, "hook": batch["webhook"].is_string(),
            })));
        }
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return Ok(()),
        }
    }
}

async fn file_lines(cluster: &Cluster, path: &str) -> Result<Vec<Value>> {
    let url = format!("http://127.0.0.1:{}{path}", cluster.apis[0].port);
    let request = reqwest::Client::new().get(url).bearer_auth(&cluster.tenants[0].token);
    let text = request.send().await?.error_for_status()?.text().await?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// Every webhook's record.
pub(super) async fn hooks(redis: &mut MultiplexedConnection, journal: &Journal) -> Result<()> {
    let prefix = format!("{ROOT}:w:");
    let keys: Vec<String> = keys(redis).await?.into_iter().filter(|key| key.starts_with(&prefix)).collect();
    for page in keys.chunks(PAGE) {
        let mut pipe = redis::pipe();
        page.iter().for_each(|key| {
            pipe.cmd("HMGET").arg(key).arg(&["event", "subject", "state", "tries"]);
        });
        let records: Vec<[Option<String>; 4]> = pipe.query_async(redis).await?;
        for (key, [event, subject, state, tries]) in page.iter().zip(records) {
            let v = json!({"event": event, "subject": subject, "state": state, "tries": tries});
            journal.write(Event::new("redis", Kind::Ok, "final_hook").key(&key[prefix.len()..]).v(v));
        }
    }
    Ok(())
}

/// Leftover keys beside those that are kept by design, and the memory without the latter.
pub(super) async fn memory(
    redis: &mut MultiplexedConnection,
    journal: &Journal,
    standing: Value,
    baseline_bytes: u64,
) -> Result<()> {
    let keys = keys(redis).await?;
    let left: Vec<&String> = keys.iter().filter(|key| below(key).is_some() && !is(&KEPT, key)).collect();
    let mut v = standing;
    v["left"] = json!(left);
    v["baseline_bytes"] = baseline_bytes.into();
    let mut kept = weights(redis).await?;
    kept.sort_unstable_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    v["after_bytes"] = kept.iter().map(|(_, bytes)| bytes).sum::<u64>().into();
    v["heaviest"] = kept.iter().take(5).map(|(key, bytes)| format!("{key} {bytes}")).collect();
    journal.write(Event::new("redis", Kind::Ok, "final_redis").v(v));
    Ok(())
}

fn is(list: &[&str], key: &str) -> bool {
    below(key).is_some_and(|key| list.iter().any(|kept| key.starts_with(kept)))
}

/// The queue's keys and their memory, without records and volatile keys: roles, of which each life of Redis has its
/// own.
pub(super) async fn weights(redis: &mut MultiplexedConnection) -> Result<Vec<(String, u64)>> {
    let mut weights = Vec::new();
    for key in keys(redis).await?.into_iter().filter(|key| below(key).is_some() && !is(&UNCOUNTED, key)) {
        let (bytes, left_ms): (Option<u64>, i64) = redis::pipe()
            .cmd("MEMORY")
            .arg("USAGE")
            .arg(&key)
            .arg("SAMPLES")
            .arg(0)
            .pttl(&key)
            .query_async(redis)
            .await?;
        if left_ms < 0 {
            weights.push((key, bytes.unwrap_or_default()));
        }
    }
    Ok(weights)
}

/// Current counters of every replica.
pub(crate) async fn scrape_all(cluster: &Cluster, journal: &Journal) {
    for api in &cluster.apis {
        scrape(&api.name, api.port, journal).await;
    }
}

/// Current counters of one replica; nothing if it does not answer.
pub(crate) async fn scrape(name: &str, port: u16, journal: &Journal) {
    let request = reqwest::Client::new().get(format!("http://127.0.0.1:{port}/metrics"));
    let Ok(answer) = request.timeout(std::time::Duration::from_secs(2)).send().await else { return };
    let Ok(text) = answer.text().await else { return };
    let sum = |metric: &str, label: &[&str]| -> u64 {
        let lines =
            text.lines().filter(|line| line.starts_with(metric) && label.iter().all(|label| line.contains(label)));
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
    };
    let v = json!({
        "submitted": sum("stokehold_jobs_submitted_total", &[]), "reaped": sum("stokehold_leases_reaped_total", &[]),
        "committed": sum("stokehold_attempts_finished_total", &["outcome=\"succeeded\"", "answer=\"ok\""]),
    });
    journal.write(Event::new(name, Kind::Ok, "scrape").v(v));
}
