//! A batch whose workers and runners are killed throughout its run.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use stokehold_tests::process::peak_mib;
use stokehold_tests::stack::{Stack, Worker};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::Command;
use tokio::time::Instant;

use crate::api::{self, Api};

/// Size of a run: small, or full with `STOKE_FULL_SIZE`.
struct Size {
    lines: u64,
    /// Minimum number of kills; a run with fewer shows nothing.
    kills_min: u64,
    /// Number of lines that end between two kills. A slower machine gets fewer kills per second, and each of its
    /// runners the time to start.
    lines_per_kill: u64,
    /// Whether a replica of the API is killed from time to time, too: another replica takes its batch over only after a
    /// while.
    replicas_die: bool,
    patience: Duration,
}

impl Size {
    fn asked_for() -> Self {
        if std::env::var_os("STOKE_FULL_SIZE").is_none() {
            return Self {
                lines: 2_000,
                kills_min: 3,
                lines_per_kill: 40,
                replicas_die: false,
                patience: Duration::from_secs(300),
            };
        }
        Self {
            lines: 100_000,
            kills_min: 10,
            lines_per_kill: 400,
            replicas_die: true,
            patience: Duration::from_secs(3_600),
        }
    }
}

/// Outcome of a line: one in a hundred is invalid, two in a hundred are rejected.
fn fate(n: u64) -> &'static str {
    match n % 100 {
        0 => "invalid",
        1 | 2 => "failed",
        _ => "succeeded",
    }
}

fn write_lines(path: &Path, lines: u64) {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path).unwrap());
    for n in 1..=lines {
        let line = match fate(n) {
            "invalid" => match n / 100 % 4 {
                0 => "{\"input\": {\"n\": ".to_owned(),
                1 => json!({"input": {"n": "no number"}}).to_string(),
                2 => json!({"input": {}}).to_string(),
                _ => "no JSON at all".to_owned(),
            },
            "failed" => json!({"custom_id": format!("c{n}"), "input": {"n": n, "fail": true}}).to_string(),
            _ => json!({"custom_id": format!("c{n}"), "input": {"n": n}}).to_string(),
        };
        writeln!(file, "{line}").unwrap();
    }
    file.flush().unwrap();
}

const ENDED: [&str; 4] = ["succeeded", "failed", "cancelled", "expired"];

fn count(batch: &Value, name: &str) -> u64 {
    batch["counts"][name].as_u64().unwrap_or_else(|| panic!("no count {name}: {batch}"))
}

fn adds_up(batch: &Value) {
    let ended: u64 = ENDED.iter().map(|name| count(batch, name)).sum();
    assert_eq!(count(batch, "accepted"), ended + count(batch, "open"), "{batch}");
    assert_eq!(count(batch, "accepted"), count(batch, "total") - count(batch, "invalid"), "{batch}");
}

