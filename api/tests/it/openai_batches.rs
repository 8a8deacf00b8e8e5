//! `/openai/v1/files` and `/openai/v1/batches`: batches of calls, as clients of OpenAI create and read them. A real
//! engine and the official client are in `tests/it/openai.rs` of the workspace.

mod files;
mod prompt_order;

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::openai::{error, handler, say, server};
use crate::stack::{PATIENCE, Stack, sha256};
use crate::worker::Worker;

const BATCHES: &str = "/openai/v1/batches";

/// A form with a file, and with these fields after it.
pub(crate) fn form(name: &str, bytes: &[u8], fields: &[(&str, &str)]) -> Vec<u8> {
    let mut form = b"--XX\r\n".to_vec();
    let disposition = format!("Content-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n");
    form.extend_from_slice(disposition.as_bytes());
    form.extend_from_slice(b"Content-Type: application/jsonl\r\n\r\n");
    form.extend_from_slice(bytes);
    for (name, value) in fields {
        let field = format!("\r\n--XX\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}");
        form.extend_from_slice(field.as_bytes());
    }
    form.extend_from_slice(b"\r\n--XX--\r\n");
    form
}

fn send(stack: &Stack, form: Vec<u8>) -> RequestBuilder {
    let request = stack.request(Method::POST, "/openai/v1/files");
    request.header("content-type", "multipart/form-data; boundary=XX").body(form)
}

async fn uploaded(stack: &Stack, lines: &[Value]) -> String {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let file = stack.json(send(stack, form("lines.jsonl", text.as_bytes(), &[("purpose", "batch")]))).await;
    file["id"].as_str().unwrap().to_owned()
}

fn line(id: &str, url: &str, body: Value) -> Value {
    json!({"custom_id": id, "method": "POST", "url": url, "body": body})
}

fn chat(id: &str, model: &str) -> Value {
    line(id, "/v1/chat/completions", say(model))
}

fn request(file: &str) -> Value {
    json!({"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"})
}

async fn created(stack: &Stack, request: &Value) -> String {
    let batch = stack.json(stack.post(BATCHES, request)).await;
    batch["id"].as_str().unwrap().to_owned()
}

async fn until(stack: &Stack, id: &str, is: impl Fn(&Value) -> bool) -> Value {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let batch = stack.json(stack.get(&format!("{BATCHES}/{id}"))).await;
        if is(&batch) {
            return batch;
        }
        assert!(tokio::time::Instant::now() < deadline, "{batch}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn until_status(stack: &Stack, id: &str, status: &str) -> Value {
    until(stack, id, |batch| batch["status"] == status).await
}

/// The bytes of a file.
async fn content(stack: &Stack, id: &str) -> Vec<u8> {
    let answer = stack.get(&format!("/openai/v1/files/{id}/content")).send().await.unwrap();
    assert_eq!(answer.status(), 307);
    let url = answer.headers()["location"].to_str().unwrap().to_owned();
    stack.client.get(url).send().await.unwrap().bytes().await.unwrap().to_vec()
}

/// The lines of a file by their custom id. Each has the members of OpenAI's form.
async fn lines_of(stack: &Stack, id: &Value) -> BTreeMap<String, Value> {
    let text = String::from_utf8(content(stack, id.as_str().unwrap()).await).unwrap();
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert!(line["id"].as_str().unwrap().starts_with("batch_req_"), "{line}");
        assert_eq!(line.as_object().unwrap().len(), 4, "{line}");
        assert_eq!(line["response"].is_null(), !line["error"].is_null(), "{line}");
        let before = found.insert(line["custom_id"].as_str().unwrap().to_owned(), line);
        assert!(before.is_none(), "twice: {before:?}");
    }
    found
}

/// Uploads files of a job as its worker.
async fn upload(stack: &Stack, worker: &Worker<'_>, lease: &Value, name: &str, bytes: &'static [u8]) {
    let kind = "application/json";
    let file = json!({"name": name, "size_bytes": bytes.len(), "sha256": sha256(bytes), "content_type": kind});
    let asked = json!({"job_id": lease["job_id"], "fence": lease["fence"], "files": [file]});
    let place = stack.json(worker.post("uploads", &asked)).await["uploads"][0].clone();
    stack.upload(&place["url"], &place["headers"], bytes).await;
}

