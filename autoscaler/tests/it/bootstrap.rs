//! The start script of a rented instance, run by this machine's own sh against a gateway and a provider inside the
//! test.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use stokehold_autoscaler::providers::bootstrap::{WorkerArchive, script};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::timeout;

/// Longer than any wait takes.
const PATIENCE: Duration = Duration::from_secs(60);

const NAME: &str = "worker.tar.gz";

/// A fake worker: it records each call with its arguments, and exits with the codes in `$STOKE_HOME/ends`, one per
/// line.
const FAKE: &str = r#"#!/bin/sh
echo "$* $STOKE_GATEWAY_URL $STOKE_JOIN_TOKEN $STOKE_DATA_DIR" >>"$STOKE_HOME/called"
code=$(sed -n 1p "$STOKE_HOME/ends")
sed -i 1d "$STOKE_HOME/ends"
exit "${code:-0}"
"#;

/// A fake `sleep`, which records the requested duration and sleeps for 50 ms.
const SLEEP: &str = "#!/bin/sh\necho \"$1\" >>\"$STOKE_HOME/slept\"\nexec /bin/sleep 0.05\n";

#[derive(Default)]
struct Seen {
    archive: Vec<u8>,
    /// Each call: method, path, bearer, body.
    calls: Vec<String>,
}

struct Site {
    home: TempDir,
    url: String,
    seen: Arc<Mutex<Seen>>,
    changed: watch::Receiver<()>,
    sum: String,
}

type Served = State<(Arc<Mutex<Seen>>, watch::Sender<()>)>;

