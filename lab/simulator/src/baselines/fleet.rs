//! Steps that bring the fleet to a wanted number of machines.

use stokehold_planner::plan::Baseline;
use stokehold_planner::{Action, Machine, Name, Observation, Offer, Phase, Plan, Reason, Step};
use stokehold_units::Mib;

/// Time after which a resume is given up, seconds. A stopped machine resumes within 45 s, unless another customer has
/// its GPU.
const RESUME_S: f64 = 60.0;

/// Kind of machine that a baseline rents.
#[derive(Debug, Clone, Default)]
pub struct Fleet {
    kind: Option<Name>,
}

impl Fleet {
    /// The kind with the lowest price for its speed that holds every waiting endpoint.
    #[must_use]
    pub fn cheapest() -> Self {
        Self::default()
    }

    /// Rents only this kind.
    #[must_use]
    pub fn of(kind: Name) -> Self {
        Self { kind: Some(kind) }
    }

    /// Steps from the current machines to `want` machines. To grow, draining machines are undrained first, then stopped
    /// ones resumed, then others rented. To shrink, the machines that are idle for longest go first, then the busy ones
    /// with the fewest jobs drain; booting ones stay. Up to `keep_stopped` machines are stopped rather than released.
    pub(super) fn toward(&self, seen: &Observation, want: usize, keep_stopped: usize, why: Baseline) -> Plan {
        let mut steps = Steps::new(why);
        let need = self.need(seen);
        let up: Vec<&Machine> = seen.machines.iter().filter(|machine| is_up(machine, seen.at_s)).collect();
        let able = up.iter().filter(|machine| machine.vram >= need).count();
        if want > able {
            self.grow(seen, want - able, need, &mut steps);
        } else if up.len() > want {
            steps.shrink(seen, up, want, keep_stopped);
        }
        steps.tidy(seen, keep_stopped);
        steps.plan
    }

    /// Steps that add `count` machines.
    pub(super) fn more(&self, seen: &Observation, count: usize, why: Baseline) -> Plan {
        let mut steps = Steps::new(why);
        self.grow(seen, count, self.need(seen), &mut steps);
        steps.plan
    }

    fn grow(&self, seen: &Observation, count: usize, need: Mib, steps: &mut Steps) {
        let of =
            |phase: Phase| seen.machines.iter().filter(move |machine| machine.phase == phase && machine.vram >= need);
        let drained = of(Phase::Draining).map(|machine| Action::Undrain { machine: machine.id.clone() });
        let stopped = of(Phase::Stopped).map(|machine| Action::Resume { machine: machine.id.clone() });
        let offers = self.offers(seen, need);
        let rented = offers.into_iter().flat_map(|offer| {
            let rent = Action::Rent { offer: offer.id.clone(), bid_usd_per_hour: None, no_bid: None };
            std::iter::repeat_n(rent, offer.count as usize)
        });
        drained.chain(stopped).chain(rented).take(count).for_each(|action| steps.push(action));
    }

    /// Offers with at least this memory, the lowest price for its speed first, ties by id.
    fn offers<'a>(&self, seen: &'a Observation, need: Mib) -> Vec<&'a Offer> {
        let mut offers: Vec<&Offer> = self.of_kind(seen).filter(|offer| offer.vram >= need).collect();
        let usd_of_work = |offer: &Offer| offer.usd_per_hour.usd() / offer.speed;
        offers.sort_by(|one, other| usd_of_work(one).total_cmp(&usd_of_work(other)).then(one.id.cmp(&other.id)));
        offers
    }

    fn of_kind<'a>(&self, seen: &'a Observation) -> impl Iterator<Item = &'a Offer> {
        seen.offers.iter().filter(|offer| offer.count > 0 && self.kind.as_ref().is_none_or(|kind| *kind == offer.kind))
    }

    /// The memory of the largest waiting endpoint, or of the largest of all if none waits. Endpoints that no offer can
    /// hold do not count.
    fn need(&self, seen: &Observation) -> Mib {
        let largest = self.of_kind(seen).map(|offer| offer.vram).max().unwrap_or_default();
        let most = |waits: bool| {
            let of =
                seen.endpoints.iter().filter(|endpoint| !waits || endpoint.work.iter().any(|work| work.waiting > 0));
            of.map(|endpoint| endpoint.vram).filter(|vram| *vram <= largest).max()
        };
        most(true).or_else(|| most(false)).unwrap_or_default()
    }
}

