//! The market on a port, and processes behind its instances.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use stokehold_fake_vast::{Fault, KEY, Listing, Market, Options, Processes, Route, Rule, Server, Settings};

/// A market in which everything takes milliseconds, so that it can use the real clock.
fn quick() -> Settings {
    Settings {
        machines: 0,
        listings: vec![Listing { num_gpus: 4, ..Listing::default() }],
        boot_s: (0.0, 0.0),
        restart_s: (0.0, 0.0),
        stop_s: 0.0,
        ..Settings::calm()
    }
}

async fn send(server: &Server, method: &str, path: &str, body: &Value) -> Result<(u16, String), reqwest::Error> {
    let method = method.parse::<reqwest::Method>().unwrap();
    let request = reqwest::Client::new().request(method, format!("{}{path}", server.url()));
    let answer = request.bearer_auth(KEY).json(body).timeout(Duration::from_secs(20)).send().await?;
    Ok((answer.status().as_u16(), answer.text().await?))
}

async fn value(server: &Server, method: &str, path: &str, body: &Value) -> Value {
    serde_json::from_str(&send(server, method, path, body).await.unwrap().1).unwrap()
}

async fn rent(server: &Server, script: &str, env: &Value) -> u64 {
    let offers = value(server, "POST", "/api/v0/bundles/", &json!({"num_gpus": {"eq": 1}})).await;
    let body = json!({"image": "none", "runtype": "args", "onstart": "/bin/sh", "args": ["-c", script], "env": env});
    let rented = value(server, "PUT", &format!("/api/v0/asks/{}/", offers["offers"][0]["id"]), &body).await;
    rented["new_contract"].as_u64().unwrap_or_else(|| panic!("{rented}"))
}

async fn status_is(server: &Server, id: u64, wanted: &str) {
    let path = format!("/api/v0/instances/{id}/");
    let seen = |market: &mut Market, now_s: f64| {
        let answer = market.handle(now_s, &stokehold_fake_vast::Request::new("GET", &path, KEY, &Value::Null));
        (answer.value()["instances"]["actual_status"] == wanted).then_some(())
    };
    tokio::time::timeout(Duration::from_secs(30), server.wait_for(seen)).await.unwrap();
}

/// Waits until a container has written a line into a file of its home.
async fn line(server: &Server, processes: &Processes, id: u64, file: &str) -> String {
    let path = processes.home(id).join(file);
    let written = |_: &mut Market, _: f64| std::fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n'));
    tokio::time::timeout(Duration::from_secs(30), server.wait_for(written)).await.unwrap().trim().to_owned()
}

fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

async fn with_processes() -> (Server, Arc<Processes>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let hardware = |started: &stokehold_fake_vast::Started| vec![("CARDS".to_owned(), started.gpu_ram_mb.to_string())];
    let processes = Arc::new(Processes::new(dir.path(), Box::new(hardware)).unwrap());
    let options = Options {
        machines: Some(Arc::<Processes>::clone(&processes)),
        tick: Duration::from_millis(5),
        ..Options::default()
    };
    (Server::start(Market::new(1, quick()), options).await.unwrap(), processes, dir)
}

#[tokio::test]
async fn a_settable_clock_drives_it_and_a_lost_answer_closes_the_connection() {
    let now_ms = Arc::new(AtomicU64::new(1_000_000));
    let clock = Arc::clone(&now_ms);
    #[expect(clippy::cast_precision_loss, reason = "small")]
    let options =
        Options { clock: Arc::new(move || clock.load(Ordering::SeqCst) as f64 / 1000.0), ..Options::default() };
    let server = Server::start(Market::new(1, Settings { boot_s: (60.0, 60.0), ..quick() }), options).await.unwrap();
    let id = rent(&server, "", &json!({})).await;
    let path = format!("/api/v0/instances/{id}/?owner=me");
    assert_eq!(value(&server, "GET", &path, &Value::Null).await["instances"]["actual_status"], Value::Null);
    now_ms.fetch_add(60_000, Ordering::SeqCst);
    assert_eq!(value(&server, "GET", &path, &Value::Null).await["instances"]["actual_status"], "running");

    let rules = vec![Rule::on(Route::Destroy, Fault::DropAfter { hold: false }).times(1)];
    server.market().set_faults(rules);
    let lost = send(&server, "DELETE", &format!("/api/v0/instances/{id}/"), &json!({})).await.unwrap_err();
    assert!(lost.is_request() && !lost.is_timeout(), "{lost}");
    assert_eq!(value(&server, "GET", &path, &Value::Null).await["instances"], Value::Null);
    let rules = vec![Rule::on(Route::Show, Fault::DropBefore { hold: true }).times(1)];
    server.market().set_faults(rules);
    let url = format!("{}{path}", server.url());
    let held = reqwest::Client::new().get(url).bearer_auth(KEY).timeout(Duration::from_millis(200)).send().await;
    assert!(held.unwrap_err().is_timeout());
    let calls: Vec<_> = server.market().calls().map(|call| (call.method.clone(), call.at_s)).collect();
    assert_eq!((calls[0].0.as_str(), calls[3].1), ("POST", 1060.0));
}

