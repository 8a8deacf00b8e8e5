//! What happens by itself: boots, rivals, listings that end, hosts that go, credit that runs out.

use std::cmp::Reverse;

use crate::faults::{Fault, OutbidLook, Point};
use crate::instances::{Change, Event, Increase, Instance, Started, Status};
use crate::machines::{Holder, ms, seconds};
use crate::market::{Market, Past};

const HOUR_MS: u64 = 3_600_000;
/// What is left of a rental whose listing ended.
const KEPT_MS: u64 = 48 * HOUR_MS;
const RUNTIME_ERROR: &str = "Error response from daemon: failed to create task for container: OCI runtime create failed: \
                             runc create failed: unable to start container process: error during container init";

/// Something planned.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Due {
    pub(crate) at_ms: u64,
    pub(crate) sequence: u64,
    pub(crate) step: Step,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// Of one instance, void once its life has moved on.
    Of { instance: u64, life: u64, to: To },
    /// Others give cards back.
    Release { machine: usize, release: u64 },
    /// Somebody else rents somewhere.
    OthersRent,
    /// A listing ends, unless it was renewed.
    Expire { machine: usize, end_ms: u64 },
    /// A box is listed again.
    Renew { machine: usize },
    /// A host answers again.
    HostBack { machine: usize },
    /// A destroyed instance costs nothing any more.
    StopBilling { instance: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum To {
    Created,
    Loading,
    Running,
    RuntimeError,
    Stopped,
    Rival,
    Outbid {
        look: u8,
    },
    Offline {
        for_ms: u64,
    },
    Unknown {
        for_ms: u64,
    },
    Exited,
    /// In thousandths.
    DearerBy {
        factor: u64,
    },
    Deleted,
}

const LOOKS: [OutbidLook; 4] =
    [OutbidLook::Exited, OutbidLook::Stopped, OutbidLook::Loading, OutbidLook::StillIntended];

impl Market {
    /// Everything that was due happens at its own moment.
    pub(crate) fn move_to(&mut self, now_s: f64) {
        let now_ms = ms(now_s);
        if !self.has_begun {
            self.begin(now_ms);
        }
        loop {
            let step_ms = self.steps.peek().map_or(u64::MAX, |Reverse(due)| due.at_ms);
            let broke_ms = self.purse.empty_at_ms().filter(|_| !self.is_broke).unwrap_or(u64::MAX);
            if step_ms.min(broke_ms) > now_ms {
                break;
            }
            self.now_ms = self.now_ms.max(step_ms.min(broke_ms));
            if broke_ms < step_ms {
                self.go_broke();
            } else if let Some(Reverse(due)) = self.steps.pop() {
                self.do_step(due.step);
            }
            self.purse.settle(self.now_ms);
        }
        self.now_ms = self.now_ms.max(now_ms);
        self.purse.settle(self.now_ms);
        if self.purse.is_empty() && !self.is_broke {
            self.go_broke();
        }
    }

    fn do_step(&mut self, step: Step) {
        match step {
            Step::Of { instance, life, to } => {
                if self.instances.get(&instance).is_some_and(|one| one.life == life) {
                    self.do_to(instance, to);
                }
            }
            Step::Release { machine, release } => {
                let gives_back = |holder: &mut Option<Holder>| {
                    if *holder == Some(Holder::Other(release)) {
                        *holder = None;
                    }
                };
                self.machines[machine].holders.iter_mut().for_each(gives_back);
                self.resume_waiting(machine);
                self.relist(machine);
            }
            Step::OthersRent => {
                let count = self.asks.len();
                if count > 0 {
                    let at = usize::try_from(self.life.whole(0, count as u64 - 1)).unwrap_or(0);
                    if let Some((machine, block)) = self.asks.values().nth(at).copied() {
                        let for_ms = ms(self.life.wait(self.settings.taken_s));
                        self.give_away(machine, block, for_ms);
                        self.relist(machine);
                    }
                }
                self.plan_others();
            }
            Step::Expire { machine, end_ms } => self.expire(machine, end_ms),
            Step::Renew { machine } => {
                self.machines[machine].renew(self.now_ms, &mut self.looks);
                let end_ms = self.machines[machine].end_ms;
                self.plan(end_ms, Step::Expire { machine, end_ms });
                self.relist(machine);
            }
            Step::HostBack { machine } => self.host_back(machine),
            Step::StopBilling { instance } => self.stop_billing(instance),
        }
    }

    fn do_to(&mut self, id: u64, to: To) {
        match to {
            To::Created => self.set_status(id, Status::Created),
            To::Loading => {
                self.set_status(id, Status::Loading);
                self.move_image(id);
            }
            To::Running => self.run(id),
            To::RuntimeError => {
                self.change(id, |one| one.message = Some(RUNTIME_ERROR.into()));
                self.set_status(id, Status::Created);
            }
            To::Stopped => self.halt(id, Status::Stopped),
            To::Rival => self.rival(id),
            To::Outbid { look } => {
                let price = self.instances.get(&id).map_or(0, |one| one.price);
                self.outbid(id, price + 1, LOOKS[usize::from(look) % LOOKS.len()]);
            }
            To::Offline { for_ms } => {
                if let Some(machine) = self.instances.get(&id).map(|one| one.machine) {
                    self.host_gone(machine, for_ms, Status::Offline);
                }
            }
            To::Unknown { for_ms } => {
                if let Some(machine) = self.instances.get(&id).map(|one| one.machine) {
                    self.host_gone(machine, for_ms, Status::Unknown);
                }
            }
            To::Exited => self.container_exited(id),
            To::DearerBy { factor } => {
                let (increase, now_ms) = (self.contract(), self.now_ms);
                self.change(id, |one| {
                    let price = one.price * factor / 1000;
                    one.increase = Some(Increase { id: increase, price, created_ms: now_ms });
                });
            }
            To::Deleted => {
                self.destroy(id, 0);
            }
        }
    }

    /// Plans a step of an instance as it lives now.
    pub(crate) fn plan_of(&mut self, id: u64, in_ms: u64, to: To) {
        if let Some(life) = self.instances.get(&id).map(|one| one.life) {
            self.plan(self.now_ms + in_ms, Step::Of { instance: id, life, to });
        }
    }

    pub(crate) fn change(&mut self, id: u64, change: impl FnOnce(&mut Instance)) {
        if let Some(instance) = self.instances.get_mut(&id) {
            change(instance);
        }
    }

    /// What was planned for it is void.
    pub(crate) fn turn(&mut self, id: u64) {
        self.change(id, |one| one.life += 1);
    }

    pub(crate) fn set_status(&mut self, id: u64, status: Status) {
        let Some(instance) = self.instances.get_mut(&id) else { return };
        instance.status = status;
        let was_up = instance.is_up;
        instance.is_up = was_up && matches!(status, Status::Running | Status::Unknown | Status::Frozen);
        let is_up = instance.is_up;
        self.reprice(id);
        if was_up && !is_up {
            self.tell(Event::Halted { instance: id });
        }
    }

    /// Charges up to now, and by what holds from here on.
    pub(crate) fn reprice(&mut self, id: u64) {
        let Some(instance) = self.instances.get_mut(&id) else { return };
        let (gpu, disk) = instance.rates();
        let account = &mut instance.account;
        account.settle(self.now_ms);
        self.purse.settle(self.now_ms);
        self.purse.change_burn(account.gpu_rate + account.disk_rate, gpu + disk);
        (account.gpu_rate, account.disk_rate) = (gpu, disk);
        if self.settings.keeps_history {
            let (price, storage, disk_mb) = (instance.price, instance.storage, instance.order.disk_mb);
            let status = Some(instance.status);
            self.history.push(Change { at_ms: self.now_ms, instance: id, status, price, storage, disk_mb });
        }
    }

    /// Plans the way from an accepted offer to running.
    pub(crate) fn boot(&mut self, id: u64) {
        let (low, high) = self.settings.boot_s;
        let mut total_s = self.life.between(low, high);
        let mut hidden_s = 0.0_f64;
        let mut last = To::Running;
        for fault in self.faults.drawn(Point::Boot, seconds(self.now_ms), &mut self.chaos) {
            match fault {
                Fault::SlowBoot { factor } => total_s *= factor,
                Fault::HiddenAtFirst { for_s } => hidden_s = hidden_s.max(for_s),
                Fault::StuckLoading => last = To::Loading,
                Fault::RuntimeError => last = To::RuntimeError,
                _ => {}
            }
        }
        let hidden_until_ms = self.now_ms + ms(hidden_s);
        self.change(id, |one| one.hidden_until_ms = hidden_until_ms);
        let share = |share: f64| ms(total_s * share);
        self.plan_of(id, share(0.05), To::Created);
        if last == To::RuntimeError {
            self.plan_of(id, share(0.1), To::RuntimeError);
            return;
        }
        self.plan_of(id, share(0.1), To::Loading);
        if last == To::Running {
            self.plan_of(id, share(1.0), To::Running);
        }
    }

    /// From halted to running: the image is there.
    pub(crate) fn restart(&mut self, id: u64) {
        let (low, high) = self.settings.restart_s;
        let in_ms = ms(self.life.between(low, high));
        self.turn(id);
        self.change(id, |one| {
            one.wants_running = true;
            one.is_queued = false;
            one.outbid_by = None;
            one.states("unloaded", "running");
        });
        self.set_status(id, Status::Loading);
        self.plan_of(id, in_ms, To::Running);
    }

    fn run(&mut self, id: u64) {
        let Some(instance) = self.instances.get_mut(&id) else { return };
        instance.starts += 1;
        instance.is_up = true;
        instance.message = Some(format!("success, running {}", instance.order.image));
        instance.states("running", "running");
        let machine = &self.machines[instance.machine];
        let order = &instance.order;
        let started = Started {
            instance: id,
            machine: machine.id,
            label: order.label.clone(),
            image: order.image.clone(),
            runtype: order.runtype,
            onstart: order.onstart.clone(),
            args: order.args.clone(),
            env: order.env.clone(),
            key: instance.key.clone(),
            gpu_name: machine.kind.gpu_name.into(),
            num_gpus: machine.blocks[instance.block].size,
            gpu_ram_mb: machine.kind.gpu_ram_mb,
            public_ip: machine.ip.trim().into(),
            starts: instance.starts,
        };
        let is_bid = order.bid.is_some();
        self.set_status(id, Status::Running);
        self.tell(Event::Started(Box::new(started)));
        if is_bid {
            self.plan_rival(id);
        }
        for fault in self.faults.drawn(Point::Run, seconds(self.now_ms), &mut self.chaos) {
            match fault {
                Fault::HostOffline { after_s, for_s } => {
                    self.plan_of(id, ms(after_s), To::Offline { for_ms: ms(for_s) });
                }
                Fault::HostUnknown { after_s, for_s } => {
                    self.plan_of(id, ms(after_s), To::Unknown { for_ms: ms(for_s) });
                }
                Fault::Outbid { after_s, look } if is_bid => {
                    let look = LOOKS.iter().position(|one| *one == look).unwrap_or(0);
                    self.plan_of(id, ms(after_s), To::Outbid { look: u8::try_from(look).unwrap_or(0) });
                }
                Fault::Exit { after_s } => self.plan_of(id, ms(after_s), To::Exited),
                Fault::PriceIncrease { after_s, factor } => {
                    self.plan_of(id, ms(after_s), To::DearerBy { factor: ms(factor) });
                }
                _ => {}
            }
        }
    }

    fn plan_rival(&mut self, id: u64) {
        if self.settings.rivals_per_hour > 0.0 {
            let wait_s = self.life.wait(3600.0 / self.settings.rivals_per_hour);
            self.plan_of(id, ms(wait_s).max(1), To::Rival);
        }
    }

    /// Somebody bids; who bids more has the cards.
    fn rival(&mut self, id: u64) {
        let Some(instance) = self.instances.get(&id) else { return };
        if instance.status != Status::Running {
            return;
        }
        let (price, least) = (instance.price, self.least_bid(instance.machine, instance.block));
        let margin = ms(self.life.wait(self.settings.rival_margin));
        let rival = least + least * margin / 1000;
        if rival > price {
            self.outbid(id, rival, OutbidLook::default());
        } else {
            self.plan_rival(id);
        }
    }

    pub(crate) fn least_bid(&self, machine: usize, block: usize) -> u64 {
        self.machines[machine].min_bid * self.machines[machine].blocks[block].size as u64
    }

    /// An interruptible loses its cards for a while.
    pub(crate) fn outbid(&mut self, id: u64, rival: u64, look: OutbidLook) {
        let Some(instance) = self.instances.get(&id) else { return };
        let (machine, block) = (instance.machine, instance.block);
        let for_ms = ms(self.life.wait(self.settings.taken_s)).max(1000);
        if instance.has_cards {
            self.give_away(machine, block, for_ms);
            self.relist(machine);
        }
        self.turn(id);
        let status = match look {
            OutbidLook::Exited | OutbidLook::StillIntended => Status::Exited,
            OutbidLook::Stopped => Status::Stopped,
            OutbidLook::Loading => Status::Loading,
        };
        self.change(id, |one| {
            one.has_cards = false;
            one.outbid_by = Some(rival);
            one.wants_running = look == OutbidLook::StillIntended;
            one.states("stopped", "stopped");
        });
        self.set_status(id, status);
    }

    /// Who waits for these cards gets them: the highest bid first, then the oldest.
    pub(crate) fn resume_waiting(&mut self, machine: usize) {
        let waits = |one: &&Instance| one.machine == machine && (one.is_queued || one.outbid_by.is_some());
        let mut waiting: Vec<_> =
            self.instances.values().filter(waits).map(|one| (Reverse(one.price), one.id)).collect();
        waiting.sort_unstable();
        for (_, id) in waiting {
            if self.take_cards(id) {
                self.restart(id);
            }
        }
    }

    /// Whether it has its cards now.
    pub(crate) fn take_cards(&mut self, id: u64) -> bool {
        let Some(instance) = self.instances.get_mut(&id) else { return false };
        let machine = &mut self.machines[instance.machine];
        let (start, size) = (machine.blocks[instance.block].start, machine.blocks[instance.block].size);
        if !instance.has_cards && machine.is_up && machine.end_ms > self.now_ms && machine.is_free(start, size) {
            machine.hold(start, size, Some(Holder::Instance(id)));
            instance.has_cards = true;
            let index = instance.machine;
            self.relist(index);
            return true;
        }
        instance.has_cards
    }

    fn give_cards_back(&mut self, id: u64) {
        let Some(instance) = self.instances.get_mut(&id) else { return };
        if std::mem::take(&mut instance.has_cards) {
            let (machine, block) = (instance.machine, instance.block);
            let (start, size) = self.span(machine, block);
            self.machines[machine].hold(start, size, None);
        }
    }

    /// It is halted and its cards are anybody's.
    pub(crate) fn halt(&mut self, id: u64, status: Status) {
        let Some(instance) = self.instances.get(&id) else { return };
        let (machine, block, had_cards) = (instance.machine, instance.block, instance.has_cards);
        self.turn(id);
        self.change(id, |one| {
            one.wants_running = false;
            one.is_queued = false;
            one.outbid_by = None;
            one.states("stopped", "stopped");
        });
        self.set_status(id, status);
        self.give_cards_back(id);
        if had_cards && self.settings.stopped_cards_taken > 0.0 && self.life.chance(self.settings.stopped_cards_taken) {
            let for_ms = ms(self.life.wait(self.settings.taken_s));
            self.give_away(machine, block, for_ms);
        }
        self.resume_waiting(machine);
        self.relist(machine);
    }

    /// Its container ended by itself. It keeps its cards, which are not charged.
    pub(crate) fn container_exited(&mut self, id: u64) {
        if self.instances.get(&id).is_some_and(|one| one.status == Status::Running) {
            self.turn(id);
            self.set_status(id, Status::Exited);
        }
    }

    fn expire(&mut self, machine: usize, end_ms: u64) {
        if self.machines[machine].end_ms != end_ms {
            return;
        }
        let ids: Vec<u64> = self.instances.values().filter(|one| one.machine == machine).map(|one| one.id).collect();
        for id in ids {
            self.halt(id, Status::Stopped);
            self.plan_of(id, KEPT_MS, To::Deleted);
        }
        self.relist(machine);
        let in_ms = self.life.whole(HOUR_MS, 12 * HOUR_MS);
        self.plan(self.now_ms + in_ms, Step::Renew { machine });
    }

    pub(crate) fn host_gone(&mut self, machine: usize, for_ms: u64, status: Status) {
        self.machines[machine].is_up = false;
        let is_on = |one: &&Instance| one.machine == machine && one.has_cards && !one.status.is_halted();
        let ids: Vec<u64> = self.instances.values().filter(is_on).map(|one| one.id).collect();
        for id in ids {
            self.turn(id);
            self.set_status(id, status);
        }
        self.relist(machine);
        self.plan(self.now_ms + for_ms, Step::HostBack { machine });
    }

    fn host_back(&mut self, machine: usize) {
        self.machines[machine].is_up = true;
        let is_on = |one: &&Instance| one.machine == machine && matches!(one.status, Status::Offline | Status::Unknown);
        let ids: Vec<(u64, bool, bool)> =
            self.instances.values().filter(is_on).map(|one| (one.id, one.wants_running, one.is_up)).collect();
        for (id, wants_running, is_up) in ids {
            match (wants_running, is_up) {
                (true, true) => {
                    self.set_status(id, Status::Running);
                    if self.instances.get(&id).is_some_and(|one| one.order.bid.is_some()) {
                        self.plan_rival(id);
                    }
                }
                (true, false) => self.restart(id),
                (false, _) => self.halt(id, Status::Stopped),
            }
        }
        self.resume_waiting(machine);
        self.relist(machine);
    }

    /// No credit: everything stops, or goes where there is no card on file.
    fn go_broke(&mut self) {
        self.is_broke = true;
        let ids: Vec<u64> = self.instances.keys().copied().collect();
        for id in ids {
            if self.settings.has_card {
                if self.instances.get(&id).is_some_and(|one| !one.status.is_halted()) {
                    self.halt(id, Status::Stopped);
                }
                self.change(id, |one| one.is_queued = false);
            } else {
                self.destroy(id, 0);
            }
        }
    }

    /// Ends a contract; whether there was one.
    pub(crate) fn destroy(&mut self, id: u64, listed_for_ms: u64) -> bool {
        let Some(instance) = self.instances.get(&id) else { return false };
        let machine = instance.machine;
        if listed_for_ms > 0 {
            let row = self.instance_row(instance);
            self.ghosts.insert(id, (self.now_ms + listed_for_ms, row.into()));
        }
        self.give_cards_back(id);
        let Some(mut instance) = self.instances.remove(&id) else { return false };
        instance.account.settle(self.now_ms);
        let tail_ms = ms(self.life.between(0.0, self.settings.bills_after_destroy_s));
        self.past.insert(id, Past { label: instance.order.label, account: instance.account });
        self.written.remove(&id);
        self.tell(Event::Destroyed { instance: id });
        if tail_ms == 0 {
            self.stop_billing(id);
        } else {
            self.plan(self.now_ms + tail_ms, Step::StopBilling { instance: id });
        }
        self.resume_waiting(machine);
        self.relist(machine);
        true
    }

    fn stop_billing(&mut self, id: u64) {
        let Some(past) = self.past.get_mut(&id) else { return };
        let account = &mut past.account;
        account.settle(self.now_ms);
        self.purse.settle(self.now_ms);
        self.purse.change_burn(account.gpu_rate + account.disk_rate, 0);
        (account.gpu_rate, account.disk_rate) = (0, 0);
        if self.settings.keeps_history {
            let change = Change { at_ms: self.now_ms, instance: id, status: None, price: 0, storage: 0, disk_mb: 0 };
            self.history.push(change);
        }
    }
}
