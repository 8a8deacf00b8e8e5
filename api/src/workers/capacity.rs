//! The latest offers of workers whose lease polls wait here. A finished job frees memory on the worker. The worker
//! reports the new offer together with the finished job, while its poll waits with the earlier offer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stokehold_queue::gateway::Offer;
use tokio::sync::watch;

/// Offers of the workers whose lease polls wait on this replica, by worker. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Capacity(Arc<Mutex<HashMap<String, watch::Sender<Offer>>>>);

/// The offer of a waiting poll: valid until this is dropped or a later poll of the same worker replaces it.
pub(crate) struct Standing {
    offers: Capacity,
    worker_id: String,
    offer: watch::Receiver<Offer>,
}

impl Capacity {
    /// Registers a waiting poll of this worker.
    pub(crate) fn stand(&self, worker_id: &str, offer: Offer) -> Standing {
        let (sender, offer) = watch::channel(offer);
        self.lock().insert(worker_id.to_owned(), sender);
        Standing { offers: self.clone(), worker_id: worker_id.to_owned(), offer }
    }

    /// Updates the offer of a worker. Returns `false` when no poll of it waits here.
    pub(crate) fn update(&self, worker_id: &str, offer: Offer) -> bool {
        self.lock().get(worker_id).is_some_and(|standing| standing.send(offer).is_ok())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<Offer>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Standing {
    /// The current offer of the worker.
    pub(crate) fn now(&self) -> Offer {
        self.offer.borrow().clone()
    }

    /// A receiver of each change from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<Offer> {
        let mut changes = self.offer.clone();
        changes.mark_unchanged();
        changes
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        let mut offers = self.offers.lock();
        if offers.get(&self.worker_id).is_some_and(|sender| sender.subscribe().same_channel(&self.offer)) {
            offers.remove(&self.worker_id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reaching(reach_gib: u32) -> Offer {
        Offer { reach_gib, ..Offer::default() }
    }

    #[test]
    fn an_offer_is_that_of_the_pull_that_waits_now() {
        let offers = Capacity::default();
        assert!(!offers.update("w1", reaching(8)), "nobody waits");
        let first = offers.stand("w1", reaching(8));
        let changes = first.changes();
        assert!(offers.update("w1", reaching(12)) && !offers.update("w2", reaching(1)));
        assert_eq!(first.now().reach_gib, 12);
        assert!(changes.has_changed().unwrap());
        let second = offers.stand("w1", reaching(24));
        drop(first);
        assert!(offers.update("w1", reaching(6)), "the later one stands yet");
        assert_eq!(second.now().reach_gib, 6);
        drop(second);
        assert!(!offers.update("w1", reaching(6)));
    }
}
