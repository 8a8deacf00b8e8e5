//! Small situations, each in a file: the observation, the actions and their reasons. `BLESS=1` writes the files.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use stokehold_planner::observation::{Traits, Work};
use stokehold_planner::{Endpoint, Machine, Name, Observation, Observer, Offer, Phase, Plan, Policy, Snapshot, decide};
use stokehold_units::{Mib, UsdMicros};

/// A Monday, 08:00 UTC.
const MORNING_S: f64 = 1_700_467_200.0;

/// A morning: the observation changes, and decisions follow, again and again.
pub(crate) struct Morning {
    pub(crate) seen: Observation,
    policy: Policy,
    observer: Observer,
    told: String,
}

impl Morning {
    /// `about` is the beginning of the file.
    pub(crate) fn new(about: &str, policy: Policy) -> Self {
        let seen = Observation {
            at_s: MORNING_S,
            endpoints: vec![endpoint("acme/paint", 20.0)],
            machines: Vec::new(),
            offers: vec![offer("4090", "RTX 4090", 24.0, 1.0, 0.40), offer("A100", "A100 80GB", 80.0, 0.9, 0.90)],
        };
        Self { observer: Observer::new(&policy), seen, policy, told: format!("# {about}\n") }
    }

    /// Advances to `until_s` seconds after eight. In between it learns every other second and decides nothing.
    fn pass(&mut self, until_s: f64) {
        while self.seen.at_s + 2.0 < MORNING_S + until_s {
            self.seen.at_s += 2.0;
            for work in self.seen.endpoints.iter_mut().flat_map(|endpoint| &mut endpoint.work) {
                work.oldest_s += if work.waiting > 0 { 2.0 } else { 0.0 };
            }
            self.observer.note(&self.seen);
        }
        self.seen.at_s = MORNING_S + until_s;
    }

    /// Adds arriving jobs: priority 0 is interactive, 2 is batch.
    pub(crate) fn arrive(&mut self, endpoint: usize, priority: usize, jobs: u64) {
        let work = &mut self.seen.endpoints[endpoint].work[priority];
        (work.arrived, work.waiting) = (work.arrived + jobs, work.waiting + jobs);
    }

    /// Ends all waiting jobs.
    fn serve(&mut self) {
        for work in self.seen.endpoints.iter_mut().flat_map(|endpoint| &mut endpoint.work) {
            *work = Work { arrived: work.arrived, started: work.arrived, ..Work::default() };
        }
    }

    pub(crate) fn plan(&mut self) -> Plan {
        let learned = self.observer.note(&self.seen);
        decide(&Snapshot { seen: &self.seen, learned }, &self.policy)
    }

    /// Prints the observation, and the actions that follow.
    fn tell(&mut self) {
        let plan = self.plan();
        self.told += &format!("\n{}", shown(&self.seen));
        plan.to_string().lines().for_each(|line| writeln!(self.told, "=> {line}").unwrap());
    }

    /// Prints the first moment from now on with an action, checked every other second for a day.
    fn tell_when_something_is_done(&mut self) {
        let from_s = self.seen.at_s - MORNING_S;
        for step in 0..43_200_u32 {
            self.pass(from_s + f64::from(step) * 2.0);
            if !self.plan().steps.is_empty() {
                return self.tell();
            }
        }
        panic!("nothing is ever done");
    }
}

fn clock(at_s: f64) -> String {
    let s = at_s.rem_euclid(86_400.0);
    format!("{:02.0}:{:02.0}:{:02.0}", (s / 3_600.0).floor(), (s / 60.0).floor() % 60.0, s % 60.0)
}

fn shown(seen: &Observation) -> String {
    let mut told = clock(seen.at_s) + "\n";
    for endpoint in &seen.endpoints {
        let [interactive, _, batch] = endpoint.work.map(|work| work.waiting);
        let (Endpoint { name, .. }, vram_gib) = (endpoint, endpoint.vram.gib());
        writeln!(told, "   {name} ({vram_gib} GiB): {interactive} interactive and {batch} batch jobs wait").unwrap();
    }
    for machine in &seen.machines {
        let Machine { id, kind, phase, usd_per_hour, since_s, running, .. } = machine;
        let since = clock(*since_s);
        let phase = format!("{phase:?}").to_lowercase();
        writeln!(told, "   {id}: {kind} for ${usd_per_hour}/h, {phase} since {since}, {running} jobs").unwrap();
    }
    for offer in &seen.offers {
        let (Offer { id, kind, usd_per_hour, .. }, vram_gib) = (offer, offer.vram.gib());
        let bid = offer.min_bid_usd_per_hour.map_or(String::new(), |bid| format!(", interruptible from ${bid}/h"));
        let owned = if offer.is_owned { ", owned" } else { "" };
        writeln!(told, "   offer {id}: {kind}, {vram_gib} GiB, ${usd_per_hour}/h{bid}{owned}").unwrap();
    }
    told
}

fn endpoint(name: &str, vram_gib: f64) -> Endpoint {
    Endpoint {
        name: name.into(),
        vram: Mib::from_gib(vram_gib),
        demands: Default::default(),
        work: [Work::default(); 3],
        running: 0,
        at_once: 1,
        vram_fraction: None,
        runs: Vec::new(),
    }
}

