//! Arrivals, runs and waiting jobs of the last day, every ten seconds, per tenant and in total.
//!
//! A point has 48 bytes at a fixed offset in the STRING of its hour, so an hour of one tenant has 17,280 bytes and a
//! day at most 432 kB. Hours in which a tenant has no data take no memory. For each step at most [`TENANTS_MAX`]
//! tenants are stored, those with the most data: 86 MB for a day on which all of them were busy throughout.

use std::collections::BTreeMap;

use redis::AsyncCommands;

use crate::connection::Connection;
use crate::error::Error;
use crate::keys::RegistryKeys;
use crate::registry::Registry;

/// The length of a step, milliseconds.
pub const STEP_MS: u64 = 10_000;

/// Maximum number of tenants that are stored for a step.
pub const TENANTS_MAX: usize = 200;

const HOUR_MS: u64 = 3_600_000;
const HOUR_S: i64 = 3_600;

/// Number of minutes that are kept.
pub const MINUTES_MAX: u64 = 1_440;

/// Numbers in a point, 4 bytes each. The first marks the point as present, with the version of this layout.
const NUMBERS: usize = 12;
const BYTES: usize = NUMBERS * 4;
const LAYOUT: u32 = 1;

/// The name of the total; no tenant has this name.
const ALL: &str = "*";

/// One step. Counts cover the step; the other values are those at its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Point {
    /// Jobs that became ready.
    pub arrived: u32,
    /// Jobs that started for the first time.
    pub started: u32,
    /// Jobs that ended.
    pub ended: u32,
    /// Number of these that failed or expired.
    pub failed: u32,
    /// Jobs that wait, by priority: interactive, standard, batch.
    pub waiting: [u32; 3],
    /// Jobs that run.
    pub running: u32,
    /// Number of instances; in the total only.
    pub machines: u32,
    /// Cost of the instances per hour; in the total only.
    pub usd_micros_per_hour: u64,
}

impl Point {
    /// The amount of data, for choosing the tenants to store.
    #[must_use]
    pub fn weight(&self) -> u64 {
        let counted = [self.arrived, self.started, self.ended, self.running];
        counted.into_iter().chain(self.waiting).map(u64::from).sum()
    }

    fn to_bytes(self) -> Vec<u8> {
        let Self {
            arrived, started, ended, failed, waiting: [interactive, standard, batch], running, machines, ..
        } = self;
        let (low, high) = (self.usd_micros_per_hour & u64::from(u32::MAX), self.usd_micros_per_hour >> 32);
        let half = |half: u64| u32::try_from(half).unwrap_or(u32::MAX);
        [
            LAYOUT,
            arrived,
            started,
            ended,
            failed,
            interactive,
            standard,
            batch,
            running,
            machines,
            half(low),
            half(high),
        ]
        .into_iter()
        .flat_map(u32::to_le_bytes)
        .collect()
    }

    /// Decodes a point; `None` if none was written.
    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let mut numbers = [0; NUMBERS];
        let (words, _) = bytes.as_chunks::<4>();
        for (number, word) in numbers.iter_mut().zip(words) {
            *number = u32::from_le_bytes(*word);
        }
        let [layout, arrived, started, ended, failed, interactive, standard, batch, running, machines, low, high] =
            numbers;
        (words.len() == NUMBERS && layout == LAYOUT).then_some(Self {
            arrived,
            started,
            ended,
            failed,
            waiting: [interactive, standard, batch],
            running,
            machines,
            usd_micros_per_hour: u64::from(low) | u64::from(high) << 32,
        })
    }
}

/// The series. Clones share a connection.
#[derive(Clone)]
pub struct Series {
    connection: Connection,
    keys: RegistryKeys,
}

impl Series {
    pub(crate) fn new(connection: Connection, keys: RegistryKeys) -> Self {
        Self { connection, keys }
    }