#[tokio::test]
async fn a_batch_runs_its_calls_and_its_files_have_openais_form() {
    let stack = Stack::start().await;
    stack.deploy(server("chat", None, json!({"openai_models": ["gpt-4o"]}))).await;
    stack.deploy(server("fixed", Some("/v1/chat/completions"), json!({"openai_served_model": "Org/Model"}))).await;
    let worker = Worker::join(&stack).await;
    let lines = [chat("a", "chat@1"), chat("b", "fixed"), chat("c", "chat@1"), chat("d", "fixed")];
    let file = uploaded(&stack, &lines).await;
    let mut asked = request(&file);
    asked["metadata"] = json!({"run": "7", "budget_usd": "2.50"});
    let answer = stack.post(BATCHES, &asked).send().await.unwrap();
    assert!(answer.status() == 200 && answer.headers().contains_key("x-request-id"));
    let batch: Value = answer.json().await.unwrap();
    let id = batch["id"].as_str().unwrap();
    let now_s = stokehold_queue::now_ms() / 1000;
    assert!(batch["created_at"].as_u64().unwrap().abs_diff(now_s) < 60, "{batch}");
    assert!(batch["expires_at"].as_u64().unwrap().abs_diff(now_s + 86_400) < 60, "{batch}");
    for (member, expected) in [
        ("object", json!("batch")),
        ("endpoint", json!("/v1/chat/completions")),
        ("input_file_id", json!(file)),
        ("completion_window", json!("24h")),
        ("metadata", json!({"run": "7", "budget_usd": "2.50"})),
        ("budget", json!({"usd_micros": 2_500_000, "at_budget": "drain", "state": "within"})),
        ("spent_usd_micros", json!(0)),
        ("usage", Value::Null),
        ("output_file_id", Value::Null),
        ("error_file_id", Value::Null),
        ("errors", Value::Null),
    ] {
        assert_eq!(batch[member], expected, "{member}");
    }
    let batch = until_status(&stack, id, "in_progress").await;
    assert_eq!(batch["request_counts"], json!({"total": 4, "completed": 0, "failed": 0}));
    assert!(batch["in_progress_at"].is_u64() && batch["model"].is_null(), "two endpoints: {batch}");

    // Each job has the input of the call itself. Their order is not fixed.
    let large: &[u8] = b"{\"id\": \"large\"}";
    for ended in 1..=4 {
        let lease = worker.lease().await;
        let is_chat = lease["input"]["path"] == "/v1/chat/completions";
        let expected =
            if is_chat { json!({"path": "/v1/chat/completions", "body": say("chat")}) } else { say("Org/Model") };
        assert_eq!(lease["input"], expected);
        let job = stack.job(lease["job_id"].as_str().unwrap()).await;
        assert_eq!((&job["priority"], &job["batch_id"]), (&json!("batch"), &json!(id)));
        match job["batch_custom_id"].as_str().or(job["custom_id"].as_str()).unwrap() {
            "a" => {
                worker.succeed(&lease, json!({"id": "x", "choices": [1.5]})).await;
            }
            "b" => {
                let message = "the server returned 400 Bad Request: {\"error\":{\"message\":\"no\",\"type\":\"t\"}}";
                let error = json!({"code": "rejected", "message": message});
                let report = json!({"job_id": lease["job_id"], "fence": lease["fence"], "outcome": "failed",
                    "error": error});
                stack.json(worker.post("finish", &json!({"finish": [report]}))).await;
            }
            "c" => {
                upload(&stack, &worker, &lease, "output.json", large).await;
                let report = json!({"job_id": lease["job_id"], "fence": lease["fence"], "outcome": "stored",
                    "size_bytes": large.len()});
                stack.json(worker.post("finish", &json!({"finish": [report]}))).await;
            }
            _ => {
                worker.fail(&lease, "handler_error").await;
            }
        }
        if ended < 4 {
            // The counts move during the run.
            let count = |batch: &Value, of: &str| batch["request_counts"][of].as_u64().unwrap();
            until(&stack, id, |batch| count(batch, "completed") + count(batch, "failed") == ended).await;
        }
    }
    let batch = until_status(&stack, id, "completed").await;
    assert_eq!(batch["request_counts"], json!({"total": 4, "completed": 2, "failed": 2}));
    assert!(batch["completed_at"].is_u64() && batch["finalizing_at"].is_u64(), "{batch}");
    let output = lines_of(&stack, &batch["output_file_id"]).await;
    let response = |line: &Value| (line["response"]["status_code"].clone(), line["response"]["body"].clone());
    assert_eq!(output.keys().collect::<Vec<_>>(), ["a", "c"]);
    assert_eq!(response(&output["a"]), (json!(200), json!({"id": "x", "choices": [1.5]})));
    assert_eq!(response(&output["c"]), (json!(200), json!({"id": "large"})));
    assert!(output["a"]["response"]["request_id"].is_string());
    let errors = lines_of(&stack, &batch["error_file_id"]).await;
    assert_eq!(errors.keys().collect::<Vec<_>>(), ["b", "d"]);
    let (status, body) = response(&errors["b"]);
    assert_eq!((status, &body["error"]["message"], &body["error"]["type"]), (json!(400), &json!("no"), &json!("t")));
    let (status, body) = response(&errors["d"]);
    assert_eq!((status, &body["error"]["code"]), (json!(500), &json!("handler_error")));

    // The files are files.
    let file = stack.json(stack.get(&format!("/openai/v1/files/{}", batch["output_file_id"].as_str().unwrap()))).await;
    let bytes = content(&stack, file["id"].as_str().unwrap()).await.len();
    assert_eq!((&file["purpose"], &file["bytes"]), (&json!("batch_output"), &json!(bytes)));
    let listed = stack.json(stack.get("/openai/v1/files?purpose=batch_output")).await;
    assert_eq!(listed["data"].as_array().unwrap().len(), 2);
    // The batch is a native one, too.
    let native = stack.json(stack.get(&format!("/v1/batches/{id}"))).await;
    assert_eq!((&native["state"], &native["counts"]["failed"]), (&json!("completed"), &json!(2)));
    let again = stack.json(stack.post(&format!("/v1/batches/{id}/retry-failed"), &json!({}))).await;
    for _ in 0..2 {
        let lease = worker.lease().await;
        assert_eq!(lease["input"], say("Org/Model"));
        worker.succeed(&lease, json!({"id": "y"})).await;
    }
    let batch = until_status(&stack, again["id"].as_str().unwrap(), "completed").await;
    assert_eq!(lines_of(&stack, &batch["output_file_id"]).await.keys().collect::<Vec<_>>(), ["b", "d"]);
    assert_eq!((&batch["model"], &batch["error_file_id"]), (&json!("fixed"), &Value::Null));
}