#[tokio::test]
async fn a_container_is_a_process_with_its_own_environment_and_its_log() {
    let (server, processes, _dir) = with_processes().await;
    let script = "env | sort; cd; pwd > done; exec sleep 600";
    let id = rent(&server, script, &json!({"A": "1", "-p 8000:8000": "1", "HOME": "/"})).await;
    let home = line(&server, &processes, id, "done").await;
    assert_eq!(home, processes.home(id).to_str().unwrap());
    let written = |_: &mut Market, _: f64| {
        let text = stokehold_fake_vast::Machines::log(&*processes, id)?;
        text.contains("VAST_CONTAINERLABEL=").then_some(text)
    };
    let log = tokio::time::timeout(Duration::from_secs(30), server.wait_for(written)).await.unwrap();
    let names: Vec<&str> = log.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    let allowed = [
        "A",
        "CARDS",
        "CONTAINER_API_KEY",
        "CONTAINER_ID",
        "HOME",
        "LANG",
        "OLDPWD",
        "PATH",
        "PUBLIC_IPADDR",
        "PWD",
        "SHLVL",
        "VAST_CONTAINERLABEL",
        "_",
    ];
    assert!(names.iter().all(|name| allowed.contains(name)), "{names:?}");
    assert!(log.contains(&format!("VAST_CONTAINERLABEL=C.{id}\n")) && log.contains("CARDS=24564\n"), "{log}");

    let logs =
        value(&server, "PUT", &format!("/api/v0/instances/request_logs/{id}/"), &json!({"filter": "CARDS"})).await;
    let path = logs["result_url"].as_str().unwrap().strip_prefix(server.url()).unwrap().to_owned();
    let ready = |market: &mut Market, now_s: f64| {
        let answer = market.handle(now_s, &stokehold_fake_vast::Request::new("GET", &path, "", &Value::Null));
        (answer.status == 200).then_some(answer.body)
    };
    assert_eq!(tokio::time::timeout(Duration::from_secs(30), server.wait_for(ready)).await.unwrap(), b"CARDS=24564\n");
}

#[tokio::test]
async fn a_stop_kills_everything_and_keeps_the_disk_and_a_destroy_takes_it() {
    let (server, processes, _dir) = with_processes().await;
    // A child in a separate session, and a shell that ignores SIGTERM.
    let script = "trap '' TERM; echo x >> starts; setsid sh -c 'echo $$ > child; sleep 600' & echo $$ > pid; while :; do sleep 1; done";
    let id = rent(&server, script, &json!({})).await;
    let (pid, child) = (line(&server, &processes, id, "pid").await, line(&server, &processes, id, "child").await);
    assert!(is_alive(&pid) && is_alive(&child));
    let path = format!("/api/v0/instances/{id}/");
    value(&server, "PUT", &path, &json!({"state": "stopped"})).await;
    status_is(&server, id, "stopped").await;
    let dead = |_: &mut Market, _: f64| (!is_alive(&pid) && !is_alive(&child)).then_some(());
    tokio::time::timeout(Duration::from_secs(30), server.wait_for(dead)).await.unwrap();
    value(&server, "PUT", &path, &json!({"state": "running"})).await;
    let twice = |_: &mut Market, _: f64| {
        std::fs::read_to_string(processes.home(id).join("starts")).ok().filter(|text| text == "x\nx\n")
    };
    tokio::time::timeout(Duration::from_secs(30), server.wait_for(twice)).await.unwrap();
    value(&server, "DELETE", &path, &json!({})).await;
    let gone = |_: &mut Market, _: f64| (!processes.home(id).exists() && processes.pids().is_empty()).then_some(());
    tokio::time::timeout(Duration::from_secs(30), server.wait_for(gone)).await.unwrap();
}

#[tokio::test]
async fn a_container_that_ends_by_itself_is_exited_and_one_that_cannot_start_too() {
    let (server, processes, _dir) = with_processes().await;
    let id = rent(&server, "exit 3", &json!({})).await;
    status_is(&server, id, "exited").await;
    let offers = value(&server, "POST", "/api/v0/bundles/", &json!({})).await;
    let body = json!({"image": "none", "runtype": "args", "onstart": "/no/such/program"});
    let rented = value(&server, "PUT", &format!("/api/v0/asks/{}/", offers["offers"][0]["id"]), &body).await;
    let id = rented["new_contract"].as_u64().unwrap();
    status_is(&server, id, "exited").await;
    assert!(stokehold_fake_vast::Machines::log(&*processes, id).unwrap().starts_with("cannot start the container"));
}

/// Environment variable with the folder of a process that is killed while it runs a container.
const HOLDER_DIR: &str = "STOKE_TEST_HOLDER_DIR";

#[tokio::test]
#[ignore = "what the test below kills"]
async fn holder() {
    let dir = std::path::PathBuf::from(std::env::var_os(HOLDER_DIR).unwrap());
    let processes = Arc::new(Processes::new(&dir, Box::new(|_| Vec::new())).unwrap());
    let options = Options { machines: Some(Arc::<Processes>::clone(&processes)), ..Options::default() };
    let server = Server::start(Market::new(1, quick()), options).await.unwrap();
    let id = rent(&server, "echo $$ > pid; exec sleep 600", &json!({})).await;
    let pid = line(&server, &processes, id, "pid").await;
    std::fs::write(dir.join("pid.part"), format!("{pid}\n")).unwrap();
    std::fs::rename(dir.join("pid.part"), dir.join("pid")).unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn containers_do_not_outlive_who_runs_them() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = tokio::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "server::holder"]).env(HOLDER_DIR, dir.path()).kill_on_drop(true);
    let mut holder = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    let ours = Server::start(Market::new(1, quick()), Options::default()).await.unwrap();
    let path = dir.path().join("pid");
    let written = |_: &mut Market, _: f64| std::fs::read_to_string(&path).ok();
    let pid = tokio::time::timeout(Duration::from_secs(60), ours.wait_for(written)).await.unwrap().trim().to_owned();
    assert!(is_alive(&pid));
    holder.kill().await.unwrap();
    let dead = |_: &mut Market, _: f64| (!is_alive(&pid)).then_some(());
    tokio::time::timeout(Duration::from_secs(30), ours.wait_for(dead)).await.unwrap();
}
