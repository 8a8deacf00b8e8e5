//! Exact money: integers of a unit so small that every price times every duration is a whole number.

use std::collections::BTreeMap;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

/// 10^9 (prices are whole nano-dollars) * 3,600,000 (ms per hour) * 720 (hours per month) * 1000 (MB per GB).
pub const UNITS_PER_USD: u128 = 2_592_000_000_000_000_000_000;

const NANO_USD_PER_USD: f64 = 1e9;
const DAY_MS: u64 = 24 * 3_600_000;

/// Amount of money, in units of which [`UNITS_PER_USD`] are a dollar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Money(pub u128);

impl Money {
    /// Nano-dollars, rounded.
    #[must_use]
    pub fn from_usd(usd: f64) -> Self {
        Self(u128::from(nano_usd(usd)) * (UNITS_PER_USD / 1_000_000_000))
    }

    /// Dollars, which may be inexact.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "what is printed")]
    pub fn usd(self) -> f64 {
        self.0 as f64 / UNITS_PER_USD as f64
    }
}

impl Add for Money {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Money {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sum for Money {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Add::add)
    }
}

/// Price in whole nano-dollars.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "prices are small and not negative")]
pub fn nano_usd(usd: f64) -> u64 {
    (usd.max(0.0) * NANO_USD_PER_USD).round() as u64
}

/// Price in dollars.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "what is printed")]
pub fn in_usd(nano_usd: u64) -> f64 {
    nano_usd as f64 / NANO_USD_PER_USD
}

/// Cost of a millisecond at a price per hour.
#[must_use]
pub fn per_ms_of_hourly(nano_usd_per_hour: u64) -> u128 {
    u128::from(nano_usd_per_hour) * 720_000
}

/// Cost of a disk for a millisecond at a price per GB and month of 30 days.
#[must_use]
pub fn per_ms_of_disk(nano_usd_per_gb_month: u64, disk_mb: u64) -> u128 {
    u128::from(nano_usd_per_gb_month) * u128::from(disk_mb)
}

/// Cost of traffic at a price per GB of 10^9 bytes.
#[must_use]
pub fn of_traffic(nano_usd_per_gb: u64, bytes: u64) -> Money {
    Money(u128::from(nano_usd_per_gb) * u128::from(bytes) * 2592)
}

/// Charges of a contract by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Items {
    /// GPUs, while it runs.
    pub gpu: Money,
    /// Disk, from the creation on.
    pub disk: Money,
    /// Received data.
    pub bwd: Money,
    /// Sent data.
    pub bwu: Money,
}

impl Items {
    /// Sum of the charges.
    #[must_use]
    pub fn total(&self) -> Money {
        self.gpu + self.disk + self.bwd + self.bwu
    }

    fn add(&mut self, other: &Self) {
        self.gpu += other.gpu;
        self.disk += other.disk;
        self.bwd += other.bwd;
        self.bwu += other.bwu;
    }
}

/// Charges of a contract by day.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    settled_ms: u64,
    /// Current charge for GPUs, units per millisecond.
    pub(crate) gpu_rate: u128,
    /// Current charge for the disk, units per millisecond.
    pub(crate) disk_rate: u128,
    /// Charges by the first second of the day (UTC).
    pub(crate) days: BTreeMap<u64, Items>,
    /// Time for which GPUs were charged, by day.
    pub(crate) gpu_ms: BTreeMap<u64, u64>,
}

impl Account {
    pub(crate) fn opened(at_ms: u64) -> Self {
        Self { settled_ms: at_ms, ..Self::default() }
    }

    /// Adds the charges since the last time at the current rates.
    pub(crate) fn settle(&mut self, now_ms: u64) {
        while self.settled_ms < now_ms {
            let day_ms = self.settled_ms - self.settled_ms % DAY_MS;
            let until = now_ms.min(day_ms + DAY_MS);
            let span = until - self.settled_ms;
            if self.gpu_rate > 0 || self.disk_rate > 0 {
                let items = self.days.entry(day_ms / 1000).or_default();
                items.gpu += Money(self.gpu_rate * u128::from(span));
                items.disk += Money(self.disk_rate * u128::from(span));
            }
            if self.gpu_rate > 0 {
                *self.gpu_ms.entry(day_ms / 1000).or_default() += span;
            }
            self.settled_ms = until;
        }
    }

    /// Adds the charge for traffic to its day.
    pub(crate) fn move_bytes(&mut self, now_ms: u64, bwd: Money, bwu: Money) {
        let day_s = (now_ms - now_ms % DAY_MS) / 1000;
        self.days.entry(day_s).or_default().add(&Items { bwd, bwu, ..Items::default() });
    }

    pub(crate) fn items(&self) -> Items {
        self.between(0, u64::MAX)
    }

    /// Charges of the days that begin in a range.
    pub(crate) fn between(&self, from_s: u64, to_s: u64) -> Items {
        let mut sum = Items::default();
        if from_s <= to_s {
            self.days.range(from_s..=to_s).for_each(|(_, items)| sum.add(items));
        }
        sum
    }
}

/// Credit of the account and its total charges.
#[derive(Clone, Debug, Default)]
pub(crate) struct Balance {
    paid_in: Money,
    spent: Money,
    settled_ms: u64,
    /// Current charges of all contracts, units per millisecond.
    burn: u128,
}

impl Balance {
    pub(crate) fn pay_in(&mut self, money: Money) {
        self.paid_in += money;
    }

    pub(crate) fn settle(&mut self, now_ms: u64) {
        self.spent += Money(self.burn * u128::from(now_ms.saturating_sub(self.settled_ms)));
        self.settled_ms = self.settled_ms.max(now_ms);
    }

    pub(crate) fn change_burn(&mut self, before: u128, after: u128) {
        self.burn = self.burn + after - before;
    }

    pub(crate) fn spend(&mut self, money: Money) {
        self.spent += money;
    }

    pub(crate) fn spent(&self) -> Money {
        self.spent
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.spent >= self.paid_in
    }

    pub(crate) fn credit_usd(&self) -> f64 {
        if self.spent > self.paid_in {
            -Money(self.spent.0 - self.paid_in.0).usd()
        } else {
            Money(self.paid_in.0 - self.spent.0).usd()
        }
    }

    /// Time at which the credit is exhausted at the current rate; `None` if nothing is charged, or it is exhausted.
    pub(crate) fn empty_at_ms(&self) -> Option<u64> {
        if self.burn == 0 || self.is_empty() {
            return None;
        }
        let left_ms = (self.paid_in.0 - self.spent.0).div_ceil(self.burn);
        Some(self.settled_ms.saturating_add(u64::try_from(left_ms).unwrap_or(u64::MAX)))
    }
}
