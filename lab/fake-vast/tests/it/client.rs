//! The official command line client, unchanged, against the stand-in. It always exits with 0, so the tests check its
//! output and its requests.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use stokehold_fake_vast::{Call, KEY, Listing, Market, Options, Server, Settings};
use tempfile::TempDir;
use tokio::process::Command;

const LIMIT: Duration = Duration::from_secs(120);

struct Client {
    server: Server,
    home: TempDir,
    seen: usize,
}

impl Client {
    async fn start(cards: u32) -> Self {
        let listings = (0..cards.div_ceil(4)).map(|_| Listing { num_gpus: 4, ..Listing::default() }).collect();
        let settings = Settings {
            machines: 0,
            listings,
            boot_s: (0.0, 0.0),
            restart_s: (0.0, 0.0),
            stop_s: 0.0,
            ..Settings::calm()
        };
        let server = Server::start(Market::new(1, settings), Options::default()).await.unwrap();
        Self { server, home: tempfile::tempdir().unwrap(), seen: 0 }
    }

    /// The output of a command, and its calls except for the two that precede every command.
    async fn run(&mut self, arguments: &[&str]) -> (String, Vec<Call>) {
        let program = std::env::var("STOKE_TEST_VASTAI").expect("`make test` names the client of Vast.ai");
        let home = self.home.path();
        let folder = |name: &str| home.join(name);
        let mut command = Command::new(program);
        command.args(arguments).env_clear().stdin(Stdio::null()).kill_on_drop(true);
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command.env("VAST_URL", self.server.url()).env("VAST_API_KEY", KEY).env("VASTAI_NO_UPDATE_CHECK", "1");
        command.env("HOME", home).env("XDG_CONFIG_HOME", folder("config")).env("XDG_CACHE_HOME", folder("cache"));
        command.env("XDG_STATE_HOME", folder("state"));
        let output = tokio::time::timeout(LIMIT, command.output()).await.unwrap().unwrap();
        let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(!errors.contains("Traceback"), "{errors}");
        let calls: Vec<Call> = self.server.market().calls().cloned().collect();
        let new = calls[self.seen..].iter().filter(|call| !is_prelude(call)).cloned().collect();
        self.seen = calls.len();
        (text.into_owned(), new)
    }