/// Whether a machine takes jobs now or will take some later.
pub(super) fn is_up(machine: &Machine, now_s: f64) -> bool {
    machine.phase == Phase::Ready || is_coming(machine, now_s)
}

/// Whether a machine will take jobs.
pub(super) fn is_coming(machine: &Machine, now_s: f64) -> bool {
    match machine.phase {
        Phase::Booting => true,
        Phase::Resuming => now_s - machine.since_s < RESUME_S,
        Phase::Ready | Phase::Draining | Phase::Stopped | Phase::Lost => false,
    }
}

/// Idle time of a machine, seconds; `None` if it runs jobs or takes none.
pub(super) fn idle_s(machine: &Machine, now_s: f64) -> Option<f64> {
    let is_idle = machine.phase == Phase::Ready && machine.running == 0;
    is_idle.then(|| now_s - machine.idle_since_s.unwrap_or(now_s))
}

/// A plan, and the reason that all its steps have.
pub(super) struct Steps {
    pub(super) plan: Plan,
    why: Baseline,
}

impl Steps {
    pub(super) fn new(why: Baseline) -> Self {
        Self { plan: Plan::default(), why }
    }

    pub(super) fn push(&mut self, action: Action) {
        let reason = Reason::Baseline(self.why);
        self.plan.steps.push(Step { action, reason });
    }

    fn shrink(&mut self, seen: &Observation, up: Vec<&Machine>, want: usize, keep_stopped: usize) {
        let surplus = up.len() - want;
        let mut stopped = seen.machines.iter().filter(|machine| machine.phase == Phase::Stopped).count();
        let (mut idle, mut busy): (Vec<&Machine>, Vec<&Machine>) =
            up.into_iter().filter(|machine| machine.phase == Phase::Ready).partition(|machine| machine.running == 0);
        let idle_since = |machine: &Machine| machine.idle_since_s.unwrap_or(seen.at_s);
        idle.sort_by(|one, other| idle_since(one).total_cmp(&idle_since(other)).then(one.id.cmp(&other.id)));
        busy.sort_by(|one, other| one.running.cmp(&other.running).then(one.id.cmp(&other.id)));
        for machine in idle.into_iter().chain(busy).take(surplus) {
            let id = machine.id.clone();
            self.push(if machine.running > 0 {
                Action::Drain { machine: id }
            } else if machine.can_stop && stopped < keep_stopped {
                stopped += 1;
                Action::Stop { machine: id }
            } else {
                Action::Release { machine: id }
            });
        }
    }

    /// Releases drained machines, machines that do not come back, and surplus stopped ones, by ID.
    pub(super) fn tidy(&mut self, seen: &Observation, keep_stopped: usize) {
        let mut stopped = 0;
        for machine in &seen.machines {
            let id = machine.id.clone();
            if self.names(&id) {
                continue;
            }
            match machine.phase {
                Phase::Draining if machine.running == 0 && machine.can_stop && stopped < keep_stopped => {
                    stopped += 1;
                    self.push(Action::Stop { machine: id });
                }
                Phase::Draining if machine.running == 0 => self.push(Action::Release { machine: id }),
                Phase::Resuming if !is_coming(machine, seen.at_s) => self.push(Action::Release { machine: id }),
                Phase::Stopped if stopped < keep_stopped => stopped += 1,
                Phase::Stopped => self.push(Action::Release { machine: id }),
                Phase::Booting | Phase::Ready | Phase::Draining | Phase::Resuming | Phase::Lost => {}
            }
        }
    }

