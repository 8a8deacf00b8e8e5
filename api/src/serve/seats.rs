//! Who may stay when every connection that this replica takes is taken: whoever does the least with theirs makes room.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::metrics;

/// What a connection does that may be ended for another one's sake, in the order in which they are: those that never made a request,
/// then those between two, then those whose requests are all still on their way in. One that waits for its answer stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Doing {
    Nothing,
    Pausing,
    Sending,
}

/// The connections of a replica.
pub(super) struct Seats {
    free: Arc<Semaphore>,
    house: Mutex<House>,
}

#[derive(Default)]
struct House {
    /// Those that may be shown out, within each kind the longest first.
    idle: BTreeMap<(Doing, u64), CancellationToken>,
    next: u64,
    /// Somebody waits for a seat and nobody could be shown out.
    wanted: bool,
}

impl Seats {
    pub(super) fn new(connections: usize) -> Arc<Self> {
        Arc::new(Self { free: Arc::new(Semaphore::new(connections)), house: Mutex::default() })
    }

    /// A seat for a connection that has been accepted, as soon as there is one.
    pub(super) async fn take(self: &Arc<Self>) -> Arc<Seat> {
        let permit = match self.free.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                self.make_room();
                #[expect(clippy::expect_used, reason = "it is never closed")]
                self.free.clone().acquire_owned().await.expect("it is open")
            }
        };
        let seat = Seat {
            seats: self.clone(),
            leave: CancellationToken::new(),
            open: Mutex::default(),
            changed: Notify::new(),
            _permit: permit,
        };
        let mut house = lock(&self.house);
        house.wanted = false;
        lock(&seat.open).place = house.put(Doing::Nothing, &seat.leave);
        drop(house);
        Arc::new(seat)
    }

    /// Shows out whoever does the least; if all do something, the next one that does not.
    pub(super) fn make_room(&self) {
        lock(&self.house).show_out();
    }
}

impl House {
    /// Notes that a connection may be shown out.
    fn put(&mut self, doing: Doing, leave: &CancellationToken) -> Option<(Doing, u64)> {
        let place = (doing, self.next);
        self.next += 1;
        self.idle.insert(place, leave.clone());
        if std::mem::take(&mut self.wanted) {
            self.show_out();
        }
        Some(place)
    }

    fn show_out(&mut self) {
        match self.idle.pop_first() {
            Some((_, leave)) => {
                metrics::connection_shown_out();
                leave.cancel();
            }
            None => self.wanted = true,
        }
    }
}

/// One connection's seat.
pub(super) struct Seat {
    seats: Arc<Seats>,
    /// It is wanted for somebody else.
    pub(super) leave: CancellationToken,
    open: Mutex<Open>,
    /// A request began or ended.
    pub(super) changed: Notify,
    _permit: OwnedSemaphorePermit,
}

/// The requests of one connection.
#[derive(Default)]
struct Open {
    /// Begun, and not answered to the last byte.
    requests: usize,
    /// Of these, those whose body is still on its way in.
    sending: usize,
    served: bool,
    place: Option<(Doing, u64)>,
}

impl Seat {
    /// Requests that are open, and whether there has ever been one.
    pub(super) fn open(&self) -> (usize, bool) {
        let open = lock(&self.open);
        (open.requests, open.served)
    }

    /// Whether some request has come in whole and waits for its answer.
    pub(super) fn is_needed(&self) -> bool {
        let open = lock(&self.open);
        open.requests > open.sending
    }

    /// A request begins; it is open, and its body on its way, until these are dropped.
    pub(super) fn begin(self: &Arc<Self>) -> (Busy, Sending) {
        self.change(|open| {
            open.requests += 1;
            open.sending += 1;
            open.served = true;
        });
        (Busy(self.clone()), Sending(self.clone()))
    }

    fn change(&self, change: impl FnOnce(&mut Open)) {
        let mut open = lock(&self.open);
        change(&mut open);
        let doing = match (open.requests, open.sending) {
            (0, _) if open.served => Some(Doing::Pausing),
            (0, _) => Some(Doing::Nothing),
            (requests, sending) if requests <= sending => Some(Doing::Sending),
            _ => None,
        };
        if doing != open.place.map(|(doing, _)| doing) {
            let mut house = lock(&self.seats.house);
            if let Some(place) = open.place.take() {
                house.idle.remove(&place);
            }
            open.place = doing.and_then(|doing| house.put(doing, &self.leave));
        }
        drop(open);
        self.changed.notify_one();
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(place) = lock(&self.open).place {
            lock(&self.seats.house).idle.remove(&place);
        }
    }
}

/// One open request.
pub(super) struct Busy(Arc<Seat>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.change(|open| open.requests -= 1);
    }
}

/// A request's body, on its way in.
pub(super) struct Sending(Arc<Seat>);

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.change(|open| open.sending -= 1);
    }
}

/// What is locked is whole at every unlock.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use futures::FutureExt;

    use super::*;

    /// Takes a seat that must be free.
    fn take(seats: &Arc<Seats>) -> Arc<Seat> {
        seats.take().now_or_never().unwrap()
    }

    fn gone(seats: &[&Arc<Seat>]) -> Vec<bool> {
        seats.iter().map(|seat| seat.leave.is_cancelled()).collect()
    }

    #[test]
    fn who_does_the_least_for_longest_makes_room() {
        let seats = Seats::new(4);
        let (waits, sends, paused, silent) = (take(&seats), take(&seats), take(&seats), take(&seats));
        let (_waits, body) = waits.begin();
        drop(body);
        let _sends = sends.begin();
        drop(paused.begin());
        let all = [&silent, &paused, &sends, &waits];
        for shown_out in 1..=3 {
            assert!(seats.take().now_or_never().is_none());
            assert_eq!(gone(&all), [1, 2, 3, 4].map(|n| n <= shown_out));
        }
    }

    #[test]
    fn the_first_to_finish_makes_room_when_all_were_busy() {
        let seats = Seats::new(2);
        let (one, two) = (take(&seats), take(&seats));
        let ((_one, body_one), (two_is_busy, body_two)) = (one.begin(), two.begin());
        drop((body_one, body_two));
        assert!(seats.take().now_or_never().is_none());
        assert_eq!(gone(&[&one, &two]), [false, false]);
        drop(two_is_busy);
        assert_eq!(gone(&[&one, &two]), [false, true]);
        drop(two);
        assert!(seats.take().now_or_never().is_some());
    }

    #[test]
    fn an_answer_that_begins_before_its_request_has_ended_is_still_sending() {
        let seats = Seats::new(1);
        let seat = take(&seats);
        let (busy, body) = seat.begin();
        assert!(!seat.is_needed());
        drop(busy);
        // The answer is out while the body is on its way: neither more nor less than idle.
        drop(body);
        assert_eq!(seat.open(), (0, true));
        drop(seat);
        assert!(lock(&seats.house).idle.is_empty());
    }
}
