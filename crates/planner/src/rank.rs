//! Ranking of offers by their cost per job.

use stokehold_units::UsdMicros;

use crate::observation::{Machine, Offer};
use crate::plan::NoBid;
use crate::policy::Policy;
use crate::snapshot::{Group, Learned, Snapshot};

/// Assumed time that a machine is used, over which the cost of starting it is spread, hours.
const STAY_HOURS: f64 = 1.0;
/// Assumed size of a worker's image, GB, unless the provider's settings have it.
const IMAGE_GB: f64 = 1.0;
/// Minimum time of a listing after the boot, seconds.
const LISTED_MIN_S: f64 = 900.0;
/// Share of a lost machine's work that is late if there are other machines.
const LATE_BESIDE_OTHERS: f64 = 0.3;

/// An offer, and a way to rent it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choice<'a> {
    pub(crate) offer: &'a Offer,
    pub(crate) bid_usd_per_hour: Option<UsdMicros>,
    /// Price per hour.
    pub(crate) usd_per_hour: UsdMicros,
    /// Total cost of 3,600 jobs, dollars.
    cost: f64,
}

/// Input of a ranking.
pub(crate) struct Ranking<'a, 'b> {
    pub(crate) snapshot: Snapshot<'a>,
    pub(crate) policy: &'a Policy,
    pub(crate) group: &'b Group,
    /// Running machines of the group.
    pub(crate) on: &'b [&'a Machine],
    /// Reason against an interruptible machine; `None` if there is none.
    pub(crate) no_bid: Option<NoBid>,
}

impl<'a> Ranking<'a, '_> {
    /// All ways to rent a suitable offer, sorted by cost per job, then by ID.
    pub(crate) fn ranked(&self) -> Vec<Choice<'a>> {
        let able = self.snapshot.seen.offers.iter().filter(|offer| self.is_able(offer));
        let choices = able.flat_map(|offer| {
            let on_demand = Some(self.choice(offer, None));
            let bid = offer
                .min_bid_usd_per_hour
                .filter(|_| self.no_bid.is_none() && self.policy.may_bid && self.outlasts(offer));
            let bid = bid.map(|least| UsdMicros::from_usd_up(least.usd() * (1.0 + self.policy.bid_margin)));
            on_demand.into_iter().chain(bid.map(|bid| self.choice(offer, Some(bid))))
        });
        let mut choices: Vec<Choice<'a>> = choices.collect();
        choices.sort_by(|a, b| {
            a.cost
                .total_cmp(&b.cost)
                .then_with(|| a.offer.id.cmp(&b.offer.id))
                .then(a.bid_usd_per_hour.is_some().cmp(&b.bid_usd_per_hour.is_some()))
        });
        choices
    }

    /// Reason for no bid on this offer, which is the best without one.
    pub(crate) fn why_no_bid(&self, offer: &Offer) -> Option<NoBid> {
        let of_offer = || match offer.min_bid_usd_per_hour {
            None => NoBid::NotOffered,
            Some(_) if !self.outlasts(offer) => NoBid::LongRuns,
            Some(_) => NoBid::Dearer,
        };
        let could = self.policy.may_bid && !offer.is_owned && offer.usd_per_hour > UsdMicros::ZERO;
        could.then(|| self.no_bid.unwrap_or_else(of_offer))
    }

    fn is_able(&self, offer: &Offer) -> bool {
        let Policy { kinds, min_reliability, .. } = self.policy;
        let boot_s = self.learned().kinds.get(&offer.kind).map_or(offer.boot_s, |kind| kind.boot_s);
        (kinds.is_empty() || kinds.iter().any(|kind| **kind == *offer.kind))
            && offer.reliability >= *min_reliability
            && offer.listed_for_s.is_none_or(|listed_s| listed_s > boot_s + LISTED_MIN_S)
            && !self.learned().cooldowns.contains_key(&offer.host)
            && self.group.needs.are_met_by_offer(offer)
    }

    fn learned(&self) -> &'a Learned {
        self.snapshot.learned
    }

    fn choice(&self, offer: &'a Offer, bid_usd_per_hour: Option<UsdMicros>) -> Choice<'a> {
        let known = self.learned().kinds.get(&offer.kind);
        let (speed, boot_s) = known.map_or((offer.speed, offer.boot_s), |kind| (kind.speed, kind.boot_s));
        let speed = speed * self.group.faster.get(&offer.kind).unwrap_or(&1.0);
        let usd_per_hour = bid_usd_per_hour.unwrap_or(offer.usd_per_hour);
        let felt = if offer.is_owned { self.policy.owned_usd_per_hour } else { usd_per_hour.usd() };
        let run_s = self.group.run_s / speed;
        // Time until the machine is of use: the boot and the download of what it runs.
        let fetched_gb = IMAGE_GB + offer.vram.min(self.group.working_set).gib();
        let fetch_s =
            if offer.inbound_mbit_per_s > 0.0 { fetched_gb * 8_000.0 / offer.inbound_mbit_per_s } else { 0.0 };
        let start_usd = (boot_s + fetch_s) / 3_600.0 * felt + fetched_gb * offer.inbound_usd_per_gb.usd();
        let stay_hours = offer.listed_for_s.map_or(STAY_HOURS, |listed_s| STAY_HOURS.min(listed_s / 3_600.0));
        let lost_usd = bid_usd_per_hour.map_or(0.0, |_| {
            let per_hour = known.map_or(offer.losses_per_hour, |kind| kind.losses_per_hour);
            per_hour * ((boot_s + run_s / 2.0) / 3_600.0 * felt + self.late_if_lost(boot_s) * self.learned().late_usd)
        });
        let per_hour = (felt + start_usd / stay_hours + lost_usd) / offer.reliability.max(0.5);
        let jobs_at_once = f64::from(self.group.needs.at_once(offer.cards).max(1));
        Choice { offer, bid_usd_per_hour, usd_per_hour, cost: per_hour * (run_s + self.swap_s(offer)) / jobs_at_once }
    }

    /// Whether the share of runs lost with an interruptible machine of this offer is within the limit.
    fn outlasts(&self, offer: &Offer) -> bool {
        let known = self.learned().kinds.get(&offer.kind);
        let (speed, per_hour) =
            known.map_or((offer.speed, offer.losses_per_hour), |kind| (kind.speed, kind.losses_per_hour));
        per_hour * self.group.run_s / speed / 3_600.0 <= self.policy.lost_share_max
    }

    /// Interactive jobs that are late if one machine is lost, until it is replaced.
    fn late_if_lost(&self, boot_s: f64) -> f64 {
        let machines = self.on.len() as f64 + 1.0;
        let share = if self.on.is_empty() { 1.0 } else { LATE_BESIDE_OTHERS };
        self.group.jobs_per_s / machines * boot_s * share
    }

    /// Loading time per run, seconds. A GPU with more memory keeps more models loaded.
    fn swap_s(&self, offer: &Offer) -> f64 {
        let set_gb = self.group.working_set.gib();
        let miss = |vram_gib: f64| if set_gb > 0.0 { (1.0 - vram_gib / set_gb).clamp(0.05, 1.0) } else { 1.0 };
        let on_gb = self.on.iter().map(|machine| machine.vram.gib()).sum::<f64>() / (self.on.len() as f64).max(1.0);
        if self.on.is_empty() {
            self.learned().swap_s
        } else {
            self.learned().swap_s * miss(offer.vram.gib()) / miss(on_gb)
        }
    }
}
