//! The simulated provider of a storm, with its actual state, which can differ from the state that an autoscaler reads.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use serde_json::Value;
use stokehold_fake_vast::{self as fake, Act, Bill, Call, Change, Delivery, Happened, Market, Rule, Status, in_usd};
use stokehold_queue::{Clock, ManualClock};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

use super::fleet::Fleet;
use super::planted;
use crate::observe::RawState;
use crate::providers::vast::VastSettings;
use crate::providers::vast::transport::{Answer, Request, Transport, TransportError};
use crate::rental_ledger::memory::MemoryLedger;
use crate::secret::Secret;
use crate::sync::lock;

/// Start of the simulation, unix milliseconds.
const BEGAN_MS: u64 = 1_800_000_000_000;

/// Time in which a machine without a ledger entry is destroyed after it becomes visible.
const ORPHAN_S: f64 = 600.0;

/// Time in which a machine that does not serve is destroyed after its creation, with a margin for a destroy that fails
/// and is repeated.
const UNSERVING_S: f64 = 900.0 + 300.0;

/// Settings of Vast.ai in the simulation.
pub(super) fn settings() -> VastSettings {
    let settings = toml::from_str::<toml::Table>(crate::config::DEFAULT).unwrap().remove("vast").unwrap();
    let settings: VastSettings = settings.try_into().unwrap();
    VastSettings {
        api_key: Secret::new(fake::KEY),
        image: "stokehold/worker".to_owned(),
        min_cuda: 0.0,
        min_compute_capability: 0.0,
        min_inet_down_mbit: 0.0,
        min_duration_h: 0.0,
        verified_only: false,
        datacenter_only: false,
        ..settings
    }
}

/// Limits of what exists at once.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) machines: usize,
    pub(super) usd_per_hour: f64,
}

/// The provider.
pub(super) struct Cloud {
    market: Mutex<Market>,
    clock: ManualClock,
    began: Instant,
    ledger: Arc<MemoryLedger>,
    /// Number of rent requests by ID of the machine.
    asked: Mutex<BTreeMap<String, usize>>,
    /// Whether its list is empty in every way that the API allows.
    is_bare: AtomicBool,
    wrong: Mutex<Vec<String>>,
}

impl Cloud {
    pub(super) fn clock(&self) -> Clock {
        Clock::Manual(self.clock.clone())
    }

    /// The current time, seconds. Advances the shared clock to tokio's paused clock.
    pub(super) fn now_s(&self) -> f64 {
        let elapsed_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap();
        self.clock.advance_ms((BEGAN_MS + elapsed_ms).saturating_sub(self.clock.now_ms()));
        self.clock.now_ms() as f64 / 1e3
    }

    pub(super) fn set_faults(&self, rules: Vec<Rule>) {
        lock(&self.market).set_faults(rules);
    }

    pub(super) fn set_bare(&self, is_bare: bool) {
        self.is_bare.store(is_bare, Ordering::Relaxed);
    }

    pub(super) fn happened(&self) -> Vec<Happened> {
        let now_s = self.now_s();
        lock(&self.market).advance(now_s)
    }

    pub(super) fn rented(&self) -> usize {
        lock(&self.asked).len()
    }

    /// Applies an act of the market that no API call can cause.
    pub(super) fn act(&self, act: &Act) {
        let now_s = self.now_s();
        lock(&self.market).act(now_s, act);
    }

    /// The provider's bills.
    pub(super) fn invoice(&self) -> Vec<Bill> {
        let now_s = self.now_s();
        lock(&self.market).invoice(now_s)
    }

    /// The longest time that an instance existed without running, seconds.
    pub(super) fn longest_rest_s(&self) -> f64 {
        let (mut rests, mut longest_ms) = (BTreeMap::new(), 0);
        for change in lock(&self.market).history() {
            if let Some(since_ms) = rests.get(&change.instance) {
                longest_ms = longest_ms.max(change.at_ms - since_ms);
            }
            match change.status {
                Some(Status::Stopped | Status::Exited) => drop(rests.insert(change.instance, change.at_ms)),
                _ => drop(rests.remove(&change.instance)),
            }
        }
        longest_ms as f64 / 1e3
    }

    /// The calls since `at_s` that request a change: `PUT` and `DELETE`.
    pub(super) fn changes_since(&self, at_s: f64) -> Vec<Call> {
        let market = lock(&self.market);
        market.calls().filter(|call| call.at_s >= at_s && matches!(&*call.method, "PUT" | "DELETE")).cloned().collect()
    }

