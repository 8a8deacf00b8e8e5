//! How instances lose their GPUs: higher bids, stops, listings that end, hosts that disconnect, exhausted credit.

use std::cmp::Reverse;

use stokehold_vast::{Status, state};

use crate::faults::OutbidLook;
use crate::instances::{Change, Event, Instance};
use crate::machines::Holder;
use crate::market::{Market, Past};
use crate::steps::{Step, To};
use crate::time::ms;

const HOUR_MS: u64 = 3_600_000;
/// Status message of an instance whose listing ended.
const KEPT_MS: u64 = 48 * HOUR_MS;

impl Market {
    pub(crate) fn plan_rival(&mut self, id: u64) {
        if self.settings.rivals_per_hour > 0.0 {
            let wait_s = self.life.wait(3600.0 / self.settings.rivals_per_hour);
            self.plan_of(id, ms(wait_s).max(1), To::Rival);
        }
    }

    /// Another customer bids. The higher bid has the GPUs.
    pub(crate) fn rival(&mut self, id: u64) {
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

    /// An interruptible instance loses its GPUs for a while.
    pub(crate) fn outbid(&mut self, id: u64, rival: u64, look: OutbidLook) {
        let Some(instance) = self.instances.get(&id) else { return };
        let (machine, block) = (instance.machine, instance.block);
        let for_ms = ms(self.life.wait(self.settings.taken_s)).max(1000);
        if instance.has_gpus {
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
            one.has_gpus = false;
            one.outbid_by = Some(rival);
            one.wants_running = look == OutbidLook::StillIntended;
            one.states(state::STOPPED, state::STOPPED);
        });
        self.set_status(id, status);
    }

    /// Gives free GPUs to the instances that wait for them: the highest bid first, then the oldest.
    pub(crate) fn resume_waiting(&mut self, machine: usize) {
        let waits = |one: &&Instance| one.machine == machine && (one.is_queued || one.outbid_by.is_some());
        let mut waiting: Vec<_> =
            self.instances.values().filter(waits).map(|one| (Reverse(one.price), one.id)).collect();
        waiting.sort_unstable();
        for (_, id) in waiting {
            if self.take_gpus(id) {
                self.restart(id);
            }
        }
    }

    /// Takes the GPUs of an instance if they are free. Returns whether it has them.
    pub(crate) fn take_gpus(&mut self, id: u64) -> bool {
        let Some(instance) = self.instances.get_mut(&id) else { return false };
        let machine = &mut self.machines[instance.machine];
        let (start, size) = (machine.blocks[instance.block].start, machine.blocks[instance.block].size);
        if !instance.has_gpus && machine.is_up && machine.end_ms > self.now_ms && machine.is_free(start, size) {
            machine.hold(start, size, Some(Holder::Instance(id)));
            instance.has_gpus = true;
            let index = instance.machine;
            self.relist(index);
            return true;
        }
        instance.has_gpus
    }

    pub(crate) fn give_gpus_back(&mut self, id: u64) {
        let Some(instance) = self.instances.get_mut(&id) else { return };
        if std::mem::take(&mut instance.has_gpus) {
            let (machine, block) = (instance.machine, instance.block);
            let (start, size) = self.span(machine, block);
            self.machines[machine].hold(start, size, None);
        }
    }

    /// Stops an instance and frees its GPUs.
    pub(crate) fn halt(&mut self, id: u64, status: Status) {
        let Some(instance) = self.instances.get(&id) else { return };
        let (machine, block, had_gpus) = (instance.machine, instance.block, instance.has_gpus);
        self.turn(id);
        self.change(id, |one| {
            one.wants_running = false;
            one.is_queued = false;
            one.outbid_by = None;
            one.states(state::STOPPED, state::STOPPED);
        });
        self.set_status(id, status);
        self.give_gpus_back(id);
        if had_gpus && self.settings.stopped_cards_taken > 0.0 && self.life.chance(self.settings.stopped_cards_taken) {
            let for_ms = ms(self.life.wait(self.settings.taken_s));
            self.give_away(machine, block, for_ms);
        }
        self.resume_waiting(machine);
        self.relist(machine);
    }

    /// The container exited by itself. The instance keeps its GPUs, which are not charged for.
    pub(crate) fn container_exited(&mut self, id: u64) {
        if self.instances.get(&id).is_some_and(|one| one.status == Status::Running) {
            self.turn(id);
            self.set_status(id, Status::Exited);
        }
    }

    pub(crate) fn expire(&mut self, machine: usize, end_ms: u64) {
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
        let is_on = |one: &&Instance| one.machine == machine && one.has_gpus && !one.status.is_halted();
        let ids: Vec<u64> = self.instances.values().filter(is_on).map(|one| one.id).collect();
        for id in ids {
            self.turn(id);
            self.set_status(id, status);
        }
        self.relist(machine);
        self.plan(self.now_ms + for_ms, Step::HostBack { machine });
    }

    pub(crate) fn host_back(&mut self, machine: usize) {
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

    /// The credit is exhausted: every instance stops, or is deleted if the account has no payment card.
    pub(crate) fn go_broke(&mut self) {
        self.is_broke = true;
        let ids: Vec<u64> = self.instances.keys().copied().collect();
        for id in ids {
            if self.settings.has_payment_card {
                if self.instances.get(&id).is_some_and(|one| !one.status.is_halted()) {
                    self.halt(id, Status::Stopped);
                }
                self.change(id, |one| one.is_queued = false);
            } else {
                self.destroy(id, 0);
            }
        }
    }

    /// Ends a contract. Returns whether it existed.
    pub(crate) fn destroy(&mut self, id: u64, listed_for_ms: u64) -> bool {
        let Some(instance) = self.instances.get(&id) else { return false };
        let machine = instance.machine;
        if listed_for_ms > 0 {
            let row = self.instance_row(instance);
            self.ghosts.insert(id, (self.now_ms + listed_for_ms, row.into()));
        }
        self.give_gpus_back(id);
        let Some(mut instance) = self.instances.remove(&id) else { return false };
        instance.account.settle(self.now_ms);
        let tail_ms = ms(self.life.between(0.0, self.settings.bills_after_destroy_s));
        self.past.insert(id, Past { label: instance.order.label, account: instance.account });
        self.written.remove(&id);
        self.emit(Event::Destroyed { instance: id });
        if tail_ms == 0 {
            self.stop_billing(id);
        } else {
            self.plan(self.now_ms + tail_ms, Step::StopBilling { instance: id });
        }
        self.resume_waiting(machine);
        self.relist(machine);
        true
    }

    pub(crate) fn stop_billing(&mut self, id: u64) {
        let Some(past) = self.past.get_mut(&id) else { return };
        let account = &mut past.account;
        account.settle(self.now_ms);
        self.balance.settle(self.now_ms);
        self.balance.change_burn(account.gpu_rate + account.disk_rate, 0);
        (account.gpu_rate, account.disk_rate) = (0, 0);
        if self.settings.keeps_history {
            let change = Change { at_ms: self.now_ms, instance: id, status: None, price: 0, storage: 0, disk_mb: 0 };
            self.history.push(change);
        }
    }
}
