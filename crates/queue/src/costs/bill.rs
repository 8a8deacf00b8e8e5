//! The bill of an instance: its times and prices as the autoscaler sees them, and the provider's charges once they are
//! known.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::day_of;
use super::split::{split, weights};

const DAY_MS: u64 = 86_400_000;
const HOUR_MS: u128 = 3_600_000;

/// What a machine is paid for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BillState {
    /// It comes up, the first time or again.
    Booting,
    /// Its worker is there, or was.
    Running,
    /// Only its disk is paid for.
    Stopped,
}

/// A machine's bill, from when it was first written down until its provider has no more of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineBill {
    /// The autoscaler's id of it, which is its worker's name.
    pub machine: String,
    /// Whose it is.
    pub provider: String,
    /// Its provider's id of it, once that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rental: Option<String>,
    /// Its kind of card.
    pub kind: String,
    /// The physical host, if its provider names it.
    #[serde(default)]
    pub host: String,
    /// Whether who pays more may take it away.
    #[serde(default)]
    pub is_interruptible: bool,
    /// What an hour of it costs while it runs, its disk included.
    pub usd_micros_per_hour: u64,
    /// What an hour of it costs on demand.
    pub on_demand_usd_micros_per_hour: u64,
    /// What an hour of its disk costs.
    pub stopped_usd_micros_per_hour: u64,
    /// Since when it is paid for, unix milliseconds.
    pub rented_ms: u64,
    /// Until when; `None` while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// What is paid for now.
    pub state: BillState,
    /// What was before this moment is in `days`, unix milliseconds.
    pub since_ms: u64,
    /// What was, by days since 1970, UTC.
    #[serde(default)]
    pub days: BTreeMap<u32, BilledDay>,
    /// The provider's charges, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charged: Option<Charged>,
}

/// What a machine did on a day, and what that costs at the prices of then.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BilledDay {
    /// How long it came up, milliseconds.
    pub booting_ms: u64,
    /// How long it ran.
    pub running_ms: u64,
    /// How long it was stopped.
    pub stopped_ms: u64,
    /// What its cards cost while it came up.
    pub boot_usd_micros: u64,
    /// While it ran.
    pub running_usd_micros: u64,
    /// What its disk cost while it did either.
    pub disk_usd_micros: u64,
    /// While it was stopped.
    pub stopped_usd_micros: u64,
    /// What all of that would have cost on demand.
    pub on_demand_usd_micros: u64,
}

/// What a provider charges for a machine, all in all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charged {
    /// For its cards.
    pub gpu_usd_micros: u64,
    /// For its disk.
    pub disk_usd_micros: u64,
    /// For bytes, both ways.
    pub traffic_usd_micros: u64,
    /// When they were reported, Unix milliseconds.
    pub at_ms: u64,
    /// No more is to come.
    pub is_final: bool,
}

impl Charged {
    /// All together.
    #[must_use]
    pub fn total_usd_micros(&self) -> u64 {
        [self.gpu_usd_micros, self.disk_usd_micros, self.traffic_usd_micros].into_iter().fold(0, u64::saturating_add)
    }
}

/// A day of a bill, in micro-dollars: by what the provider charges, where it does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DayBill {
    /// The cards while it came up.
    pub boot: u64,
    /// While it ran, whether jobs did or not.
    pub running: u64,
    /// The disk while it was stopped.
    pub stopped: u64,
    /// At all other times.
    pub disk: u64,
    /// Bytes, both ways.
    pub traffic: u64,
    /// What a whole day of its work costs at its price: what is counted of its jobs is a part of this.
    pub capacity: u64,
    /// What all of it would have cost on demand.
    pub on_demand: u64,
}

impl DayBill {
    /// What is paid.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.boot + self.running + self.stopped + self.disk + self.traffic
    }
}

fn cost(usd_micros_per_hour: u64, ms: u64) -> u64 {
    u64::try_from(u128::from(usd_micros_per_hour) * u128::from(ms) / HOUR_MS).unwrap_or(u64::MAX)
}

