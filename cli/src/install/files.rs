//! The files of an installation: pure functions from options to the text of each file.

use std::path::Path;

use anyhow::Result;

use super::answers::{self, Answers, Tls};
use super::secrets::{Settings, has_own_redis, has_own_store};
use crate::services::{unit, variables};

/// Path of the file with addresses and secrets, below the root.
pub(super) const SETTINGS: &str = "etc/stokehold/stack.env";

/// Folder of the operator's certificate. It always exists, because the unit of the proxy refers to it.
pub(super) const CERTIFICATES: &str = "etc/stokehold/tls";

/// Path of `stoke-admin`: `stoke` with the settings of this installation.
pub(super) const ADMIN: &str = "usr/local/sbin/stoke-admin";

/// Kernel settings, and the token with which Prometheus reads the API's metrics.
pub(super) const SYSCTL: &str = "etc/sysctl.d/60-stokehold.conf";
pub(super) const SCRAPE_TOKEN: &str = "etc/stokehold/prometheus/token";

const BY: &str = "stoke server install";

const REDIS: &str = "stoke-redis.service";
const STORE: &str = "stoke-store.service";
const API: &str = "stoke-api.service";
const PROXY: &str = "stoke-proxy.service";
const AUTOSCALER: &str = "stoke-autoscaler.service";
pub(super) const PROMETHEUS: &str = "stoke-prometheus.service";
const BACKUP: &str = "stoke-backup.timer";

/// Units in start order.
pub(super) const SERVICES: [&str; 7] = [REDIS, STORE, API, PROXY, AUTOSCALER, PROMETHEUS, BACKUP];

/// Path and text of every unit.
const UNITS: [(&str, &str); 8] = [
    ("etc/systemd/system/stoke-redis.service", include_str!("../../../deploy/systemd/stoke-redis.service")),
    ("etc/systemd/system/stoke-store.service", include_str!("../../../deploy/systemd/stoke-store.service")),
    ("etc/systemd/system/stoke-api.service", include_str!("../../../deploy/systemd/stoke-api.service")),
    ("etc/systemd/system/stoke-proxy.service", include_str!("../../../deploy/systemd/stoke-proxy.service")),
    ("etc/systemd/system/stoke-autoscaler.service", include_str!("../../../deploy/systemd/stoke-autoscaler.service")),
    ("etc/systemd/system/stoke-prometheus.service", include_str!("../../../deploy/systemd/stoke-prometheus.service")),
    ("etc/systemd/system/stoke-backup.service", include_str!("../../../deploy/systemd/stoke-backup.service")),
    ("etc/systemd/system/stoke-backup.timer", include_str!("../../../deploy/systemd/stoke-backup.timer")),
];

/// A file of an installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct File {
    /// Path below the root.
    pub(super) path: &'static str,
    pub(super) text: String,
    pub(super) mode: u32,
    /// Set when the operator owns the file: it is written only if missing.
    pub(super) is_yours: bool,
    /// Services that read it and are restarted when it changes.
    pub(super) readers: &'static [&'static str],
}

impl File {
    fn new(path: &'static str, text: impl Into<String>, mode: u32, readers: &'static [&'static str]) -> Self {
        Self { path, text: text.into(), mode, is_yours: false, readers }
    }

    fn yours(self) -> Self {
        Self { is_yours: true, ..self }
    }

    /// The text for display. Files that only root can read are hidden, except for the names of settings.
    pub(super) fn shown(&self) -> String {
        if self.mode & 0o077 != 0 {
            return self.text.clone();
        }
        if self.path != SETTINGS {
            return "(readable by root only)\n".to_owned();
        }
        let names = self.text.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name);
        names.map(|name| format!("{name}=(readable by root only)\n")).collect()
    }
}

/// Units to start.
pub(super) fn services(answers: &Answers, settings: &Settings) -> Vec<&'static str> {
    let wanted = |unit: &&str| match *unit {
        REDIS => has_own_redis(settings),
        STORE => has_own_store(settings),
        AUTOSCALER => answers.autoscaler,
        PROMETHEUS => answers.monitoring,
        BACKUP => answers.backup,
        _ => true,
    };
    SERVICES.into_iter().filter(wanted).collect()
}

