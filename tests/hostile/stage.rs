//! The environment of attacks: stacks at each level, run by root or by an ordinary user, and their files.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use stokehold_tests::stack::{Stack, StackOptions, stoke_binary};

use crate::api::{self, Api};

/// A value that only its owner may read.
pub(crate) const CANARY: &str = "canary-7f3a91c2d4e8";

/// An ordinary user: the user `nobody`.
const UID: u32 = 65_534;

/// Whether this run is at full size.
pub(crate) fn is_full() -> bool {
    std::env::var_os("STOKE_FULL_SIZE").is_some_and(|value| !value.is_empty())
}

/// `full` at full size, else `quick`.
pub(crate) fn size(quick: usize, full: usize) -> usize {
    if is_full() { full } else { quick }
}

/// User of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// Root, with all capabilities.
    Root,
    /// Root as in containers: without the capability for namespaces and mounts.
    RootWithoutNamespaces,
    /// An ordinary user of a machine where all users may create user namespaces.
    User,
    /// An ordinary user of a machine where no user may create them.
    UserWithoutNamespaces,
}

impl Who {
    /// Whether it is root.
    pub(crate) fn is_root(self) -> bool {
        matches!(self, Self::Root | Self::RootWithoutNamespaces)
    }

    /// A command prefix that switches to the user and executes the following program.
    fn prefix(self) -> Vec<String> {
        let id = UID.to_string();
        let setpriv = ["setpriv", "--reuid", &id, "--regid", &id, "--clear-groups", "--"];
        let bwrap = bwrap();
        let without = [&bwrap, "--unshare-user", "--disable-userns", "--dev-bind", "/", "/", "--"];
        let words: Vec<&str> = match self {
            Self::Root => Vec::new(),
            Self::RootWithoutNamespaces => vec!["setpriv", "--bounding-set", "-sys_admin", "--"],
            Self::User if !is_root() => Vec::new(),
            Self::User => setpriv.to_vec(),
            Self::UserWithoutNamespaces if !is_root() => without.to_vec(),
            Self::UserWithoutNamespaces => [&setpriv[..], &without[..]].concat(),
        };
        words.into_iter().map(str::to_owned).collect()
    }

    /// A command that runs as this user.
    pub(crate) fn command(self, program: &str) -> Command {
        let prefix = self.prefix();
        let mut words = prefix.iter().map(String::as_str).chain([program]);
        let mut command = Command::new(words.next().expect("there is the program"));
        command.args(words);
        command
    }

    /// Why this machine lacks such a user; `None` if it has one.
    pub(crate) fn lacks(self) -> Option<String> {
        if self.is_root() && !is_root() {
            return Some("the tests do not run as root".to_owned());
        }
        let stoke = stoke_binary();
        let uv = std::env::var("STOKE_UV").unwrap_or_else(|_| "uv".to_owned());
        for program in [stoke.to_str()?, &uv] {
            let mut command = self.command(program);
            match command.arg("--version").env("HOME", "/nonexistent").output() {
                Ok(output) if output.status.success() => {}
                Ok(output) => {
                    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                    return Some(format!("{program} does not start for that user: {said}"));
                }
                Err(error) => return Some(format!("{program} does not start for that user: {error}")),
            }
        }
        None
    }

    /// Makes this user the owner of a file or a folder.
    pub(crate) fn give(self, path: &Path) {
        if !self.is_root() && is_root() {
            std::os::unix::fs::chown(path, Some(UID), Some(UID)).unwrap();
        }
    }
}

/// Whether the tests run as root.
pub(crate) fn is_root() -> bool {
    nix::unistd::Uid::effective().is_root()
}

/// The bubblewrap that the tests use.
pub(crate) fn bwrap() -> String {
    std::env::var("STOKE_TEST_BWRAP").unwrap_or_else(|_| "bwrap".to_owned())
}