impl MachineBill {
    /// Writes down what was until `now_ms`, at the prices of now. To be called before its state or a price changes.
    pub fn advance(&mut self, now_ms: u64) {
        let disk_price = self.stopped_usd_micros_per_hour.min(self.usd_micros_per_hour);
        while self.since_ms < now_ms {
            let day = self.since_ms / DAY_MS;
            let until_ms = now_ms.min((day + 1) * DAY_MS);
            let ms = until_ms - self.since_ms;
            let to = self.days.entry(day_of(self.since_ms)).or_default();
            let (disk, cards) = (cost(disk_price, ms), cost(self.usd_micros_per_hour - disk_price, ms));
            match self.state {
                BillState::Booting => {
                    (to.booting_ms, to.boot_usd_micros) = (to.booting_ms + ms, to.boot_usd_micros + cards)
                }
                BillState::Running => {
                    (to.running_ms, to.running_usd_micros) = (to.running_ms + ms, to.running_usd_micros + cards);
                }
                BillState::Stopped => {
                    to.stopped_ms += ms;
                    to.stopped_usd_micros += cost(self.stopped_usd_micros_per_hour, ms);
                }
            }
            if self.state == BillState::Stopped {
                to.on_demand_usd_micros += cost(self.stopped_usd_micros_per_hour, ms);
            } else {
                to.disk_usd_micros += disk;
                to.on_demand_usd_micros += cost(self.on_demand_usd_micros_per_hour, ms);
            }
            self.since_ms = until_ms;
        }
    }

    /// Whether the bill may still change: the instance has not ended, or its provider has not billed the final amount.
    #[must_use]
    pub fn is_estimate(&self) -> bool {
        self.usd_micros_per_hour > 0 && !self.charged.is_some_and(|charged| charged.is_final)
    }

    /// What is paid for it by day, as of `now_ms`. What its provider charges in the end is what it is. Until then it is what was reckoned,
    /// or what is charged already where that is more, for bills come late.
    #[must_use]
    pub fn by_day(&self, now_ms: u64) -> BTreeMap<u32, DayBill> {
        let mut bill = self.clone();
        if bill.ended_ms.is_none() {
            bill.advance(now_ms);
        }
        if bill.days.is_empty() {
            bill.days.insert(day_of(bill.rented_ms), BilledDay::default());
        }
        let days: Vec<BilledDay> = bill.days.values().copied().collect();
        let owed = |charged: fn(&Charged) -> u64, reckoned: u64| match &self.charged {
            Some(it) if it.is_final => charged(it),
            Some(it) => charged(it).max(reckoned),
            None => reckoned,
        };
        let sum = |of: fn(&BilledDay) -> u64| days.iter().map(of).sum::<u64>();
        let cards = owed(|it| it.gpu_usd_micros, sum(|it| it.boot_usd_micros + it.running_usd_micros));
        let disk = owed(|it| it.disk_usd_micros, sum(|it| it.disk_usd_micros + it.stopped_usd_micros));
        let traffic = owed(|it| it.traffic_usd_micros, 0);
        // By what was reckoned of it, else by time; of what there was no time for, all to its days alike.
        let cards =
            pairs(&days, cards, |it| (it.boot_usd_micros, it.running_usd_micros), |it| (it.booting_ms, it.running_ms));
        let disk = pairs(
            &days,
            disk,
            |it| (it.disk_usd_micros, it.stopped_usd_micros),
            |it| (it.booting_ms + it.running_ms, it.stopped_ms),
        );
        let traffic = split(traffic, &weights(days.len(), [&|n| days[n].booting_ms + days[n].running_ms]));
        let day = |n: usize, it: &BilledDay| {
            let of_disk = u128::from(it.disk_usd_micros) * u128::from(it.running_ms)
                / u128::from((it.booting_ms + it.running_ms).max(1));
            DayBill {
                boot: cards[2 * n],
                running: cards[2 * n + 1],
                disk: disk[2 * n],
                stopped: disk[2 * n + 1],
                traffic: traffic[n],
                capacity: it.running_usd_micros + u64::try_from(of_disk).unwrap_or(0),
                on_demand: it.on_demand_usd_micros + traffic[n],
            }
        };
        bill.days.iter().enumerate().map(|(n, (number, it))| (*number, day(n, it))).collect()
    }

