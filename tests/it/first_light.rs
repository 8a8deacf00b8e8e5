//! A job travels from the command line to a Python model and back.

use serde_json::Value;

use crate::api::{self, Api, root};

#[tokio::test(flavor = "multi_thread")]
async fn a_job_goes_from_the_command_line_to_a_python_model_and_back() {
    let (stack, _dir) = api::stack(&[]);
    let echo = root().join("sdk/examples/echo");
    let _ = stack.stoke_ok(&["deploy", &echo.to_string_lossy()]);
    let printed = stack.stoke_ok(&["submit", "echo", "--input", r#"{"text":"hi"}"#, "--wait"]);
    let result: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(result["text"], "hi", "{printed}");

    let endpoints: Value = serde_json::from_str(&stack.stoke_ok(&["endpoint", "list", "--json"])).unwrap();
    assert!(endpoints.to_string().contains("\"echo\""), "{endpoints}");
    let workers = Api::of(&stack).get("/v1/workers").await;
    assert_eq!(workers["workers"].as_array().unwrap().len(), 1, "{workers}");

    let unknown = stack.stoke(&["submit", "ecko", "--input", "{}", "--wait"]);
    assert!(!unknown.status.success());
    let said = String::from_utf8(unknown.stderr).unwrap();
    assert!(said.contains("ecko"), "the error names what is wrong: {said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn deploying_the_same_folder_twice_changes_nothing() {
    let (stack, _dir) = api::stack(&[]);
    let echo = root().join("sdk/examples/echo");
    for _ in 0..2 {
        let printed = stack.stoke_ok(&["deploy", &echo.to_string_lossy(), "--json"]);
        let version: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(version["version"], 1, "{printed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_goes_in_and_a_file_comes_out() {
    let (stack, dir) = api::stack(&[]);
    let _ = stack.stoke_ok(&["deploy", &api::handler("shout.py")]);
    let quiet = dir.path().join("quiet.txt");
    std::fs::write(&quiet, "be loud").unwrap();
    let file = format!("text={}", quiet.display());
    let printed = stack.stoke_ok(&["submit", "shout", "--file", &file, "--wait"]);
    let result: Value = serde_json::from_str(&printed).unwrap();
    let (api, loud) = (Api::of(&stack), &result["loud"]);
    assert_eq!(loud["size_bytes"], 7, "{printed}");
    let answer = api.request("GET", loud["url"].as_str().unwrap()).send().await.unwrap();
    assert_eq!(answer.text().await.unwrap(), "BE LOUD");
}

/// An input over 64 KiB is stored in S3 and fetched by the worker; its handler sees no difference.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_input_reaches_its_handler_whole() {
    let (stack, _dir) = api::stack(&[]);
    let _ = stack.stoke_ok(&["deploy", &root().join("sdk/examples/echo").to_string_lossy()]);
    let (api, text) = (Api::of(&stack), "large ".repeat(150_000));
    let id = api.submit("echo", serde_json::json!({"text": text})).await;
    let job = api.ended(&id).await;
    assert_eq!((&job["state"], &job["input"]["as"]), (&Value::from("succeeded"), &Value::from("input")), "{job}");
    assert!(job["timing"]["inputs_ms"].is_u64(), "{}", job["timing"]);
    let answer = api.request("GET", &format!("/v1/jobs/{id}/result")).send().await.unwrap();
    let result: Value = answer.json().await.unwrap();
    assert!(result["text"] == text, "the text has come back whole");
    let file = api.get(&format!("/v1/files/{}", job["input"]["$file"].as_str().unwrap())).await;
    assert!(file["size_bytes"].as_u64().unwrap() > 900_000, "{file}");
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_logs_and_outputs_stream_until_done() {
    let (stack, _dir) = api::stack(&[]);
    let _ = stack.stoke_ok(&["deploy", &api::handler("count.py")]);
    let api = Api::of(&stack);
    let id = api.submit("count", serde_json::json!({"to": 3})).await;
    let stream = api.request("GET", &format!("/v1/jobs/{id}/events")).send().await.unwrap().text().await.unwrap();
    let events: Vec<&str> =
        stream.lines().filter_map(|line| line.strip_prefix("event: ").or(line.strip_prefix("event:"))).collect();
    for kind in ["state", "progress", "log", "output", "done"] {
        assert!(events.iter().any(|event| event.trim() == kind), "{kind} is missing:\n{stream}");
    }
    assert_eq!(events.iter().filter(|event| event.trim() == "output").count(), 3, "{stream}");
    assert_eq!(events.last().map(|event| event.trim()), Some("done"), "{stream}");
    assert_eq!(api.ended(&id).await["result"], serde_json::json!([1, 2, 3]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_result_takes_the_way_through_the_store() {
    let (stack, _dir) = api::stack(&[]);
    let _ = stack.stoke_ok(&["deploy", &api::handler("count.py")]);
    let api = Api::of(&stack);
    let id = api.submit("count", serde_json::json!({"to": 10_000, "quiet": true})).await;
    let job = api.ended(&id).await;
    assert_eq!((&job["state"], &job["result"]), (&Value::from("succeeded"), &Value::Null));
    let result: Value = api.get(&format!("/v1/jobs/{id}/result")).await;
    assert_eq!(result.as_array().unwrap().len(), 10_000);
}
