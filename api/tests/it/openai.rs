//! `/openai/v1` over the queue: what an endpoint gets, and what a client gets back. A real engine and the official
//! client are in `tests/it/openai.rs` of the workspace.

use futures::StreamExt;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use stokehold_api::token::Scope;
use tokio::time::timeout;

use crate::matrix::OPENAI_ROUTES;
use crate::stack::{PACKAGE, PATIENCE, Stack, sha256};
use crate::worker::Worker;

pub(crate) const CHAT: &str = "/openai/v1/chat/completions";

fn endpoint(name: &str, runner: Value, options: Value) -> Value {
    let entry = if runner["kind"] == "python" { "main.py:f" } else { "" };
    let mut endpoint = json!({
        "name": name, "package_sha256": sha256(PACKAGE), "package_size_bytes": PACKAGE.len(), "entry": entry,
        "runner": runner, "input_schema": {"type": "object"}, "max_attempts": 1,
    });
    for (option, value) in options.as_object().unwrap() {
        endpoint[option] = value.clone();
    }
    endpoint
}

pub(crate) fn server(name: &str, path: Option<&str>, options: Value) -> Value {
    let mut runner = json!({"kind": "server", "command": ["serve"], "ready_path": "/health"});
    if let Some(path) = path {
        runner["path"] = path.into();
    }
    endpoint(name, runner, options)
}

pub(crate) fn handler(name: &str, options: Value) -> Value {
    endpoint(name, json!({"kind": "python"}), options)
}

pub(crate) fn say(model: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": "hi"}], "temperature": 0.5})
}

pub(crate) fn streamed(model: &str) -> Value {
    let mut body = say(model);
    body["stream"] = true.into();
    body
}

/// The status and the `error` of a response, which must have OpenAI's form.
pub(crate) async fn error(request: RequestBuilder) -> (u16, Value) {
    shown_error(request.send().await.unwrap()).await
}

async fn shown_error(answer: Response) -> (u16, Value) {
    let status = answer.status().as_u16();
    assert!(answer.headers().contains_key("x-request-id"));
    let text = answer.text().await.unwrap();
    let body: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{status}: {text}"));
    let error = &body["error"];
    assert!(!error["message"].as_str().unwrap().is_empty() && error["type"].is_string(), "{body}");
    assert!(error.get("param").is_some() && error.get("code").is_some(), "{body}");
    (status, error.clone())
}

/// The text of a stream up to and with `until`, and the rest of the stream.
async fn read_until(answer: &mut Response, until: &str) -> String {
    let mut text = String::new();
    while !text.contains(until) {
        let chunk = timeout(PATIENCE, answer.chunk()).await.expect("the stream goes on").unwrap();
        let chunk = chunk.unwrap_or_else(|| panic!("the stream ended before {until}: {text}"));
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    text
}

/// The data of a stream, without its comments.
pub(crate) fn data(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.strip_prefix("data: ")).collect()
}

async fn ended(stack: &Stack, lease: &Value) -> Value {
    let id = lease["job_id"].as_str().unwrap();
    stack.json(stack.get(&format!("/v1/jobs/{id}?wait_s=30"))).await
}

pub(crate) fn output(index: usize, value: Value) -> Value {
    json!({"event": "output", "index": index, "value": value})
}

