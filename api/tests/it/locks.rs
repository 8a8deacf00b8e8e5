//! Locked requirements: a lock that would make uv read or request anything but packages never reaches a worker.

use serde_json::{Value, json};

use crate::stack::{Stack, echo};

fn with_lock(lock: &str) -> Value {
    let mut endpoint = echo();
    endpoint["requirements_lock"] = lock.into();
    endpoint
}

#[tokio::test]
async fn a_lock_that_makes_workers_read_or_ask_is_refused_with_its_line() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let hash = format!("--hash=sha256:{}", "0".repeat(64));
    for (line, why) in [
        ("-r /proc/self/environ", "is not allowed in a lock"),
        ("-c http://169.254.169.254/latest", "is not allowed in a lock"),
        ("--find-links /var/lib", "is not allowed in a lock"),
        ("--index-url https://pypi.org/${STOKE_JOIN_TOKEN}/simple", "must not contain $"),
        ("--extra-index-url https://evil.example/simple", "package_indexes"),
        ("x @ git+https://h.example/x", "must begin with https://"),
        ("x @ https://h.example/x.whl", "needs a --hash"),
        (&format!("x @ http://169.254.169.254/x.whl {hash}"), "package_indexes"),
        ("../x.whl", "is not a requirement"),
        ("six>=1", "is not one exact version"),
        ("six==1\u{2028}-r x", "which is not allowed in a lock"),
    ] {
        let answer = stack.post("/v1/endpoints", &with_lock(&format!("# ours\n{line}\n"))).send().await.unwrap();
        assert_eq!(answer.status(), 400, "{line}");
        let problem: Value = answer.json().await.unwrap();
        assert_eq!(problem["errors"][0]["path"], "/requirements_lock", "{problem}");
        let said = problem["errors"][0]["message"].as_str().unwrap();
        assert!(said.starts_with("line 2: ") && said.contains(why), "{line}: {said}");
    }
    let versions = stack.json(stack.get("/v1/endpoints/echo/versions")).await;
    assert_eq!(versions["versions"].as_array().unwrap().len(), 1, "{versions}");

    // Locks that `stoke deploy` and people send are accepted, and returned unchanged.
    let lock = format!(
        "# by hand\n--extra-index-url https://download.pytorch.org/whl/cu121\n\
         six==1.17.0 ; python_version >= '3.8' \\\n    {hash}\nx @ https://download.pytorch.org/whl/x-1-py3-none-any.whl {hash}\n"
    );
    let version = stack.deploy(with_lock(&lock)).await;
    assert_eq!((&version["version"], &version["requirements_lock"]), (&json!(2), &json!(lock)));
    stack.deploy(with_lock("numpy==2.0.0\n")).await;
}
