//! An autoscaler that dies between a rent request and its response: a process that is really killed, and a market that
//! does not respond.

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use stokehold_fake_vast::{Fault, KEY, Market, Options, Route, Rule, Server, Settings};
use stokehold_tests::stack::Stack;

use crate::api::{self, Api};

const KILLS: usize = 20;
/// Enough work for more instances than the maximum.
const JOBS: usize = 400;

/// Limits and timeouts of the autoscaler. No worker ever joins, because this market's instances run nothing.
const CONFIG: &str = "tick_ms = 300\n\
                      policy = { max_machines = 40, max_usd_per_hour = 100.0, min_reliability = 0.0, standard_target_s = 30.0, may_stop = false, max_idle_s = 5.0 }\n\
                      vast = { join_limit_s = 45, max_search_pages = 1, min_cuda = 0.0, min_inet_down_mbit = 0.0, min_duration_h = 0.0 }\n";

/// An autoscaler that is killed when this value is dropped.
struct Autoscaler(Child);

impl Autoscaler {
    fn start(mut command: Command) -> Self {
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Autoscaler {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(i32::try_from(self.0.id()).unwrap()), Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

/// Lets the fifteen seconds pass for which the killed leader keeps the lead.
fn its_lead_runs_out(redis: &mut redis::Connection) {
    let leads: Vec<String> = redis::cmd("KEYS").arg("*:lead").query(redis).unwrap();
    assert_eq!(leads.len(), 1, "{leads:?}");
    let _: u64 = redis::cmd("DEL").arg(leads).query(redis).unwrap();
}

fn rents(market: &Market) -> usize {
    market.calls().filter(|call| call.method == "PUT" && call.path.starts_with("/api/v0/asks/")).count()
}

/// The instances of the ledger. An API that is temporarily unavailable is asked again.
async fn machines(api: &Api) -> BTreeSet<String> {
    for _ in 0..100 {
        let answer = api.request("GET", "/v1/fleet").send().await.unwrap();
        if answer.status().is_success() {
            let fleet: Value = answer.json().await.unwrap();
            return fleet["machines"]
                .as_array()
                .unwrap()
                .iter()
                .map(|it| it["id"].as_str().unwrap().to_owned())
                .collect();
        }
        assert_eq!(answer.status(), 503, "{}", answer.text().await.unwrap());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the API does not come back");
}

/// Repeats `look` until it returns true. No signal crosses processes for this.
async fn until(what: &str, stack: &Stack, look: impl AsyncFn() -> bool) {
    for _ in 0..3_000 {
        if look().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{what}\n{}", stack.log_tail());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_autoscaler_that_is_killed_before_it_is_told_of_its_machine_loses_none_and_buys_none_twice() {
    let (stack, dir) = api::stack(&["--workers", "0"]);
    let api = Api::of(&stack);
    let _ = stack.stoke_ok(&["deploy", &api::handler("slow.py")]);
    let _ = api.submit_many("slow", (0..JOBS).map(|n| json!({"n": n, "seconds": 5}))).await;
    let settings = Settings { boot_s: (1.0, 1.0), ..Settings::calm() };
    let market = Server::start(Market::new(7, settings), Options::default()).await.unwrap();
    let config = dir.path().join("autoscaler.toml");
    std::fs::write(&config, CONFIG).unwrap();
    let read = |name: &str| -> Value {
        serde_json::from_str(&std::fs::read_to_string(dir.path().join(name)).unwrap()).unwrap()
    };
    let (at, secrets) = (read("stack.json"), read("secrets.json"));
    let redis_url = at["redis_url"].as_str().unwrap();
    let mut redis = redis::Client::open(redis_url).unwrap().get_connection().unwrap();
    let autoscaler = || {
        let mut command = stack.command(&["autoscaler", "run", "--config", &config.to_string_lossy()]);
        command.env("STOKE_REDIS_URL", redis_url);
        command.env("STOKE_REDIS_PREFIX", at["redis_prefix"].as_str().unwrap());
        command.env("STOKE_TOKEN_KEY", secrets["token_key"].as_str().unwrap());
        command.env("STOKE_GATEWAY_URL", &stack.url);
        command.env("STOKE_VAST_URL", market.url()).env("STOKE_VAST_API_KEY", KEY);
        Autoscaler::start(command)
    };

    for n in 0..KILLS {
        // One kill in two happens after the instance was created, the other with the call lost; the response never
        // arrives.
        let lost = if n % 2 == 0 { Fault::DropAfter { hold: true } } else { Fault::DropBefore { hold: true } };
        market.market().set_faults(vec![Rule::on(Route::Rent, lost)]);
        let before = rents(&market.market());
        let killed = autoscaler();
        let rented = market.wait_for(|market, _| (rents(market) > before).then_some(()));
        if tokio::time::timeout(Duration::from_secs(60), rented).await.is_err() {
            panic!("number {n} rents nothing: {}", api.get("/v1/fleet").await);
        }
        drop(killed);
        its_lead_runs_out(&mut redis);
    }
    let made = market.market().instances().count();
    assert!((1..=KILLS).contains(&made), "{made} were made");
    // From here on no more instances are needed.
    let cancelled =
        api.request("POST", "/v1/jobs/cancel").json(&json!({"filter": {"endpoint": "slow"}})).send().await.unwrap();
    let cancelled: Value = cancelled.json().await.unwrap();
    assert_eq!(cancelled["cancelled"], json!(JOBS), "{cancelled}");

    // The next autoscaler adopts or destroys every existing instance.
    market.market().set_faults(vec![]);
    let _last = autoscaler();
    let now_s = market.now_s();
    let labels = || -> BTreeSet<String> {
        let bills = market.market().invoice(market.now_s());
        let there: BTreeSet<u64> = market.market().instances().collect();
        bills.into_iter().filter(|bill| there.contains(&bill.instance)).filter_map(|bill| bill.label).collect()
    };
    until("a machine is not known", &stack, async || {
        let known = machines(&api).await;
        labels().iter().all(|label| label.rsplit(':').next().is_some_and(|id| known.contains(id)))
    })
    .await;
    // No worker joined and no instance is needed: all are returned.
    until("machines stay", &stack, async || {
        // Not one expression: the market serves nothing while this holds its lock.
        let left = market.market().instances().count();
        left == 0 && machines(&api).await.is_empty()
    })
    .await;
    let took_s = market.now_s() - now_s;
    assert!(took_s < 600.0, "{took_s} s until the last had gone");

    let bills = market.market().invoice(market.now_s());
    let labels: BTreeSet<_> = bills.iter().filter_map(|bill| bill.label.as_deref()).collect();
    assert_eq!(labels.len(), bills.len(), "no intent was bought twice: {labels:?}");
}
