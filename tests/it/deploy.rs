//! The files of `deploy/`, as far as they can be tested without a separate machine: units that systemd accepts, files
//! that match their schemas, and commands that, started as written, make a stack that serves over TLS. `make
//! test-deploy` and `make images` test the rest.

mod sealed;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use stokehold_tests::documented;
use stokehold_tests::stack::stoke_binary;

use sealed::{Process, Sealed};

const DOMAIN: &str = "stokehold.example.com";

/// Programs of the distribution that this machine may not have.
const FOREIGN: [&str; 3] = ["/usr/bin/redis-server", "/usr/bin/caddy", "/usr/bin/prometheus"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Runs `stoke server install` into a folder.
fn installed(root: &Path, options: &[&str]) {
    let mut install = Command::new(stoke_binary());
    install
        .args(["server", "install", "--domain", DOMAIN, "--tls", "internal", "--port", "8443", "--root"])
        .arg(root)
        .args(options);
    let done = install.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Path of an optional tool. Prints a message if the tool is missing.
#[expect(clippy::print_stderr, reason = "who runs the tests is to know what was left out")]
fn tool(variable: &str) -> Option<PathBuf> {
    let found = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.exists());
    if found.is_none() {
        eprintln!("SKIPPED: {variable} names nothing that is there");
    }
    found
}

#[test]
fn the_units_of_an_installation_are_what_systemd_takes() {
    let root = tempfile::tempdir().unwrap();
    installed(root.path(), &["--autoscaler"]);
    let units = root.path().join("etc/systemd/system");
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]);
    for unit in fs::read_dir(&units).unwrap().map(|entry| entry.unwrap().path()) {
        let text = fs::read_to_string(&unit).unwrap();
        fs::write(&unit, FOREIGN.into_iter().fold(text, |text, program| text.replace(program, "/bin/true"))).unwrap();
        verify.arg(unit);
    }
    match verify.output() {
        Ok(verified) => assert!(verified.status.success() && verified.stderr.is_empty(), "{}", said(&verified)),
        Err(error) => eprintln!("SKIPPED: systemd-analyze: {error}"),
    }
}

#[test]
fn every_command_of_the_page_says_where_it_is_typed() {
    let blocks = documented::blocks(&repository().join("docs/how-to/deploy.md"));
    assert!(blocks.iter().all(|block| ["machine", "builder"].contains(&block.place.as_str())), "{blocks:?}");
    assert!(blocks.iter().any(|block| block.commands.contains("install --domain")), "{blocks:?}");
}

#[test]
fn the_services_of_an_installation_started_as_processes_serve_over_tls() {
    let Some(tools) = sealed::Tools::here() else { return };
    let root = tempfile::tempdir().unwrap();
    installed(root.path(), &["--monitoring=false"]);
    let processes = ["redis", "store", "api", "proxy"].map(|name| unit(root.path(), name));
    let settings = fs::read_to_string(root.path().join("etc/stokehold/stack.env")).unwrap();
    let sealed = Sealed {
        root: root.path(),
        hosts: &[DOMAIN],
        settings: &settings,
        url: format!("https://{DOMAIN}:8443"),
        authority: "/var/lib/stokehold-proxy/caddy/pki/authorities/local/root.crt",
    };
    sealed.serves(&tools, &processes);
}

/// A service according to its unit.
fn unit(root: &Path, name: &str) -> Process {
    let text = fs::read_to_string(root.join(format!("etc/systemd/system/stoke-{name}.service"))).unwrap();
    let all = |key: &str| -> Vec<String> {
        text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).map(str::to_owned).collect()
    };
    let folders = |key: &str, below: &str| -> Vec<String> {
        all(key).iter().flat_map(|line| line.split(' ')).map(|folder| format!("{below}/{folder}")).collect()
    };
    let environment = all("Environment");
    let environment = environment.iter().flat_map(|line| line.split(' ')).filter_map(|pair| pair.split_once('='));
    Process {
        name: name.to_owned(),
        // Packages install these elsewhere on machines that are not Debian.
        command: FOREIGN.into_iter().fold(all("ExecStart").remove(0), |line, program| {
            line.replace(program, program.rsplit('/').next().unwrap_or(program))
        }),
        environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        folders: [folders("StateDirectory", "/var/lib"), folders("RuntimeDirectory", "/run")].concat(),
        health: None,
    }
}

/// The environment with the tools that check the schemas.
fn schemas() -> Option<PathBuf> {
    tool("STOKE_TEST_MANIFESTS")
}

