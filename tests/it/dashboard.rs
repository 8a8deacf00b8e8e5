//! The dashboard's address, as `stoke dev`, `stoke dashboard` and `stoke demo` print it: it logs a browser in once.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use stokehold_tests::process;
use stokehold_tests::stack::stoke_binary;

use crate::api;

/// Whether the binary contains the page. A build without Node does not, and prints so.
fn is_built() -> bool {
    api::root().join("api/dashboard/dist").is_dir()
}

/// The first address of this form in the output.
fn link_in(text: &str) -> Option<(String, String)> {
    let link = text.split_whitespace().find(|word| word.contains("/dashboard#sk_"))?;
    let (url, token) = link.split_once("/dashboard#")?;
    Some((url.to_owned(), token.to_owned()))
}

/// The status of a login, and its cookie.
async fn log_in(url: &str, token: &str) -> (u16, Option<String>) {
    let body = json!({ "token": token });
    let answer = reqwest::Client::new().post(format!("{url}/v1/session")).json(&body).send().await.unwrap();
    let cookie = answer.headers().get("set-cookie").and_then(|cookie| cookie.to_str().ok()).map(str::to_owned);
    (answer.status().as_u16(), cookie.and_then(|cookie| Some(cookie.split_once(';')?.0.to_owned())))
}

async fn ask(url: &str, path: &str, cookie: &str) -> Value {
    let answer = reqwest::Client::new().get(format!("{url}{path}")).header("cookie", cookie).send().await.unwrap();
    answer.error_for_status().unwrap().json().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_logs_in_once_with_the_rights_that_were_asked_for() {
    let (stack, _dir) = api::stack(&["--workers", "0"]);
    if is_built() {
        let (url, token) = stack.line("the address that logs in", link_in);
        assert_eq!(url, stack.url);
        assert_eq!(log_in(&url, &token).await.0, 200);
        assert_eq!(log_in(&url, &token).await.0, 401, "it is spent");
    }
    let printed = stack.stoke_ok(&["dashboard", "--scope", "jobs:read"]);
    let (url, token) = link_in(&printed).expect("it is printed");
    let (status, cookie) = log_in(&url, &token).await;
    assert_eq!(status, 200);
    let who = ask(&url, "/v1/session", &cookie.unwrap()).await;
    assert_eq!((&who["tenant"], &who["scopes"]), (&json!("default"), &json!(["jobs:read"])));

    let told: Value = serde_json::from_str(&stack.stoke_ok(&["dashboard", "--json"])).unwrap();
    let (_, token) = link_in(told["url"].as_str().unwrap()).unwrap();
    let bearer = reqwest::Client::new().get(format!("{}/v1/jobs", stack.url)).bearer_auth(&token).send().await.unwrap();
    assert_eq!(bearer.status(), 401, "it is good for a browser's log-in alone");
}

/// A running demo. It is killed when this value is dropped.
struct Demo(Child);

impl Drop for Demo {
    fn drop(&mut self) {
        let children = process::descendants(self.0.id());
        let _ = self.0.kill();
        let _ = self.0.wait();
        for (pid, _) in children {
            // It may have ended by itself.
            let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_stays_open_on_what_it_did_until_it_is_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let child = Command::new(stoke_binary())
        .args(["demo", "--stay", "--out"])
        .arg(dir.path().join("out"))
        .env("STOKE_CREDENTIALS", dir.path().join("credentials.json"))
        .env("STOKE_SANDBOX", "L0")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut demo = Demo(child);
    let mut lines = BufReader::new(demo.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut said = Vec::new();
    let stays = lines.by_ref().any(|line| {
        let is_last = line.contains("until Ctrl-C");
        said.push(line);
        is_last
    });
    let said = said.join("\n");
    assert!(stays, "it ended: {said}");
    if is_built() {
        let links: Vec<_> = said.lines().filter_map(link_in).collect();
        assert_eq!(links.len(), 2, "one while it runs, a fresh one at its end: {said}");
        let (url, token) = &links[1];
        let (status, cookie) = log_in(url, token).await;
        assert_eq!(status, 200);
        let jobs = ask(url, "/v1/jobs?state=succeeded&limit=100", &cookie.unwrap()).await;
        assert_eq!(jobs["jobs"].as_array().unwrap().len(), 12, "{jobs}");
    }
    process::signal(demo.0.id(), Signal::SIGINT);
    // Its last output is read, so that it does not block.
    assert!(lines.all(|line| !line.contains("error")));
    assert!(demo.0.wait().unwrap().success());
}