    /// The existing instances, from the provider's internal state.
    pub(super) fn instances(&self) -> Vec<Value> {
        let now_s = self.now_s();
        let state =
            lock(&self.market).handle(now_s, &fake::Request::new("GET", "/_fake/state", "", &Value::Null)).value();
        state["instances"].as_array().unwrap().clone()
    }

    /// Handles a call. A rent must be in the ledger before it is requested, and must be requested once.
    fn handle(&self, request: &Request) -> fake::Answer {
        let now_s = self.now_s();
        let path = &request.path;
        if self.is_bare.load(Ordering::Relaxed) && path.starts_with(stokehold_vast::path::LIST) {
            let none = r#"{"success":true,"instances_found":0,"total_instances":0,"next_token":null,"instances":[]}"#;
            return fake::Answer {
                headers: vec![("Content-Type".into(), "application/json".into())],
                ..fake::Answer::text(200, none)
            };
        }
        if path.contains("/asks/") {
            let label = request.body.as_ref().and_then(|body| body["label"].as_str()).unwrap_or_default();
            let id = id_of(label);
            if !self.ledger.rows().machines.contains_key(id) {
                lock(&self.wrong).push(format!("{id} was asked for and is written down nowhere"));
            }
            let mut asked = lock(&self.asked);
            let times = asked.entry(id.to_owned()).or_default();
            *times += 1;
            if *times > 1 {
                lock(&self.wrong).push(format!("{id} was asked for twice"));
            }
        }
        let mut wire =
            fake::Request::new(request.method.as_str(), path, fake::KEY, request.body.as_ref().unwrap_or(&Value::Null));
        wire.query = request.query.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        lock(&self.market).handle(now_s, &wire)
    }
}

impl Transport for Cloud {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Answer, TransportError>> {
        Box::pin(async move {
            // The caller can be killed before the request is sent, and after it is carried out.
            yield_now().await;
            let answer = self.handle(&request);
            yield_now().await;
            let header = |name: &str| {
                let found = answer.headers.iter().find(|(header, _)| header.eq_ignore_ascii_case(name));
                found.map(|(_, value)| value.clone())
            };
            match answer.delivery {
                Delivery::Sent => Ok(Answer {
                    status: answer.status,
                    retry_after_s: header("retry-after").and_then(|text| text.parse().ok()),
                    quota_resets_in_s: None,
                    content_type: header("content-type").unwrap_or_default(),
                    body: answer.body.into(),
                }),
                Delivery::Closed => Err(TransportError::Unknown("closed".to_owned())),
                Delivery::Held => {
                    sleep(request.timeout).await;
                    Err(TransportError::Unknown("silence".to_owned()))
                }
            }
        })
    }
}

/// The machine's ID in a label.
pub(super) fn id_of(label: &str) -> &str {
    label.rsplit(':').next().unwrap_or_default()
}

/// The state outside of the autoscalers: provider and ledger.
#[derive(Clone)]
pub(super) struct World {
    pub(super) cloud: Arc<Cloud>,
    pub(super) ledger: Arc<MemoryLedger>,
    /// Time since which each instance is in no ledger, or serves no jobs, seconds.
    since_s: Arc<Mutex<HashMap<(u64, &'static str), f64>>>,
    limits: Limits,
    committed: Arc<Mutex<Committed>>,
    pub(super) planted: Arc<planted::Shared>,
}

/// The committed cost per instance, at a moment of the provider's history.
#[derive(Default)]
struct Committed {
    changes: usize,
    usd_per_hour: BTreeMap<u64, f64>,
}

/// The maximum cost of an instance from a change on, dollars per hour. An instance that does not run by itself costs
/// its disk.
fn committed(change: &Change) -> Option<f64> {
    let disk = in_usd(change.storage) * (change.disk_mb as f64 / 1e3) / 720.0;
    match change.status? {
        Status::Stopped | Status::Exited => Some(disk),
        _ => Some(in_usd(change.price) + disk),
    }
}

impl World {
    pub(super) fn new(seed: u64, market: fake::Settings, limits: Limits) -> Self {
        let clock = ManualClock::new(BEGAN_MS);
        let ledger = Arc::new(MemoryLedger::new(Clock::Manual(clock.clone())));
        let cloud = Cloud {
            market: Mutex::new(Market::new(seed, market)),
            clock,
            began: Instant::now(),
            ledger: ledger.clone(),
            asked: Mutex::default(),
            is_bare: AtomicBool::new(false),
            wrong: Mutex::default(),
        };
        Self {
            cloud: Arc::new(cloud),
            ledger,
            since_s: Arc::default(),
            limits,
            committed: Arc::default(),
            planted: Arc::default(),
        }
    }