fn check(tool: &Path, arguments: &[&str], file: &Path) -> Output {
    Command::new(tool).args(arguments).arg(file).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn the_compose_file_and_the_manifests_are_what_their_schemas_allow() {
    let Some(bin) = schemas() else { return };
    let scratch = tempfile::tempdir().unwrap();
    let compose = (bin.join("check-jsonschema"), vec!["--builtin-schema", "vendor.compose-spec"]);
    let kubernetes = (bin.join("kubernetes-validate"), vec!["--strict", "--kubernetes-version", "1.33"]);
    let deploy = repository().join("deploy");
    let mut manifests = Vec::new();
    for folder in ["kubernetes", "kubernetes/workers", "kubernetes/samples"] {
        let files = fs::read_dir(deploy.join(folder)).unwrap().map(|entry| entry.unwrap().path());
        manifests.extend(files.filter(|path| path.extension().is_some_and(|extension| extension == "yaml")));
    }
    assert!(manifests.len() >= 8, "{manifests:?}");
    for ((tool, arguments), files, right, wrong) in [
        (compose, vec![deploy.join("compose.yaml")], "    image:", "    imag:"),
        (kubernetes, manifests, "metadata:", "metadatum:"),
    ] {
        for file in files {
            let checked = check(&tool, &arguments, &file);
            assert!(checked.status.success(), "{}: {}", file.display(), said(&checked));
            let broken = scratch.path().join("broken.yaml");
            fs::write(&broken, fs::read_to_string(&file).unwrap().replacen(right, wrong, 1)).unwrap();
            assert!(
                !check(&tool, &arguments, &broken).status.success(),
                "{}: a wrong member is accepted",
                file.display()
            );
        }
    }
}

#[test]
fn the_commands_of_the_compose_file_started_as_processes_serve_over_tls() {
    let (Some(tools), Some(bin)) = (sealed::Tools::here(), schemas()) else { return };
    let root = tempfile::tempdir().unwrap();
    let deploy = root.path().join("deploy");
    fs::create_dir_all(root.path().join("etc/caddy")).unwrap();
    let copied = Command::new("cp").arg("-R").arg(repository().join("deploy")).arg(&deploy).status().unwrap();
    assert!(copied.success());
    let _ = fs::remove_file(deploy.join(".env"));
    fs::copy(repository().join("Cargo.toml"), root.path().join("Cargo.toml")).unwrap();
    let made = Command::new(deploy.join("env.sh")).arg(DOMAIN).output().unwrap();
    assert!(made.status.success(), "{}", said(&made));
    assert!(
        !Command::new(deploy.join("env.sh")).arg(DOMAIN).output().unwrap().status.success(),
        "secrets are made once"
    );
    let text = fs::read_to_string(deploy.join(".env")).unwrap().replace("STOKE_TLS=\n", "STOKE_TLS=tls internal\n");
    let variables: BTreeMap<&str, &str> =
        text.lines().filter_map(|line| line.split_once('=')).filter(|(name, _)| !name.starts_with('#')).collect();

    let resolve = |variables: &BTreeMap<&str, &str>| {
        let mut python = Command::new(bin.join("python"));
        python.arg(repository().join("tests/it/deploy/variables.py")).arg(deploy.join("compose.yaml"));
        python.env_clear().envs(variables).output().unwrap()
    };
    let without = resolve(&BTreeMap::new());
    assert!(said(&without).contains("run deploy/env.sh"), "no secret has a default: {}", said(&without));
    let compose: Value = serde_json::from_slice(&resolve(&variables).stdout).unwrap();
    let caddyfile = fs::read_to_string(repository().join("deploy/containers/Caddyfile")).unwrap();
    // A process that does not start as root may not bind 443, and needs no redirect.
    let caddyfile = caddyfile.replace("{$STOKE_DOMAIN}", "{$STOKE_DOMAIN}:8443");
    let caddyfile =
        caddyfile.replace("\tadmin off\n", "\tadmin off\n\tskip_install_trust\n\tauto_https disable_redirects\n");
    fs::write(root.path().join("etc/caddy/Caddyfile"), caddyfile).unwrap();
    fs::create_dir_all(root.path().join("etc/stokehold")).unwrap();
    fs::copy(deploy.join("redis.conf"), root.path().join("etc/stokehold/redis.conf")).unwrap();
    let mut processes = ["redis", "store", "api", "proxy"].map(|name| service(&compose["services"][name], name));
    for process in &mut processes {
        for (name, value) in &mut process.environment {
            if name == "STOKE_PUBLIC_URL" || name == "STOKE_S3_PUBLIC_URL" {
                value.push_str(":8443");
            }
        }
    }
    let settings: Vec<String> =
        processes[2].environment.iter().map(|(name, value)| format!("{name}='{value}'")).collect();
    let sealed = Sealed {
        root: root.path(),
        hosts: &[DOMAIN, "redis", "store", "api"],
        settings: &settings.join("\n"),
        url: format!("https://{DOMAIN}:8443"),
        authority: "/data/caddy/pki/authorities/local/root.crt",
    };
    sealed.serves(&tools, &processes);
}

/// A service according to the compose file, in an image whose entry point is known.
fn service(service: &Value, name: &str) -> Process {
    let words = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    let is_ours = service["image"].as_str().unwrap().starts_with("localhost/stokehold-");
    let entry = if is_ours { vec![stoke_binary().display().to_string()] } else { Vec::new() };
    let command = if service["command"].is_null() { vec!["api".to_owned()] } else { words(&service["command"]) };
    let environment = service["environment"].as_object().unwrap().iter();
    let mut environment: BTreeMap<String, String> =
        environment.map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned())).collect();
    match name {
        "api" => environment.insert("STOKE_LISTEN".to_owned(), "0.0.0.0:7070".to_owned()),
        // The value that Caddy's image sets.
        "proxy" => environment.insert("XDG_DATA_HOME".to_owned(), "/data".to_owned()),
        _ => None,
    };
    let health = words(&service["healthcheck"]["test"]);
    Process {
        name: name.to_owned(),
        command: sealed::line(&[entry, command].concat()),
        environment: environment.into_iter().collect(),
        folders: vec!["/data".to_owned(), "/var/lib/stokehold/objects".to_owned()],
        health: match health.split_first() {
            Some((kind, rest)) if kind == "CMD-SHELL" => Some(rest.join(" ")),
            Some((_, rest)) => Some(sealed::line(rest)),
            None => None,
        },
    }
}
