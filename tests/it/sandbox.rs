//! Handlers that try to exceed their rights, and what they obtain.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use stokehold_nvml::{FakeGpu, StandIn};
use stokehold_tests::process;
use stokehold_tests::stack::{Stack, stoke_binary};
use tempfile::TempDir;

use crate::api::{self, Api};

struct Prison {
    stack: Stack,
    api: Api,
    dir: TempDir,
}

impl Prison {
    /// A prison, or `None` where this machine has no bubblewrap: `make test` sets where to find one.
    #[expect(clippy::print_stderr, reason = "whoever reads the log is to know what was not tested")]
    fn at_l2() -> Option<Self> {
        let bwrap = PathBuf::from(
            std::env::var_os("STOKE_TEST_BWRAP").expect("`make test` says where a bubblewrap is, if there is one"),
        );
        if !bwrap.exists() {
            eprintln!("SKIPPED: there is no bubblewrap at {}", bwrap.display());
            return None;
        }
        Some(Self::new(&[("STOKE_SANDBOX", "L2"), ("STOKE_BWRAP", bwrap.to_str().unwrap())]))
    }

    fn new(env: &[(&str, &str)]) -> Self {
        Self::by(&[], env)
    }

    /// A stack started through a program that becomes it.
    fn by(prefix: &[String], env: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let stack = api::start_as(prefix, dir.path(), &["--slots", "2"], env);
        let _ = stack.stoke_ok(&["deploy", &api::handler("hostile.py")]);
        let api = Api::of(&stack);
        Self { stack, api, dir }
    }

    /// Checks that the handler found no capability.
    fn has_no_capability(&self, user: &Value) {
        let none = json!("0000000000000000");
        for set in ["CapPrm", "CapEff", "CapBnd"] {
            assert_eq!(user[set], none, "{set}: {user}\n{}", self.stack.log_tail());
        }
        assert_eq!(user["NoNewPrivs"], "1", "{user}");
    }

    async fn attempt(&self, attempt: &str, what: &str) -> Value {
        let job = self.api.submit("hostile", json!({"attempt": attempt, "what": what})).await;
        self.api.ended(&job).await
    }

