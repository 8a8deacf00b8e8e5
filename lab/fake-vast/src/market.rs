//! The market: machines, offers, instances and their costs. Without clock, sockets and threads: callers pass the time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use crate::draw::Draw;
use crate::faults::Faults;
use crate::instances::{Change, Event, Happened, Instance};
use crate::kinds::{KINDS, named};
use crate::limits::Limits;
use crate::log::{Call, Log};
use crate::machines::{Holder, Machine};
use crate::money::{Account, Balance, Items, Money};
use crate::settings::Settings;
use crate::steps::{Due, Step};
use crate::time::{ms, seconds};
use crate::wire::{Answer, Request};

/// Holder of GPUs that are never free.
const MAX_EVENTS: usize = 65_536;

/// A market with a seed.
#[derive(Clone, Debug)]
pub struct Market {
    pub(crate) settings: Settings,
    pub(crate) faults: Faults,
    pub(crate) machines: Vec<Machine>,
    /// Machine and block of each offer.
    pub(crate) asks: BTreeMap<u64, (usize, usize)>,
    pub(crate) instances: BTreeMap<u64, Instance>,
    /// Destroyed instances, and the time until which they are still listed.
    pub(crate) ghosts: BTreeMap<u64, (u64, serde_json::Value)>,
    pub(crate) past: BTreeMap<u64, Past>,
    pub(crate) balance: Balance,
    pub(crate) steps: BinaryHeap<Reverse<Due>>,
    pub(crate) sequence: u64,
    pub(crate) next_contract: u64,
    pub(crate) next_release: u64,
    pub(crate) now_ms: u64,
    pub(crate) has_begun: bool,
    pub(crate) is_broke: bool,
    pub(crate) limits: Limits,
    pub(crate) log: Log,
    pub(crate) events: VecDeque<Happened>,
    pub(crate) history: Vec<Change>,
    pub(crate) address: String,
    /// Output of containers, as far as it was reported.
    pub(crate) written: BTreeMap<u64, String>,
    /// Results of log requests by token: the time from which they can be read, and the text.
    pub(crate) results: BTreeMap<String, (u64, String)>,
    /// Random numbers of machines and instances.
    pub(crate) life: Draw,
    /// Random numbers of faults.
    pub(crate) chaos: Draw,
    /// Random numbers of the appearance of offers.
    pub(crate) looks: Draw,
}

/// A contract that has ended.
#[derive(Clone, Debug)]
pub(crate) struct Past {
    pub(crate) label: Option<String>,
    pub(crate) account: Account,
}

/// Costs of a contract.
#[derive(Clone, Debug, PartialEq)]
pub struct Bill {
    /// ID of the contract.
    pub instance: u64,
    /// Label.
    pub label: Option<String>,
    /// Charges.
    pub items: Items,
}

impl Market {
    /// Creates a market, which begins with its first call. The same seed and calls give the same responses.
    #[must_use]
    pub fn new(seed: u64, settings: Settings) -> Self {
        let mut balance = Balance::default();
        balance.pay_in(Money::from_usd(settings.credit_usd));
        Self {
            log: Log::of(settings.log_calls),
            settings,
            faults: Faults::default(),
            machines: Vec::new(),
            asks: BTreeMap::new(),
            instances: BTreeMap::new(),
            ghosts: BTreeMap::new(),
            past: BTreeMap::new(),
            balance,
            steps: BinaryHeap::new(),
            sequence: 0,
            next_contract: 30_000_000,
            next_release: 0,
            now_ms: 0,
            has_begun: false,
            is_broke: false,
            limits: Limits::default(),
            events: VecDeque::new(),
            history: Vec::new(),
            address: "http://127.0.0.1".into(),
            written: BTreeMap::new(),
            results: BTreeMap::new(),
            life: Draw::new(seed, 1),
            chaos: Draw::new(seed, 2),
            looks: Draw::new(seed, 3),
        }
    }

    /// Answers a call, after the events that are due.
    pub fn handle(&mut self, now_s: f64, request: &Request) -> Answer {
        self.move_to(now_s);
        if let Some(answer) = self.control(request) {
            return answer;
        }
        let answer = self.route(request);
        self.log.write(seconds(self.now_ms), request, &answer);
        answer
    }

    /// Advances the time and returns the events since the last time. Time never goes back.
    pub fn advance(&mut self, now_s: f64) -> Vec<Happened> {
        self.move_to(now_s);
        self.events.drain(..).collect()
    }

    /// Time of the next event.
    #[must_use]
    pub fn next_s(&self) -> Option<f64> {
        let step = self.steps.peek().map(|Reverse(due)| due.at_ms);
        let broke = self.balance.empty_at_ms().filter(|_| !self.is_broke);
        step.into_iter().chain(broke).min().map(seconds)
    }

    /// Replaces the faults.
    pub fn set_faults(&mut self, faults: impl Into<Faults>) {
        self.faults = faults.into();
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Changes the settings. Machines are not drawn again.
    pub fn settings_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }

