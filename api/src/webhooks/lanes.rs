//! Lanes limit the concurrent attempts to one receiver, so that a slow receiver does not occupy all places.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Concurrent attempts to one receiver.
const RUNNING_MAX: usize = 4;

/// Maximum number of deliveries in a lane in total. The waiting ones wait for one round of attempts at most, well
/// within a claim.
const INSIDE_MAX: usize = 2 * RUNNING_MAX;

/// The lanes of all receivers with deliveries in progress.
#[derive(Clone, Default)]
pub(crate) struct Lanes(Arc<Mutex<HashMap<String, Lane>>>);

struct Lane {
    running: Arc<Semaphore>,
    inside: usize,
}

impl Lanes {
    /// Takes a slot in a receiver's lane; `None` while the lane is full.
    pub(crate) fn enter(&self, receiver: &str) -> Option<Slot> {
        let mut lanes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lane = lanes
            .entry(receiver.to_owned())
            .or_insert_with(|| Lane { running: Arc::new(Semaphore::new(RUNNING_MAX)), inside: 0 });
        if lane.inside == INSIDE_MAX {
            return None;
        }
        lane.inside += 1;
        Some(Slot { lanes: self.clone(), receiver: receiver.to_owned(), running: lane.running.clone() })
    }
}

/// A slot in a receiver's lane, released when dropped.
pub(crate) struct Slot {
    lanes: Lanes,
    receiver: String,
    running: Arc<Semaphore>,
}

impl Slot {
    /// Receiver of the lane.
    pub(crate) fn receiver(&self) -> &str {
        &self.receiver
    }

    /// Waits for the turn, which lasts until the permit is dropped.
    pub(crate) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        self.running.clone().acquire_owned().await.ok()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut lanes = self.lanes.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = lanes.get_mut(&self.receiver) {
            lane.inside -= 1;
            if lane.inside == 0 {
                lanes.remove(&self.receiver);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_lane_lets_four_run_and_four_wait() {
        let lanes = Lanes::default();
        let mut places: Vec<Slot> = (0..INSIDE_MAX).map(|_| lanes.enter("a").unwrap()).collect();
        assert!(lanes.enter("a").is_none());
        assert!(lanes.enter("b").is_some(), "another receiver's lane is its own");
        let mut turns: Vec<_> = places.iter().filter_map(|place| place.turn().now_or_never()).collect();
        assert_eq!(turns.len(), RUNNING_MAX);
        drop(turns.pop());
        assert!(places[4].turn().now_or_never().is_some());
        drop(places.pop());
        assert!(lanes.enter("a").is_some());
        drop((turns, places));
        assert!(lanes.0.lock().unwrap().is_empty(), "an empty lane is forgotten");
    }
}