async fn serve(State((seen, changed)): Served, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body: Bytes = axum::body::to_bytes(body, 1024).await.unwrap();
    let bearer = parts.headers.get("authorization").map_or("-", |value| value.to_str().unwrap());
    let call = format!("{} {} {bearer} {}", parts.method, parts.uri, String::from_utf8_lossy(&body));
    let mut seen = seen.lock().unwrap();
    seen.calls.push(call.trim_end().to_owned());
    changed.send_replace(());
    match parts.method {
        Method::GET => seen.archive.clone().into_response(),
        _ => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

fn executable(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

impl Site {
    async fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        let (pack, path) = (home.path().join("pack"), home.path().join("path"));
        std::fs::create_dir_all(pack.join("worker/bin")).unwrap();
        std::fs::create_dir_all(&path).unwrap();
        executable(&pack.join("worker/bin/stoke"), FAKE);
        executable(&path.join("sleep"), SLEEP);
        let line = format!("tar -czf {NAME} worker && sha256sum {NAME} | cut -c 1-64");
        let packed = Command::new("sh").args(["-c", &line]).current_dir(&pack).output().await.unwrap();
        assert!(packed.status.success());
        let seen = Seen { archive: std::fs::read(pack.join(NAME)).unwrap(), calls: Vec::new() };
        let (seen, (changed, changes)) = (Arc::new(Mutex::new(seen)), watch::channel(()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(serve).with_state((seen.clone(), changed));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let sum = String::from_utf8(packed.stdout).unwrap().trim().to_owned();
        Self { home, url, seen, changed: changes, sum }
    }

    fn spawn(&self, set: &[(&str, &str)]) -> Child {
        let arch = std::env::consts::ARCH.to_owned();
        let archive = WorkerArchive { arch, name: NAME.to_owned(), sha256: self.sum.clone() };
        let path = format!("{}:{}", self.file("path").display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("sh");
        command
            .args(["-c", &script(&[archive]).unwrap()])
            .env_clear()
            .envs([("PATH", path.as_str()), ("STOKE_GATEWAY_URL", &self.url), ("STOKE_JOIN_TOKEN", "jt_1")])
            .env("STOKE_HOME", self.home.path())
            .envs(set.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        command.spawn().unwrap()
    }

    /// Runs the script to its end.
    async fn run(&self, ends: &str, set: &[(&str, &str)]) -> Output {
        std::fs::write(self.file("ends"), ends).unwrap();
        timeout(PATIENCE, self.spawn(set).wait_with_output()).await.unwrap().unwrap()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn lines(&self, name: &str) -> Vec<String> {
        std::fs::read_to_string(self.file(name)).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    fn calls(&self, method: &str) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        seen.calls.iter().filter(|call| call.starts_with(method)).cloned().collect()
    }

    /// Waits for this number of calls.
    async fn called(&self, method: &str, times: usize) -> Vec<String> {
        let mut changed = self.changed.clone();
        timeout(PATIENCE, changed.wait_for(|()| self.calls(method).len() >= times)).await.unwrap().unwrap();
        self.calls(method)
    }
}

/// Kills the processes that a script left running: they continue after the script's own process has ended.
struct Group(u32);

impl Drop for Group {
    fn drop(&mut self) {
        let group = nix::unistd::Pid::from_raw(i32::try_from(self.0).unwrap());
        let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
    }
}

#[tokio::test]
async fn a_machine_fetches_its_worker_once_and_starts_it_again_when_it_breaks() {
    let site = Site::start().await;
    let first = site.run("1\n137\n0\n", &[]).await;
    assert!(first.status.success(), "{first:?}");
    let data = site.file("data");
    let told = format!("worker run {} jt_1 {}", site.url, data.display());
    assert_eq!(site.lines("called"), [told.clone(), told.clone(), told.clone()]);
    let waits: Vec<u32> = site.lines("slept").iter().map(|wait| wait.parse().unwrap()).collect();
    assert!(matches!(waits[..], [5..=9, 10..=19]), "{waits:?}");
    assert_eq!(site.calls("GET"), [format!("GET /v1/worker/archives/{NAME} -")]);
    // The instance was stopped, and starts again.
    let second = site.run("0\n", &[]).await;
    assert!(second.status.success() && site.lines("called").len() == 4);
    assert_eq!(site.calls("GET").len(), 1, "what is there is not fetched again");
    assert!(!site.file("new").exists());
}

#[tokio::test]
async fn what_has_another_checksum_is_never_run_and_fetched_again() {
    let site = Site::start().await;
    let good = std::mem::replace(&mut site.seen.lock().unwrap().archive, b"something else".to_vec());
    std::fs::write(site.file("ends"), "0\n").unwrap();
    let script = site.spawn(&[]);
    site.called("GET", 3).await;
    assert!(
        site.lines("called").is_empty() && !site.file("releases").read_dir().is_ok_and(|mut all| all.next().is_some())
    );
    site.seen.lock().unwrap().archive = good;
    let done = timeout(PATIENCE, script.wait_with_output()).await.unwrap().unwrap();
    assert!(done.status.success() && String::from_utf8_lossy(&done.stderr).contains("checksum"), "{done:?}");
    assert_eq!(site.lines("called").len(), 1);
}

#[tokio::test]
async fn a_program_that_is_there_is_run_and_nothing_is_fetched() {
    let site = Site::start().await;
    let program = site.file("pack/worker/bin/stoke");
    let done = site.run("0\n", &[("STOKE_WORKER_PROGRAM", program.to_str().unwrap())]).await;
    assert!(done.status.success(), "{done:?}");
    assert_eq!((site.lines("called").len(), site.calls("GET").len()), (1, 0));
}

#[tokio::test]
async fn a_worker_that_is_told_to_leave_may_drain_and_is_not_started_again() {
    let site = Site::start().await;
    let drains = "#!/bin/sh\ntrap 'echo left >>$STOKE_HOME/called; exit 0' TERM\necho up >$STOKE_HOME/up\nwhile :; do /bin/sleep 0.05; done\n";
    executable(&site.file("drains"), drains);
    let script = site.spawn(&[("STOKE_WORKER_PROGRAM", site.file("drains").to_str().unwrap())]);
    let up = async {
        while !site.file("up").exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, up).await.unwrap();
    let pid = nix::unistd::Pid::from_raw(i32::try_from(script.id().unwrap()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    let done = timeout(PATIENCE, script.wait_with_output()).await.unwrap().unwrap();
    assert!(done.status.success(), "{done:?}");
    assert_eq!(site.lines("called"), ["left"]);
}

#[tokio::test]
async fn a_machine_whose_worker_reaches_nobody_destroys_itself_and_repeats_it() {
    for without in [&["wget", "python3"], &["curl", "python3"], &["curl", "wget"]] {
        let site = Site::start().await;
        // Failing stubs precede the real tools.
        for tool in without {
            executable(&site.file("path").join(tool), "#!/bin/sh\nexit 1\n");
        }
        executable(&site.file("hangs"), "#!/bin/sh\nexec /bin/sleep 600\n");
        let rented = [("CONTAINER_ID", "4711"), ("CONTAINER_API_KEY", "instance-key"), ("STOKE_VAST_URL", &site.url)];
        let program = site.file("hangs");
        let set = [&rented[..], &[("STOKE_WORKER_PROGRAM", program.to_str().unwrap())]].concat();
        let script = site.spawn(&set);
        let _ends = Group(script.id().unwrap());
        let calls = site.called("DELETE", 2).await;
        assert_eq!(calls[0], "DELETE /api/v0/instances/4711/ Bearer instance-key {}", "without {without:?}");
        assert_eq!(calls[1], calls[0]);
        assert!(site.lines("slept").iter().filter(|wait| *wait == "60").count() >= 20);
    }
}

#[tokio::test]
async fn a_worker_that_reaches_its_gateway_keeps_its_machine_until_it_no_longer_does() {
    let site = Site::start().await;
    let reaches = "#!/bin/sh\nmkdir -p $STOKE_DATA_DIR\nn=0\nwhile [ $n -lt 100 ]; do n=$((n+1)); echo $n >$STOKE_DATA_DIR/reached; \
                   /bin/sleep 0.02; done\necho over >$STOKE_HOME/over\nexec /bin/sleep 600\n";
    executable(&site.file("reaches"), reaches);
    let program = site.file("reaches");
    let set = [
        ("CONTAINER_ID", "4711"),
        ("CONTAINER_API_KEY", "instance-key"),
        ("STOKE_VAST_URL", &site.url),
        ("STOKE_WORKER_PROGRAM", program.to_str().unwrap()),
    ];
    let script = site.spawn(&set);
    let _ends = Group(script.id().unwrap());
    site.called("DELETE", 1).await;
    assert!(site.file("over").exists(), "it was destroyed while its worker reached the gateway");
}