    /// Moves the violations that were found during calls to `wrong`.
    pub(super) fn take_wrong(&self, wrong: &mut Vec<String>) {
        wrong.append(&mut lock(&self.cloud.wrong));
    }

    /// Checks that the instances stayed within the limits, at every change since the last check.
    pub(super) fn check_limits(&self, wrong: &mut Vec<String>) {
        let market = lock(&self.cloud.market);
        let mut committed = lock(&self.committed);
        let Committed { changes, usd_per_hour } = &mut *committed;
        for change in market.history().iter().skip(*changes) {
            *changes += 1;
            match self::committed(change) {
                Some(usd) => drop(usd_per_hour.insert(change.instance, usd)),
                None => drop(usd_per_hour.remove(&change.instance)),
            }
            let sum: f64 = usd_per_hour.values().sum();
            if sum > self.limits.usd_per_hour + 1e-6 || usd_per_hour.len() > self.limits.machines {
                wrong.push(format!("{} machines of ${sum}/h at {} ms", usd_per_hour.len(), change.at_ms));
            }
        }
        wrong.truncate(20);
    }

    /// The state that an autoscaler would read now.
    pub(super) fn seen(&self, fleet: &Fleet) -> RawState {
        let now_ms = (self.cloud.now_s() * 1e3).round() as u64;
        let (machines, cooldowns) = {
            let rows = self.ledger.rows();
            (rows.machines.clone(), rows.cooldowns.clone())
        };
        let (flows, workers) = fleet.seen(now_ms);
        RawState { now_ms, flows, workers, machines, cooldowns, ..RawState::default() }
    }

    /// Checks the properties that hold at every moment.
    pub(super) fn check(&self, fleet: &Fleet, is_calm: bool, wrong: &mut Vec<String>) {
        let now_s = self.cloud.now_s();
        self.take_wrong(wrong);
        let instances = self.cloud.instances();
        let mut since_s = lock(&self.since_s);
        let mut labels = BTreeMap::new();
        let (mut running, mut usd_per_hour) = (0, 0.0);
        let mut standing = Vec::new();
        for instance in &instances {
            let number = instance["id"].as_u64().unwrap();
            let id = id_of(instance["label"].as_str().unwrap_or_default()).to_owned();
            if labels.insert(id.clone(), number).is_some() {
                wrong.push(format!("{id} was bought twice"));
            }
            if instance["intended_status"] == "running" {
                running += 1;
                usd_per_hour += instance["dph_total"].as_f64().unwrap();
            }
            if !self.ledger.rows().machines.contains_key(&id) {
                standing.push(((number, "is in no ledger"), ORPHAN_S));
            }
            let is_wanted = self
                .ledger
                .rows()
                .machines
                .get(&id)
                .is_some_and(|machine| machine.wanted == stokehold_queue::registry::Wanted::Stopped);
            if !fleet.serves(&id) && !is_wanted {
                standing.push(((number, "serves no jobs"), UNSERVING_S));
            }
        }
        if running > self.limits.machines {
            wrong.push(format!("{running} machines run"));
        }
        if usd_per_hour > self.limits.usd_per_hour + 1e-6 {
            wrong.push(format!("${usd_per_hour}/h are spent"));
        }
        since_s.retain(|key, _| standing.iter().any(|(stands, _)| stands == key));
        for (key, limit_s) in standing {
            let since_s = *since_s.entry(key).or_insert(now_s);
            // Extra time for a provider that cannot be reached or does not carry out requests.
            let slack_s = if is_calm { 0.0 } else { 900.0 };
            if now_s - since_s > limit_s + slack_s {
                wrong.push(format!("{} {} for {:.0} s", key.0, key.1, now_s - since_s));
            }
        }
        wrong.truncate(20);
    }

    /// Whether no instance exists and the ledger is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.ledger.rows().machines.is_empty() && self.cloud.instances().is_empty()
    }

    /// Checks that nothing is left once there are no faults and no work.
    pub(super) fn check_end(&self, wrong: &mut Vec<String>) {
        for instance in self.cloud.instances() {
            wrong.push(format!("{} is left over: {}", instance["label"], instance["actual_status"]));
        }
        for machine in self.ledger.rows().machines.values() {
            wrong.push(format!("{} is written down still, {:?}", machine.id, machine.wanted));
        }
    }
}
