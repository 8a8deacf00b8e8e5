//! Observations for decisions and samples for plots.

use stokehold_protocol::vram::{DECLARED_MAX_GIB, class_of_gib};
use stokehold_units::{Mib, UsdMicros};

use super::{START_MS, World, s};
use crate::name::Name;
use crate::observation::{self, Offer, Phase};
use crate::simulate::machine::Machine;
use crate::simulate::outcome::Sample;

impl World<'_> {
    /// Memory of a GPU of this kind that models may use, GB.
    pub(super) fn room_gb(&self, kind: usize) -> f64 {
        self.rules.share_gb.map_or(f64::INFINITY, |share_gb| share_gb).min(self.kinds[kind].vram_gb)
    }

    pub(super) fn room_class_gib(&self, kind: usize) -> u32 {
        class_of_gib(self.room_gb(kind).min(f64::from(DECLARED_MAX_GIB)).floor()).unwrap_or(0)
    }

    pub(super) fn usd_per_hour(&self, kind: usize, is_interruptible: bool) -> f64 {
        let kind = &self.kinds[kind];
        match (is_interruptible, self.rules.interruptible) {
            (false, _) => kind.od_usd_h,
            (true, Some((of_price, _))) => kind.od_usd_h * of_price,
            (true, None) => kind.spot_usd_h,
        }
    }

    /// Updates the observation.
    pub(super) fn observe(&mut self) {
        self.seen.at_s = (START_MS + self.now_ms) as f64 / 1_000.0;
        let now_s = self.now_ms as f64 / 1_000.0;
        for (endpoint, known) in self.seen.endpoints.iter_mut().zip(&self.known) {
            for (work, waiting) in endpoint.work.iter_mut().zip(&known.waiting) {
                work.oldest_s = waiting.front().map_or(0.0, |job| (now_s - self.jobs[*job].arrival_s).max(0.0));
            }
        }
        let names = |places: &mut dyn Iterator<Item = usize>| -> Vec<Name> {
            places.map(|place| self.seen.endpoints[place].name.clone()).collect()
        };
        let at_s = |ms: u64| (START_MS + ms) as f64 / 1_000.0;
        let machines = self.machines.values().map(|machine| observation::Machine {
            id: machine.id.clone(),
            provider: Name::from("simulated"),
            kind: self.kinds[machine.kind].name.clone(),
            host: Name::default(),
            phase: machine.phase,
            since_s: at_s(machine.since_ms),
            rented_s: at_s(machine.rented_ms),
            usd_per_hour: UsdMicros::from_usd(machine.usd_per_hour),
            stopped_usd_per_hour: UsdMicros::from_usd(self.rules.stopped_usd_per_hour),
            is_interruptible: machine.is_interruptible,
            can_stop: true,
            cards: 1,
            vram: Mib::from_gib(self.room_gb(machine.kind)),
            slots: u32::from(self.rules.share_gb.is_none()),
            traits: Default::default(),
            running: machine.running.len() as u64,
            running_vram: Mib::from_gib(machine.running_gb),
            idle_since_s: (machine.phase == Phase::Ready && machine.running.is_empty())
                .then(|| at_s(machine.idle_since_ms)),
            resident: names(&mut machine.resident()),
            on_disk: names(&mut machine.on_disk().iter().copied()),
        });
        let machines = machines.collect();
        let offers = (0..self.kinds.len()).map(|kind| self.offer(kind)).filter(|offer| offer.count > 0).collect();
        (self.seen.machines, self.seen.offers) = (machines, offers);
    }

    pub(super) fn offer(&self, number: usize) -> Offer {
        let kind = &self.kinds[number];
        // Stopped machines have given their GPUs back.
        let in_use = self.machines.values().filter(|it| it.kind == number && it.phase != Phase::Stopped);
        let in_use = u32::try_from(in_use.count()).unwrap_or(u32::MAX);
        let losses_per_hour = self.rules.interruptible.map_or(kind.spot_preempt_per_h, |(_, per_hour)| per_hour);
        Offer {
            id: kind.name.clone(),
            provider: Name::from("simulated"),
            kind: kind.name.clone(),
            host: Name::default(),
            count: kind.max_count.saturating_sub(in_use),
            cards: 1,
            gpu_ids: Vec::new(),
            vram: Mib::from_gib(self.room_gb(number)),
            slots: u32::from(self.rules.share_gb.is_none()),
            speed: kind.speed,
            usd_per_hour: UsdMicros::from_usd(kind.od_usd_h),
            min_bid_usd_per_hour: self
                .rules
                .has_interruptible
                .then(|| UsdMicros::from_usd(self.usd_per_hour(number, true))),
            losses_per_hour,
            stopped_usd_per_hour: Some(UsdMicros::from_usd(self.rules.stopped_usd_per_hour)),
            boot_s: f64::midpoint(kind.boot_lo_s, kind.boot_hi_s),
            inbound_usd_per_gb: UsdMicros::ZERO,
            inbound_mbit_per_s: 0.0,
            reliability: 1.0,
            listed_for_s: None,
            traits: Default::default(),
            is_owned: false,
        }
    }

    pub(super) fn sample(&mut self) -> Sample {
        for machine in self.machines.values_mut() {
            self.tally.bill(machine, self.now_ms, self.rules);
        }
        let count = |is: &dyn Fn(&Machine) -> bool| {
            u32::try_from(self.machines.values().filter(|machine| is(machine)).count()).unwrap_or(u32::MAX)
        };
        let waiting = |priority: usize| {
            let jobs: usize = self.known.iter().map(|known| known.waiting[priority].len()).sum();
            u32::try_from(jobs).unwrap_or(u32::MAX)
        };
        let stood = Sample {
            at_s: s(self.now_ms),
            ready: count(&|machine| matches!(machine.phase, Phase::Ready | Phase::Draining)),
            busy: count(&|machine| !machine.running.is_empty()),
            booting: count(&|machine| matches!(machine.phase, Phase::Booting | Phase::Resuming)),
            stopped: count(&|machine| matches!(machine.phase, Phase::Stopped | Phase::Lost)),
            waiting_interactive: waiting(0),
            waiting_batch: waiting(2),
            ..Sample::default()
        };
        self.tally.sample(stood)
    }
}