#[tokio::test]
async fn wrong_lines_fail_the_batch_with_their_numbers() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    stack.deploy(server("chat", None, json!({}))).await;
    stack.deploy(server("chat", None, json!({}))).await;
    stack.deploy(handler("embed", json!({"openai": "embeddings"}))).await;
    let strict = json!({"openai": "chat", "input_schema": {
        "type": "object", "properties": {"model": {}, "messages": {"type": "array"}}, "additionalProperties": false,
    }});
    stack.deploy(handler("strict", strict)).await;
    let mut streamed = chat("s", "chat");
    streamed["body"]["stream"] = true.into();
    let mut typed = chat("t", "chat");
    typed["body"]["model"] = 7.into();
    let lines = [
        (chat("ok", "chat"), ""),
        (chat("a", "nothing"), "/body/model: the model \"nothing\" does not exist"),
        (chat("b", "echo"), "/body/model: the model \"echo\" does not answer"),
        (chat("ok", "chat"), "/custom_id: another line has the same"),
        (line("c", "/v1/embeddings", json!({"model": "embed", "input": "a"})), "/url: must be the endpoint"),
        (streamed, "stream"),
        (typed, "/body: model must be a string"),
        (json!({"custom_id": "d", "body": {}}), "method"),
        (chat("e", "chat@1"), "a batch runs one version of an endpoint"),
        (chat("f", "strict"), "/body"),
    ];
    let file = uploaded(&stack, &lines.clone().map(|(line, _)| line)).await;
    let batch = until_status(&stack, &created(&stack, &request(&file)).await, "failed").await;
    assert!(batch["failed_at"].is_u64() && batch["in_progress_at"].is_null(), "{batch}");
    assert_eq!((&batch["output_file_id"], &batch["error_file_id"]), (&Value::Null, &Value::Null));
    assert_eq!(batch["errors"]["object"], "list");
    let errors = batch["errors"]["data"].as_array().unwrap();
    let wrong: Vec<_> = lines.iter().enumerate().filter(|(_, (_, why))| !why.is_empty()).collect();
    assert_eq!(errors.len(), wrong.len(), "{errors:?}");
    for (error, (at, (_, why))) in errors.iter().zip(wrong) {
        assert_eq!((&error["line"], &error["code"]), (&json!(at + 1), &json!("invalid_line")), "{error}");
        assert!(error["message"].as_str().unwrap().contains(why), "{why}: {error}");
    }
    assert_eq!(stack.json(stack.get("/v1/jobs")).await["jobs"], json!([]), "nothing ran");

    // A batch that failed does not count as an earlier request: its endpoint may have been mended.
    let again = created(&stack, &request(&file)).await;
    assert_ne!(batch["id"], again);
    until_status(&stack, &again, "failed").await;
}

