//! A machine made of namespaces, with its own files, processes and network, where services are started as written and
//! listen at their configured addresses.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use stokehold_tests::stack::stoke_binary;

use super::{said, tool};

/// Maximum time until a service serves, in tenths of a second.
const TRIES: u32 = 600;

/// Substitutes for the programs of packages and images.
pub(super) struct Tools {
    bwrap: PathBuf,
    caddy: PathBuf,
    redis: PathBuf,
    /// The client of the Redis server; not every package of a server has it.
    redis_client: Option<PathBuf>,
}

impl Tools {
    /// Finds the tools. Prints a message and returns `None` if one is missing.
    pub(super) fn here() -> Option<Self> {
        let found = |variable| fs::canonicalize(tool(variable)?).ok();
        let redis = found("STOKE_TEST_REDIS")?;
        let beside = |name| redis.parent().map(|folder| folder.join(name)).filter(|path| path.exists());
        Some(Self {
            redis_client: beside("valkey-cli").or_else(|| beside("redis-cli")),
            bwrap: found("STOKE_TEST_BWRAP")?,
            caddy: found("STOKE_TEST_CADDY")?,
            redis,
        })
    }
}

/// One service.
pub(super) struct Process {
    pub(super) name: String,
    /// The command line, as a shell reads it.
    pub(super) command: String,
    pub(super) environment: Vec<(String, String)>,
    /// Folders that must exist before it starts.
    pub(super) folders: Vec<String>,
    /// A command that must succeed once it serves.
    pub(super) health: Option<String>,
}

/// The environment of the services.
pub(super) struct Sealed<'a> {
    /// A folder whose `etc` is the services' own.
    pub(super) root: &'a Path,
    /// Host names that resolve to the machine itself.
    pub(super) hosts: &'a [&'a str],
    /// The settings of an operator's `stoke`, as a shell reads them.
    pub(super) settings: &'a str,
    pub(super) url: String,
    /// The CA certificate of the front, which clients must trust.
    pub(super) authority: &'a str,
}

impl Sealed<'_> {
    /// Starts the services, and lets a client use them.
    ///
    /// # Panics
    /// If a service fails. The message contains everything that was printed.
    pub(super) fn serves(&self, tools: &Tools, processes: &[Process]) {
        let etc = self.root.join("etc");
        let write = |name: &str, text: &str| fs::write(etc.join(name), text).unwrap();
        write("hosts", &format!("127.0.0.1 localhost {}\n", self.hosts.join(" ")));
        write("passwd", "root:x:0:0:root:/root:/bin/sh\n");
        write("client.py", include_str!("client.py"));
        write("settings", &format!("set -a\n{}\nset +a\n", self.settings));
        write("run.sh", &self.script(tools, processes));
        let done = self.bwrap(tools).args(["sh", "/etc/run.sh"]).output().unwrap();
        assert!(done.status.success() && said(&done).lines().any(|line| line == "served"), "{}", said(&done));
    }

    fn script(&self, tools: &Tools, processes: &[Process]) -> String {
        let stoke = stoke_binary();
        let mut script =
            "set -eu\nmkdir -p /logs /root /tmp\ntrap 'tail -n 20 /logs/*' EXIT\n. /etc/settings\n".to_owned();
        for Process { name, command, environment, folders, health } in processes {
            let pairs: Vec<String> =
                environment.iter().map(|(name, value)| format!("{name}={}", quoted(value))).collect();
            script.push_str(&folders.iter().map(|folder| format!("mkdir -p {folder}\n")).collect::<String>());
            script.push_str(&format!("(export {} HOME=/root; exec {command}) >/logs/{name} 2>&1 &\n", pairs.join(" ")));
            let can_ask = |health: &&String| tools.redis_client.is_some() || !health.contains("valkey-cli");
            if let Some(health) = health.as_ref().filter(can_ask) {
                let environment = pairs.join(" ");
                script.push_str(&until(&format!("(export {environment} HOME=/root; {health}) >/dev/null 2>&1")));
            }
        }
        script.push_str(&until(&format!(
            "curl -fsS --cacert {} {}/readyz >/dev/null 2>/logs/last",
            self.authority, self.url
        )));
        script.push_str(&format!(
            "token=$({} token create --name client 2>/dev/null)\npython3 /etc/client.py {} {} \"$token\"\ntrap - EXIT\n",
            stoke.display(),
            self.url,
            self.authority
        ));
        script
    }

    fn bwrap(&self, tools: &Tools) -> Command {
        let mut bwrap = Command::new(&tools.bwrap);
        bwrap.args([
            "--unshare-all",
            "--die-with-parent",
            "--as-pid-1",
            "--proc",
            "/proc",
            "--dev",
            "/dev",
            "--tmpfs",
            "/tmp",
        ]);
        bwrap.args(["--bind"]).arg(self.root.join("etc")).arg("/etc").args(["--ro-bind", "/usr", "/usr"]);
        // Trusted certificates: programs do not start without any.
        for folder in ["/etc/ssl", "/etc/pki"].into_iter().filter(|folder| Path::new(folder).is_dir()) {
            fs::create_dir_all(self.root.join(&folder[1..])).unwrap();
            bwrap.args(["--ro-bind", folder, folder]);
        }
        for folder in ["bin", "sbin", "lib", "lib64"] {
            let path = Path::new("/").join(folder);
            match fs::read_link(&path) {
                Ok(target) => bwrap.arg("--symlink").arg(target).arg(path),
                Err(_) => bwrap.arg("--ro-bind-try").arg(&path).arg(&path),
            };
        }
        let mut programs: BTreeMap<&str, PathBuf> = BTreeMap::from([
            ("redis-server", tools.redis.clone()),
            ("valkey-server", tools.redis.clone()),
            ("caddy", tools.caddy.clone()),
            ("stoke", fs::canonicalize(stoke_binary()).unwrap()),
        ]);
        programs.extend(tools.redis_client.clone().map(|client| ("valkey-cli", client)));
        for (name, program) in programs {
            // Beside the folder that it was built with, for programs that find libraries relative to their own path.
            let folder = program.parent().unwrap();
            if !folder.starts_with("/usr") {
                bwrap.arg("--ro-bind").arg(folder).arg(folder);
            }
            bwrap.arg("--symlink").arg(&program).arg(format!("/programs/{name}"));
        }
        bwrap.env_clear().env("PATH", "/programs:/usr/sbin:/usr/bin:/sbin:/bin");
        bwrap
    }
}

/// Repeats a command until it succeeds.
fn until(command: &str) -> String {
    format!("tries=0; until {command}; do tries=$((tries + 1)); [ $tries -lt {TRIES} ]; sleep 0.1; done\n")
}

/// Quotes words for a shell.
pub(super) fn line(words: &[String]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
