//! The bill of an instance: its times and prices as recorded by the autoscaler, and the provider's charges once they
//! are known.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::day_of;
use super::split::{split, weights};

const DAY_MS: u64 = 86_400_000;
const HOUR_MS: u128 = 3_600_000;

/// The state of an instance for billing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BillState {
    /// The instance is starting or resuming.
    Booting,
    /// The instance runs: its worker has joined.
    Running,
    /// The instance is stopped; only its disk is billed.
    Stopped,
}

/// The bill of an instance, from its first record until its provider no longer has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineBill {
    /// The autoscaler's id of the instance, which is also the name of its worker.
    pub machine: String,
    /// Name of the provider.
    pub provider: String,
    /// The provider's id of the instance, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rental: Option<String>,
    /// GPU model.
    pub kind: String,
    /// The physical host, if the provider names it.
    #[serde(default)]
    pub host: String,
    /// Whether the provider may interrupt the instance for a higher bidder.
    #[serde(default)]
    pub is_interruptible: bool,
    /// Price of an hour while the instance runs, including its disk.
    pub usd_micros_per_hour: u64,
    /// On-demand price of an hour.
    pub on_demand_usd_micros_per_hour: u64,
    /// Price of an hour of its disk.
    pub stopped_usd_micros_per_hour: u64,
    /// Start of the billed time, Unix milliseconds.
    pub rented_ms: u64,
    /// End of the billed time, Unix milliseconds; `None` while the instance is billed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// The current state.
    pub state: BillState,
    /// End of the time that is in `days`, Unix milliseconds.
    pub since_ms: u64,
    /// The time before `since_ms`, by days since 1970, UTC.
    #[serde(default)]
    pub days: BTreeMap<u32, BilledDay>,
    /// The provider's charges, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charged: Option<Charged>,
}

/// The use of an instance on one day, and its cost at the prices of that time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BilledDay {
    /// Time spent booting, milliseconds.
    pub booting_ms: u64,
    /// Time spent running, milliseconds.
    pub running_ms: u64,
    /// Time spent stopped, milliseconds.
    pub stopped_ms: u64,
    /// Cost of the GPUs while the instance booted.
    pub boot_usd_micros: u64,
    /// Cost of the GPUs while the instance ran.
    pub running_usd_micros: u64,
    /// Cost of the disk while the instance booted or ran.
    pub disk_usd_micros: u64,
    /// Cost of the disk while the instance was stopped.
    pub stopped_usd_micros: u64,
    /// On-demand cost of the same use.
    pub on_demand_usd_micros: u64,
}

/// A provider's total charges for an instance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charged {
    /// Charges for GPUs.
    pub gpu_usd_micros: u64,
    /// Charges for the disk.
    pub disk_usd_micros: u64,
    /// Charges for traffic, in both directions.
    pub traffic_usd_micros: u64,
    /// Time at which the charges were reported, Unix milliseconds.
    pub at_ms: u64,
    /// Whether the provider will charge nothing more.
    pub is_final: bool,
}

impl Charged {
    /// The sum of all charges.
    #[must_use]
    pub fn total_usd_micros(&self) -> u64 {
        [self.gpu_usd_micros, self.disk_usd_micros, self.traffic_usd_micros].into_iter().fold(0, u64::saturating_add)
    }
}

/// One day of a bill, in micro-dollars. It uses the provider's charges where they are known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DayBill {
    /// GPUs while the instance booted.
    pub boot: u64,
    /// GPUs while the instance ran, with or without jobs.
    pub running: u64,
    /// Disk while the instance was stopped.
    pub stopped: u64,
    /// Disk at all other times.
    pub disk: u64,
    /// Traffic, in both directions.
    pub traffic: u64,
    /// Cost of a whole day of running at the instance's price. The counted costs of its jobs are a fraction of this.
    pub capacity: u64,
    /// On-demand cost of the same use.
    pub on_demand: u64,
}

impl DayBill {
    /// The amount to pay.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.boot + self.running + self.stopped + self.disk + self.traffic
    }
}

fn cost(usd_micros_per_hour: u64, ms: u64) -> u64 {
    u64::try_from(u128::from(usd_micros_per_hour) * u128::from(ms) / HOUR_MS).unwrap_or(u64::MAX)
}

impl MachineBill {
    /// Adds the time until `now_ms` to the bill at the current prices. Call it before the state or a price changes.
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

    /// The cost of the instance by day, as of `now_ms`. Once the provider's charges are final, they are the cost. Until
    /// then it is the computed cost, or the charges so far if they are higher, because providers bill late.
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
        // A day's share is proportional to its computed cost, or to its time if there is no cost. Charges without any
        // time are split evenly.
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

    /// The total cost of the instance, as of `now_ms`.
    #[must_use]
    pub fn total_usd_micros(&self, now_ms: u64) -> u64 {
        self.by_day(now_ms).values().map(DayBill::total).sum()
    }
}

/// Splits a total over two parts of each day.
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

    /// Rented an hour before midnight at 36 cents per hour, of which 6 are for the disk.
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

    /// Half an hour of booting, an hour and a half of running, two hours stopped.
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