#[tokio::test]
async fn equal_requests_are_one_batch_for_ten_minutes() {
    let mut stack = Stack::start().await;
    stack.deploy(server("chat", None, json!({}))).await;
    let file = uploaded(&stack, &[chat("a", "chat")]).await;
    let first = created(&stack, &request(&file)).await;
    assert_eq!(created(&stack, &request(&file)).await, first);
    let keys: Vec<String> = stack.redis.ask(&["KEYS", "*:i:*:b:*"]);
    let left_ms: i64 = stack.redis.ask(&["PTTL", &keys[0]]);
    assert!(keys.len() == 1 && (1..=600_000).contains(&left_ms), "{keys:?} {left_ms}");
    let mut other = request(&file);
    other["metadata"] = json!({"run": "2"});
    let second = created(&stack, &other).await;
    assert_ne!(second, first);
    // Another token is another client.
    let token = stack.token_of("acme", &stokehold_api::token::Scope::ALL, None).await;
    let theirs = stack.client.post(format!("{}{BATCHES}", stack.url)).bearer_auth(token);
    let theirs = stack.json(theirs.body(request(&file).to_string())).await;
    assert!(![&first, &second].contains(&&theirs["id"].as_str().unwrap().to_owned()), "{theirs}");
    // A key of the client's own holds for a day, also after the batch was cancelled.
    let keyed = || stack.post(BATCHES, &request(&file)).header("idempotency-key", "k");
    let third = stack.json(keyed()).await["id"].clone();
    stack.json(stack.post(&format!("{BATCHES}/{}/cancel", third.as_str().unwrap()), &Value::Null)).await;
    until_status(&stack, third.as_str().unwrap(), "cancelled").await;
    assert_eq!(stack.json(keyed()).await["id"], third);

    // Pages, newest first. Native batches are not among them.
    let native = json!({"endpoint": "chat", "lines": [{"input": {"path": "/v1/models", "method": "GET"}}]});
    let native = stack.json(stack.post("/v1/batches", &native)).await["id"].as_str().unwrap().to_owned();
    let (mut found, mut after) = (Vec::new(), String::new());
    loop {
        let page = stack.json(stack.get(&format!("{BATCHES}?limit=2{after}"))).await;
        let data = page["data"].as_array().unwrap();
        assert!(page["object"] == "list" && data.len() <= 2, "{page}");
        found.extend(data.iter().map(|batch| batch["id"].clone()));
        if page["has_more"] == false {
            break;
        }
        after = format!("&after={}", page["last_id"].as_str().unwrap());
    }
    assert_eq!(found, [third, theirs["id"].clone(), json!(second), json!(first)]);
    for request in
        [stack.get(&format!("{BATCHES}/{native}")), stack.post(&format!("{BATCHES}/{native}/cancel"), &Value::Null)]
    {
        assert_eq!(error(request).await.0, 404);
    }
    assert_eq!(stack.json(stack.get(&format!("/v1/batches/{native}"))).await["stop_reason"], Value::Null);
    // For another tenant they do not exist.
    let rival = stack.token_of("rival", &stokehold_api::token::Scope::ALL, None).await;
    let foreign =
        |method: Method, path: &str| stack.client.request(method, format!("{}{path}", stack.url)).bearer_auth(&rival);
    assert_eq!(error(foreign(Method::GET, &format!("{BATCHES}/{first}"))).await.0, 404);
    assert_eq!(error(foreign(Method::POST, &format!("{BATCHES}/{first}/cancel"))).await.0, 404);
    assert_eq!(stack.json(foreign(Method::GET, BATCHES)).await["data"], json!([]));
    let (status, shown) = error(foreign(Method::POST, BATCHES).body(request(&file).to_string())).await;
    assert_eq!((status, &shown["param"]), (404, &json!("input_file_id")));
    stack.restart_redis();
    assert_eq!(created(&stack, &other).await, second);
}

