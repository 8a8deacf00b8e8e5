//! Random observations and learned values: every input that a decision may get, likely or not.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use stokehold_planner::observation::Traits;
use stokehold_planner::snapshot::{Group, KindLearned, Needs};
use stokehold_planner::{Learned, Level, Machine, Name, Observation, Offer, Phase, Policy};
use stokehold_protocol::requirements::Requirements;
use stokehold_units::{Mib, UsdMicros};

const NOW_S: f64 = 1_700_000_000.0;
const GPUS_GB: [f64; 5] = [12.0, 16.0, 24.0, 48.0, 80.0];
const REGIONS: [&str; 2] = ["eu", "us"];

/// All inputs of a decision.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) seen: Observation,
    pub(crate) learned: Learned,
    pub(crate) policy: Policy,
}

/// Kinds of cases.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sort {
    /// Anything.
    Any,
    /// Machines with one GPU, of which the larger does everything that the smaller does, without a cost limit.
    Plain,
}

struct Draw {
    random: StdRng,
    sort: Sort,
    kinds: Vec<(Name, f64)>,
}

/// The case of this number.
pub(crate) fn case(seed: u64, sort: Sort) -> Case {
    let mut draw = Draw { random: StdRng::seed_from_u64(seed), sort, kinds: Vec::new() };
    let count = draw.random.random_range(1..=6);
    draw.kinds = (0..count).map(|n| (Name::from(format!("K{n}")), draw.one(&GPUS_GB))).collect();
    let policy = draw.policy();
    let learned = draw.learned(&policy);
    let machines = draw.up_to(10);
    let offers = draw.up_to(12);
    let seen = Observation {
        at_s: NOW_S,
        endpoints: Vec::new(),
        machines: (0..machines).map(|n| draw.machine(n, &policy)).collect(),
        offers: (0..offers).map(|n| draw.offer(n)).collect(),
    };
    Case { seen, learned, policy }
}

impl Draw {
    fn is(&mut self, share: f64) -> bool {
        self.random.random_bool(share)
    }

    fn up_to(&mut self, most: usize) -> usize {
        self.random.random_range(0..=most)
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of.choose(&mut self.random).cloned().unwrap()
    }

    fn within(&mut self, least: f64, most: f64) -> f64 {
        self.random.random_range(least..most)
    }

    /// A number drawn evenly on a logarithmic scale.
    fn about(&mut self, least: f64, most: f64) -> f64 {
        self.within(least.ln(), most.ln()).exp()
    }

    fn policy(&mut self) -> Policy {
        let max_machines = self.one(&[0, 1, 2, 3, 5, 8, 64]);
        let wild = self.sort == Sort::Any;
        Policy {
            max_machines,
            min_machines: if self.is(0.7) { 0 } else { self.random.random_range(0..=max_machines.min(6)) },
            max_usd_per_hour: if wild { self.one(&[0.0, 0.3, 1.0, 2.5, 6.0, 1_000.0]) } else { f64::MAX },
            kinds: if wild && self.is(0.3) { vec!["K0".to_owned(), "K2".to_owned()] } else { Vec::new() },
            may_stop: self.is(0.8),
            may_bid: wild && self.is(0.5),
            ..Policy::default()
        }
    }

    fn demands(&mut self) -> Requirements {
        let mut demands = Requirements::default();
        if self.sort == Sort::Plain || self.is(0.5) {
            return demands;
        }
        if self.is(0.4) {
            demands.gpus = self.random.random_range(1..=4);
        }
        if self.is(0.3) {
            demands.regions = vec![self.one(&REGIONS).to_owned()];
        }
        if self.is(0.3) {
            demands.gpu_models = vec![self.one(&["K0", "K1", "K3"]).to_owned()];
        }
        demands
    }

    fn traits(&mut self) -> Traits {
        Traits { region: self.one(&REGIONS).to_owned(), ..Traits::default() }
    }

    fn level(&mut self) -> Level {
        let mut level = Level::unused(NOW_S);
        for _ in 0..self.up_to(12) {
            let bin = self.random.random_range(0..level.gaps.len());
            level.gaps[bin] += self.within(0.0, 5.0);
        }
        level.used_s = NOW_S - if self.is(0.2) { 0.0 } else { self.about(1.0, 600_000.0) };
        level
    }

    fn demand(&mut self) -> f64 {
        if self.is(0.4) { 0.0 } else { self.within(0.0, 5.0) }
    }

    fn group(&mut self, needs: Needs) -> Group {
        let levels = self.up_to(8);
        Group {
            faster: Default::default(),
            needs,
            interactive: self.demand(),
            burst: self.demand(),
            steady: self.within(0.0, 2.0),
            deferred: self.demand(),
            urgent: if self.is(0.8) { 0.0 } else { self.within(0.0, 3.0) },
            waiting: (self.random.random_range(0..20), self.random.random_range(0..20)),
            running: self.random.random_range(0..9),
            jobs_per_s: self.within(0.0, 2.0),
            run_s: self.about(0.5, 600.0),
            at_once: 1.0,
            working_set: Mib::from_gib(self.within(0.0, 200.0)),
            hour_factor: self.within(0.2, 3.0),
            levels: (0..levels).map(|_| self.level()).collect(),
        }
    }

