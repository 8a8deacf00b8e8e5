//! The exit code says who can help: a table over what can go wrong, with and without `--json`.

use std::process::Output;

use serde_json::Value;

use crate::api;

/// What went wrong, the arguments, the token instead of the stack's, and the expected exit code, code and HTTP status.
type Row<'a> = (&'a str, &'a [&'a str], Option<&'a str>, i32, &'a str, Option<u16>);

/// The error on the last line of standard error.
fn error(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().last().unwrap_or_default();
    let document: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {text}"));
    document["error"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_are_those_of_the_reference_page() {
    let (stack, dir) = api::stack(&[]);
    for handler in ["slow.py", "faults.py"] {
        let _ = stack.stoke_ok(&["deploy", &api::handler(handler)]);
    }
    let reader = stack.stoke_ok(&["token", "create", "--name", "reader", "--role", "read"]);
    let cases = dir.path().join("cases.jsonl");
    std::fs::write(&cases, "{\"input\": {\"how\": \"fine\"}}\n{\"input\": {\"how\": \"raise\"}}\n").unwrap();
    let cases = cases.to_str().unwrap();
    let gate = ["endpoint", "gate", "faults@1", "--batch", cases, "--timeout", "5m"];
    let slow = ["submit", "slow", "--input", r#"{"n": 1, "seconds": 15}"#, "--wait", "--wait-timeout", "1s"];
    let raise = ["submit", "faults", "--input", r#"{"how": "raise"}"#, "--max-attempts", "1", "--wait"];

    let rows: &[Row<'_>] = &[
        ("API down", &["list", "--url", "http://127.0.0.1:1"], None, 3, "unavailable", None),
        ("timed out", &slow, None, 4, "timed_out", None),
        ("job failed", &raise, None, 1, "job_failed", None),
        ("gate failed", &gate, None, 1, "gate_failed", None),
        ("bad token", &["list"], Some("sk_0123456789abcdef_wrong"), 5, "unauthorized", Some(401)),
        ("no right", &["endpoint", "delete", "slow", "--yes"], Some(reader.trim()), 5, "forbidden", Some(403)),
        ("unknown option", &["list", "--nothing"], None, 2, "usage", None),
        ("missing argument", &["submit"], None, 2, "usage", None),
        ("wrong value", &["submit", "slow", "--timeout", "5"], None, 2, "usage", None),
        ("unknown endpoint", &["submit", "nowhere"], None, 2, "unknown_endpoint", Some(404)),
        ("wrong JSON", &["submit", "slow", "--input", "{n: 1}"], None, 2, "usage", None),
        ("no such input", &["submit", "slow", "--input", "@/no/such"], None, 2, "usage", None),
        ("no such file", &["submit", "slow", "--file", "a=/no/such"], None, 2, "usage", None),
        ("no such batch", &["batch", "submit", "/no/such", "--endpoint", "slow"], None, 2, "usage", None),
        ("no such token", &["login", "--token-file", "/no/such"], None, 2, "usage", None),
        ("no such folder", &["deploy", "/no/such"], None, 2, "usage", None),
        ("unknown jobs", &["cancel", "01", "02"], None, 2, "not_found", None),
        ("long wait", &["get", "01", "--wait", "--wait-timeout", "584542046090y"], None, 2, "usage", None),
    ];
    for (what, args, token, code, word, status) in rows {
        let run = |json: &[&str]| {
            let mut command = stack.command(&[args, json].concat());
            token.map(|token| command.env("STOKE_TOKEN", token));
            command.output().unwrap()
        };
        let plain = run(&[]);
        let text = String::from_utf8_lossy(&plain.stderr);
        assert_eq!(plain.status.code(), Some(*code), "{what}: {text}");
        assert!(text.contains("error: "), "{what}: {text}");
        let json = run(&["--json"]);
        assert_eq!(json.status.code(), Some(*code), "{what} as JSON");
        let error = error(&json);
        assert_eq!(
            (&error["code"], &error["exit_code"]),
            (&Value::from(*word), &Value::from(*code)),
            "{what}: {error}"
        );
        assert_eq!(error["status"], serde_json::to_value(status).unwrap(), "{what}: {error}");
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{what}: {error}");
    }

    for fine in [&["list"][..], &["list", "--json"], &["--help"], &["--version"], &["endpoints"]] {
        assert_eq!(stack.stoke(fine).status.code(), Some(0), "{fine:?}");
    }
    // Without a token for the URL, there is nothing to ask the API with.
    let none = stack.command(&["list", "--url", "http://127.0.0.1:1", "--json"]).env_remove("STOKE_TOKEN").output();
    let none = none.unwrap();
    assert_eq!((none.status.code(), &error(&none)["code"]), (Some(5), &Value::from("no_token")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_is_saved_chosen_and_removed() {
    let (stack, dir) = api::stack(&[]);
    let credentials = dir.path().join("profiles.json");
    let token_file = dir.path().join("token");
    std::fs::write(&token_file, &stack.token).unwrap();
    let stoke = |args: &[&str], url: bool| {
        let mut command = stack.command(args);
        command.env_remove("STOKE_TOKEN").env_remove("STOKE_URL").env("STOKE_CREDENTIALS", &credentials);
        if url {
            command.env("STOKE_URL", "http://127.0.0.1:1").env("STOKE_TOKEN", "sk_other");
        }
        command.output().unwrap()
    };
    let token_path = token_file.to_str().unwrap();
    let login = ["login", "--profile", "prod", "--url", &stack.url, "--token-file", token_path];
    let saved = stoke(&login, false);
    assert!(saved.status.success(), "{}", String::from_utf8_lossy(&saved.stderr));
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&credentials).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(stoke(&["list"], false).status.code(), Some(5), "the default profile has no token");
    assert_eq!(stoke(&["list", "--profile", "prod"], false).status.code(), Some(0));
    assert_eq!(stoke(&["list", "--profile", "prod"], true).status.code(), Some(0), "a named profile comes first");
    assert_eq!(stoke(&["list", "--profile", "typo"], false).status.code(), Some(2));
    let with = |variables: &[(&str, &str)]| {
        let mut command = stack.command(&["list"]);
        command.env_remove("STOKE_TOKEN").env_remove("STOKE_URL").env("STOKE_CREDENTIALS", &credentials);
        command.envs(variables.iter().copied()).output().unwrap().status.code()
    };
    let empty = [("STOKE_URL", ""), ("STOKE_TOKEN", ""), ("STOKE_PROFILE", "prod")];
    assert_eq!(with(&empty), Some(0), "an empty variable is unset");
    let empty = [("STOKE_URL", &*stack.url), ("STOKE_TOKEN", &*stack.token), ("STOKE_PROFILE", "")];
    assert_eq!(with(&empty), Some(0), "an empty variable is unset");
    let listed: Value = serde_json::from_slice(&stoke(&["login", "list", "--json"], false).stdout).unwrap();
    assert_eq!(listed["profiles"][0]["name"], "prod");

    std::fs::write(&token_file, "sk_0123456789abcdef_wrong").unwrap();
    let wrong = ["login", "--profile", "next", "--url", &stack.url, "--token-file", token_path];
    assert_eq!(stoke(&wrong, false).status.code(), Some(5), "a token that is not valid is not saved");
    assert!(!std::fs::read_to_string(&credentials).unwrap().contains("next"));
    assert_eq!(stoke(&["logout", "--profile", "prod"], false).status.code(), Some(0));
    assert_eq!(stoke(&["list", "--profile", "prod"], false).status.code(), Some(2));
}