#[tokio::test]
async fn a_cancelled_batch_has_the_lines_that_ran_and_those_that_did_not() {
    let stack = Stack::start().await;
    stack.deploy(server("chat", None, json!({}))).await;
    let worker = Worker::join(&stack).await;
    let file = uploaded(&stack, &[chat("a", "chat"), chat("b", "chat"), chat("c", "chat")]).await;
    // Its lines are read from the file until they have been validated.
    let id = created(&stack, &request(&file)).await;
    until_status(&stack, &id, "in_progress").await;
    worker.succeed(&worker.lease().await, json!({"id": "x"})).await;
    let cancel = || stack.json(stack.post(&format!("{BATCHES}/{id}/cancel"), &Value::Null));
    let batch = cancel().await;
    assert!(["cancelling", "cancelled"].contains(&batch["status"].as_str().unwrap()), "{batch}");
    let batch = until_status(&stack, &id, "cancelled").await;
    assert!(batch["cancelled_at"].is_u64() && batch["stop_reason"] == "cancelled", "{batch}");
    assert_eq!(batch["request_counts"], json!({"total": 3, "completed": 1, "failed": 0}));
    assert_eq!(lines_of(&stack, &batch["output_file_id"]).await.len(), 1);
    let errors = lines_of(&stack, &batch["error_file_id"]).await;
    assert!(errors.len() == 2 && errors.values().all(|line| line["error"]["code"] == "batch_cancelled"), "{errors:?}");
    assert_eq!(cancel().await["status"], "cancelled", "cancelling twice is safe");

    let id = created(&stack, &request(&file)).await;
    for _ in 0..3 {
        worker.succeed(&worker.lease().await, json!({"id": "x"})).await;
    }
    until_status(&stack, &id, "completed").await;
    let late = stack.post(&format!("{BATCHES}/{id}/cancel"), &Value::Null).send().await.unwrap();
    assert_eq!((late.status().as_u16(), &late.headers()["x-should-retry"]), (409, &"false".parse().unwrap()));
}

