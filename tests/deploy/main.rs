//! `make test-deploy`: docs/how-to/deploy.md, run in a bare Debian that boots its own systemd. Afterwards the test checks the
//! promises of the page: a reboot without warning, a repeated installation, and one that was removed and comes back.
//! Needs root.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test that prints figures"
)]

mod authority;
mod machine;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Instant;

use authority::Authority;
use machine::Machine;
use serde_json::Value;
use stokehold_tests::documented;

const DOMAIN: &str = "stokehold.example.com";

/// Repacks today's archive as that of a later release.
const ANOTHER_RELEASE: &str = r#"
old=$(basename /opt/stokehold/dist/stokehold-worker-*-linux.tar.gz .tar.gz)
new=$(echo "$old" | sed 's/^stokehold-worker-[0-9.]*-/stokehold-worker-9.9.9-/')
mkdir .new
tar -xzf "/opt/stokehold/dist/$old.tar.gz" -C .new
mv ".new/$old" ".new/$new"
tar -cf - -C .new "$new" | gzip -1 >"$new.tar.gz"
sha256sum "$new.tar.gz" >"$new.tar.gz.sha256"
rm -r .new"#;

/// Backups go into the machine's own store: their place is not what is tested.
const BACKUPS: &str = "
sudo STOKE_BACKUP_URL=s3://stokehold/backups stoke server install --backup
sudo systemctl start stoke-backup.service
systemctl is-active stoke-backup.timer";

/// Ports that must be free, because the machine shares this one's network.
const PORTS: [u16; 7] = [80, 443, 7070, 7071, 7072, 9090, 2019];

#[test]
fn a_bare_machine_becomes_a_durable_watched_stack_by_the_commands_of_the_page() {
    let named =
        |name: &str| PathBuf::from(std::env::var_os(name).unwrap_or_else(|| panic!("`make test-deploy` sets {name}")));
    let (bare, dist, caddy) = (named("STOKE_TEST_BARE"), named("STOKE_WORKER_DIST"), named("STOKE_TEST_CADDY"));
    let lacks = ["systemd-nspawn", "nsenter", "ip"].into_iter().find(|program| !on_path(program));
    if !nix::unistd::Uid::effective().is_root() || !bare.join("etc/os-release").exists() || lacks.is_some() {
        eprintln!(
            "SKIPPED: this needs root, systemd-nspawn (systemd-container), ip, and a distribution at {}",
            bare.display()
        );
        return;
    }
    for port in PORTS {
        drop(
            TcpListener::bind(("127.0.0.1", port))
                .unwrap_or_else(|error| panic!("port {port} is the machine's: {error}")),
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("machine");
    let authority = Authority::start(&caddy, &folder.path().join("authority"), DOMAIN);
    machine::furnish(&bare, &root, &Authority::hosts(DOMAIN), &authority.certificate);
    for archive in fs::read_dir(&dist).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
        fs::copy(&archive, machine::home(&root).join(archive.file_name().unwrap())).unwrap();
    }

    let mut machine = Machine::boot(&root);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/how-to/deploy.md");
    let blocks: Vec<_> = documented::blocks(&page).into_iter().filter(|block| block.place == "machine").collect();
    assert!(blocks.len() >= 10, "the page has lost its commands: {blocks:?}");
    let begun = Instant::now();
    for block in &blocks {
        let started = Instant::now();
        let printed = machine.types(&block.commands);
        println!(
            "docs/how-to/deploy.md:{}: {:.1} s\n{}\n{printed}",
            block.line,
            started.elapsed().as_secs_f64(),
            block.commands
        );
    }
    println!("the page was typed in {:.0} s", begun.elapsed().as_secs_f64());

    // The last line of the page removed it: it comes back with its data, and a repeated installation changes nothing.
    let _ = machine.types("sudo stoke server install");
    let again: Value =
        serde_json::from_str(&machine.types("sudo stoke server install --dry-run --json 2>/dev/null")).unwrap();
    let changes: Vec<_> = again["files"].as_array().unwrap().iter().filter(|file| file["changes"] == true).collect();
    assert!(changes.is_empty() && again["before"] == Value::Array(Vec::new()), "{changes:?}\n{}", again["before"]);
    let before = jobs(&machine);
    assert_eq!(before.as_array().unwrap().iter().filter(|job| job["state"] == "succeeded").count(), 1, "{before}");

    // An upgrade is step 1 with another archive, and the same command again; the new release runs afterwards.
    let _ = machine.types(ANOTHER_RELEASE);
    let step = blocks.iter().find(|block| block.commands.contains("sha256sum")).unwrap();
    let _ = machine.types(&step.commands);
    let _ = machine.types("sudo stoke server install");
    let runs = machine.types("sudo readlink /proc/$(systemctl show --property MainPID --value stoke-api)/exe");
    assert!(runs.contains("stokehold-worker-9.9.9-"), "{runs}");

    // The service makes and tests backups, as it is started every hour.
    let _ = machine.types(BACKUPS);
    let listed: Value =
        serde_json::from_str(&machine.types("sudo stoke-admin backup list --json 2>/dev/null")).unwrap();
    assert_eq!(listed["backups"].as_array().map(Vec::len), Some(1), "{listed}");

    // The power is cut, and returns.
    drop(machine);
    machine = Machine::boot(&root);
    let _ = machine.types("curl -fsS --retry 60 --retry-delay 1 --retry-all-errors $STOKE_URL/readyz");
    assert_eq!(jobs(&machine), before);
    let active = machine
        .types("systemctl is-active stoke-redis stoke-store stoke-api stoke-proxy stoke-prometheus stoke-autoscaler");
    assert!(active.lines().all(|line| line == "active"), "{active}");

    // Prometheus has the rules, and a token with access to the metrics of the installation.
    let rules = machine.types("curl -fsS http://127.0.0.1:9090/api/v1/rules");
    assert!(rules.contains("\"StokeholdQueueStuck\""), "{rules}");
    let figures = "curl -fsS 'http://127.0.0.1:9090/api/v1/query?query=stokehold_figures_timestamp_seconds' | grep -q '\"value\"'";
    let _ =
        machine.types(&format!("tries=0; until {figures}; do tries=$((tries + 1)); [ $tries -lt 120 ]; sleep 1; done"));

    let secrets =
        machine.types("sudo stat --format %a%U /etc/stokehold/stack.env; ! cat /etc/stokehold/stack.env 2>/dev/null");
    assert_eq!(secrets.trim(), "600root", "for root alone");
    let refused = machine.types(
        "for url in $STOKE_URL/metrics $STOKE_URL/stokehold/ http://127.0.0.1:7070/readyz; do curl -so /dev/null -w '%{http_code} ' $url; done",
    );
    assert_eq!(refused.trim(), "404 403 200", "metrics are hidden, and so is the bucket; the API is on loopback");
    let outside = machine.types("curl -so /dev/null -w '%{http_code}' http://stokehold.example.com:7070/readyz || :");
    assert_eq!(outside.trim(), "000", "only the proxy is seen from outside");
}

fn jobs(machine: &Machine) -> Value {
    let listed: Value = serde_json::from_str(&machine.types("stoke list --json 2>/dev/null")).unwrap();
    let jobs = listed["jobs"].as_array().unwrap_or_else(|| panic!("{listed}"));
    jobs.iter().map(|job| serde_json::json!({"id": job["id"], "state": job["state"]})).collect()
}

fn on_path(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).exists()))
}
