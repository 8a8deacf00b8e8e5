//! Exact money: whole numbers of a unit so small that every price times every duration is one.

use std::collections::BTreeMap;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

/// 10^9 (prices are whole nano-dollars) * 3,600,000 (ms an hour) * 720 (hours a month) * 1000 (MB a GB).
pub const UNITS_PER_USD: u128 = 2_592_000_000_000_000_000_000;

const NANO_USD_PER_USD: f64 = 1e9;
const DAY_MS: u64 = 24 * 3_600_000;

/// A sum of money, in units of which [`UNITS_PER_USD`] make a dollar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Money(pub u128);

impl Money {
    /// To the nearest nano-dollar.
    #[must_use]
    pub fn from_usd(usd: f64) -> Self {
        Self(u128::from(nano_usd(usd)) * (UNITS_PER_USD / 1_000_000_000))
    }

    /// As a number of dollars, which need not be exact.
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

/// A price in whole nano-dollars.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "prices are small and not negative")]
pub fn nano_usd(usd: f64) -> u64 {
    (usd.max(0.0) * NANO_USD_PER_USD).round() as u64
}

/// A price in dollars again.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "what is printed")]
pub fn in_usd(nano_usd: u64) -> f64 {
    nano_usd as f64 / NANO_USD_PER_USD
}

/// What a millisecond costs at a price an hour.
#[must_use]
pub fn per_ms_of_hourly(nano_usd_per_hour: u64) -> u128 {
    u128::from(nano_usd_per_hour) * 720_000
}

/// What a millisecond of a disk costs at a price per GB and month of 30 days.
#[must_use]
pub fn per_ms_of_disk(nano_usd_per_gb_month: u64, disk_mb: u64) -> u128 {
    u128::from(nano_usd_per_gb_month) * u128::from(disk_mb)
}

/// What moving bytes costs at a price per GB (of 10^9 bytes).
#[must_use]
pub fn of_traffic(nano_usd_per_gb: u64, bytes: u64) -> Money {
    Money(u128::from(nano_usd_per_gb) * u128::from(bytes) * 2592)
}

/// What a contract is charged for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Items {
    /// The cards, while it runs.
    pub gpu: Money,
    /// The disk, from the beginning.
    pub disk: Money,
    /// Bytes received.
    pub bwd: Money,
    /// Bytes sent.
    pub bwu: Money,
}

impl Items {
    /// All of it.
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

/// One contract's charges, kept by the day.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    settled_ms: u64,
    /// Units a millisecond for the cards, now.
    pub(crate) gpu_rate: u128,
    /// Units a millisecond for the disk, now.
    pub(crate) disk_rate: u128,
    /// By the first second of the UTC day.
    pub(crate) days: BTreeMap<u64, Items>,
    /// For how long the cards were charged, by day.
    pub(crate) gpu_ms: BTreeMap<u64, u64>,
}

impl Account {
    pub(crate) fn opened(at_ms: u64) -> Self {
        Self { settled_ms: at_ms, ..Self::default() }
    }

    /// Charges what has run up at the rates that held since the last time.
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

    /// Charges traffic on the day it moves.
    pub(crate) fn move_bytes(&mut self, now_ms: u64, bwd: Money, bwu: Money) {
        let day_s = (now_ms - now_ms % DAY_MS) / 1000;
        self.days.entry(day_s).or_default().add(&Items { bwd, bwu, ..Items::default() });
    }

    pub(crate) fn items(&self) -> Items {
        self.between(0, u64::MAX)
    }

    /// What days charged that begin between two moments.
    pub(crate) fn between(&self, from_s: u64, to_s: u64) -> Items {
        let mut sum = Items::default();
        if from_s <= to_s {
            self.days.range(from_s..=to_s).for_each(|(_, items)| sum.add(items));
        }
        sum
    }
}

/// The account's credit and what all contracts draw on it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Balance {
    paid_in: Money,
    spent: Money,
    settled_ms: u64,
    /// Units a millisecond, all contracts together.
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

    /// When nothing is left, at this burn; `None` while nothing burns or it is gone already.
    pub(crate) fn empty_at_ms(&self) -> Option<u64> {
        if self.burn == 0 || self.is_empty() {
            return None;
        }
        let left_ms = (self.paid_in.0 - self.spent.0).div_ceil(self.burn);
        Some(self.settled_ms.saturating_add(u64::try_from(left_ms).unwrap_or(u64::MAX)))
    }
}
