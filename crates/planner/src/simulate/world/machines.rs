//! Changes of machines: those from plans, and random ones.

use std::cmp::Reverse;

use rand::Rng as _;
use stokehold_protocol::capability::Capability;
use stokehold_queue::Queue as _;

use super::{Event, World, digit, now};
use crate::durations::millis;
use crate::name::Name;
use crate::observation::Phase;
use crate::plan::{Action, Plan};
use crate::simulate::machine::Machine;
use crate::simulate::offers::Kind;

impl World<'_> {
    pub(super) fn get_ready(&mut self, number: usize, life: u32) {
        let Some(machine) = self.machines.get_mut(&number).filter(|it| it.life == life) else { return };
        self.tally.bill(machine, self.now_ms, self.rules);
        self.tally.resumes += u64::from(machine.phase == Phase::Resuming);
        machine.enter(Phase::Ready, self.now_ms);
        self.serve(number);
    }

    /// Takes an interruptible machine away. Its jobs are requeued.
    pub(super) fn lose(&mut self, number: usize, life: u32) {
        let Some(machine) = self.machines.get_mut(&number).filter(|it| it.life == life) else { return };
        self.tally.bill(machine, self.now_ms, self.rules);
        self.tally.losses += 1;
        machine.power_off();
        machine.enter(Phase::Lost, self.now_ms);
        let next_life = machine.life;
        self.unpark(number);
        for job in self.running_on(number, life) {
            let place = self.endpoint_of[job];
            let priority = digit(self.jobs[job].priority);
            self.known[place].waiting[priority].push_front(job);
            let endpoint = &mut self.seen.endpoints[place];
            endpoint.running -= 1;
            endpoint.work[priority].waiting += 1;
            if let Some(lease) = self.leases.remove(&job) {
                now(self.queue.release(&[lease.named()])).expect("the queue in memory answers");
            }
        }
        let back_ms = self.drawn_ms(self.rules.lost_s);
        self.at(self.now_ms + back_ms, Event::Back(number, next_life));
    }

    /// The jobs that a machine ran in this life.
    pub(super) fn running_on(&self, number: usize, life: u32) -> Vec<usize> {
        let of = |event: &Reverse<(u64, Event)>| match event.0.1 {
            Event::Ends(machine, of_life, _, job) if (machine, of_life) == (number, life) => Some(job),
            _ => None,
        };
        let mut jobs: Vec<usize> = self.events.iter().filter_map(of).collect();
        jobs.sort_unstable();
        jobs
    }

    pub(super) fn come_back(&mut self, number: usize, life: u32) {
        let Some(machine) = self.machines.get_mut(&number).filter(|it| it.life == life) else { return };
        if machine.phase != Phase::Lost {
            return;
        }
        self.tally.bill(machine, self.now_ms, self.rules);
        machine.enter(Phase::Ready, self.now_ms);
        self.expect_loss(number);
        self.serve(number);
    }

    /// A time from an exponential distribution with this mean.
    pub(super) fn drawn_ms(&mut self, mean_s: f64) -> u64 {
        let share: f64 = self.random.random_range(f64::EPSILON..1.0);
        millis(-mean_s * share.ln())
    }

    pub(super) fn expect_loss(&mut self, number: usize) {
        let Some(machine) = self.machines.get(&number) else { return };
        let (life, kind) = (machine.life, &self.kinds[machine.kind]);
        let per_hour = self.rules.interruptible.map_or(kind.spot_preempt_per_h, |(_, per_hour)| per_hour);
        if machine.is_interruptible && per_hour > 0.0 {
            let after_ms = self.drawn_ms(3_600.0 / per_hour);
            self.at(self.now_ms + after_ms, Event::Lost(number, life));
        }
    }

    /// Reserves GPUs with room for jobs that need more than their free memory, as the gateway makes workers do.
    pub(super) fn hold_gpus(&mut self) {
        if self.rules.share_gb.is_none() {
            return;
        }
        let numbers: Vec<usize> = self.machines.keys().copied().collect();
        for number in numbers {
            let Some(machine) = self.machines.get(&number) else { continue };
            let Some(reach) = machine.parked.clone().filter(|_| machine.is_open()) else { continue };
            let could = Capability::usual(self.room_class_gib(machine.kind));
            let held = now(self.queue.hold(&machine.id, &reach, &could)).expect("the queue in memory answers");
            if held.is_some() {
                self.unpark(number);
                if let Some(machine) = self.machines.get_mut(&number) {
                    machine.holds = held;
                }
            }
        }
    }

    /// Executes a plan as far as possible: a machine that runs jobs is neither stopped nor released.
    pub(super) fn apply(&mut self, plan: &Plan) {
        for step in &plan.steps {
            match &step.action {
                Action::Rent { offer, bid_usd_per_hour, .. } => self.rent(offer, bid_usd_per_hour.is_some()),
                Action::Resume { machine } => self.resume(machine),
                Action::Drain { machine } => {
                    if let Some(number) = self.find(machine, &[Phase::Ready]) {
                        self.unpark(number);
                        self.enter(number, Phase::Draining);
                    }
                }
                Action::Undrain { machine } => {
                    if let Some(number) = self.find(machine, &[Phase::Draining]) {
                        self.enter(number, Phase::Ready);
                        self.serve(number);
                    }
                }
                Action::Stop { machine } => {
                    if let Some(number) = self.find(machine, &[Phase::Ready, Phase::Draining, Phase::Resuming]) {
                        self.power_off(number);
                        self.enter(number, Phase::Stopped);
                    }
                }
                Action::Release { machine } => {
                    let any =
                        [Phase::Booting, Phase::Ready, Phase::Draining, Phase::Stopped, Phase::Resuming, Phase::Lost];
                    if let Some(number) = self.find(machine, &any) {
                        self.power_off(number);
                        self.machines.remove(&number);
                    }
                }
            }
        }
    }

    /// The number of a machine that is in one of these phases. If the action switches it off, it must not run jobs.
    pub(super) fn find(&self, id: &Name, phases: &[Phase]) -> Option<usize> {
        let is_it = |machine: &Machine| machine.id == *id && phases.contains(&machine.phase);
        let (number, machine) = self.machines.iter().find(|(_, machine)| is_it(machine))?;
        let switches_off = phases.len() > 1;
        (!switches_off || machine.running.is_empty()).then_some(*number)
    }

    pub(super) fn enter(&mut self, number: usize, phase: Phase) {
        let Some(machine) = self.machines.get_mut(&number) else { return };
        self.tally.bill(machine, self.now_ms, self.rules);
        let idle_since_ms = machine.idle_since_ms;
        let is_back = machine.phase == Phase::Draining && phase == Phase::Ready;
        machine.enter(phase, self.now_ms);
        if is_back {
            machine.idle_since_ms = idle_since_ms;
        }
    }

    pub(super) fn power_off(&mut self, number: usize) {
        self.unpark(number);
        let Some(machine) = self.machines.get_mut(&number) else { return };
        self.tally.bill(machine, self.now_ms, self.rules);
        machine.power_off();
    }

    pub(super) fn rent(&mut self, offer: &Name, is_interruptible: bool) {
        let Some(kind) = self.kinds.iter().position(|kind| kind.name == *offer) else { return };
        if self.offer(kind).count == 0 {
            return;
        }
        let number = self.rented;
        self.rented += 1;
        let id = Name::from(format!("m{number:05}"));
        let room_gb = self.room_gb(kind);
        let mut machine = Machine::new(id, kind, room_gb, self.rules, self.now_ms);
        (machine.is_interruptible, machine.usd_per_hour) =
            (is_interruptible, self.usd_per_hour(kind, is_interruptible));
        self.machines.insert(number, machine);
        self.tally.boots += 1;
        let Kind { boot_lo_s, boot_hi_s, .. } = self.kinds[kind];
        let boot_s = boot_lo_s + (boot_hi_s - boot_lo_s) * self.random.random::<f64>();
        self.at(self.now_ms + millis(boot_s), Event::Ready(number, 0));
        self.expect_loss(number);
    }

    pub(super) fn resume(&mut self, id: &Name) {
        let Some(number) = self.find(id, &[Phase::Stopped]) else { return };
        self.enter(number, Phase::Resuming);
        let (is_taken, share) = (self.random.random::<f64>() < self.rules.resume_taken, self.random.random::<f64>());
        let Some(machine) = self.machines.get_mut(&number) else { return };
        // A machine whose GPU is taken waits for it, and costs as much as a stopped one.
        machine.is_taken = is_taken;
        let life = machine.life;
        if !is_taken {
            let (lo_s, hi_s) = self.rules.resume_s;
            self.at(self.now_ms + millis(lo_s + (hi_s - lo_s) * share), Event::Ready(number, life));
        }
    }
}