fn offer(id: &str, kind: &str, vram_gib: f64, speed: f64, usd_per_hour: f64) -> Offer {
    Offer {
        id: id.into(),
        provider: "market".into(),
        kind: kind.into(),
        host: Name::default(),
        count: 8,
        cards: 1,
        gpu_ids: Vec::new(),
        vram: Mib::from_gib(vram_gib),
        slots: 1,
        speed,
        usd_per_hour: UsdMicros::from_usd(usd_per_hour),
        min_bid_usd_per_hour: None,
        losses_per_hour: 0.3,
        stopped_usd_per_hour: Some(10_000.into()),
        boot_s: 120.0,
        inbound_usd_per_gb: UsdMicros::ZERO,
        inbound_mbit_per_s: 0.0,
        reliability: 1.0,
        listed_for_s: None,
        traits: Traits::default(),
        is_owned: false,
    }
}

/// An RTX 4090 for $0.40/h that has been in this phase since `since_s` seconds after eight.
fn machine(id: &str, phase: Phase, since_s: f64) -> Machine {
    let since_s = MORNING_S + since_s;
    Machine {
        id: id.into(),
        provider: "market".into(),
        kind: "RTX 4090".into(),
        host: Name::default(),
        phase,
        since_s,
        rented_s: since_s,
        usd_per_hour: 400_000.into(),
        stopped_usd_per_hour: 10_000.into(),
        is_interruptible: false,
        can_stop: true,
        cards: 1,
        vram: Mib::from_gib(24.0),
        slots: 1,
        traits: Traits::default(),
        running: 0,
        running_vram: Mib::ZERO,
        idle_since_s: (phase == Phase::Ready).then_some(since_s),
        resident: Vec::new(),
        on_disk: Vec::new(),
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn first_job() -> Morning {
    let mut morning = Morning::new("The first job of all: nothing is on, and a machine is rented.", Policy::default());
    morning.arrive(0, 0, 1);
    morning.tell();
    morning
}

fn queue_while_machines_boot() -> Morning {
    let about = "Jobs queue, and the machines that they need are booting already: nothing is to be done.";
    let mut morning = Morning::new(about, Policy::default());
    morning.arrive(0, 0, 2);
    morning.tell();
    morning.seen.machines = vec![machine("m1", Phase::Booting, 0.0), machine("m2", Phase::Booting, 0.0)];
    morning.pass(4.0);
    morning.tell();
    morning
}

fn resume_before_rent() -> Morning {
    let about =
        "A stopped machine comes back sooner than a new one boots: it goes first, and what is missing is rented.";
    let mut morning = Morning::new(about, Policy::default());
    morning.seen.machines = vec![machine("m1", Phase::Stopped, -600.0)];
    morning.arrive(0, 0, 3);
    morning.tell();
    morning
}

/// Jobs that arrive once every `every_s` seconds for an hour, and are run by one machine.
fn steady(about: &str, every_s: f64, can_stop: bool) -> Morning {
    let mut morning = Morning::new(about, Policy::default());
    morning.seen.machines = vec![Machine { can_stop, ..machine("m1", Phase::Ready, 0.0) }];
    let mut last_s = 0.0;
    while last_s + every_s <= 3_600.0 {
        last_s += every_s;
        morning.pass(last_s);
        morning.arrive(0, 0, 1);
        morning.plan();
        morning.serve();
        let idle_since_s = morning.seen.at_s + 20.0;
        morning.pass(last_s + 20.0);
        morning.seen.machines[0].idle_since_s = Some(idle_since_s);
    }
    morning
}

fn idle_is_kept() -> Morning {
    let about = "A job has come every minute for an hour: who is idle for half a minute is kept for the next.";
    let mut morning = steady(about, 60.0, true);
    morning.pass(3_630.0);
    morning.tell();
    morning
}

fn idle_is_stopped() -> Morning {
    let about =
        "The same, but then no more come: waiting on costs more than a resume would, and the machine is stopped.";
    let mut morning = steady(about, 60.0, true);
    morning.tell_when_something_is_done();
    morning
}

fn idle_is_released() -> Morning {
    let about =
        "The same, on a machine that cannot be stopped: starting again takes a boot, so that it is kept for longer.";
    let mut morning = steady(about, 60.0, false);
    morning.tell_when_something_is_done();
    morning
}

fn batch_is_put_off() -> Morning {
    let about = "Batch jobs have an hour: nothing is switched on for them until they need a machine from then on to be in time.";
    let mut morning = Morning::new(about, Policy::default());
    morning.arrive(0, 2, 20);
    morning.tell();
    morning.tell_when_something_is_done();
    morning
}

fn max_usd_per_hour() -> Morning {
    let about = "Twelve jobs want more machines than a dollar an hour pays for: two are rented, and the rest is said.";
    let mut morning = Morning::new(about, Policy { max_usd_per_hour: 1.0, ..Policy::default() });
    morning.arrive(0, 0, 12);
    morning.tell();
    morning
}

fn nobody_offers_80_gb() -> Morning {
    let about = "A model of 70 GiB that fits no offered GPU, beside a small one, which still gets its machine.";
    let mut morning = Morning::new(about, Policy::default());
    morning.seen.endpoints.push(endpoint("acme/write", 70.0));
    morning.seen.offers.truncate(1);
    morning.arrive(0, 0, 1);
    morning.arrive(1, 0, 1);
    morning.tell();
    morning
}

fn deadlines() -> Morning {
    let about = "A boot and a resume that came to nothing within their deadlines are given back; the job gets another.";
    let mut morning = Morning::new(about, Policy::default());
    morning.seen.machines = vec![machine("m1", Phase::Booting, -901.0), machine("m2", Phase::Resuming, -46.0)];
    morning.arrive(0, 0, 1);
    morning.tell();
    morning
}

fn owned_goes_first() -> Morning {
    let about =
        "What the operator owns is started before anything is rented, and rented machines are given up before it.";
    let mut morning = Morning::new(about, Policy::default());
    morning.seen.offers.push(Offer { count: 1, is_owned: true, ..offer("rack", "RTX 4090", 24.0, 1.0, 0.0) });
    morning.arrive(0, 0, 3);
    morning.tell();
    morning.serve();
    let owned = Machine {
        usd_per_hour: UsdMicros::ZERO,
        stopped_usd_per_hour: UsdMicros::ZERO,
        can_stop: false,
        ..machine("m1", Phase::Ready, 60.0)
    };
    morning.seen.machines = vec![owned, machine("m2", Phase::Ready, 120.0)];
    morning.seen.offers.pop();
    morning.pass(180.0);
    morning.tell_when_something_is_done();
    morning
}

fn bids() -> Morning {
    let about = "An interruptible machine may be lost: good enough for batch, but the first that somebody waits for is to stay.";
    let mut morning = Morning::new(about, Policy { may_bid: true, ..Policy::default() });
    morning.seen.offers[0].min_bid_usd_per_hour = Some(200_000.into());
    morning.arrive(0, 2, 100);
    morning.tell_when_something_is_done();
    morning.serve();
    morning.pass(7_200.0);
    morning.arrive(0, 0, 2);
    morning.tell();
    morning
}

fn bids_that_are_not_made() -> Morning {
    let about = "Where a bid is not made though the policy would have it, the plan says why.";
    let policy = Policy { may_bid: true, batch_target_s: 500.0, deferred_margin_s: 30.0, ..Policy::default() };
    let mut morning = Morning::new(about, policy);
    morning.seen.offers.truncate(1);
    morning.arrive(0, 2, 12);
    morning.tell_when_something_is_done();
    morning.seen.offers[0].min_bid_usd_per_hour = Some(390_000.into());
    morning.tell();
    morning.seen.offers[0].min_bid_usd_per_hour = Some(200_000.into());
    morning.tell();
    let often_lost = &mut morning.seen.offers[0];
    (often_lost.kind, often_lost.losses_per_hour) = ("RTX 4080".into(), 20.0);
    morning.tell();
    morning
}

fn what_was_never_needed_is_stopped() -> Morning {
    let about = "No job was ever waited for: the machine that has run batch jobs is stopped where its disk is worth it, and forgotten later.";
    let mut morning = Morning::new(about, Policy::default());
    morning.seen.machines = vec![machine("m1", Phase::Ready, 0.0)];
    morning.pass(4.0);
    morning.tell();
    morning.tell_when_something_is_done();
    let at_s = morning.seen.at_s - MORNING_S;
    morning.seen.machines = vec![machine("m1", Phase::Stopped, at_s)];
    morning.pass(at_s + 2.0);
    morning.tell_when_something_is_done();
    morning
}

#[test]
fn every_situation_is_decided_as_its_file_says_and_no_file_is_left_over() {
    let situations = [
        ("first_job", first_job as fn() -> Morning),
        ("queue_while_machines_boot", queue_while_machines_boot),
        ("resume_before_rent", resume_before_rent),
        ("idle_is_kept", idle_is_kept),
        ("idle_is_stopped", idle_is_stopped),
        ("idle_is_released", idle_is_released),
        ("batch_is_put_off", batch_is_put_off),
        ("max_usd_per_hour", max_usd_per_hour),
        ("nobody_offers_80_gb", nobody_offers_80_gb),
        ("deadlines", deadlines),
        ("owned_goes_first", owned_goes_first),
        ("bids", bids),
        ("bids_that_are_not_made", bids_that_are_not_made),
        ("what_was_never_needed_is_stopped", what_was_never_needed_is_stopped),
    ];
    let mut named = BTreeSet::new();
    for (name, situation) in situations {
        let (file, told) = (format!("{name}.txt"), situation().told);
        let path = folder().join(&file);
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, &told).unwrap();
        }
        let pinned = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(pinned == told, "{file} is not what is decided; BLESS=1 rewrites it:\n{told}");
        named.insert(file);
    }
    let files = std::fs::read_dir(folder()).unwrap();
    let found: BTreeSet<String> = files.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(found, named, "each file has its situation");
}
