//! Events that happen by themselves at their own time: boots and runs here, losses in `fate`.

use std::cmp::Reverse;

use stokehold_vast::{Status, state};

use crate::faults::{Fault, OutbidLook, Point};
use crate::instances::{Change, Event, Increase, Instance, Started};
use crate::machines::Holder;
use crate::market::Market;
use crate::steps::{Step, To};
use crate::time::{ms, seconds};

const RUNTIME_ERROR: &str = "Error response from daemon: failed to create task for container: OCI runtime create failed: \
                             runc create failed: unable to start container process: error during container init";

const LOOKS: [OutbidLook; 4] =
    [OutbidLook::Exited, OutbidLook::Stopped, OutbidLook::Loading, OutbidLook::StillIntended];

impl Market {
    /// Applies every event that is due, each at its own time.
    pub(crate) fn move_to(&mut self, now_s: f64) {
        let now_ms = ms(now_s);
        if !self.has_begun {
            self.begin(now_ms);
        }
        loop {
            let step_ms = self.steps.peek().map_or(u64::MAX, |Reverse(due)| due.at_ms);
            let broke_ms = self.balance.empty_at_ms().filter(|_| !self.is_broke).unwrap_or(u64::MAX);
            if step_ms.min(broke_ms) > now_ms {
                break;
            }
            self.now_ms = self.now_ms.max(step_ms.min(broke_ms));
            if broke_ms < step_ms {
                self.go_broke();
            } else if let Some(Reverse(due)) = self.steps.pop() {
                self.do_step(due.step);
            }
            self.balance.settle(self.now_ms);
        }
        self.now_ms = self.now_ms.max(now_ms);
        self.balance.settle(self.now_ms);
        if self.balance.is_empty() && !self.is_broke {
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

    /// Plans a step of an instance in its current life.
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

    /// Voids the planned steps of an instance.
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
            self.emit(Event::Halted { instance: id });
        }
    }

    /// Charges an instance up to now, and continues with its current rates.
    pub(crate) fn reprice(&mut self, id: u64) {
        let Some(instance) = self.instances.get_mut(&id) else { return };
        let (gpu, disk) = instance.rates();
        let account = &mut instance.account;
        account.settle(self.now_ms);
        self.balance.settle(self.now_ms);
        self.balance.change_burn(account.gpu_rate + account.disk_rate, gpu + disk);
        (account.gpu_rate, account.disk_rate) = (gpu, disk);
        if self.settings.keeps_history {
            let (price, storage, disk_mb) = (instance.price, instance.storage, instance.order.disk_mb);
            let status = Some(instance.status);
            self.history.push(Change { at_ms: self.now_ms, instance: id, status, price, storage, disk_mb });
        }
    }

    /// Plans the steps from an accepted offer to a running container.
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

    /// Plans a start of a stopped instance, whose image is on the disk.
    pub(crate) fn restart(&mut self, id: u64) {
        let (low, high) = self.settings.restart_s;
        let in_ms = ms(self.life.between(low, high));
        self.turn(id);
        self.change(id, |one| {
            one.wants_running = true;
            one.is_queued = false;
            one.outbid_by = None;
            one.states("unloaded", state::RUNNING);
        });
        self.set_status(id, Status::Loading);
        self.plan_of(id, in_ms, To::Running);
    }

    fn run(&mut self, id: u64) {
        let Some(instance) = self.instances.get_mut(&id) else { return };
        instance.starts += 1;
        instance.is_up = true;
        instance.message = Some(format!("success, running {}", instance.order.image));
        instance.states(state::RUNNING, state::RUNNING);
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
        self.emit(Event::Started(Box::new(started)));
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
}