/// Whether this machine has a bubblewrap that starts.
pub(crate) fn has_bwrap() -> bool {
    Command::new(bwrap()).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// A stack, and a folder beside its data.
pub(crate) struct Stage {
    pub(crate) stack: Stack,
    pub(crate) api: Api,
    /// The files of attackers and victims; the stack's data are in `data`.
    pub(crate) dir: tempfile::TempDir,
}

impl Stage {
    /// Starts a stack that `who` runs.
    pub(crate) fn start(who: Who, args: &[&str], env: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let data = dir.path().join("data");
        std::fs::create_dir(&data).unwrap();
        who.give(dir.path());
        who.give(&data);
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        let mut all = vec![
            ("STOKE_LEASE_MS".to_owned(), "3000".to_owned()),
            ("STOKE_EXTEND_EVERY_MS".to_owned(), "500".to_owned()),
        ];
        all.push(("STOKE_BWRAP".to_owned(), bwrap()));
        if who != Who::Root && is_root() {
            // Root's home, which only root may enter, is not used: neither its installed programs nor a cache.
            let name = if who.is_root() { "stokehold-hostile-root" } else { "stokehold-hostile-user" };
            let cache = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&cache).unwrap();
            who.give(&cache);
            all.push(("HOME".to_owned(), text(cache.clone())));
            all.push(("STOKE_CACHE_DIR".to_owned(), text(cache)));
            all.push(("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned()));
        }
        all.extend(env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        let stack = Stack::start_as(&who.prefix(), &data, &StackOptions { args, env: all });
        let api = Api::of(&stack);
        Self { stack, api, dir }
    }

    /// The folder of the stack's data.
    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// The API with another token.
    pub(crate) fn as_token(&self, token: &str) -> Api {
        Api::of(&self.stack).with_token(token)
    }

    /// The API of a new tenant, with these roles.
    pub(crate) async fn tenant(&self, name: &str, roles: &[&str]) -> Api {
        self.as_token(&self.tenant_token(name, roles).await)
    }

    /// A token of a tenant, which is created if necessary.
    pub(crate) async fn tenant_token(&self, name: &str, roles: &[&str]) -> String {
        let answer = self.api.request("POST", "/v1/tenants").json(&json!({"name": name})).send().await.unwrap();
        assert!(answer.status().is_success() || answer.status() == 409, "{}", answer.text().await.unwrap());
        self.token(&json!({"name": "attacker", "tenant": name, "roles": roles})).await
    }

    /// A new token.
    pub(crate) async fn token(&self, request: &Value) -> String {
        let answer = self.api.request("POST", "/v1/tokens").json(request).send().await.unwrap();
        let made: Value = answer.error_for_status().unwrap().json().await.unwrap();
        made["token"].as_str().unwrap().to_owned()
    }
}

/// A separate folder for a worker that `who` runs.
pub(crate) fn worker_folder(who: Who) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    who.give(dir.path());
    dir
}

/// `stoke worker run` with these arguments, run by `who`, without a gateway.
pub(crate) fn worker_command(who: Who, dir: &Path, sandbox: &str, args: &[&str]) -> Command {
    let mut worker = who.command(stoke_binary().to_str().unwrap());
    worker.arg("worker").args(args).current_dir(dir).stdin(std::process::Stdio::null());
    worker.env("STOKE_JOIN_TOKEN", format!("jt_{CANARY}"));
    worker.env("STOKE_DATA_DIR", dir).env("HOME", dir).env("STOKE_CACHE_DIR", dir);
    worker.env("STOKE_SANDBOX", sandbox).env("STOKE_BWRAP", bwrap());
    if args.first() != Some(&"check") {
        worker.env("STOKE_GATEWAY_URL", "http://127.0.0.1:9");
    }
    worker
}

/// The folder of the attackers' own files.
pub(crate) fn own(file: &str) -> String {
    api::root().join("tests/hostile").join(file).to_string_lossy().into_owned()
}

/// The JSON that `python3` prints when it runs this file.
pub(crate) fn python(file: &str, args: &[&str]) -> Value {
    let python = std::env::var("STOKE_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let output = Command::new(python).arg(own(file)).args(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{file}: {said}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{file}: {error}: {said}"))
}

/// The package of versions that never run.
const PACKAGE: &[u8] = b"not really a package";
const PACKAGE_SHA256: &str = "ad25bc0f144b930b9468833a0c80eaf41212e76ec10e170d7a7e16b6acff4078";

/// Uploads a package.
pub(crate) async fn put_package(api: &Api, sha256: &str, bytes: Vec<u8>) {
    let request = json!({"sha256": sha256, "size_bytes": bytes.len()});
    let answer = api.request("POST", "/v1/packages").json(&request).send().await.unwrap();
    let answer: Value = answer.error_for_status().unwrap().json().await.unwrap();
    if answer["exists"] == false {
        let mut put = reqwest::Client::new().put(answer["upload_url"].as_str().unwrap()).body(bytes);
        for (name, value) in answer["headers"].as_object().unwrap() {
            put = put.header(name, value.as_str().unwrap());
        }
        put.send().await.unwrap().error_for_status().unwrap();
    }
}

/// A version that never runs, with these members in addition to the common ones.
pub(crate) fn version(name: &str, members: Value) -> Value {
    let mut version = json!({"name": name, "package_sha256": PACKAGE_SHA256, "package_size_bytes": PACKAGE.len(),
        "entry": "main.py:main", "input_schema": {}});
    for (name, value) in members.as_object().unwrap() {
        version[name] = value.clone();
    }
    version
}

/// Deploys a version that never runs. Returns the status and the response.
pub(crate) async fn deploy(api: &Api, version: &Value) -> (u16, Value) {
    put_package(api, PACKAGE_SHA256, PACKAGE.to_vec()).await;
    let answer = api.request("POST", "/v1/endpoints").json(version).send().await.unwrap();
    let status = answer.status().as_u16();
    (status, answer.json().await.unwrap_or(Value::Null))
}
