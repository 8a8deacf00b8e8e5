//! Weights from their author's server to the handler that opens them, with a server in between that disconnects,
//! changes and refuses.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use stokehold_tests::stack::Stack;

use crate::api::{self, Api};

/// Larger than one range of a download.
const SIZE: usize = 40 << 20;

#[derive(Default)]
struct Shelf {
    files: BTreeMap<String, Vec<u8>>,
    /// Number of responses that still have to break off in the middle.
    cuts: u32,
    /// Whether responses are held back until they are released.
    is_held: bool,
    /// The required token, if any.
    token: Option<String>,
    /// `<method> <path> <first byte of the range>` of each request.
    asked: Vec<String>,
}

/// A file server that supports ranges. Files below `/<org>/<model>/resolve/c0ffee` are models of a hub; those below
/// `/simple` are a package index.
#[derive(Clone)]
pub(crate) struct Origin {
    pub(crate) url: String,
    shelf: Arc<Mutex<Shelf>>,
}

impl Origin {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = Self { url: format!("http://{}", listener.local_addr().unwrap()), shelf: Arc::default() };
        let served = origin.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let origin = served.clone();
                // A client that disconnects does not matter to this test.
                std::thread::spawn(move || origin.serve(connection).ok());
            }
        });
        origin
    }

    pub(crate) fn put(&self, path: &str, bytes: &[u8]) {
        self.shelf.lock().unwrap().files.insert(path.to_owned(), bytes.to_vec());
    }

    fn with<T>(&self, look: impl FnOnce(&mut Shelf) -> T) -> T {
        look(&mut self.shelf.lock().unwrap())
    }

    fn serve(&self, mut connection: TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(connection.try_clone()?).lines();
        loop {
            let Some(request) = lines.next().transpose()? else { return Ok(()) };
            let mut headers = BTreeMap::new();
            for line in lines.by_ref() {
                let line = line?;
                let Some((name, value)) = line.split_once(": ") else { break };
                headers.insert(name.to_lowercase(), value.to_owned());
            }
            let mut words = request.split(' ');
            let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let from: usize = headers
                .get("range")
                .and_then(|range| range.strip_prefix("bytes=")?.split('-').next()?.parse().ok())
                .unwrap_or(0);
            let to: Option<usize> = headers.get("range").and_then(|range| range.rsplit('-').next()?.parse().ok());
            let (head, body, is_cut) = self.answer(method, path, &headers, from, to);
            while self.with(|shelf| shelf.is_held) {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            connection.write_all(head.as_bytes())?;
            if method != "HEAD" {
                connection.write_all(if is_cut { &body[..body.len() / 2] } else { &body })?;
            }
            if is_cut {
                return connection.shutdown(std::net::Shutdown::Both);
            }
        }
    }

    fn answer(
        &self,
        method: &str,
        path: &str,
        headers: &BTreeMap<String, String>,
        from: usize,
        to: Option<usize>,
    ) -> (String, Vec<u8>, bool) {
        let mut shelf = self.shelf.lock().unwrap();
        shelf.asked.push(format!("{method} {path} {from}"));
        let empty = |status: &str| (format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n"), Vec::new(), false);
        let shown = headers.get("authorization").map(String::as_str);
        if shelf.token.as_ref().is_some_and(|token| shown != Some(&format!("Bearer {token}"))) {
            return empty("401 Unauthorized");
        }
        let repository = path.strip_prefix("/api/models/").unwrap_or_default();
        if repository.contains("/revision/") {
            return json_answer(&json!({"sha": "c0ffee"}));
        }
        if let Some((model, _)) = repository.split_once("/tree/c0ffee") {
            let files = format!("/{model}/resolve/c0ffee/");
            let listed = shelf.files.iter().filter_map(|(name, bytes)| {
                let name = name.strip_prefix(&files)?;
                let lfs = name.ends_with(".safetensors").then(|| json!({"oid": sha256(bytes), "size": bytes.len()}));
                Some(json!({"type": "file", "path": name, "size": bytes.len(), "lfs": lfs}))
            });
            return json_answer(&Value::Array(listed.collect()));
        }
        let asked = path.replace("/resolve/main/", "/resolve/c0ffee/");
        let Some(bytes) = shelf.files.get(&asked).cloned() else { return empty("404 Not Found") };
        if method == "HEAD" && asked.contains("/resolve/") {
            let facts = format!(
                "x-repo-commit: c0ffee\r\nx-linked-etag: \"{}\"\r\nx-linked-size: {}",
                sha256(&bytes),
                bytes.len()
            );
            return (format!("HTTP/1.1 302 Found\r\ncontent-length: 0\r\n{facts}\r\n\r\n"), Vec::new(), false);
        }
        let is_cut = shelf.cuts > 0 && bytes.len() > 1_000;
        shelf.cuts -= u32::from(is_cut);
        let to = to.map_or(bytes.len(), |to| to + 1).min(bytes.len());
        let part = bytes[from..to].to_vec();
        let kind = if path.ends_with('/') { "text/html" } else { "application/octet-stream" };
        let facts = format!(
            "content-type: {kind}\r\ncontent-length: {}\r\netag: \"{}\"\r\naccept-ranges: bytes",
            part.len(),
            sha256(&bytes)
        );
        let head = if headers.contains_key("range") {
            format!("HTTP/1.1 206 Partial\r\ncontent-range: bytes {from}-{}/{}\r\n{facts}\r\n\r\n", to - 1, bytes.len())
        } else {
            format!("HTTP/1.1 200 OK\r\n{facts}\r\n\r\n")
        };
        (head, part, is_cut)
    }
}

fn json_answer(value: &Value) -> (String, Vec<u8>, bool) {
    let body = value.to_string().into_bytes();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
    (head, body, false)
}

/// SHA-256 computed by the system's program: this crate hashes nothing else.
fn sha256(bytes: &[u8]) -> String {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let said = Command::new("sha256sum").arg(file.path()).output().unwrap();
    String::from_utf8(said.stdout).unwrap()[..64].to_owned()
}

/// A file as a library would have saved it.
fn safetensors(size: usize, seed: u8) -> Vec<u8> {
    let header = format!(r#"{{"w":{{"dtype":"U8","shape":[{size}],"data_offsets":[0,{size}]}}}}"#);
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.bytes());
    bytes.extend((0..size).map(|n| seed.wrapping_add((n / 4_096 + n) as u8)));
    bytes
}

fn folder(at: &Path, manifest: &str) -> String {
    fs::create_dir_all(at).unwrap();
    fs::copy(api::handler("weighty.py"), at.join("main.py")).unwrap();
    fs::write(at.join("stoke.toml"), manifest).unwrap();
    at.to_string_lossy().into_owned()
}

fn said(output: &Output) -> String {
    String::from_utf8([output.stdout.as_slice(), output.stderr.as_slice()].concat()).unwrap()
}

async fn end(api: &Api, endpoint: &str, input: Value) -> Value {
    api.ended(&api.submit(endpoint, input).await).await
}

/// A stack whose worker has a separate empty cache, and sandboxes its handlers.
fn stack(dir: &Path) -> Stack {
    let cache = dir.join("cache").to_string_lossy().into_owned();
    api::start_with(&dir.join("data"), &[], &[("STOKE_SANDBOX", "auto"), ("STOKE_CACHE_DIR", &cache)])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_that_is_cut_three_times_goes_on_and_a_wrong_one_is_never_served() {
    let (dir, origin) = (tempfile::tempdir().unwrap(), Origin::start());
    let stack = stack(dir.path());
    let (bytes, url) = (safetensors(SIZE, 1), format!("{}/model.safetensors", origin.url));
    let sha = sha256(&bytes);
    origin.put("/model.safetensors", &bytes);
    let package = folder(&dir.path().join("a"), &format!("name = \"a\"\n[[weights]]\nsource = \"{url}\"\n"));
    let _ = stack.stoke_ok(&["deploy", &package]);
    assert!(fs::read_to_string(dir.path().join("a/weights.lock")).unwrap().contains(&sha));

    origin.with(|shelf| (shelf.cuts, shelf.asked) = (3, Vec::new()));
    let api = Api::of(&stack);
    let first = end(&api, "a", json!({"touch": true})).await;
    assert_eq!(first["result"]["files"], json!({"model.safetensors": sha}), "{first}");
    assert!(first["timing"]["weights_ms"].as_u64().unwrap() > 0, "{first}");
    assert_eq!(first["result"]["refused"].as_array().unwrap().len(), 1, "nobody writes to what others share");
    let (cuts, asked) = origin.with(|shelf| (shelf.cuts, shelf.asked.clone()));
    assert_eq!(cuts, 0);
    let resumed = asked.iter().filter(|one| !one.ends_with(" 0") && !one.ends_with(&format!(" {}", 32 << 20)));
    assert_eq!(resumed.count(), 3, "each went on where it was cut: {asked:?}");

    // Another endpoint with the same file fetches nothing, and gets the same file.
    let package = folder(
        &dir.path().join("b"),
        &format!("name = \"b\"\n[[weights]]\nsource = \"{url}\"\npath = \"deep/m.safetensors\"\nsha256 = \"{sha}\"\n"),
    );
    let _ = stack.stoke_ok(&["deploy", &package]);
    origin.with(|shelf| shelf.asked.clear());
    let second = end(&api, "b", json!({})).await;
    assert_eq!(second["result"]["files"], json!({"deep/m.safetensors": sha}));
    assert_eq!(second["result"]["inodes"], first["result"]["inodes"]);
    assert_eq!(origin.with(|shelf| shelf.asked.clone()), Vec::<String>::new());

    // The current file is not the pinned one.
    let other = safetensors(SIZE, 2);
    let wrong = format!("{}/other.safetensors", origin.url);
    origin.put("/other.safetensors", &bytes);
    let package = folder(&dir.path().join("c"), &format!("name = \"c\"\n[[weights]]\nsource = \"{wrong}\"\n"));
    origin.put("/other.safetensors", &safetensors(SIZE, 3));
    let _ = stack.stoke_ok(&["deploy", &package]);
    let pinned = sha256(&safetensors(SIZE, 3));
    origin.put("/other.safetensors", &other);
    let failed = end(&api, "c", json!({})).await;
    assert_eq!(failed["error"]["code"], "weights_failed", "{failed}");
    let message = failed["error"]["message"].as_str().unwrap();
    assert!(message.contains(&pinned) && message.contains(&sha256(&other)), "{message}");
    let kept: Vec<String> = fs::read_dir(dir.path().join("cache/weights"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains(&pinned))
        .collect();
    assert!(!kept.contains(&pinned), "{kept:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_this_machine_are_uploaded_and_pickles_are_looked_into() {
    let dir = tempfile::tempdir().unwrap();
    let stack = stack(dir.path());
    let api = Api::of(&stack);
    let models = dir.path().join("models");
    fs::create_dir(&models).unwrap();
    let bytes = safetensors(100_000, 4);
    fs::write(models.join("a.safetensors"), &bytes).unwrap();
    fs::write(models.join("tokens.json"), "{}").unwrap();
    let package = folder(&dir.path().join("here"), "name = \"here\"\n[[weights]]\nsource = \"file:../models\"\n");
    let _ = stack.stoke_ok(&["deploy", &package]);
    let there = end(&api, "here", json!({})).await;
    let expected = json!({"a.safetensors": sha256(&bytes), "tokens.json": sha256(b"{}")});
    assert_eq!(there["result"]["files"], expected, "{there}");
    let here: Value = serde_json::from_str(&stack.stoke_ok(&["run", &package, "--input", "{}"])).unwrap();
    assert_eq!(here["files"], expected);
    let package =
        folder(&dir.path().join("inside"), "name = \"inside\"\n[[weights]]\nsource = \"file:a.safetensors\"\n");
    fs::write(Path::new(&package).join("a.safetensors"), &bytes).unwrap();
    let version: Value = serde_json::from_str(&stack.stoke_ok(&["deploy", &package, "--json"])).unwrap();
    assert!(version["package_size_bytes"].as_u64().unwrap() < 10_000, "they are no part of the package: {version}");
    assert_eq!(end(&api, "inside", json!({})).await["result"]["files"], json!({"a.safetensors": sha256(&bytes)}));

    let pickles = dir.path().join("pickles");
    fs::create_dir(&pickles).unwrap();
    let script = "import os, pickle, sys
class Wicked:
    def __reduce__(self): return os.system, ('touch /tmp/wicked-ran',)
open(sys.argv[1] + '/clean.bin', 'wb').write(pickle.dumps({'w': [1.0, 2.0]}))
open(sys.argv[1] + '/wicked.bin', 'wb').write(pickle.dumps(Wicked()))";
    assert!(Command::new("python3").args(["-c", script]).arg(&pickles).status().unwrap().success());
    let source = |file: &str| format!("[[weights]]\nsource = \"file:../pickles/{file}\"\n");
    let package = folder(&dir.path().join("plain"), &format!("name = \"plain\"\n{}", source("clean.bin")));
    let deployed = stack.stoke(&["deploy", &package]);
    assert!(deployed.status.success() && said(&deployed).contains("looks like a pickle"), "{}", said(&deployed));
    let failed = end(&api, "plain", json!({})).await;
    assert_eq!(failed["error"]["code"], "weights_failed", "{failed}");
    assert!(failed["error"]["message"].as_str().unwrap().contains("allow_pickle"), "{failed}");
    let allowed = |name: &str, file: &str| {
        folder(&dir.path().join(name), &format!("name = \"{name}\"\nallow_pickle = true\n{}", source(file)))
    };
    let _ = stack.stoke_ok(&["deploy", &allowed("clean", "clean.bin")]);
    let clean = end(&api, "clean", json!({})).await;
    assert_eq!(clean["state"], "succeeded", "{clean}");
    let version = api.get("/v1/endpoints/clean").await;
    assert_eq!(version["demands"]["min_sandbox"], "L1", "only who shuts it in gets it");
    let _ = stack.stoke_ok(&["deploy", &allowed("wicked", "wicked.bin")]);
    let wicked = end(&api, "wicked", json!({})).await;
    let message = wicked["error"]["message"].as_str().unwrap();
    assert!(message.contains("wicked.bin") && message.contains("posix.system"), "{message}");
    assert!(!Path::new("/tmp/wicked-ran").exists());
    fs::write(
        Path::new(&allowed("loud", "clean.bin")).join("stoke.toml"),
        format!("name = \"loud\"\nnetwork = true\nallow_pickle = true\n{}", source("clean.bin")),
    )
    .unwrap();
    let refused = stack.stoke(&["deploy", &dir.path().join("loud").to_string_lossy()]);
    assert!(said(&refused).contains("/allow_pickle"), "{}", said(&refused));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_of_a_model_hub_is_pinned_to_its_commit_and_fetched_with_the_endpoints_own_token() {
    let (dir, origin) = (tempfile::tempdir().unwrap(), Origin::start());
    let stack = stack(dir.path());
    let model = safetensors(200_000, 5);
    for (name, bytes) in [
        ("model.safetensors", &model[..]),
        ("config.json", b"{\"a\": 1}"),
        ("pytorch_model.bin", b"the same, as a pickle"),
    ] {
        origin.put(&format!("/org/model/resolve/c0ffee/{name}"), bytes);
    }
    origin.with(|shelf| shelf.token = Some("hf_canary".to_owned()));
    let package = folder(
        &dir.path().join("hub"),
        "name = \"hub\"\nsecrets = [\"HF_TOKEN\"]\n[[weights]]\nsource = \"hf://org/model\"\n[[weights]]\nsource = \"hf://org/model@main/model.safetensors\"\npath = \"one.safetensors\"\n",
    );
    let deploy = |token: Option<&str>| {
        let mut command = stack.command(&["deploy", &package]);
        command.env("HF_ENDPOINT", &origin.url).env_remove("HF_TOKEN");
        command.envs(token.map(|token| ("HF_TOKEN", token))).output().unwrap()
    };
    let refused = deploy(None);
    assert!(!refused.status.success() && said(&refused).contains("HF_TOKEN"), "{}", said(&refused));
    let mut set = stack.command(&["secret", "set", "HF_TOKEN"]);
    let mut set = set.stdin(std::process::Stdio::piped()).spawn().unwrap();
    set.stdin.take().unwrap().write_all(b"hf_canary\n").unwrap();
    assert!(set.wait().unwrap().success());
    let deployed = deploy(Some("hf_canary"));
    assert!(deployed.status.success() && said(&deployed).contains("pytorch_model.bin"), "{}", said(&deployed));
    let lock = fs::read_to_string(dir.path().join("hub/weights.lock")).unwrap();
    assert!(lock.contains("hf://org/model@c0ffee/model.safetensors") && !lock.contains("hf_canary"), "{lock}");
    let done = end(&Api::of(&stack), "hub", json!({})).await;
    let expected = json!({
        "model.safetensors": sha256(&model), "config.json": sha256(b"{\"a\": 1}"), "one.safetensors": sha256(&model),
    });
    assert_eq!(done["result"]["files"], expected, "{done}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_works_for_others_while_weights_come_in() {
    let (dir, origin) = (tempfile::tempdir().unwrap(), Origin::start());
    let cache = dir.path().join("cache").to_string_lossy().into_owned();
    let env = [("STOKE_FAKE_GPUS", "24576"), ("STOKE_CACHE_DIR", cache.as_str())];
    let stack = api::start_with(&dir.path().join("data"), &["--slots", "2"], &env);
    origin.put("/model.safetensors", &safetensors(100_000, 6));
    let manifest =
        format!("name = \"large\"\nvram_gib = 20\n[[weights]]\nsource = \"{}/model.safetensors\"\n", origin.url);
    let _ = stack.stoke_ok(&["deploy", &folder(&dir.path().join("large"), &manifest)]);
    let other = dir.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(
        other.join("main.py"),
        "from stokehold import endpoint\n\n@endpoint(vram_gib=20)\ndef other() -> int: return 1\n",
    )
    .unwrap();
    let _ = stack.stoke_ok(&["deploy", &other.to_string_lossy()]);
    let api = Api::of(&stack);
    origin.with(|shelf| (shelf.is_held, shelf.asked) = (true, Vec::new()));
    let large = api.submit("large", json!({})).await;
    while origin.with(|shelf| shelf.asked.is_empty()) {
        // The worker is another process: its requests are all that is visible.
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let other = end(&api, "other", json!({})).await;
    assert_eq!(other["state"], "succeeded", "{other}");
    assert_eq!(api.get(&format!("/v1/jobs/{large}")).await["state"], "running");
    origin.with(|shelf| shelf.is_held = false);
    let large = api.ended(&large).await;
    assert_eq!(large["state"], "succeeded", "{large}");
}