#[tokio::test]
async fn models_are_the_endpoints_that_speak_it_and_their_other_names() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    stack.deploy(server("chat", None, json!({"openai_models": ["gpt-4o", "org/model"]}))).await;
    stack.deploy(server("triton", Some("/v2/models/x/infer"), json!({}))).await;
    stack.deploy(server("hidden", None, json!({"openai": "none"}))).await;
    stack.deploy(handler("embed", json!({"openai": "embeddings"}))).await;
    let list = stack.json(stack.get("/openai/v1/models")).await;
    let ids: Vec<&str> = list["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!((&list["object"], ids), (&json!("list"), vec!["chat", "gpt-4o", "org/model", "embed"]));
    let first = &list["data"][0];
    assert_eq!((&first["object"], &first["owned_by"]), (&json!("model"), &json!("acme")));
    assert!(first["created"].as_u64().unwrap().abs_diff(stokehold_queue::now_ms() / 1000) < 600, "{first}");

    for id in ["chat", "chat@1", "gpt-4o", "org/model", "org%2Fmodel"] {
        let model = stack.json(stack.get(&format!("/openai/v1/models/{id}"))).await;
        assert_eq!(model["id"], id.replace("%2F", "/"));
    }
    for id in ["nothing", "chat@2", "echo", "hidden", "A b"] {
        let (status, error) = error(stack.get(&format!("/openai/v1/models/{id}"))).await;
        assert_eq!((status, &error["code"]), (404, &json!("model_not_found")), "{id}: {error}");
    }
    // A deploy takes effect at once on its replica.
    stack.deploy(server("chat", None, json!({"openai_models": ["gpt-5"]}))).await;
    assert_eq!(stack.get("/openai/v1/models/gpt-5").send().await.unwrap().status(), 200);
    assert_eq!(stack.get("/openai/v1/models/gpt-4o").send().await.unwrap().status(), 404);

    let rival = stack.token_of("rival", &Scope::ALL, None).await;
    let list = stack.client.get(format!("{}/openai/v1/models", stack.url)).bearer_auth(&rival);
    assert_eq!(stack.json(list).await, json!({"object": "list", "data": []}));
    let foreign = stack.client.post(format!("{}{CHAT}", stack.url)).bearer_auth(&rival).body(say("chat").to_string());
    assert_eq!(error(foreign).await.0, 404);
}

#[tokio::test]
async fn an_endpoint_gets_the_body_and_its_result_is_the_answer() {
    let stack = Stack::start().await;
    stack.deploy(server("chat", None, json!({"openai_models": ["gpt-4o", "chat:sql"]}))).await;
    stack.deploy(server("fixed", Some("/v1/completions"), json!({"openai_served_model": "Org/Model"}))).await;
    stack.deploy(handler("python", json!({"openai": "chat", "openai_models": ["mini"]}))).await;
    let worker = Worker::join(&stack).await;
    let wrapped = |path: &str, body: Value| json!({"path": path, "body": body});
    for (path, model, sent, input) in [
        ("/chat/completions", "chat", "chat", true),
        ("/chat/completions", "chat@1", "chat", true),
        ("/completions", "gpt-4o", "gpt-4o", true),
        ("/responses", "gpt-4o@1", "gpt-4o", true),
        // The name of an adapter, as `stoke serve --lora` writes it.
        ("/chat/completions", "chat:sql", "chat:sql", true),
        ("/chat/completions", "chat:sql@1", "chat:sql", true),
        ("/embeddings", "chat", "chat", true),
        ("/completions", "fixed", "Org/Model", false),
        ("/chat/completions", "mini", "mini", false),
    ] {
        let expected = if input { wrapped(&format!("/v1{path}"), say(sent)) } else { say(sent) };
        let request = stack.post(&format!("/openai/v1{path}"), &say(model)).send();
        let work = async {
            let lease = worker.lease().await;
            assert_eq!(lease["input"], expected, "{path} {model}");
            worker.succeed(&lease, json!({"id": "x", "choices": [1.5]})).await;
            lease
        };
        let (answer, lease) = tokio::join!(request, work);
        let answer = answer.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()["content-type"], "application/json");
        assert_eq!(answer.headers()["stokehold-job-id"], lease["job_id"].as_str().unwrap());
        assert_eq!(answer.json::<Value>().await.unwrap(), json!({"id": "x", "choices": [1.5]}));
    }
    for (tier, priority) in
        [("priority", "interactive"), ("default", "standard"), ("auto", "standard"), ("flex", "batch")]
    {
        let mut body = say("chat");
        body["service_tier"] = tier.into();
        let work = async {
            let lease = worker.lease().await;
            assert_eq!(lease["input"]["body"]["service_tier"], tier);
            worker.succeed(&lease, json!({})).await;
            ended(&stack, &lease).await
        };
        let (answer, job) = tokio::join!(stack.post(CHAT, &body).send(), work);
        assert_eq!((answer.unwrap().status(), &job["priority"]), (StatusCode::OK, &json!(priority)));
    }
}

