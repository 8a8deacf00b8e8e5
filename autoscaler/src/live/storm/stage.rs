//! The environment of a scenario: a market without random events, one autoscaler after the other, and the list of
//! violations.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use stokehold_fake_vast::{self as fake, Bill, Listing};
use stokehold_planner::Policy;
use stokehold_queue::costs::MachineBill;
use tokio::time::sleep;

use super::LEASE_MS;
use super::cloud::{Limits, World, id_of};
use super::fleet::{Endpoint, Fleet};
use super::scaler::Scaler;
use crate::cost_ledger::{Charges, Entry, entries, note_there};

/// Time between two rounds, seconds.
const TICK_S: f64 = 4.0;

/// See the module.
pub(super) struct Stage {
    pub(super) world: World,
    pub(super) fleet: Fleet,
    pub(super) policy: Policy,
    /// The current autoscaler, which leads or is a standby.
    pub(super) scaler: Option<Scaler>,
    /// Estimated costs of machines, without the provider's bills.
    pub(super) bills: BTreeMap<String, MachineBill>,
    there_ms: BTreeMap<String, u64>,
    lives: u32,
    random: StdRng,
    wrong: Vec<String>,
}

/// A market of `boxes` hosts of one kind, without random events.
pub(super) fn market(boxes: u32, listing: &Listing) -> fake::Settings {
    fake::Settings {
        machines: 0,
        listings: vec![listing.clone(); boxes as usize],
        keeps_history: true,
        ..fake::Settings::calm()
    }
}

/// The default policy of scenarios.
pub(super) fn policy() -> Policy {
    Policy { may_stop: false, max_rents_per_hour: 100_000, min_reliability: 0.0, ..Policy::default() }
}

impl Stage {
    pub(super) fn new(seed: u64, market: fake::Settings, policy: Policy, endpoints: &[Endpoint]) -> Self {
        let limits = Limits { machines: policy.max_machines as usize, usd_per_hour: policy.max_usd_per_hour };
        Self {
            world: World::new(seed, market, limits),
            fleet: Fleet::of(endpoints, 0.0),
            policy,
            scaler: None,
            bills: BTreeMap::new(),
            there_ms: BTreeMap::new(),
            lives: 0,
            random: StdRng::seed_from_u64(seed),
            wrong: Vec::new(),
        }
    }

    pub(super) fn now_s(&self) -> f64 {
        self.world.cloud.now_s()
    }

    pub(super) fn submit(&self, endpoint: usize, jobs: usize) {
        self.fleet.submit(endpoint, jobs, (self.now_s() * 1e3) as u64);
    }

    pub(super) fn claim(&mut self, is_so: bool, what: impl Into<String>) {
        if !is_so {
            self.wrong.push(what.into());
        }
    }

    /// The current autoscaler, or a new one if the last one was killed.
    pub(super) fn next(&mut self) -> Scaler {
        self.scaler.take().unwrap_or_else(|| {
            self.lives += 1;
            Scaler::new(format!("a-{}", self.lives), &self.world, &self.policy)
        })
    }

    /// Lets time pass without a decision.
    pub(super) async fn pass(&mut self, seconds: f64) {
        sleep(Duration::from_secs_f64(seconds)).await;
        self.fleet.step(&self.world, &mut self.random);
        self.world.check_limits(&mut self.wrong);
    }

    /// Lets some seconds pass, then runs a round of the leader.
    pub(super) async fn tick(&mut self) {
        self.pass(TICK_S).await;
        let scaler = self.next();
        let term = self.world.ledger.lead(&scaler.holder, LEASE_MS);
        self.scaler = Some(match term {
            Some(term) => scaler.round(self.world.clone(), self.fleet.clone(), term).await,
            None => scaler,
        });
        self.keep_bills();
        self.world.check_limits(&mut self.wrong);
    }

    fn keep_bills(&mut self) {
        let Some(seen) = self.scaler.as_ref().and_then(|scaler| scaler.seen.as_ref()) else { return };
        note_there(seen, &mut self.there_ms);
        for entry in entries(seen, &self.bills, &self.there_ms, &Charges::new()) {
            match entry {
                Entry::Write(bill) => drop(self.bills.insert(bill.machine.clone(), *bill)),
                Entry::Drop(id) => drop(self.bills.remove(&id)),
            }
        }
    }

    /// Claims that the estimated cost of machines is within 2 % of their bills, without traffic, which only the
    /// provider measures.
    pub(super) fn claim_estimates(&mut self, what: &str, of: impl Fn(&Bill) -> bool) {
        let invoice: Vec<Bill> = self.world.cloud.invoice().into_iter().filter(of).collect();
        let charged: f64 = invoice.iter().map(|bill| (bill.items.gpu + bill.items.disk).usd()).sum();
        let reckoned = |bill: &Bill| {
            let id = id_of(bill.label.as_deref().unwrap_or_default());
            self.bills.get(id).map_or(0, |bill| bill.total_usd_micros(u64::MAX))
        };
        let reckoned = invoice.iter().map(reckoned).sum::<u64>() as f64 / 1e6;
        let is_close = !invoice.is_empty() && (reckoned - charged).abs() <= 0.02 * charged;
        self.claim(is_close, format!("{what}: ${reckoned} for ${charged} of {} machines", invoice.len()));
    }

    pub(super) async fn run_for(&mut self, seconds: f64) {
        let until_s = self.now_s() + seconds;
        while self.now_s() < until_s {
            self.tick().await;
        }
    }

    /// Runs rounds until a condition holds. It is a violation if it does not hold within `within_s`.
    pub(super) async fn run_until(&mut self, within_s: f64, what: &str, is_so: impl Fn(&Self) -> bool) {
        let until_s = self.now_s() + within_s;
        while !is_so(self) {
            if self.now_s() > until_s {
                let said = self.scaler.iter().flat_map(|scaler| &scaler.said);
                let notices: Vec<&str> = said.map(|notice| notice.text.as_str()).collect();
                return self.wrong.push(format!("not within {within_s} s: {what}; {notices:?}"));
            }
            self.tick().await;
        }
    }

    /// Whether the current autoscaler shows a notice of this kind.
    pub(super) fn says(&self, kind: &str) -> bool {
        self.scaler.iter().flat_map(|scaler| &scaler.said).any(|notice| notice.kind == kind)
    }

    /// The violations that were found.
    pub(super) fn end(mut self) -> Vec<String> {
        self.world.take_wrong(&mut self.wrong);
        self.wrong.truncate(8);
        self.wrong
    }
}

/// Runs a scenario in simulated time.
pub(super) fn play<T>(what: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(what)
}
