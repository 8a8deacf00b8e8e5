//! Models that recently had no room on the GPUs, and what the worker does not offer because of them.
//!
//! An offer counts the memory of idle models as free. A job that it brings may find that memory in use again, because
//! another job came first, and is released. Offered the same at once, the queue would send the same job again.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use stokehold_protocol::gateway::{GpuCapability, ModelRef};

/// Time for which a model without room keeps jobs of its other versions away, and prevents additional models.
const RECENT: Duration = Duration::from_secs(2);

/// Time for which memory is not offered after the first failure in a row. It doubles with each further one.
const WITHHELD_MIN: Duration = Duration::from_millis(500);
const WITHHELD_MAX: Duration = Duration::from_secs(16);

/// Models for which there was no room recently.
#[derive(Default)]
pub(super) struct Crowded(HashMap<ModelRef, Failures>);

/// The failures in a row to find room for one model.
struct Failures {
    last: Instant,
    /// Time since the last one for which its VRAM class is not offered.
    withheld: Duration,
    /// Its VRAM class.
    gib: u32,
    /// The GPUs that it can use.
    on: Vec<u32>,
}

impl Failures {
    fn is_recent(&self) -> bool {
        self.last.elapsed() < RECENT
    }

    /// Whether the next failure is another one in a row.
    fn is_remembered(&self) -> bool {
        self.last.elapsed() < WITHHELD_MAX * 2
    }
}

impl Crowded {
    /// Records that there was no room for this model, of VRAM class `gib`, on any of the GPUs that it can use.
    pub(super) fn had_none(&mut self, model: ModelRef, gib: u32, on: &[u32]) {
        self.0.retain(|_, failures| failures.is_remembered());
        let before = self.0.get(&model).map_or(Duration::ZERO, |failures| failures.withheld);
        let withheld = (before * 2).clamp(WITHHELD_MIN, WITHHELD_MAX);
        self.0.insert(model, Failures { last: Instant::now(), withheld, gib, on: on.to_vec() });
    }

    /// Records that this model found room.
    pub(super) fn had_room(&mut self, model: &ModelRef) {
        self.0.remove(model);
    }

    /// Whether there was recently no room for some model.
    pub(super) fn is_any(&self) -> bool {
        self.0.values().any(Failures::is_recent)
    }

    /// Whether there was recently no room for another version of this model.
    pub(super) fn is_another_version(&self, model: &ModelRef) -> bool {
        let is_other = |other: &ModelRef| {
            (&other.tenant, &other.endpoint) == (&model.tenant, &model.endpoint) && other.version != model.version
        };
        self.0.iter().any(|(other, failures)| is_other(other) && failures.is_recent())
    }

    /// Reduces the offer to smaller classes than those that had no room.
    pub(super) fn withhold(&self, gpus: &mut [GpuCapability]) {
        for failures in self.0.values().filter(|failures| failures.last.elapsed() < failures.withheld) {
            let less_gib = failures.gib.saturating_sub(1);
            for gpu in gpus.iter_mut().filter(|gpu| failures.on.contains(&gpu.index)) {
                gpu.reach_gib = gpu.reach_gib.min(less_gib);
                gpu.whole_gib = gpu.whole_gib.min(less_gib);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(version: u32) -> ModelRef {
        ModelRef { tenant: "acme".to_owned(), endpoint: "large".to_owned(), version }
    }

    fn offered(crowded: &Crowded) -> Vec<(u32, u32)> {
        let mut gpus = [0, 1].map(|index| GpuCapability { index, reach_gib: 14, whole_gib: 24 });
        crowded.withhold(&mut gpus);
        gpus.iter().map(|gpu| (gpu.reach_gib, gpu.whole_gib)).collect()
    }

    /// The same models, some time later.
    fn later(crowded: &mut Crowded, by: Duration) {
        crowded.0.values_mut().for_each(|failures| failures.last -= by);
    }

    #[test]
    fn a_class_without_room_is_not_offered_for_a_time_that_doubles_until_it_has_room() {
        let mut crowded = Crowded::default();
        assert_eq!(offered(&crowded), [(14, 24), (14, 24)]);
        for withheld_ms in [500, 1_000, 2_000, 4_000, 8_000, 16_000, 16_000] {
            crowded.had_none(model(1), 10, &[0]);
            assert_eq!(offered(&crowded), [(9, 9), (14, 24)], "of that size, where it was looked for");
            later(&mut crowded, Duration::from_millis(withheld_ms - 100));
            assert_eq!(offered(&crowded)[0], (9, 9), "{withheld_ms}");
            later(&mut crowded, Duration::from_millis(100));
            assert_eq!(offered(&crowded)[0], (14, 24), "{withheld_ms}");
        }
        crowded.had_none(model(1), 10, &[0]);
        crowded.had_room(&model(1));
        assert_eq!(offered(&crowded)[0], (14, 24));
        crowded.had_none(model(1), 10, &[0]);
        later(&mut crowded, WITHHELD_MIN);
        assert_eq!(offered(&crowded)[0], (14, 24), "the next failure is the first one again");
    }

    #[test]
    fn a_model_without_room_keeps_its_other_versions_away_for_two_seconds() {
        let mut crowded = Crowded::default();
        crowded.had_none(model(2), 10, &[0]);
        assert!(crowded.is_any() && crowded.is_another_version(&model(1)) && !crowded.is_another_version(&model(2)));
        later(&mut crowded, RECENT);
        assert!(!crowded.is_any() && !crowded.is_another_version(&model(1)));
    }
}