#[tokio::test]
async fn a_job_that_fails_is_an_error_that_clients_do_not_repeat() {
    let stack = Stack::start().await;
    stack.deploy(server("chat", None, json!({}))).await;
    let worker = Worker::join(&stack).await;
    for (code, status, shown) in [
        ("rejected", 400, Value::Null),
        ("handler_error", 500, json!("handler_error")),
        ("timeout", 504, json!("timeout")),
        ("bad_output", 500, json!("bad_output")),
    ] {
        let work = async {
            let lease = worker.lease().await;
            worker.fail(&lease, code).await;
        };
        let (answer, ()) = tokio::join!(stack.post(CHAT, &say("chat")).send(), work);
        let answer = answer.unwrap();
        assert_eq!(answer.headers()["x-should-retry"], "false");
        assert!(answer.headers().contains_key("stokehold-job-id"));
        let (found, error) = shown_error(answer).await;
        assert_eq!((found, &error["code"]), (status, &shown), "{code}: {error}");
        assert!(error["message"].as_str().unwrap().contains("no luck"), "{error}");
        // An early error of a stream has a status as well.
        let (answer, ()) = tokio::join!(stack.post(CHAT, &streamed("chat")).send(), async {
            let lease = worker.lease().await;
            worker.fail(&lease, code).await;
        });
        assert_eq!(shown_error(answer.unwrap()).await.0, status, "{code}");
    }
    let work = async {
        let lease = worker.lease().await;
        let id = lease["job_id"].as_str().unwrap();
        stack.json(stack.post(&format!("/v1/jobs/{id}/cancel"), &Value::Null)).await;
    };
    let (answer, ()) = tokio::join!(stack.post(CHAT, &say("chat")).send(), work);
    assert_eq!(shown_error(answer.unwrap()).await.0, 499);
}

#[tokio::test]
async fn what_cannot_become_a_job_is_refused_in_openais_form() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    stack.deploy(server("chat", Some("/v1/chat/completions"), json!({}))).await;
    let strict = json!({"openai": "chat", "input_schema": {
        "type": "object", "properties": {"model": {}, "messages": {"type": "array"}}, "additionalProperties": false,
    }});
    stack.deploy(handler("strict", strict)).await;
    let post = |path: &str, body: &str| stack.request(Method::POST, path).body(body.to_owned());
    let chat = |body: Value| stack.post(CHAT, &body);
    let large = json!({"model": "chat", "messages": "x".repeat(2 << 20)});
    for (request, status, code, param) in [
        (chat(say("nothing")), 404, "model_not_found", json!("model")),
        (chat(say("chat@9")), 404, "model_not_found", json!("model")),
        (chat(json!({"messages": []})), 400, "", json!("model")),
        (chat(json!({"model": 7})), 400, "", json!("model")),
        (chat(say("echo")), 400, "", json!("model")),
        (stack.post("/openai/v1/embeddings", &say("chat")), 400, "", json!("model")),
        (chat(json!({"model": "chat", "service_tier": "scale"})), 400, "", json!("service_tier")),
        (chat(say("strict")), 400, "invalid_input", Value::Null),
        (post(CHAT, "{"), 400, "invalid_json", Value::Null),
        (post(CHAT, "[1]"), 400, "invalid_request", Value::Null),
        (post(CHAT, &large.to_string()), 413, "body_too_large", Value::Null),
        (post(CHAT, &"[".repeat(1_000)), 400, "too_deep", Value::Null),
        (stack.get("/openai/v1/assistants"), 404, "not_found", Value::Null),
        (stack.request(Method::DELETE, "/openai/v1/files"), 405, "method_not_allowed", Value::Null),
        (stack.get(CHAT), 405, "method_not_allowed", Value::Null),
        (chat(say("chat")).header("idempotency-key", ""), 400, "invalid_request", json!("idempotency_key")),
    ] {
        let (found, error) = error(request).await;
        let code = if code.is_empty() { Value::Null } else { code.into() };
        assert_eq!((found, &error["code"], &error["param"]), (status, &code, &param), "{error}");
    }
    assert_eq!(stack.json(stack.get("/v1/jobs")).await["jobs"], json!([]), "nothing was submitted");
}