    /// Writes the step that ended at `at_ms`, in total and for each tenant with data. Safe to retry.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the step may be missing.
    pub async fn write(&self, at_ms: u64, all: Point, tenants: &BTreeMap<String, Point>) -> Result<(), Error> {
        let mut busy: Vec<(&str, Point)> = tenants
            .iter()
            .map(|(name, point)| (name.as_str(), *point))
            .filter(|(_, point)| point.weight() > 0)
            .collect();
        busy.sort_by_key(|(name, point)| (std::cmp::Reverse(point.weight()), *name));
        busy.truncate(TENANTS_MAX);
        let (hour, place) = place_of(at_ms);
        let mut pipe = redis::pipe();
        for (of, point) in busy.into_iter().chain([(ALL, all)]) {
            let key = self.keys.series(of, hour);
            pipe.setrange(&key, place.cast_signed(), point.to_bytes()).ignore();
            pipe.expire(&key, 26 * HOUR_S).ignore();
        }
        pipe.query_async(&mut self.connection.redis()).await.map_err(Error::redis("store the series"))
    }

    /// The steps that ended in the last `minutes`, oldest first, of a tenant or, with `None`, in total. A tenant
    /// without data in a written step has an empty one. Steps that were not written are absent.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn read(&self, tenant: Option<&str>, minutes: u64, now_ms: u64) -> Result<Vec<(u64, Point)>, Error> {
        let from_ms = now_ms.saturating_sub(minutes.min(MINUTES_MAX) * 60_000);
        let hours: Vec<u64> = (from_ms / HOUR_MS..=now_ms / HOUR_MS).collect();
        let names = [Some(ALL), tenant];
        let keys: Vec<String> =
            names.into_iter().flatten().flat_map(|of| hours.iter().map(|hour| self.keys.series(of, *hour))).collect();
        let found: Vec<Option<Vec<u8>>> =
            self.connection.redis().mget(&keys).await.map_err(Error::redis("read the series"))?;
        let (all, own) = found.split_at(hours.len());
        let mut points = Vec::new();
        for (n, hour) in hours.iter().enumerate() {
            let (all, own) = (hour_of(all, n), hour_of(own, n));
            for (step, whole) in all.chunks_exact(BYTES).enumerate() {
                let at_ms = hour * HOUR_MS + step as u64 * STEP_MS;
                let Some(whole) = Point::of_bytes(whole).filter(|_| at_ms > from_ms && at_ms <= now_ms) else {
                    continue;
                };
                let its = own.get(step * BYTES..(step + 1) * BYTES).and_then(Point::of_bytes);
                points.push((at_ms, if tenant.is_some() { its.unwrap_or_default() } else { whole }));
            }
        }
        Ok(points)
    }
}

impl Registry {
    /// The series of the last day.
    #[must_use]
    pub fn series(&self) -> Series {
        let (connection, keys) = self.parts();
        Series::new(connection.long(), keys)
    }
}

/// The data of one of the hours that were read; empty if nothing was written.
fn hour_of(found: &[Option<Vec<u8>>], n: usize) -> &[u8] {
    found.get(n).and_then(Option::as_deref).unwrap_or_default()
}

/// The hour of a step, and the step's offset in its STRING.
fn place_of(at_ms: u64) -> (u64, usize) {
    let step = usize::try_from(at_ms % HOUR_MS / STEP_MS).unwrap_or(0);
    (at_ms / HOUR_MS, step * BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_survives_its_bytes_and_nothing_is_none() {
        let point = Point {
            arrived: 1,
            started: 2,
            ended: 3,
            failed: 4,
            waiting: [5, 6, 7],
            running: 8,
            machines: 9,
            usd_micros_per_hour: 10_000_000_000,
        };
        assert_eq!(point.to_bytes().len(), BYTES);
        assert_eq!(Point::of_bytes(&point.to_bytes()), Some(point));
        assert_eq!(Point::of_bytes(&[0; BYTES]), None);
        assert_eq!(Point::of_bytes(&[]), None);
    }

    #[test]
    fn the_steps_of_an_hour_stand_in_a_row() {
        assert_eq!(place_of(7 * HOUR_MS), (7, 0));
        assert_eq!(place_of(8 * HOUR_MS - STEP_MS), (7, 359 * BYTES));
        assert_eq!(360 * BYTES, 17_280);
    }
}