/// All files, in the order in which they are written.
pub(super) fn files(
    answers: &Answers,
    settings: &Settings,
    program: &Path,
    redis_memory_bytes: u64,
) -> Result<Vec<File>> {
    let pairs = settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    // Units refer to a symlink that an upgrade moves. This file changes with its target, which restarts the services.
    let leads_to = program.canonicalize().unwrap_or_else(|_| program.to_owned());
    let release = format!("{} {}\n", env!("CARGO_PKG_VERSION"), leads_to.display());
    let mut files = vec![
        File::new("etc/stokehold/release", release, 0o644, &[STORE, API, AUTOSCALER]),
        File::new(answers::PATH, toml::to_string(answers)?, 0o644, &[]),
        File::new(SETTINGS, variables(BY, pairs)?, 0o600, &[STORE, API, AUTOSCALER]),
        File::new("etc/stokehold/redis.conf", redis_conf(redis_memory_bytes), 0o644, &[REDIS]),
        File::new("etc/stokehold/redis.local.conf", REDIS_LOCAL, 0o644, &[REDIS]).yours(),
        File::new("etc/stokehold/api.toml", include_str!("../../../deploy/install/api.toml"), 0o644, &[API]).yours(),
        File::new(
            "etc/stokehold/autoscaler.toml",
            include_str!("../../../deploy/install/autoscaler.toml"),
            0o644,
            &[AUTOSCALER],
        )
        .yours(),
        File::new("etc/stokehold/Caddyfile", caddyfile(answers, has_own_store(settings)), 0o644, &[PROXY]),
        File::new(
            "etc/stokehold/prometheus/prometheus.yml",
            include_str!("../../../deploy/install/prometheus.yml"),
            0o644,
            &[PROMETHEUS],
        )
        .yours(),
        File::new(
            "etc/stokehold/prometheus/rules/stokehold.yml",
            include_str!("../../../deploy/prometheus/rules/stokehold.yml"),
            0o644,
            &[PROMETHEUS],
        ),
        // Filled once the API runs.
        File::new(SCRAPE_TOKEN, "", 0o600, &[PROMETHEUS]).yours(),
        File::new(ADMIN, admin(program), 0o755, &[]),
        // Redis forks to rewrite its file. The kernel must not refuse the fork for memory that stays unused.
        File::new(SYSCTL, "vm.overcommit_memory = 1\n", 0o644, &[]),
    ];
    if let Some((certificate, key)) = &answers.certificate {
        files.push(File::new("etc/stokehold/tls/cert.pem", certificate, 0o600, &[PROXY]));
        files.push(File::new("etc/stokehold/tls/key.pem", key, 0o600, &[PROXY]));
    }
    for (path, text) in UNITS {
        files.push(File::new(path, unit(text, program)?, 0o644, readers(path)));
    }
    Ok(files)
}

/// The service that a unit file belongs to.
fn readers(path: &str) -> &'static [&'static str] {
    let of = |unit: &&str| path.ends_with(*unit);
    SERVICES.iter().position(of).map_or(&[], |at| &SERVICES[at..=at])
}

const REDIS_LOCAL: &str =
    "# Your Redis settings, e.g. maxmemory. They override redis.conf, which `stoke server install` rewrites.\n";

/// redis.conf: the common settings, the settings for one host, and an include of the operator's settings.
fn redis_conf(memory_bytes: u64) -> String {
    let (everywhere, host) =
        (include_str!("../../../deploy/redis.conf"), include_str!("../../../deploy/install/redis.host.conf"));
    let memory = format!("maxmemory {memory_bytes}");
    let everywhere: String = everywhere
        .lines()
        .map(|line| if line.starts_with("maxmemory ") { memory.as_str() } else { line })
        .flat_map(|line| [line, "\n"])
        .collect();
    format!("# Written by `{BY}`.\n{everywhere}\n{host}\ninclude /etc/stokehold/redis.local.conf\n")
}

/// The Caddyfile: TLS, then the bucket's path to the object store and the rest to the API. Metrics are not reachable
/// from outside.
fn caddyfile(answers: &Answers, has_store: bool) -> String {
    let email = answers.email.as_ref().map_or(String::new(), |email| format!("\temail {email}\n"));
    let tls = match answers.tls {
        Tls::Auto => String::new(),
        Tls::Internal => "\ttls internal\n".to_owned(),
        Tls::Own => "\ttls {$CREDENTIALS_DIRECTORY}/tls_cert.pem {$CREDENTIALS_DIRECTORY}/tls_key.pem\n".to_owned(),
    };
    // `stoke server install` installs the trust; the proxy has no right to.
    let trust = if answers.tls == Tls::Internal { "\tskip_install_trust\n" } else { "" };
    // With another port, nothing listens on port 80 to redirect from.
    let redirects = if answers.port == 443 { "" } else { "\tauto_https disable_redirects\n" };
    let store = if has_store {
        "\thandle /stokehold/* {\n\t\theader Content-Security-Policy \"sandbox; default-src 'none'\"\n\t\theader X-Content-Type-Options nosniff\n\t\treverse_proxy 127.0.0.1:7071\n\t}\n"
    } else {
        ""
    };
    format!(
        "# Written by `{BY}`.\n{{\n\tadmin off\n{email}{trust}{redirects}}}\n\n{domain}:{port} {{\n{tls}\thandle /metrics {{\n\t\trespond 404\n\t}}\n{store}\
         \thandle {{\n\t\treverse_proxy 127.0.0.1:7070\n\t}}\n}}\n",
        domain = answers.domain,
        port = answers.port,
    )
}