    /// The last calls, oldest first.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.log.calls()
    }

    /// Every change of every instance, if the settings keep them.
    #[must_use]
    pub fn history(&self) -> &[Change] {
        &self.history
    }

    /// Costs of every contract so far, exact.
    pub fn invoice(&mut self, now_s: f64) -> Vec<Bill> {
        self.move_to(now_s);
        self.settle();
        let live = self.instances.values().map(|one| (one.id, &one.order.label, &one.account));
        let past = self.past.iter().map(|(id, one)| (*id, &one.label, &one.account));
        let bill = |(instance, label, account): (u64, &Option<String>, &Account)| Bill {
            instance,
            label: label.clone(),
            items: account.items(),
        };
        let mut bills: Vec<_> = live.chain(past).map(bill).collect();
        bills.sort_by_key(|bill| bill.instance);
        bills
    }

    /// Total cost so far.
    pub fn spent(&mut self, now_s: f64) -> Money {
        self.move_to(now_s);
        self.balance.settle(self.now_ms);
        self.balance.spent()
    }

    /// Credit left, dollars; negative if disks were charged for after it was exhausted.
    pub fn credit_usd(&mut self, now_s: f64) -> f64 {
        self.move_to(now_s);
        self.balance.settle(self.now_ms);
        self.balance.credit_usd()
    }

    /// Adds credit.
    pub fn pay_in(&mut self, now_s: f64, usd: f64) {
        self.move_to(now_s);
        self.balance.pay_in(Money::from_usd(usd));
        self.is_broke = self.balance.is_empty();
    }

    /// Number of offers that can be rented now.
    #[must_use]
    pub fn listed(&self) -> usize {
        self.asks.len()
    }

    /// Number of contracts that are not destroyed.
    pub fn instances(&self) -> impl Iterator<Item = u64> + '_ {
        self.instances.keys().copied()
    }

    /// Sets the URL of results of log requests.
    pub fn set_address(&mut self, url: &str) {
        url.trim_end_matches('/').clone_into(&mut self.address);
    }

    /// Sets the output of a container.
    pub fn write_log(&mut self, instance: u64, text: String) {
        if self.instances.contains_key(&instance) {
            self.written.insert(instance, text);
        }
    }

    /// Draws the machines at the first call.
    pub(crate) fn begin(&mut self, now_ms: u64) {
        self.has_begun = true;
        self.now_ms = now_ms;
        self.balance.settle(now_ms);
        self.is_broke = self.balance.is_empty();
        for _ in 0..self.settings.machines {
            let id = 10_000 + self.machines.len() as u64 * 7;
            let machine = Machine::drawn(id, now_ms, &mut self.looks);
            self.add_machine(machine);
        }
        for listing in self.settings.listings.clone() {
            let id = 10_000 + self.machines.len() as u64 * 7;
            let kind = named(&listing.gpu_name).unwrap_or(&KINDS[0]);
            let machine = Machine::listed(id, &listing, kind, now_ms, &mut self.looks);
            self.add_machine(machine);
        }
        self.plan_others();
    }

    fn add_machine(&mut self, machine: Machine) {
        let index = self.machines.len();
        self.plan(machine.end_ms, Step::Expire { machine: index, end_ms: machine.end_ms });
        self.machines.push(machine);
        self.relist(index);
    }

    /// Lists every block whose GPUs are all free under a new ID, and no other block.
    pub(crate) fn relist(&mut self, index: usize) {
        let is_open = self.machines[index].is_up && self.machines[index].end_ms > self.now_ms;
        for block in 0..self.machines[index].blocks.len() {
            let machine = &self.machines[index];
            let (start, size, ask) =
                (machine.blocks[block].start, machine.blocks[block].size, machine.blocks[block].ask);
            let is_free = is_open && machine.is_free(start, size);
            match (ask, is_free) {
                (None, true) => {
                    let id = self.contract();
                    self.asks.insert(id, (index, block));
                    self.machines[index].blocks[block].ask = Some(id);
                }
                (Some(id), false) => {
                    self.asks.remove(&id);
                    self.machines[index].blocks[block].ask = None;
                }
                (Some(_), true) | (None, false) => {}
            }
        }
    }

    /// Next ID of an offer or an instance: both are contracts.
    pub(crate) fn contract(&mut self) -> u64 {
        self.next_contract += self.life.whole(1, 9);
        self.next_contract
    }

    /// Gives the GPUs of a block to another customer for a while.
    pub(crate) fn give_away(&mut self, machine: usize, block: usize, for_ms: u64) {
        self.next_release += 1;
        let release = self.next_release;
        let (start, size) = self.span(machine, block);
        self.machines[machine].hold(start, size, Some(Holder::Other(release)));
        self.plan(self.now_ms + for_ms.max(1), Step::Release { machine, release });
    }

    pub(crate) fn span(&self, machine: usize, block: usize) -> (usize, usize) {
        let block = &self.machines[machine].blocks[block];
        (block.start, block.size)
    }

    pub(crate) fn plan(&mut self, at_ms: u64, step: Step) {
        self.sequence += 1;
        self.steps.push(Reverse(Due { at_ms, sequence: self.sequence, step }));
    }

    /// Time of the next rent by another customer.
    pub(crate) fn plan_others(&mut self) {
        #[expect(clippy::cast_precision_loss, reason = "a few hundred boxes")]
        let per_hour = self.settings.rented_per_machine_hour * self.machines.len() as f64;
        if per_hour > 0.0 {
            let wait_s = self.life.wait(3600.0 / per_hour);
            self.plan(self.now_ms + ms(wait_s).max(1), Step::OthersRent);
        }
    }

    /// Charges every contract up to now.
    pub(crate) fn settle(&mut self) {
        self.balance.settle(self.now_ms);
        let live = self.instances.values_mut().map(|one| &mut one.account);
        for account in live.chain(self.past.values_mut().map(|one| &mut one.account)) {
            account.settle(self.now_ms);
        }
    }

    pub(crate) fn emit(&mut self, event: Event) {
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(Happened { at_s: seconds(self.now_ms), event });
    }
}