#[tokio::test]
async fn what_handlers_return_becomes_answers() {
    let stack = Stack::start().await;
    stack.deploy(handler("embed", json!({"openai": "embeddings"}))).await;
    stack.deploy(handler("draw", json!({"openai": "images"}))).await;
    let worker = Worker::join(&stack).await;
    let of =
        |file: &str, endpoint: &str| json!({"input_file_id": file, "endpoint": endpoint, "completion_window": "1h"});

    let embed = |id: &str, input: Value| line(id, "/v1/embeddings", json!({"model": "embed", "input": input}));
    let file = uploaded(&stack, &[embed("two", json!(["a", "b"])), embed("wrong", json!("a"))]).await;
    let id = created(&stack, &of(&file, "/v1/embeddings")).await;
    for _ in 0..2 {
        let lease = worker.lease().await;
        let vectors = json!([[1.0, -0.5], [0.0, 2.0]]);
        assert!([json!({"input": ["a", "b"]}), json!({"input": ["a"]})].contains(&lease["input"]), "{lease}");
        worker.succeed(&lease, vectors).await;
    }
    let batch = until_status(&stack, &id, "completed").await;
    let output = lines_of(&stack, &batch["output_file_id"]).await;
    let body = &output["two"]["response"]["body"];
    assert_eq!((&body["object"], &body["data"][1]["embedding"]), (&json!("list"), &json!([0.0, 2.0])), "{output:?}");
    // As for the call itself: two vectors are no answer to one input.
    assert_eq!(output["wrong"]["response"]["status_code"], 500);

    let draw = line("cat", "/v1/images/generations", json!({"model": "draw", "prompt": "a cat"}));
    let id = created(&stack, &of(&uploaded(&stack, &[draw]).await, "/v1/images/generations")).await;
    let lease = worker.lease().await;
    assert_eq!(lease["input"], json!({"prompt": "a cat"}));
    upload(&stack, &worker, &lease, "0.png", b"png").await;
    worker.succeed(&lease, json!([{"$file": "0.png"}])).await;
    let batch = until_status(&stack, &id, "completed").await;
    let output = lines_of(&stack, &batch["output_file_id"]).await;
    assert_eq!(output["cat"]["response"]["body"]["data"], json!([{"b64_json": "cG5n"}]));

    // Forms that only the caller of a single call can have.
    let base64 = json!({"model": "embed", "input": "a", "encoding_format": "base64"});
    let file = uploaded(&stack, &[line("a", "/v1/embeddings", base64)]).await;
    let batch = until_status(&stack, &created(&stack, &of(&file, "/v1/embeddings")).await, "failed").await;
    assert!(batch["errors"]["data"][0]["message"].as_str().unwrap().contains("encoding_format"), "{batch}");
    let url = json!({"model": "draw", "prompt": "a", "response_format": "url"});
    let file = uploaded(&stack, &[line("a", "/v1/images/generations", url)]).await;
    let batch = until_status(&stack, &created(&stack, &of(&file, "/v1/images/generations")).await, "failed").await;
    assert!(batch["errors"]["data"][0]["message"].as_str().unwrap().contains("response_format"), "{batch}");
}

#[tokio::test]
async fn what_is_no_batch_is_refused() {
    let stack = Stack::start().await;
    let file = uploaded(&stack, &[chat("a", "chat")]).await;
    let other = send(&stack, form("a.png", b"png", &[("purpose", "vision")]));
    let other = stack.json(other).await["id"].clone();
    let missing = format!("file-{}", "0".repeat(32));
    for (member, value, status, param) in [
        ("input_file_id", json!(missing), 404, "input_file_id"),
        ("input_file_id", json!("../secret"), 404, "input_file_id"),
        ("input_file_id", other, 400, "input_file_id"),
        ("endpoint", json!("/v1/moderations"), 400, "endpoint"),
        ("completion_window", json!("soon"), 400, "completion_window"),
        ("completion_window", json!("31d"), 400, "completion_window"),
        ("metadata", json!({"budget_usd": "much"}), 400, "budget_usd"),
        ("metadata", json!({"": "x"}), 400, "metadata"),
        ("budget_usd", json!(-1), 400, "budget_usd"),
        ("at_budget", json!("stop"), 400, "at_budget"),
        ("output_expires_after", json!({"anchor": "created_at", "seconds": 60}), 400, "output_expires_after"),
        ("output_expires_after", json!({"anchor": "now", "seconds": 7200}), 400, "output_expires_after"),
        ("lines", json!([]), 400, "lines"),
    ] {
        let mut asked = request(&file);
        asked[member] = value.clone();
        let (found, shown) = error(stack.post(BATCHES, &asked)).await;
        let expected = if member == "lines" { Value::Null } else { json!(param) };
        let place = if shown["param"].is_null() { Value::Null } else { shown["param"].clone() };
        assert_eq!(found, status, "{member} {value}: {shown}");
        assert!(place == expected || place == json!(param), "{member} {value}: {shown}");
    }
    for request in [stack.get(&format!("{BATCHES}/batch_1")), stack.get(&format!("{BATCHES}/batch_{}", "0".repeat(32)))]
    {
        assert_eq!(error(request).await.0, 404);
    }
    for query in ["limit=0", "limit=101", "after=x", "state=completed"] {
        assert_eq!(error(stack.get(&format!("{BATCHES}?{query}"))).await.0, 400, "{query}");
    }
}