fn admin(program: &Path) -> String {
    format!(
        "#!/bin/sh\n# Written by `{BY}`: stoke with the addresses and secrets of this installation, e.g. `sudo stoke-admin token create --name me`.\n\
         set -eua\n. /{SETTINGS}\nSTOKE_URL=\"${{STOKE_URL:-$STOKE_PUBLIC_URL}}\"\nexec {} \"$@\"\n",
        program.display()
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::collections::BTreeSet;

    use super::super::secrets;
    use super::*;

    fn answers(change: &str) -> Answers {
        let text =
            "domain = 'a.example.com'\ntls = 'auto'\nport = 443\nmonitoring = true\nautoscaler = false\nbackup = false";
        let mut table: toml::Table = text.parse().unwrap();
        table.extend(change.parse::<toml::Table>().unwrap());
        table.try_into().unwrap()
    }

    fn all(answers: &Answers) -> (Settings, Vec<File>) {
        let settings = secrets::settings(answers, None, |_| None).unwrap();
        let files = files(answers, &settings, Path::new("/opt/stokehold/current/bin/stoke"), 1 << 30).unwrap();
        (settings, files)
    }

    #[test]
    fn secrets_stand_in_one_file_and_are_not_shown() {
        let (settings, files) = all(&answers("autoscaler = true"));
        for name in ["STOKE_TOKEN_KEY", "STOKE_S3_SECRET_ACCESS_KEY", "STOKE_BACKUP_KEY"] {
            let secret = &settings[name];
            assert!(secret.len() >= 64, "{name}");
            let holders: Vec<_> = files.iter().filter(|file| file.text.contains(secret.as_str())).collect();
            assert_eq!(holders.iter().map(|file| (file.path, file.mode)).collect::<Vec<_>>(), [(SETTINGS, 0o600)]);
            assert!(files.iter().all(|file| !file.shown().contains(secret.as_str())), "{name} is shown");
        }
        let certificate = Some(("certificate".to_owned(), "line\npadded==\n".to_owned()));
        let (_, files) = all(&Answers { certificate, ..answers("") });
        let key = files.iter().find(|file| file.path.ends_with("key.pem")).unwrap();
        assert_eq!((key.mode, key.shown().as_str()), (0o600, "(readable by root only)\n"));
    }

    #[test]
    fn only_what_is_wanted_is_started() {
        let started = |change: &str| {
            let answers = answers(change);
            services(&answers, &all(&Answers { backup: false, ..answers.clone() }).0)
        };
        assert_eq!(started(""), [REDIS, STORE, API, PROXY, PROMETHEUS]);
        assert_eq!(
            started("monitoring = false\nautoscaler = true\nbackup = true"),
            [REDIS, STORE, API, PROXY, AUTOSCALER, BACKUP]
        );
        let mut named = all(&answers("")).0;
        named.insert("STOKE_REDIS_URL".to_owned(), "redis://db".to_owned());
        named.insert("STOKE_S3_ENDPOINT_URL".to_owned(), "https://s3".to_owned());
        assert_eq!(services(&answers(""), &named), [API, PROXY, PROMETHEUS]);
    }

    #[test]
    fn redis_keeps_what_the_api_asks_for_and_the_operator_has_the_last_word() {
        let (_, files) = all(&answers(""));
        let text = &files.iter().find(|file| file.path.ends_with("redis.conf")).unwrap().text;
        for line in
            ["appendonly yes", "appendfsync always", "maxmemory-policy noeviction", "maxmemory 1073741824", "port 0"]
        {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        assert_eq!(text.lines().filter(|line| line.starts_with("maxmemory ")).count(), 1);
        assert_eq!(text.lines().last(), Some("include /etc/stokehold/redis.local.conf"));
    }

    #[test]
    fn the_proxy_ends_tls_and_hides_the_metrics() {
        let text = caddyfile(&answers("tls = 'own'\nport = 8443"), true);
        assert!(text.contains("a.example.com:8443 {\n\ttls {$CREDENTIALS_DIRECTORY}/tls_cert.pem "), "{text}");
        assert!(text.contains("handle /metrics {\n\t\trespond 404\n") && text.contains("admin off"), "{text}");
        assert!(!caddyfile(&answers(""), false).contains("7071"), "an S3 server of the operator's is not behind it");
    }

    #[test]
    fn every_service_is_started_again_by_its_own_unit_and_runs_the_program() {
        let (_, files) = all(&answers(""));
        let units: Vec<&File> = files.iter().filter(|file| file.path.starts_with("etc/systemd/system/")).collect();
        let names: BTreeSet<&str> = units.iter().filter_map(|file| file.path.rsplit('/').next()).collect();
        assert!(SERVICES.iter().all(|service| names.contains(service)), "{names:?}");
        for file in units {
            assert!(!file.text.contains("/usr/local/bin/stoke "), "{}", file.path);
            let own = file.path.rsplit('/').next().unwrap();
            assert_eq!(file.readers.first().is_some_and(|reader| *reader == own), SERVICES.contains(&own), "{own}");
        }
    }
}