    /// Whether the plan already has a step for the machine.
    fn names(&self, id: &Name) -> bool {
        self.plan.steps.iter().any(|step| match &step.action {
            Action::Undrain { machine }
            | Action::Resume { machine }
            | Action::Drain { machine }
            | Action::Stop { machine }
            | Action::Release { machine } => machine == id,
            Action::Rent { .. } => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::made_up::*;
    use super::*;

    fn toward(seen: &Observation, want: usize, keep_stopped: usize) -> String {
        said(&Fleet::cheapest().toward(seen, want, keep_stopped, Baseline::Idle))
    }

    #[test]
    fn the_cheapest_for_its_speed_that_holds_what_waits_is_rented() {
        // $0.40 at speed 1.0, $0.51 at 1.4 and $0.25 at 0.55: the second is the cheapest. For 40 GB, only the third
        // kind of GPU is large enough.
        assert_eq!(toward(&seen(0.0, 1, 0, vec![]), 2, 0), "rent fast, rent fast");
        let mut large = seen(0.0, 1, 0, vec![]);
        large.endpoints[0].vram = Mib::from_gib(40.0);
        assert_eq!(toward(&large, 1, 0), "rent large");
        large.endpoints[0].vram = Mib::from_gib(400.0);
        assert_eq!(toward(&large, 1, 0), "rent fast");
        assert_eq!(said(&Fleet::of("card".into()).toward(&seen(0.0, 1, 0, vec![]), 1, 0, Baseline::Idle)), "rent card");
    }

    #[test]
    fn an_offer_that_is_used_up_is_followed_by_the_next() {
        let plan = Fleet::cheapest().toward(&seen(0.0, 1, 0, vec![]), 5, 0, Baseline::Idle);
        assert_eq!(said(&plan), "rent fast, rent fast, rent fast, rent card, rent card");
    }

    #[test]
    fn machines_that_are_there_are_used_before_others_are_rented() {
        let machines = vec![with("a", Phase::Booting, 0), with("b", Phase::Draining, 1), with("c", Phase::Stopped, 0)];
        assert_eq!(toward(&seen(0.0, 1, 0, machines.clone()), 1, 9), "");
        assert_eq!(toward(&seen(0.0, 1, 0, machines), 4, 9), "undrain b, resume c, rent fast");
    }

    #[test]
    fn a_machine_that_does_not_come_back_is_not_counted_on() {
        let machines = vec![with("a", Phase::Resuming, 0)];
        assert_eq!(toward(&seen(59.0, 1, 0, machines.clone()), 1, 0), "");
        assert_eq!(toward(&seen(60.0, 1, 0, machines), 1, 0), "rent fast, release a");
    }

    #[test]
    fn a_machine_that_cannot_hold_what_waits_does_not_count() {
        let mut large = seen(0.0, 1, 0, vec![idle("a")]);
        large.endpoints[0].vram = Mib::from_gib(40.0);
        assert_eq!(toward(&large, 1, 0), "rent large");
    }

    #[test]
    fn idle_machines_go_first_and_busy_ones_drain() {
        let mut longest = idle("c");
        longest.idle_since_s = Some(0.5);
        let machines = vec![
            with("a", Phase::Ready, 2),
            idle("b"),
            longest,
            with("d", Phase::Booting, 0),
            with("e", Phase::Ready, 1),
        ];
        let seen = seen(10.0, 0, 3, machines);
        assert_eq!(toward(&seen, 4, 0), "release c");
        assert_eq!(toward(&seen, 0, 0), "release c, release b, drain e, drain a");
        assert_eq!(toward(&seen, 2, 1), "stop c, release b, drain e");
    }

    #[test]
    fn what_has_drained_goes_and_so_does_what_is_stopped_for_nothing() {
        let machines = vec![with("a", Phase::Draining, 0), with("b", Phase::Draining, 1), with("c", Phase::Stopped, 0)];
        assert_eq!(toward(&seen(0.0, 0, 1, machines.clone()), 0, 0), "release a, release c");
        assert_eq!(toward(&seen(0.0, 0, 1, machines), 0, 1), "stop a, release c");
    }
}