    /// Runs a command that prints JSON and makes one call.
    async fn json(&mut self, arguments: &[&str]) -> (Value, Call) {
        let (text, mut calls) = self.run(&[arguments, &["--raw"]].concat()).await;
        assert_eq!(calls.len(), 1, "{calls:?}\n{text}");
        (serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")), calls.remove(0))
    }

    /// Runs a command that changes something with one successful call.
    async fn does(&mut self, arguments: &[&str]) -> (String, String, Value) {
        let (text, mut calls) = self.run(arguments).await;
        assert_eq!(calls.len(), 1, "{calls:?}\n{text}");
        let call = calls.remove(0);
        assert_eq!(call.status, 200, "{call:?}\n{text}");
        (call.method, call.path, call.body)
    }

    fn status(&self, id: u64) -> Value {
        let path = format!("/api/v0/instances/{id}/");
        let request = stokehold_fake_vast::Request::new("GET", &path, KEY, &Value::Null);
        let mut aside = self.server.market().clone();
        aside.handle(self.server.now_s(), &request).value()["instances"]["actual_status"].clone()
    }
}

fn is_prelude(call: &Call) -> bool {
    call.path == "/api/v0/gpu_names/unique/" || call.path == "/api/v0/users/current"
}

fn ids(rows: &Value) -> Vec<u64> {
    rows.as_array().unwrap().iter().map(|row| row["id"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn the_official_client_searches_rents_and_destroys() {
    let mut client = Client::start(8).await;
    let query = "num_gpus=1 gpu_name=RTX_4090 gpu_ram>=24 duration>=2 geolocation in [SE,US] dph<=0.5";
    let search = ["search", "offers", query, "-o", "dph", "--limit", "20", "--storage", "40"];
    let (offers, call) = client.json(&search).await;
    assert_eq!(ids(&offers).len(), 8);
    assert_eq!((call.method.as_str(), call.path.as_str()), ("POST", "/api/v0/bundles/"));
    assert_eq!((&call.body["num_gpus"], &call.body["type"]), (&json!({"eq": "1"}), &json!("on-demand")));
    assert_eq!(call.header("authorization"), Some("Bearer ..."));
    let (bids, call) =
        client.json(&["search", "offers", "-t", "bid", "-n", "gpu_name in [\"RTX 4090\",\"RTX 3090\"]"]).await;
    assert_eq!((&call.body["type"], &bids[0]["dph_base"]), (&json!("bid"), &bids[0]["min_bid"]));
    let (newer, call) = client.json(&["search", "offers", "--new", "num_gpus=2"]).await;
    assert_eq!((ids(&newer).len(), call.path.as_str()), (4, "/api/v0/search/asks/"));

    let asks: Vec<String> = ids(&offers).iter().map(u64::to_string).collect();
    let env = "-e A=1 -p 8000:8000";
    let create =
        ["create", "instance", &asks[0], "--image", "ubuntu:22.04", "--disk", "20", "--label", "w1", "--env", env];
    let more = ["--onstart-cmd", "echo hi", "--ssh", "--direct", "--cancel-unavail"];
    let (made, call) = client.json(&[&create[..], &more[..]].concat()).await;
    let first = made["new_contract"].as_u64().unwrap();
    assert_eq!((&call.body["runtype"], &call.body["price"]), (&json!("ssh_direc ssh_proxy"), &Value::Null));
    let bid = ["create", "instance", &asks[1], "--image", "img:1", "--bid_price", "0.25", "--label", "w2", "--raw"];
    let args = ["--onstart-cmd", "bash", "--args", "-c", "run worker"];
    let (text, calls) = client.run(&[&bid[..], &args[..]].concat()).await;
    let second = serde_json::from_str::<Value>(&text).unwrap()["new_contract"].as_u64().unwrap();
    let body = &calls[0].body;
    assert_eq!(
        (&body["price"], &body["runtype"], &body["args"]),
        (&json!(0.25), &json!("args"), &json!(["-c", "run worker"]))
    );

    let (row, _) = client.json(&["show", "instance", &first.to_string()]).await;
    assert_eq!((&row["label"], &row["extra_env"]["A"], &row["is_bid"]), (&json!("w1"), &json!("1"), &json!(false)));
    let (rows, call) = client.json(&["show", "instances", "--label", "w2", "--status", "running"]).await;
    assert_eq!(
        (ids(&rows), &rows[0]["is_bid"], call.path.as_str()),
        (vec![second], &json!(true), "/api/v1/instances/")
    );
    let (user, _) = client.run(&["show", "user", "--raw"]).await;
    let credit = serde_json::from_str::<Value>(&user).unwrap()["credit"].as_f64().unwrap();
    assert!((99.0..=100.0).contains(&credit), "{credit}");

    let one = second.to_string();
    let path = format!("/api/v0/instances/{second}/");
    let done = client.does(&["label", "instance", &one, "renamed"]).await;
    assert_eq!(done, ("PUT".into(), path.clone(), json!({"label": "renamed"})));
    let done = client.does(&["change", "bid", &one, "--price", "0.3"]).await;
    assert_eq!(done.2, json!({"client_id": "me", "price": 0.3}));
    assert_eq!(client.does(&["stop", "instance", &one]).await.2, json!({"state": "stopped"}));
    assert_eq!(client.status(second), "stopped");
    assert_eq!(client.does(&["start", "instance", &one]).await.2, json!({"state": "running"}));
    assert_eq!(client.status(second), "running");
    client.server.market().write_log(second, "first\nsecond\n".into());
    let (text, calls) = client.run(&["logs", &one, "--tail", "1"]).await;
    assert!(text.contains("second") && !text.contains("first"), "{text}");
    assert_eq!((&calls[0].body, calls.last().unwrap().status), (&json!({"tail": "1"}), 200));

    assert_eq!(client.does(&["destroy", "instance", &one, "-y"]).await, ("DELETE".into(), path, json!({})));
    let charges = client.run(&["show", "invoices-v1", "--charges", "--raw"]).await.0;
    assert!(
        charges.contains(&format!("instance-{first}")) && charges.contains(&format!("instance-{second}")),
        "{charges}"
    );
}

#[tokio::test]
async fn the_official_client_reads_every_page_and_destroys_many() {
    let mut client = Client::start(32).await;
    let (offers, _) = client.json(&["search", "offers", "num_gpus=1", "--limit", "30"]).await;
    let asks: Vec<String> = ids(&offers).iter().map(u64::to_string).collect();
    assert_eq!(asks.len(), 30);
    let words: Vec<&str> = ["create", "instances"].into_iter().chain(asks.iter().map(String::as_str)).collect();
    let (_, path, body) = client.does(&[&words[..], &["--image", "x", "--label", "pool"]].concat()).await;
    assert_eq!((path.as_str(), body["ids"].as_array().unwrap().len()), ("/api/v0/asks/bulk/", 30));

    let (text, calls) = client.run(&["show", "instances", "--raw"]).await;
    let rows = ids(&serde_json::from_str(&text).unwrap());
    assert_eq!((rows.len(), calls.len()), (30, 2), "two pages");
    let limits: Vec<_> = calls.iter().map(|call| call.query.iter().any(|(name, _)| name == "after_token")).collect();
    assert_eq!(limits, [false, true]);
    let (quiet, _) = client.run(&["show", "instances", "-q"]).await;
    assert_eq!(quiet.split_whitespace().count(), 30);

    let gone: Vec<String> = rows.iter().map(u64::to_string).collect();
    let words: Vec<&str> =
        ["destroy", "instances"].into_iter().chain(gone.iter().map(String::as_str)).chain(["-y"]).collect();
    let (method, path, body) = client.does(&words).await;
    assert_eq!((method.as_str(), path.as_str(), &body["instance_ids"]), ("DELETE", "/api/v0/instances/", &json!(rows)));
    assert_eq!(client.server.market().instances().count(), 0);
}
