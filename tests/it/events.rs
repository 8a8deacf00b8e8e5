//! Event streams over a connection that keeps breaking: both SDKs receive every event once.

use std::process::Command;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::api::{self, Api, root};

const ITEMS: u64 = 150;

/// Forwards connections to `to`, and cuts each after 1,500 to 6,500 bytes of the response, in the middle of a message.
async fn breaking_line(to: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let to = to.trim_start_matches("http://").to_owned();
    tokio::spawn(async move {
        let mut drawn = 7u64;
        while let Ok((client, _)) = listener.accept().await {
            drawn = drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let most = 1_500 + (drawn >> 33) % 5_000;
            tokio::spawn(carry(client, to.clone(), most));
        }
    });
    url
}

async fn carry(client: TcpStream, to: String, most: u64) {
    let Ok(server) = TcpStream::connect(to).await else { return };
    let ((mut from_client, mut to_client), (from_server, mut to_server)) = (client.into_split(), server.into_split());
    let up = tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
    let _ = tokio::io::copy(&mut from_server.take(most), &mut to_client).await;
    let _ = to_client.shutdown().await;
    up.abort();
}

/// Follows a running job with the script's SDK. Returns the events that the SDK yielded.
async fn heard(command: impl Fn() -> Command) -> Vec<Value> {
    let (stack, _dir) = api::stack(&[]);
    let _ = stack.stoke_ok(&["deploy", &api::handler("count.py")]);
    let id = Api::of(&stack).submit("count", json!({"to": ITEMS})).await;
    let line = breaking_line(stack.url.clone()).await;
    let mut command = command();
    command.arg(&id).env("STOKE_URL", line).env("STOKE_TOKEN", &stack.token);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stderr), stack.log_tail());
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn nothing_is_lost_and_nothing_repeated(heard: &[Value]) {
    let of = |kind: &str| -> Vec<&Value> { heard.iter().filter(|event| event["type"] == kind).collect() };
    let outputs: Vec<u64> = of("output").iter().map(|event| event["value"].as_u64().unwrap()).collect();
    assert_eq!(outputs, (1..=ITEMS).collect::<Vec<u64>>());
    let logged: String =
        of("log").iter().map(|event| event["text"].as_str().unwrap().trim_end()).collect::<Vec<_>>().join("\n");
    let expected: Vec<String> = (1..=ITEMS).map(|n| format!("counting {n}")).collect();
    assert_eq!(logged.lines().collect::<Vec<_>>(), expected);
    let states: Vec<&str> = of("state").iter().map(|event| event["state"].as_str().unwrap()).collect();
    let mut distinct = states.clone();
    distinct.dedup();
    assert_eq!(states, distinct);
    assert_eq!(states.last(), Some(&"succeeded"));
    assert_eq!(of("done").len(), 1);
    assert_eq!(heard.last().unwrap()["type"], "done");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_javascript_sdk_hears_everything_once_over_a_line_that_breaks() {
    let sdk = root().join("sdk/js/dist/esm/index.js");
    let script = api::handler("../follow.mjs");
    let heard = heard(|| {
        let mut command = Command::new("node");
        command.arg(&script).arg(&sdk);
        command
    });
    nothing_is_lost_and_nothing_repeated(&heard.await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_sdk_hears_everything_once_over_a_line_that_breaks() {
    let python = std::env::var("STOKE_TEST_PYTHON").expect("`make test` names a Python with the stokehold wheel");
    let script = api::handler("../follow.py");
    let heard = heard(|| {
        let mut command = Command::new(&python);
        command.arg(&script);
        command
    });
    nothing_is_lost_and_nothing_repeated(&heard.await);
}

/// Names, ids and data of the events of one connection to a job's events, until the stream ends or `enough` returns
/// true.
async fn follow(
    api: &Api,
    job: &str,
    after: &str,
    mut enough: impl FnMut(&str, &Value) -> bool,
) -> Vec<(String, String, Value)> {
    let mut request = api.request("GET", &format!("/v1/jobs/{job}/events"));
    if !after.is_empty() {
        request = request.header("last-event-id", after);
    }
    let mut response = request.send().await.unwrap().error_for_status().unwrap();
    let (mut text, mut events) = (Vec::new(), Vec::new());
    while let Some(piece) = response.chunk().await.unwrap() {
        text.extend_from_slice(&piece);
        while let Some(end) = text.windows(2).position(|two| two == b"\n\n") {
            let whole: Vec<u8> = text.drain(..end + 2).collect();
            let whole = String::from_utf8(whole).unwrap();
            let field = |name: &str| {
                let found = whole.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
                found.map_or("", str::trim).to_owned()
            };
            let (name, id, data) = (field("event"), field("id"), field("data"));
            let Ok(data) = serde_json::from_str(&data) else { continue };
            let is_enough = enough(&name, &data);
            events.push((name, id, data));
            if is_enough {
                return events;
            }
        }
    }
    events
}

fn indexes(events: &[(String, String, Value)]) -> Vec<u64> {
    let outputs = events.iter().filter(|(name, ..)| name == "output");
    outputs.map(|(.., data)| data["index"].as_u64().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_never_leaves_gets_each_of_20_000_outputs() {
    let (stack, _dir) = api::stack(&[]);
    let _ = stack.stoke_ok(&["deploy", &api::handler("tokens.py")]);
    let api = Api::of(&stack);
    let id = api.submit("tokens", json!({"count": 20_000})).await;
    let events = follow(&api, &id, "", |_, _| false).await;
    assert_eq!(indexes(&events), (0..20_000).collect::<Vec<u64>>());
    assert!(events.iter().all(|(name, ..)| name != "gap"));
    assert_eq!(events.last().unwrap().0, "done");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_comes_back_too_late_is_told_what_it_has_missed() {
    let (stack, _dir) = api::stack(&[]);
    let _ = stack.stoke_ok(&["deploy", &api::handler("tokens.py")]);
    let api = Api::of(&stack);
    // Three times as much as is kept.
    let id = api.submit("tokens", json!({"count": 400, "size": 8_000, "every_s": 0.005})).await;
    let early = follow(&api, &id, "", |name, data| name == "output" && data["index"] == 14).await;
    assert_eq!(indexes(&early), (0..15).collect::<Vec<u64>>());
    let job = api.ended(&id).await;
    assert_eq!(job["state"], "succeeded", "{job}");

    let rest = follow(&api, &id, &early.last().unwrap().1, |_, _| false).await;
    let gaps: Vec<&Value> = rest.iter().filter(|(name, ..)| name == "gap").map(|(.., data)| data).collect();
    let told = indexes(&rest);
    assert_eq!(gaps, [&json!({"attempt": 1, "from": 15, "to": told[0]})]);
    assert!(told.len() > 100, "a MiB of them is kept: {}", told.len());
    assert_eq!(told, (told[0]..400).collect::<Vec<u64>>());
    let result = api.request("GET", &format!("/v1/jobs/{id}/result")).send().await.unwrap();
    let result: Value = result.error_for_status().unwrap().json().await.unwrap();
    assert_eq!(result.as_array().unwrap().len(), 400, "the result is whole");

    // Events that the reader has received are not sent again.
    let told = rest.iter().rev().find(|(name, ..)| name == "gap").unwrap();
    let again = follow(&api, &id, &told.1, |_, _| false).await;
    assert_eq!(indexes(&again), indexes(&rest));
    assert!(again.iter().all(|(name, ..)| name != "gap"));
}