/// Polls the batch until it or the polled replica has ended, and checks that counts never decrease. Returns the number
/// of polls.
async fn look_all_the_while(api: Api, path: String) -> u64 {
    let (mut before, mut looks) = (None::<Value>, 0);
    loop {
        let Ok(answer) = api.request("GET", &path).send().await else { return looks };
        let Ok(batch) = answer.error_for_status().unwrap().json::<Value>().await else { return looks };
        looks += 1;
        adds_up(&batch);
        if let Some(before) = &before {
            for name in ["total", "invalid", "accepted"].iter().chain(&ENDED) {
                assert!(count(before, name) <= count(&batch, name), "{name} shrank: {before} then {batch}");
            }
        }
        if !batch["ended_at"].is_null() {
            return looks;
        }
        before = Some(batch);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A command that watches a batch. It is killed when the test ends, also with a failure.
fn watcher(command: std::process::Command) -> Command {
    let mut command = Command::from(command);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

/// Sends SIGKILL. Returns whether there was a process to kill.
pub(crate) fn kill_9(pid: Option<u32>) -> bool {
    pid.is_some_and(|pid| kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).is_ok())
}

/// Kills workers and runners and starts replacements for those workers: each time that `lines_per_kill` more lines have
/// ended. `ended` has their number, and closes when no more kills are wanted. One worker is the
/// stack's own, which the stack restarts by itself. Returns the number of kills.
fn rage(stack: &Stack, lines_per_kill: u64, ended: &Receiver<u64>) -> u64 {
    let worker = |n: u64| stack.start_worker(&format!("victim-{n}"), &[("STOKE_SLOTS", "2")]);
    let (mut workers, mut kills, mut next): (Vec<Worker>, _, _) = (vec![worker(0)], 0, lines_per_kill);
    for n in 1.. {
        let Some(reached) = ended.iter().find(|ended| *ended >= next) else { break };
        next = reached + lines_per_kill;
        // Uneven pauses, so that the kills do not fall into step with anything.
        std::thread::sleep(Duration::from_millis((n * 7) % 10 * 20));
        let landed = match n % 4 {
            0 => kill_9(stack.workers().first().copied()),
            1 => kill_9(stack.runners().first().copied()),
            2 => {
                let victim = workers.remove(0);
                let landed = kill_9(Some(victim.pid()));
                drop(victim);
                workers.push(worker(n));
                landed
            }
            _ => kill_9(workers[0].runners().first().copied()),
        };
        kills += u64::from(landed);
    }
    kills
}

/// Every line of the two files, by its number: state and custom id. No line occurs twice, and each is in the right
/// file.
fn told(results: &str, errors: &str) -> BTreeMap<u64, (String, Value)> {
    let mut told = BTreeMap::new();
    for (text, is_result) in [(results, true), (errors, false)] {
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let state = if is_result { "succeeded" } else { line["state"].as_str().unwrap() };
            assert_eq!(is_result, state == "succeeded" && line["error"].is_null(), "{line}");
            let n = line["line"].as_u64().unwrap();
            let before = told.insert(n, (state.to_owned(), line["custom_id"].clone()));
            assert!(before.is_none(), "told twice: {line}");
        }
    }
    told
}

/// Number of jobs of this batch.
async fn jobs_of(api: &Api, batch: &str) -> u64 {
    let (mut jobs, mut cursor) = (0, String::new());
    loop {
        let page = api.get(&format!("/v1/jobs?limit=100&batch={batch}{cursor}")).await;
        jobs += page["jobs"].as_array().unwrap().len() as u64;
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return jobs,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_loses_and_doubles_no_line_while_its_workers_and_runners_are_killed() {
    let size = Size::asked_for();
    let (stack, dir) = api::stack(&["--slots", "2"]);
    let stack = Arc::new(stack);
    let _ = stack.stoke_ok(&["deploy", &api::handler("line.py")]);
    let leases = [("STOKE_LEASE_MS", "3000"), ("STOKE_EXTEND_EVERY_MS", "500")];
    let mut replica = stack.start_replica(&leases);
    let api = Api::of(&stack);

    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (input, results, errors) = (file("lines.jsonl"), file("results.jsonl"), file("errors.jsonl"));
    write_lines(Path::new(&input), size.lines);
    let args =
        ["batch", "submit", &input, "--endpoint", "line", "--on-invalid", "skip", "--max-attempts", "20", "--watch"];
    let started = Instant::now();
    let submit = stack.command(&[&args[..], &["--output", &results, "--errors", &errors]].concat());
    let mut submit = watcher(submit).spawn().unwrap();
    let mut said = BufReader::new(submit.stderr.take().unwrap());
    let mut first = String::new();
    said.read_line(&mut first).await.unwrap();
    let id = first.split([' ', ';']).find(|word| word.starts_with("batch_")).unwrap_or_else(|| panic!("{first}"));
    let path = format!("/v1/batches/{id}");
    let watching = tokio::spawn(async move {
        let mut rest = String::new();
        said.read_to_string(&mut rest).await.unwrap();
        (submit.wait().await.unwrap(), rest)
    });

    let mut lookers = vec![tokio::spawn(look_all_the_while(Api::of(&stack), path.clone()))];
    let look_at = |url: &str| tokio::spawn(look_all_the_while(Api::of(&stack).at(url), path.clone()));
    lookers.push(look_at(&replica.url));
    let (progress, ended) = mpsc::channel();
    let mut progress = Some(progress);
    let nemesis = {
        let stack = stack.clone();
        std::thread::spawn(move || rage(&stack, size.lines_per_kill, &ended))
    };
    let (mut replicas, mut told_at) = (1, started);
    let batch = loop {
        let batch = api.get(&path).await;
        if !batch["ended_at"].is_null() {
            break batch;
        }
        if let Some(progress) = &progress {
            progress.send(ENDED.iter().map(|name| count(&batch, name)).sum()).unwrap();
        }
        assert!(started.elapsed() < size.patience, "{batch}\n{}", stack.log_tail());
        // The last few jobs would be killed again and again, unlike any real job.
        let going = batch["state"] == "validating" || count(&batch, "open") * 20 > count(&batch, "accepted");
        if !going {
            progress = None;
        }
        if told_at.elapsed() > Duration::from_secs(20) {
            println!("{:?}: {}", started.elapsed(), batch["counts"]);
            told_at = Instant::now();
            if size.replicas_die && going {
                drop(replica);
                replica = stack.start_replica(&leases);
                lookers.push(look_at(&replica.url));
                replicas += 1;
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let took = started.elapsed();
    drop(progress);
    let kills = nemesis.join().unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(60), watching).await;
    let (status, rest) = ended.expect("the batch has ended, and its watcher has not").unwrap();
    let mut looks = 0;
    for looker in lookers {
        looks += looker.await.unwrap();
    }
    let redis = stack.children("redis-server").first().map_or(0, |pid| peak_mib(*pid));
    println!(
        "{} lines in {took:?}: {kills} kills, {replicas} replicas, {looks} looks; at most {} MiB in the API, {redis} MiB in Redis; {}",
        size.lines,
        peak_mib(stack.pid()),
        batch["counts"]
    );
    assert!(kills >= size.kills_min, "void: only {kills} kills landed");
    assert!(!status.success() && rest.contains("stoke batch retry"), "lines have failed, which {status} says: {rest}");
    assert_eq!(batch["state"], "completed");

    let read = |path: &str| std::fs::read_to_string(path).unwrap();
    let lines = told(&read(&results), &read(&errors));
    assert_eq!(lines.keys().copied().collect::<Vec<_>>(), (1..=size.lines).collect::<Vec<_>>());
    for (n, (state, custom_id)) in &lines {
        let why = || read(&errors).lines().find(|line| line.contains(&format!("\"line\":{n},"))).map(str::to_owned);
        assert_eq!(state, fate(*n), "line {n}: {:?}", why());
        assert!(state == "invalid" || *custom_id == format!("c{n}"), "line {n}: {custom_id}");
    }
    let expected = |state: &str| (1..=size.lines).filter(|n| fate(*n) == state).count() as u64;
    assert_eq!(count(&batch, "total"), size.lines);
    for state in ["succeeded", "failed", "invalid"] {
        assert_eq!(count(&batch, state), expected(state), "{state}");
    }
    let usage = api.get("/v1/limits").await["usage"].take();
    assert_eq!((&usage["open"], &usage["running"]), (&json!(0), &json!(0)));

    // The handler is fixed, and only the failed lines run again.
    let mended = read(&api::handler("line.py")).replace("MENDED = False", "MENDED = True");
    std::fs::create_dir(file("mended")).unwrap();
    std::fs::write(file("mended/line.py"), mended).unwrap();
    let _ = stack.stoke_ok(&["deploy", &file("mended/line.py")]);
    let again = watcher(stack.command(&["batch", "retry", id, "--watch", "--json"])).output();
    let again = tokio::time::timeout(size.patience, again).await.expect("the retry ends").unwrap();
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    let again: Value = serde_json::from_slice(&again.stdout).unwrap();
    adds_up(&again);
    assert_eq!((&again["state"], &again["retry_of"]), (&json!("completed"), &json!(id)));
    assert_eq!((count(&again, "total"), count(&again, "succeeded")), (expected("failed"), expected("failed")));
    let again = again["id"].as_str().unwrap();
    let names = stack.stoke_ok(&["batch", "results", again]);
    let mut names: Vec<u64> = names
        .lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["result"]["mended"], true, "{line}");
            line["custom_id"].as_str().unwrap()[1..].parse().unwrap()
        })
        .collect();
    names.sort_unstable();
    assert_eq!(names, (1..=size.lines).filter(|n| fate(*n) == "failed").collect::<Vec<_>>());
    assert_eq!(jobs_of(&api, again).await, expected("failed"));
    assert_eq!(stack.stoke_ok(&["batch", "results", id]).lines().count() as u64, expected("succeeded"), "as it was");
    let usage = api.get("/v1/limits").await["usage"].take();
    assert_eq!((&usage["open"], &usage["running"]), (&json!(0), &json!(0)));
}