    async fn got(&self, attempt: &str, what: &str) -> Value {
        let job = self.attempt(attempt, what).await;
        assert_eq!(job["state"], "succeeded", "{attempt}: {job}");
        job["result"].clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn at_l2_a_hostile_handler_gets_nowhere() {
    let Some(prison) = Prison::at_l2() else { return };
    let secret = prison.dir.path().join("secret");
    std::fs::write(&secret, "of the worker").unwrap();
    let secret = secret.to_str().unwrap();

    // Its worker's token and files, and other tenants' files, are not visible.
    assert_eq!(prison.got("token", "jt_").await, json!([]));
    for path in [secret, "/etc/shadow", "/root/.bashrc", "/proc/1/environ", "/proc/2/root/etc/shadow"] {
        let got = prison.got("read", path).await;
        let got = got.as_str().unwrap();
        assert!(got.contains("Error") || !got.contains("of the worker") && !got.contains("root:"), "{path}: {got}");
        assert!(path.starts_with("/proc") || got.contains("Error"), "{path}: {got}");
    }
    // There is no network either.
    let api = prison.stack.url.strip_prefix("http://").unwrap();
    for address in [api, "169.254.169.254:80", "1.1.1.1:53"] {
        let got = prison.got("connect", address).await;
        assert!(got.as_str().unwrap().contains("Error"), "{address}: {got}");
    }
    // It cannot change the files that it shares with others.
    for path in [secret, "/usr/bin/true", "/etc/passwd", "/sys/kernel/uevent_helper", "main.py"] {
        let got = prison.got("write", path).await;
        assert!(got.as_str().unwrap().contains("Error"), "{path}: {got}");
    }
    let poisoned = prison.got("environment", "").await;
    assert!(poisoned.as_str().unwrap().contains("Error"), "{poisoned}");
    // Processes of others cannot be killed or inspected.
    let worker = prison.stack.workers()[0];
    let killed = prison.got("signal", &worker.to_string()).await;
    assert!(killed.as_str().unwrap().starts_with("ProcessLookupError"), "{killed}");
    assert!(process::alive(worker));
    let traced = prison.got("trace", "").await;
    assert!(traced.as_str().unwrap().starts_with("0 of "), "{traced}");
    // Memory that looks like a disk is bounded.
    let filled = prison.got("memory", "").await;
    assert_eq!(filled, json!("OSError 28"));
}

#[tokio::test(flavor = "multi_thread")]
async fn at_l2_a_fork_bomb_stops_and_its_neighbour_goes_on() {
    let Some(prison) = Prison::at_l2() else { return };
    let bomb = prison.api.submit("hostile", json!({"attempt": "forks"})).await;
    let _ = prison.stack.stoke_ok(&["deploy", &api::handler("slow.py")]);
    let neighbour = prison.api.submit("slow", json!({"n": 1})).await;
    assert_eq!(prison.api.ended(&neighbour).await["state"], "succeeded");
    let ended = prison.api.ended(&bomb).await;
    let children = ended["result"]["children"].as_u64().unwrap_or_else(|| panic!("{ended}"));
    assert!((100..5_000).contains(&children), "{ended}");
    assert_eq!(ended["result"]["refusal"], "BlockingIOError");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_fills_the_disk_is_stopped_at_its_share() {
    let prison = Prison::new(&[("STOKE_SCRATCH_BYTES", "67108864")]);
    let ended = prison.attempt("fill", "").await;
    assert_eq!(ended["error"]["message"], "the handler used more than 64 MiB of scratch space", "{ended}");
    // Its leftovers are gone.
    assert!(prison.got("connect", "127.0.0.1:9").await.as_str().unwrap().contains("Error"));
}

#[tokio::test(flavor = "multi_thread")]
async fn at_l2_no_link_leads_a_result_out_and_nothing_outlives_its_job() {
    let Some(prison) = Prison::at_l2() else { return };
    let left = prison.got("outlive", "").await;
    // The process ends a moment after the runner has nothing to do.
    let is_there = || !prison.stack.children(left.as_str().unwrap()).is_empty();
    for _ in 0..1_000 {
        if !is_there() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(!is_there());
    // The folder of its input's files is writable; the folders of other jobs are beside it.
    let note = prison.dir.path().join("note.txt");
    std::fs::write(&note, "quiet").unwrap();
    let _ = prison.stack.stoke_ok(&["deploy", &api::handler("shout.py")]);
    let file = format!("text={}", note.display());
    let out = prison.dir.path().join("out");
    let _ = prison.stack.stoke_ok(&["submit", "shout", "--file", &file, "--wait", "--out", out.to_str().unwrap()]);
    assert_eq!(std::fs::read_to_string(out.join("loud.txt")).unwrap(), "QUIET");
    let stolen = prison.attempt("link", "/etc/passwd").await;
    assert_eq!(stolen["error"]["code"], "bad_output", "{stolen}");
    assert!(stolen["result"].is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn at_l1_files_and_debuggers_are_kept_away_without_namespaces() {
    let prison = Prison::new(&[("STOKE_SANDBOX", "L1")]);
    let secret = prison.dir.path().join("secret");
    std::fs::write(&secret, "of the worker").unwrap();
    let secret = secret.to_str().unwrap();
    assert_eq!(prison.got("token", "jt_").await, json!([]));
    for attempt in ["read", "write"] {
        let got = prison.got(attempt, secret).await;
        assert!(got.as_str().unwrap().contains("Error"), "{attempt}: {got}");
    }
    assert!(prison.got("environment", "").await.as_str().unwrap().contains("Error"));
    assert!(prison.got("trace", "").await.as_str().unwrap().starts_with("0 of "));
    let api = prison.stack.url.strip_prefix("http://").unwrap();
    assert_eq!(prison.got("connect", api).await, json!("PermissionError 1"));
}

/// A Unix socket's path has at most 107 bytes.
#[tokio::test(flavor = "multi_thread")]
async fn at_every_level_processes_of_a_handler_connect_to_sockets_in_its_temporary_folder() {
    let at = |level| Some(Prison::new(&[("STOKE_SANDBOX", level)]));
    for prison in [at("L0"), at("L1"), Prison::at_l2()].into_iter().flatten() {
        let _ = prison.stack.stoke_ok(&["deploy", &api::handler("processes.py")]);
        let job = prison.api.ended(&prison.api.submit("processes", json!({})).await).await;
        let expected = json!({"fits": true, "is_home": true, "total": 6, "fork": 42, "spawn": 42, "forkserver": 42});
        assert_eq!(job["result"], expected, "{job}");
    }
}

/// CUDA does not start in a process that may not name its threads.
#[tokio::test(flavor = "multi_thread")]
async fn at_l1_only_a_handler_with_a_gpu_names_its_threads_in_proc() {
    let (stack, _dir) = api::stack(&["--workers", "0"]);
    let api = Api::of(&stack);
    for object in ["on_gpu", "on_cpu"] {
        let _ = stack.stoke_ok(&["deploy", &format!("{}:{object}", api::handler("threads.py"))]);
    }
    let gpu = StandIn::new([FakeGpu::of_mib(8 * 1024)]).unwrap();
    let library = gpu.path().to_string_lossy();
    let _worker = stack.start_worker("desk", &[("LD_LIBRARY_PATH", &library), ("STOKE_SANDBOX", "L1")]);
    for (endpoint, thread, child) in [("on-gpu", "written", 0), ("on-cpu", "PermissionError", 1)] {
        let job = api.ended(&api.submit(endpoint, json!({})).await).await;
        let refused = "PermissionError";
        let expected = json!({"thread": thread, "child": child, "worker": refused, "kernel": refused});
        assert_eq!(job["result"], expected, "{endpoint}: {job}");
    }
}

/// Landlock does not check the path of a socket. Listening sockets are out of reach nevertheless, and Redis accepts no
/// command without its password.
#[tokio::test(flavor = "multi_thread")]
async fn at_l1_no_handler_is_a_client_of_redis() {
    let prison = Prison::new(&[("STOKE_SANDBOX", "L1")]);
    let socket = prison.dir.path().join("redis/redis.sock");
    if !socket.exists() {
        // In the other topologies Redis is not the stack's own.
        return;
    }
    let got = prison.got("redis", socket.to_str().unwrap()).await;
    let got = got.as_str().unwrap();
    assert!(got.starts_with("-NOAUTH") || got.contains("Error"), "{got}");
    for holds_it in ["secrets.json", "stack.json", "redis/redis.conf"] {
        let path = prison.dir.path().join(holds_it);
        assert!(path.exists(), "{holds_it}");
        let got = prison.got("read", path.to_str().unwrap()).await;
        assert!(got.as_str().unwrap().contains("Error"), "{holds_it}: {got}");
    }
}

/// At every level, root's rights end before the handler begins.
#[tokio::test(flavor = "multi_thread")]
async fn as_root_no_handler_is_root() {
    if !nix::unistd::Uid::effective().is_root() {
        return;
    }
    let at = |level| Some(Prison::new(&[("STOKE_SANDBOX", level)]));
    for prison in [at("L0"), at("L1"), Prison::at_l2()].into_iter().flatten() {
        let user = prison.got("user", "").await;
        assert!(user["uid"].as_u64().unwrap() >= 50_000, "{user}");
        assert_eq!((&user["gid"], &user["groups"]), (&user["uid"], &json!([])), "{user}");
        prison.has_no_capability(&user);
        for path in ["/etc/shadow", "/etc/gshadow"] {
            let got = prison.got("read", path).await;
            assert!(got.as_str().unwrap().contains("Error"), "{path}: {got}");
        }
        // Landlock does not check changes of permissions, owners and times.
        let outside = tempfile::tempdir().unwrap();
        let open = outside.path().join("open");
        std::fs::set_permissions(outside.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::write(&open, "everybody's to read").unwrap();
        for path in ["/", "/usr/bin/true", "/etc/passwd", prison.dir.path().to_str().unwrap(), open.to_str().unwrap()] {
            let got = prison.got("rights", path).await;
            assert_eq!(got.as_str().unwrap().matches("Error").count(), 3, "{path}: {got}");
        }
    }
}

/// A root worker names the rights that it cannot give up, and gives up the rest.
#[tokio::test(flavor = "multi_thread")]
async fn as_root_without_users_to_give_handlers_have_no_capability() {
    if !nix::unistd::Uid::effective().is_root() {
        return;
    }
    let without = ["setpriv", "--bounding-set", "-setuid", "--"].map(str::to_owned);
    let dir = tempfile::tempdir().unwrap();
    let mut check = Command::new(&without[0]);
    check.args(&without[1..]).arg(stoke_binary()).args(["worker", "check", "--json"]);
    check.env("STOKE_SANDBOX", "L0").env("STOKE_DATA_DIR", dir.path());
    let output = check.output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let sandbox = found["checks"].as_array().unwrap().iter().find(|finding| finding["what"] == "sandbox").unwrap();
    let said = sandbox["found"].as_str().unwrap();
    assert!(said.starts_with("L0; handlers run as the worker's user without its capabilities"), "{said}");
    assert!(said.contains("a separate user: ") && said.contains("cannot switch to its own user"), "{said}");

    let prison = Prison::by(&without, &[("STOKE_SANDBOX", "L0")]);
    let user = prison.got("user", "").await;
    assert_eq!(user["uid"], 0, "{user}");
    prison.has_no_capability(&user);
    assert!(prison.stack.log().contains("without its capabilities"), "{}", prison.stack.log_tail());
}

#[tokio::test(flavor = "multi_thread")]
async fn at_l1_without_a_network_no_unix_socket_is_reached_by_its_name() {
    let prison = Prison::new(&[("STOKE_SANDBOX", "L1")]);
    let everybodys = tempfile::tempdir().unwrap();
    std::fs::set_permissions(everybodys.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let (stream, datagram) = (everybodys.path().join("stream"), everybodys.path().join("datagram"));
    let listener = std::os::unix::net::UnixListener::bind(&stream).unwrap();
    let receiver = std::os::unix::net::UnixDatagram::bind(&datagram).unwrap();
    listener.set_nonblocking(true).unwrap();
    receiver.set_nonblocking(true).unwrap();
    for path in [&stream, &datagram] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
        let got = prison.got("unix", path.to_str().unwrap()).await;
        let (pair, named) = got.as_array().unwrap().split_last().unwrap();
        assert_eq!(pair, "still here");
        assert!(named.iter().all(|way| way == "PermissionError 1"), "{got}");
    }
    assert!(listener.accept().is_err() && receiver.recv(&mut [0; 16]).is_err());
}

/// Changes that a run makes to its endpoint's folders do not affect where the worker writes another run's files.
#[tokio::test(flavor = "multi_thread")]
async fn no_run_leads_the_files_of_another_out() {
    let prisons = [Some(Prison::new(&[("STOKE_SANDBOX", "L1")])), Prison::at_l2()];
    for prison in prisons.into_iter().flatten() {
        let (text, target) = (prison.dir.path().join("text"), prison.dir.path().join("written"));
        std::fs::write(&text, "of the input").unwrap();
        let file = format!("file={}", text.display());
        let said =
            prison.stack.stoke_ok(&["submit", "hostile", "--input", r#"{"attempt": ""}"#, "--file", &file, "--wait"]);
        assert_eq!(said.trim(), r#""of the input""#);
        let jobs = prison.api.get("/v1/jobs").await;
        let first = jobs["jobs"][0]["id"].as_str().unwrap_or_else(|| panic!("{jobs}"));
        let job = prison.api.get(&format!("/v1/jobs/{first}")).await;
        let id = job["input"]["file"]["$file"].as_str().unwrap_or_else(|| panic!("{job}"));
        let what = format!("{id} {}", target.display());
        let attack = prison.api.submit("hostile", json!({"attempt": "exchange", "what": what})).await;
        for _ in 0..20 {
            let input = json!({"attempt": "", "file": {"$file": id}});
            let job = prison.api.submit("hostile", input).await;
            let _ = prison.api.ended(&job).await;
            assert!(!target.exists());
        }
        let _ = prison.got("enough", "").await;
        let attack = prison.api.ended(&attack).await;
        assert_eq!(attack["state"], "succeeded", "{attack}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_handler_writes_a_line_of_the_log() {
    let prison = Prison::new(&[]);
    let line = "2026-01-01T00:00:00Z  INFO forged";
    let failed = prison.attempt("forge", line).await;
    assert_eq!(failed["error"]["class"], format!("hostile.Oops\n{line}"), "{failed}");
    let log = prison.stack.log();
    assert!(log.contains("attempt failed"), "{log}");
    assert!(!log.lines().any(|logged| logged.trim_start().starts_with(line)), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn at_l1_every_kind_runs() {
    let prison = Prison::new(&[("STOKE_SANDBOX", "L1")]);
    for kind in ["python", "cog", "runpod", "server", "command"] {
        let folder = prison.dir.path().join(kind);
        let folder = folder.to_str().unwrap();
        let _ = prison.stack.stoke_ok(&["init", folder, "--kind", kind]);
        let _ = prison.stack.stoke_ok(&["deploy", folder, "--name", kind]);
        let result = prison.stack.stoke_ok(&["submit", kind, "--input", r#"{"name": "world"}"#, "--wait"]);
        assert!(result.contains("Hello, world!"), "{kind}: {result}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn at_l0_a_worker_says_that_it_does_not_isolate() {
    let prison = Prison::new(&[("STOKE_SANDBOX", "L0")]);
    assert!(prison.stack.log_tail().contains("HANDLERS ARE NOT ISOLATED"), "{}", prison.stack.log_tail());
    let hosts = prison.got("read", "/etc/hostname").await;
    assert_eq!(hosts.as_str().unwrap(), std::fs::read_to_string(Path::new("/etc/hostname")).unwrap());
}