#[tokio::test]
async fn every_route_needs_a_token_with_its_scope() {
    let stack = Stack::start().await;
    stack.deploy(server("chat", None, json!({}))).await;
    for (method, path, scope) in OPENAI_ROUTES {
        let scopes: Vec<Scope> = Scope::ALL.into_iter().filter(|other| !other.covers(scope)).collect();
        let reader = stack.token_of("acme", &scopes, None).await;
        let path = path.replace("{*id}", "chat").replace("{id}", "none");
        let request = || {
            stack.client.request(method.parse().unwrap(), format!("{}{path}", stack.url)).body(say("chat").to_string())
        };
        let (status, shown) = error(request()).await;
        assert_eq!((status, &shown["code"]), (401, &json!("invalid_api_key")), "{method} {path}");
        let (status, shown) = error(request().bearer_auth(&reader)).await;
        assert_eq!((status, &shown["code"]), (403, &json!("insufficient_permissions")), "{method} {path}");
    }
}

#[tokio::test]
async fn limits_are_429_with_a_time_to_wait() {
    let stack = Stack::start().await;
    stack.deploy(server("chat", None, json!({}))).await;
    let limits = stack.request(Method::PUT, "/v1/limits/acme").body(json!({"max_open": 1}).to_string());
    stack.json(limits).await;
    let input = json!({"path": "/v1/models", "method": "GET"});
    stack.json(stack.post("/v1/jobs", &json!({"endpoint": "chat", "input": input}))).await;
    let answer = stack.post(CHAT, &say("chat")).send().await.unwrap();
    assert!(answer.headers()["retry-after"].to_str().unwrap().parse::<u32>().unwrap() > 0);
    let (status, error) = shown_error(answer).await;
    assert_eq!((status, &error["code"]), (429, &json!("rate_limit_exceeded")));
}

#[tokio::test]
async fn outputs_are_streamed_as_they_come_and_unchanged() {
    let stack = Stack::start().await;
    stack.deploy(server("chat", None, json!({}))).await;
    let worker = Worker::join(&stack).await;
    let chunks = [json!({"choices": [{"delta": {"content": "a"}}]}), json!({"usage": {"total_tokens": 2}})];
    for (path, framed) in [(CHAT, true), ("/openai/v1/responses", false)] {
        let (answer, lease) = tokio::join!(stack.post(path, &streamed("chat")).send(), async {
            let lease = worker.lease().await;
            assert_eq!(lease["input"]["body"]["stream"], true);
            worker.tell(&lease, output(0, chunks[0].clone())).await;
            lease
        });
        let mut answer = answer.unwrap();
        assert_eq!(
            (answer.status(), &answer.headers()["content-type"]),
            (StatusCode::OK, &"text/event-stream".parse().unwrap())
        );
        let first = read_until(&mut answer, "data: ").await;
        assert_eq!(data(&first), [chunks[0].to_string()], "before the job has ended");
        worker.tell(&lease, output(1, chunks[1].clone())).await;
        worker.succeed(&lease, json!(chunks)).await;
        let rest = answer.text().await.unwrap();
        let expected = [chunks[1].to_string(), "[DONE]".to_owned()];
        assert_eq!(data(&rest), if framed { &expected[..] } else { &expected[..1] });
    }
}