    /// What is paid for it, as of `now_ms`.
    #[must_use]
    pub fn total_usd_micros(&self, now_ms: u64) -> u64 {
        self.by_day(now_ms).values().map(DayBill::total).sum()
    }
}

/// Splits a whole over two parts of each day.
fn pairs(
    days: &[BilledDay],
    whole: u64,
    reckoned: fn(&BilledDay) -> (u64, u64),
    time: fn(&BilledDay) -> (u64, u64),
) -> Vec<u64> {
    let nth = |of: fn(&BilledDay) -> (u64, u64), n: usize| {
        let (first, second) = of(&days[n / 2]);
        if n.is_multiple_of(2) { first } else { second }
    };
    split(whole, &weights(2 * days.len(), [&|n| nth(reckoned, n), &|n| nth(time, n)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    /// Rented an hour before midnight at 36 cents, of which 6 are for its disk.
    fn bill() -> MachineBill {
        MachineBill {
            machine: "m-1".to_owned(),
            provider: "cloud".to_owned(),
            rental: Some("77".to_owned()),
            kind: "RTX 4090".to_owned(),
            host: String::new(),
            is_interruptible: true,
            usd_micros_per_hour: 360_000,
            on_demand_usd_micros_per_hour: 600_000,
            stopped_usd_micros_per_hour: 60_000,
            rented_ms: 10 * DAY_MS - HOUR,
            ended_ms: None,
            state: BillState::Booting,
            since_ms: 10 * DAY_MS - HOUR,
            days: BTreeMap::new(),
            charged: None,
        }
    }

    /// Half an hour of booting, an hour and a half of running, two of standing still.
    fn ended() -> MachineBill {
        let mut bill = bill();
        for (state, at_ms) in [
            (BillState::Running, 10 * DAY_MS - HOUR / 2),
            (BillState::Stopped, 10 * DAY_MS + HOUR),
            (BillState::Stopped, 10 * DAY_MS + 3 * HOUR),
        ] {
            bill.advance(at_ms);
            bill.state = state;
        }
        MachineBill { ended_ms: Some(10 * DAY_MS + 3 * HOUR), ..bill }
    }

    #[test]
    fn a_bill_is_reckoned_by_day_and_state() {
        let days = ended().by_day(u64::MAX);
        let [(9, before), (10, after)] = &days.into_iter().collect::<Vec<_>>()[..] else { panic!() };
        assert_eq!((before.boot, before.running, before.disk, before.stopped), (150_000, 150_000, 60_000, 0));
        assert_eq!((after.boot, after.running, after.disk, after.stopped), (0, 300_000, 60_000, 120_000));
        assert_eq!((before.on_demand, after.on_demand), (600_000, 720_000));
        assert_eq!((before.capacity, after.capacity), (180_000, 360_000), "with the disk, as jobs are charged");
        assert_eq!(ended().total_usd_micros(u64::MAX), 840_000);
    }

    #[test]
    fn an_open_bill_grows_with_time() {
        assert_eq!(bill().total_usd_micros(10 * DAY_MS), 360_000);
        assert_eq!(bill().total_usd_micros(10 * DAY_MS + HOUR), 720_000);
        assert!(bill().is_estimate());
    }

    #[test]
    fn what_is_charged_in_the_end_is_what_it_cost() {
        let charged =
            Charged { gpu_usd_micros: 1_000_001, disk_usd_micros: 7, traffic_usd_micros: 11, at_ms: 0, is_final: true };
        let exact = MachineBill { charged: Some(charged), ..ended() };
        assert_eq!(exact.total_usd_micros(u64::MAX), charged.total_usd_micros());
        assert!(!exact.is_estimate());
        let early = Charged { gpu_usd_micros: 5, is_final: false, ..charged };
        let open = MachineBill { charged: Some(early), ..ended() };
        assert_eq!(open.total_usd_micros(u64::MAX), 840_000 + 11, "a bill that came early is no rebate");
        let never = MachineBill { charged: Some(charged), ..bill() };
        assert_eq!(
            never.total_usd_micros(0),
            charged.total_usd_micros(),
            "of one that was not seen to do anything too"
        );
    }
}
