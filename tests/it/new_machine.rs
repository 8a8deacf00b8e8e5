//! Installation of a worker on a machine: `stoke worker check` and `stoke worker install`.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use stokehold_tests::stack::stoke_binary;

const TOKEN: &str = "jt_verysecret";

/// Runs `stoke worker run` with these arguments, and with only these of our variables.
fn worker(args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(stoke_binary());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("STOKE_") && name != "STOKE_UV") {
        command.env_remove(name);
    }
    command.arg("worker").args(args).envs(env.iter().copied()).stdin(Stdio::null()).output().unwrap()
}

fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_dry_run_shows_what_would_be_written_and_no_token() {
    let args = ["install", "--dry-run", "--gateway", "https://gateway.example", "--name", "box 1"];
    let done = worker(&args, &[("STOKE_JOIN_TOKEN", TOKEN), ("STOKE_SLOTS", "3")]);
    let (stdout, stderr) = said(&done);
    assert!(done.status.success(), "{stderr}");
    for part in [
        "[Service]",
        " worker\n",
        r#"STOKE_GATEWAY_URL="https://gateway.example""#,
        r#"STOKE_WORKER_NAME="box 1""#,
        r#"STOKE_SLOTS="3""#,
    ] {
        assert!(stdout.contains(part), "{part} is not in:\n{stdout}");
    }
    assert!(!stdout.contains(TOKEN) && !stderr.contains(TOKEN));
}

#[test]
fn only_root_can_read_the_join_token_that_is_installed() {
    let root = tempfile::tempdir().unwrap();
    let below = |path: &str| root.path().join(path);
    let install = |args: &[&str], env: &[(&str, &str)]| {
        worker(&[&["install", "--root", root.path().to_str().unwrap()], args].concat(), env)
    };
    let without = install(&["--gateway", "https://gateway.example"], &[]);
    assert!(!without.status.success() && said(&without).1.contains("STOKE_JOIN_TOKEN"), "{:?}", said(&without));
    let nowhere = install(&[], &[("STOKE_JOIN_TOKEN", TOKEN)]);
    assert!(!nowhere.status.success() && said(&nowhere).1.contains("--gateway"), "{:?}", said(&nowhere));

    let file = below("token");
    std::fs::write(&file, format!("{TOKEN}\n")).unwrap();
    let done = install(&["--gateway", "https://gateway.example", "--join-token-file", file.to_str().unwrap()], &[]);
    assert!(done.status.success(), "{:?}", said(&done));
    let settings = below("etc/stokehold/worker.env");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&settings), 0o600);
    assert!(std::fs::read_to_string(&settings).unwrap().contains(&format!("STOKE_JOIN_TOKEN=\"{TOKEN}\"\n")));
    let unit = below("etc/systemd/system/stoke-worker.service");
    assert!(mode(&unit) == 0o644 && !std::fs::read_to_string(&unit).unwrap().contains(TOKEN));

    // An upgrade needs no token, a change of settings does.
    std::fs::remove_file(&unit).unwrap();
    assert!(install(&[], &[]).status.success() && unit.exists());
    assert!(std::fs::read_to_string(&settings).unwrap().contains(TOKEN));
    assert!(!install(&["--name", "other"], &[]).status.success());
}

#[test]
fn a_check_says_what_is_wrong_and_fails() {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().to_str().unwrap();
    let env = [("STOKE_CACHE_DIR", cache), ("STOKE_FAKE_GPUS", "24576")];
    let check = |args: &[&str]| -> (bool, Value) {
        let done = worker(&[&["check", "--json"], args].concat(), &env);
        (done.status.success(), serde_json::from_slice(&done.stdout).unwrap())
    };
    let verdict = |found: &Value, what: &str| {
        found["checks"]
            .as_array()
            .unwrap()
            .iter()
            .find(|check| check["what"] == what)
            .map(|check| check["verdict"].clone())
    };
    let (is_good, found) = check(&[]);
    assert!(is_good && verdict(&found, "Python").unwrap() == "ok" && verdict(&found, "gateway").is_none(), "{found}");
    let (is_good, found) = check(&["--gateway", "http://127.0.0.1:9"]);
    assert!(!is_good && verdict(&found, "gateway").unwrap() == "fail", "{found}");
}