#[tokio::test]
async fn a_stream_says_what_it_waits_for_and_ends_with_its_error() {
    let stack = Stack::start().await;
    stack.deploy(server("chat", None, json!({}))).await;
    let mut answer = stack.post(CHAT, &streamed("chat")).send().await.unwrap();
    let waits = read_until(&mut answer, "no worker").await;
    assert!(waits.starts_with(": queued\n\n"), "{waits}");
    let worker = Worker::join(&stack).await;
    let lease = worker.lease().await;
    worker.tell(&lease, output(0, json!({"n": 1}))).await;
    read_until(&mut answer, "data: {\"n\":1}\n\n").await;
    worker.fail(&lease, "handler_error").await;
    let rest = answer.text().await.unwrap();
    let rest = data(&rest);
    let error: Value = serde_json::from_str(rest[0]).unwrap();
    assert_eq!((rest.len(), &error["error"]["code"]), (1, &json!("handler_error")), "no [DONE]: {rest:?}");
}

#[tokio::test]
async fn lost_outputs_and_a_second_attempt_end_a_stream_with_an_error() {
    let stack = Stack::start().await;
    stack.deploy(server("chat", None, json!({"max_attempts": 3}))).await;
    let worker = Worker::join(&stack).await;
    let begin = || async {
        let (answer, lease) = tokio::join!(stack.post(CHAT, &streamed("chat")).send(), async {
            let lease = worker.lease().await;
            worker.tell(&lease, output(0, json!({"n": 0}))).await;
            lease
        });
        let mut answer = answer.unwrap();
        read_until(&mut answer, "data: {\"n\":0}\n\n").await;
        (answer, lease)
    };
    let (answer, lease) = begin().await;
    worker.tell(&lease, output(2, json!({"n": 2}))).await;
    let rest = answer.text().await.unwrap();
    assert!(data(&rest).len() == 1 && rest.contains("were lost"), "{rest}");
    assert_eq!(ended(&stack, &lease).await["state"], "cancelled", "its client cannot use it");

    let (answer, lease) = begin().await;
    worker
        .post("release", &json!({"leases": [{"job_id": lease["job_id"], "fence": lease["fence"]}]}))
        .send()
        .await
        .unwrap();
    let second = worker.lease().await;
    assert_eq!(second["attempt"], 2);
    let rest = answer.text().await.unwrap();
    assert!(data(&rest).len() == 1 && rest.contains("started again"), "{rest}");
}

#[tokio::test]
async fn outputs_that_are_gone_come_from_the_result() {
    let stack = Stack::start().await;
    stack.deploy(server("chat", None, json!({}))).await;
    let worker = Worker::join(&stack).await;
    let (answer, ()) = tokio::join!(stack.post(CHAT, &streamed("chat")).send(), async {
        let lease = worker.lease().await;
        worker.succeed(&lease, json!([{"n": 0}, {"n": 1}])).await;
    });
    assert_eq!(data(&answer.unwrap().text().await.unwrap()), ["{\"n\":0}", "{\"n\":1}", "[DONE]"]);
    // An engine that does not stream.
    let (answer, ()) = tokio::join!(stack.post(CHAT, &streamed("chat")).send(), async {
        let lease = worker.lease().await;
        worker.succeed(&lease, json!({"choices": []})).await;
    });
    assert_eq!(shown_error(answer.unwrap()).await.0, 500);
}

