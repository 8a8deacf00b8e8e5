//! Installation of a worker on a new machine: the script, run by the machine's own sh, and the archive.

use std::path::Path;
use std::process::Output;

use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use crate::stack::{PATIENCE, Stack, sha256};

/// Content of the archive: a worker that prints its arguments and its environment.
const FAKE: &str = "#!/bin/sh\necho \"called: $*\"\necho \"told: $STOKE_GATEWAY_URL $STOKE_JOIN_TOKEN $STOKE_DATA_DIR\"\n\
                    [ \"$2\" != check ] || exit \"${FAKE_CHECK:-0}\"\n";

const TOKEN: &str = "jt_verysecret";

struct Site {
    stack: Stack,
    dist: TempDir,
    home: TempDir,
}

impl Site {
    async fn start() -> Self {
        let dist = tempfile::tempdir().unwrap();
        let folder = dist.path().to_owned();
        let stack = Stack::start_with(|config| {
            config.worker_dist = Some(folder);
            config.public_url = "http://gateway.invalid".to_owned();
        })
        .await;
        Self { stack, dist, home: tempfile::tempdir().unwrap() }
    }

    /// Packs an archive as `make worker-dist` does, for this machine's architecture.
    async fn pack(&self) -> (String, Vec<u8>) {
        let folder = format!("stokehold-worker-{}-{}-linux", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
        let work = tempfile::tempdir().unwrap();
        let program = work.path().join(&folder).join("bin/stoke");
        std::fs::create_dir_all(program.parent().unwrap()).unwrap();
        std::fs::write(&program, FAKE).unwrap();
        let name = format!("{folder}.tar.gz");
        let script = format!("chmod +x {0}/bin/stoke && tar -czf {1}/{name} {0}", folder, self.dist.path().display());
        let made = Command::new("sh").args(["-c", &script]).current_dir(work.path()).status().await.unwrap();
        assert!(made.success());
        let bytes = std::fs::read(self.dist.path().join(&name)).unwrap();
        self.announce(&name, &sha256(&bytes));
        (name, bytes)
    }

    fn announce(&self, name: &str, sum: &str) {
        std::fs::write(self.dist.path().join(format!("{name}.sha256")), format!("{sum}  {name}\n")).unwrap();
    }

    /// Runs the script as `curl | sh` does.
    async fn install(&self, env: &[(&str, &str)]) -> Output {
        let line = format!("curl -fsSL {}/v1/worker/install.sh | sh", self.stack.url);
        let mut command = Command::new("sh");
        command
            .args(["-c", &line])
            .env_remove("STOKE_JOIN_TOKEN")
            .env("STOKE_GATEWAY_URL", &self.stack.url)
            .env("STOKE_PREFIX", self.home.path().join("stokehold"))
            .env("STOKE_START", "foreground")
            .envs(env.iter().copied())
            .kill_on_drop(true);
        tokio::time::timeout(PATIENCE, command.output()).await.unwrap().unwrap()
    }

    fn has(&self, path: &str) -> bool {
        Path::new(&self.home.path().join("stokehold").join(path)).exists()
    }
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[tokio::test]
async fn the_script_and_the_archive_need_no_token_and_hold_none() {
    let site = Site::start().await;
    let (name, bytes) = site.pack().await;
    let get = |path: &str| site.stack.client.get(format!("{}/v1/worker/{path}", site.stack.url)).send();
    let script = get("install.sh").await.unwrap();
    assert_eq!((script.status().as_u16(), &script.headers()["cache-control"]), (200, &"no-store".parse().unwrap()));
    let script = script.text().await.unwrap();
    for part in ["http://gateway.invalid", &name, &sha256(&bytes)] {
        assert!(script.contains(part), "{part} is not in:\n{script}");
    }
    let archive = get(&format!("archives/{name}")).await.unwrap();
    assert_eq!(archive.headers()["content-length"], bytes.len().to_string());
    assert_eq!(archive.bytes().await.unwrap(), bytes);
}

#[tokio::test]
async fn only_archives_are_served_and_their_lack_is_told() {
    let site = Site::start().await;
    let lack = site.stack.client.get(format!("{}/v1/worker/install.sh", site.stack.url)).send().await.unwrap();
    assert_eq!(lack.status(), 404);
    let lack: Value = lack.json().await.unwrap();
    assert!(lack["detail"].as_str().unwrap().contains("STOKE_WORKER_DIST"), "{lack}");
    let (name, _) = site.pack().await;
    std::fs::write(site.dist.path().join("other.tar.gz"), "not ours").unwrap();
    for path in [
        "other.tar.gz".to_owned(),
        format!("{name}.sha256"),
        format!("..%2F{name}"),
        "..%2F..%2Fetc%2Fpasswd".to_owned(),
    ] {
        let request = site.stack.get(&format!("/v1/worker/archives/{path}"));
        assert_eq!(site.stack.problem(request).await, (404, "not_found".to_owned()), "{path}");
    }
}

#[tokio::test]
async fn a_machine_is_checked_and_becomes_a_worker() {
    let site = Site::start().await;
    site.pack().await;
    let without = site.install(&[]).await;
    assert!(!without.status.success() && said(&without).contains("STOKE_JOIN_TOKEN"), "{}", said(&without));
    assert!(!site.has("releases"), "nothing is fetched before it is clear that it can be used");

    let done = site.install(&[("STOKE_JOIN_TOKEN", TOKEN)]).await;
    let lines = said(&done);
    assert!(done.status.success(), "{lines}");
    let calls: Vec<_> = lines.lines().filter_map(|line| line.strip_prefix("called: ")).collect();
    assert_eq!(calls, ["worker check", "worker run"], "{lines}");
    assert!(lines.contains(&format!("told: {} {TOKEN} /", site.stack.url)), "{lines}");

    let refused = site.install(&[("STOKE_JOIN_TOKEN", TOKEN), ("FAKE_CHECK", "1")]).await;
    assert!(!refused.status.success() && said(&refused).contains("STOKE_FORCE"), "{}", said(&refused));
    assert!(!said(&refused).contains("fetching"), "what is there is not fetched again");
    let forced = site.install(&[("STOKE_JOIN_TOKEN", TOKEN), ("FAKE_CHECK", "1"), ("STOKE_FORCE", "1")]).await;
    assert!(forced.status.success() && said(&forced).contains("called: worker run\n"), "{}", said(&forced));
}

#[tokio::test]
async fn an_archive_with_another_checksum_is_not_unpacked() {
    let site = Site::start().await;
    let (name, _) = site.pack().await;
    site.announce(&name, &sha256(b"another"));
    let refused = site.install(&[("STOKE_JOIN_TOKEN", TOKEN)]).await;
    assert!(
        !refused.status.success() && said(&refused).contains("the checksum of the archive does not match"),
        "{}",
        said(&refused)
    );
    assert!(!said(&refused).contains("called"), "nothing of it may run");
    assert!(!site.has("current") && !site.has("releases"));
    let left = std::fs::read_dir(site.home.path().join("stokehold")).unwrap().count();
    assert_eq!(left, 0, "what was fetched is deleted");
}

#[tokio::test]
async fn a_script_that_was_cut_runs_nothing() {
    let site = Site::start().await;
    site.pack().await;
    let script = site.stack.get("/v1/worker/install.sh").send().await.unwrap().text().await.unwrap();
    let whole = script.trim_end().len();
    for cut in [whole / 4, whole / 2, whole - 10] {
        let mut command = Command::new("sh");
        command.args(["-c", &script[..cut]]).env("STOKE_JOIN_TOKEN", TOKEN).env("STOKE_GATEWAY_URL", &site.stack.url);
        let _ = command.env("STOKE_PREFIX", site.home.path().join("stokehold")).output().await.unwrap();
        assert!(!site.has(""), "cut at {cut}");
    }
}