    fn learned(&mut self, policy: &Policy) -> Learned {
        let count = self.up_to(4);
        let mut needs: Vec<Needs> = Vec::new();
        for _ in 0..count {
            let gb = if self.is(0.1) { 0.0 } else { self.one(&GPUS_GB) };
            let new = Needs { vram: Mib::from_gib(gb), demands: self.demands() };
            if !needs.contains(&new) {
                needs.push(new);
            }
        }
        // In the order of the observer.
        needs.sort_by(|a, b| a.vram.cmp(&b.vram).then(b.demands.ask_nothing().cmp(&a.demands.ask_nothing())));
        let groups = needs.into_iter().map(|needs| self.group(needs)).collect();
        let kinds = self.kinds.clone().into_iter().map(|(name, _)| {
            let (speed, boot_s) = (self.within(0.3, 3.0), self.about(20.0, 900.0));
            (name, KindLearned { speed, boot_s, losses_per_hour: self.within(0.0, 2.0) })
        });
        Learned {
            groups,
            late_usd: policy.late_usd * 1.5,
            kinds: kinds.collect(),
            cooldowns: [(Name::from("h1"), NOW_S + 100.0)].into(),
            swap_s: self.within(0.0, 10.0),
            resumes_well: self.within(0.0, 1.0),
            resume_s: self.within(10.0, 60.0),
        }
    }

    fn cards(&mut self) -> u32 {
        if self.sort == Sort::Plain { 1 } else { self.one(&[0, 1, 1, 1, 2, 4, 8]) }
    }

    fn machine(&mut self, number: usize, policy: &Policy) -> Machine {
        let (kind, vram_gib) = self.one(&self.kinds.clone());
        let cards = self.cards();
        use Phase::{Booting, Draining, Lost, Ready, Resuming, Stopped};
        let phase = self.one(&[Booting, Ready, Ready, Ready, Ready, Draining, Stopped, Stopped, Resuming, Lost]);
        let most_s = match phase {
            Booting => policy.boot_deadline_s * 1.3,
            Resuming => policy.resume_deadline_s * 1.5,
            Draining => policy.drain_deadline_s * 1.5,
            Ready | Stopped | Lost => 1e6,
        };
        let since_s = NOW_S - self.within(0.0, most_s);
        let running =
            if matches!(phase, Ready | Draining) && self.is(0.4) { self.random.random_range(1..5) } else { 0 };
        let is_owned = self.is(0.15);
        let usd_per_hour = if is_owned { 0.0 } else { self.about(0.1, 3.0) };
        Machine {
            id: Name::from(format!("m{number:02}")),
            provider: "p".into(),
            kind,
            host: self.one(&["", "h0", "h1", "h2"]).into(),
            phase,
            since_s,
            rented_s: since_s - self.within(0.0, 1e5),
            usd_per_hour: UsdMicros::from_usd(usd_per_hour),
            stopped_usd_per_hour: UsdMicros::from_usd(usd_per_hour * 0.02),
            is_interruptible: !is_owned && self.is(0.2),
            can_stop: self.is(0.6),
            cards,
            vram: if cards == 0 { Mib::ZERO } else { Mib::from_gib(vram_gib) },
            slots: 1,
            traits: self.traits(),
            running,
            running_vram: Mib::ZERO,
            idle_since_s: (phase == Ready && running == 0).then(|| self.within(since_s, NOW_S)),
            resident: Vec::new(),
            on_disk: Vec::new(),
        }
    }

    fn offer(&mut self, number: usize) -> Offer {
        let (kind, vram_gib) = self.one(&self.kinds.clone());
        let (cards, is_owned) = (self.cards(), self.is(0.1));
        let host = if self.is(0.5) { "" } else { self.one(&["h0", "h1", "h2", "h3"]) };
        let is_split = !host.is_empty() && cards > 0 && self.is(0.7);
        let first = u64::from(self.random.random_range(0..4_u32));
        let usd_per_hour = if is_owned { 0.0 } else { self.about(0.1, 3.0) };
        Offer {
            id: Name::from(format!("o{number:02}")),
            provider: "p".into(),
            kind,
            host: host.into(),
            count: if is_split { 1 } else { self.random.random_range(0..5) },
            cards,
            gpu_ids: if is_split { (first..first + u64::from(cards)).collect() } else { Vec::new() },
            vram: if cards == 0 { Mib::ZERO } else { Mib::from_gib(vram_gib) },
            slots: 1,
            speed: self.within(0.3, 3.0),
            usd_per_hour: UsdMicros::from_usd(usd_per_hour),
            min_bid_usd_per_hour: (!is_owned && self.is(0.5)).then_some(UsdMicros::from_usd(usd_per_hour * 0.5)),
            losses_per_hour: self.within(0.0, 1.0),
            stopped_usd_per_hour: self.is(0.6).then_some(UsdMicros::from_usd(usd_per_hour * 0.02)),
            boot_s: self.about(20.0, 900.0),
            inbound_usd_per_gb: UsdMicros::from_usd(self.within(0.0, 0.01)),
            inbound_mbit_per_s: if self.is(0.3) { 0.0 } else { self.about(50.0, 10_000.0) },
            reliability: if self.is(0.7) { 1.0 } else { self.within(0.8, 1.0) },
            listed_for_s: self.is(0.3).then(|| self.about(100.0, 1e6)),
            traits: self.traits(),
            is_owned,
        }
    }
}