#[tokio::test]
async fn who_hangs_up_cancels_the_job_unless_it_may_come_back() {
    let stack = Stack::start().await;
    stack.deploy(server("chat", None, json!({}))).await;
    let worker = Worker::join(&stack).await;
    let hang_up = |request: RequestBuilder| async {
        let mut request = Box::pin(request.send());
        tokio::select! {
            answer = &mut request => panic!("it answered: {answer:?}"),
            lease = worker.lease() => lease,
        }
    };
    let lease = hang_up(stack.post(CHAT, &say("chat"))).await;
    assert_eq!(ended(&stack, &lease).await["state"], "cancelled");

    let (answer, lease) = tokio::join!(stack.post(CHAT, &streamed("chat")).send(), async {
        let lease = worker.lease().await;
        worker.tell(&lease, output(0, json!({"n": 0}))).await;
        lease
    });
    let mut stream = answer.unwrap().bytes_stream();
    stream.next().await.unwrap().unwrap();
    drop(stream);
    assert_eq!(ended(&stack, &lease).await["state"], "cancelled");

    let keyed = || stack.post(CHAT, &say("chat")).header("idempotency-key", "k");
    let lease = hang_up(keyed()).await;
    worker.succeed(&lease, json!({"choices": []})).await;
    assert_eq!(ended(&stack, &lease).await["state"], "succeeded");
    let again = keyed().send().await.unwrap();
    assert_eq!(again.headers()["stokehold-job-id"], lease["job_id"].as_str().unwrap());
    assert_eq!(again.json::<Value>().await.unwrap(), json!({"choices": []}));
}

#[tokio::test]
async fn a_handler_of_embeddings_gets_texts_and_returns_vectors() {
    let stack = Stack::start().await;
    stack.deploy(handler("embed", json!({"openai": "embeddings"}))).await;
    let worker = Worker::join(&stack).await;
    for (format, first) in [("base64", json!("AACAPwAAAL8=")), ("float", json!([1.0, -0.5]))] {
        let body = json!({"model": "embed", "input": ["a", "b"], "encoding_format": format});
        let (answer, ()) = tokio::join!(stack.json(stack.post("/openai/v1/embeddings", &body)), async {
            let lease = worker.lease().await;
            assert_eq!(lease["input"], json!({"input": ["a", "b"]}));
            worker.succeed(&lease, json!([[1.0, -0.5], [0.0, 2.0]])).await;
        });
        assert_eq!((&answer["object"], &answer["model"]), (&json!("list"), &json!("embed")));
        assert_eq!((&answer["data"][0]["embedding"], &answer["data"][1]["index"]), (&first, &json!(1)));
    }
    let body = json!({"model": "embed", "input": "a"});
    let (answer, ()) = tokio::join!(stack.post("/openai/v1/embeddings", &body).send(), async {
        let lease = worker.lease().await;
        worker.succeed(&lease, json!([[1.0], [2.0]])).await;
    });
    let (status, error) = shown_error(answer.unwrap()).await;
    assert!(status == 500 && error["message"].as_str().unwrap().contains("a list of 1 vectors"), "{error}");
}

#[tokio::test]
async fn options_without_an_effect_are_refused_at_the_deploy() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let many: Vec<String> = (0..17).map(|n| format!("m{n}")).collect();
    for (endpoint, at) in [
        (server("a", None, json!({"openai_models": ["a@1"]})), "/openai_models/0"),
        (server("a", None, json!({"openai_models": ["a b"]})), "/openai_models/0"),
        (server("a", None, json!({"openai_models": many})), "/openai_models"),
        (server("a", None, json!({"openai": "none", "openai_models": ["b"]})), "/openai_models"),
        (handler("a", json!({"openai_models": ["b"]})), "/openai_models"),
        (handler("a", json!({"openai": "chat", "openai_served_model": "b"})), "/openai_served_model"),
        (server("a", None, json!({"openai": "speech"})), "/openai"),
    ] {
        let answer = stack.post("/v1/endpoints", &endpoint).send().await.unwrap();
        let (status, body) = (answer.status(), answer.json::<Value>().await.unwrap());
        assert_eq!((status.as_u16(), &body["errors"][0]["path"]), (400, &json!(at)), "{body}");
    }
}
