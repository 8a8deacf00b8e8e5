//! Selects the connection to close when the connection limit is reached: that of the least active client.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::metrics;

/// States of a connection that may be closed to make room, in the order of closing: connections that never made a
/// request, then those between two requests, then those whose requests are all still being received. A connection that
/// waits for its response stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Doing {
    Nothing,
    Pausing,
    Sending,
}

/// The connections of a replica.
pub(super) struct ConnectionLimit {
    connections: Mutex<Connections>,
    /// Notifies that a permit is free, or held by a connection that may be closed.
    freed: Notify,
}

struct Connections {
    permits: usize,
    taken: usize,
    /// Connections that may be closed to make room; within each state, the one that has been in it the longest comes
    /// first.
    idle: BTreeMap<(Doing, u64), CancellationToken>,
    next: u64,
}

impl ConnectionLimit {
    pub(super) fn new(permits: usize) -> Arc<Self> {
        let connections = Connections { permits, taken: 0, idle: BTreeMap::new(), next: 0 };
        Arc::new(Self { connections: Mutex::new(connections), freed: Notify::new() })
    }

    /// Takes a permit for an accepted connection as soon as there is one: a free one, otherwise that of the least
    /// active client. Called by one task at a time.
    pub(super) async fn take(self: &Arc<Self>) -> Arc<ConnectionPermit> {
        loop {
            if let Some(permit) = self.try_take() {
                return permit;
            }
            self.freed.notified().await;
        }
    }

    fn try_take(self: &Arc<Self>) -> Option<Arc<ConnectionPermit>> {
        let mut connections = lock(&self.connections);
        if connections.taken < connections.permits {
            connections.taken += 1;
        } else if !connections.close_least_active() {
            return None;
        }
        let leave = CancellationToken::new();
        let open = Open { place: Some(connections.put(Doing::Nothing, &leave)), ..Open::default() };
        drop(connections);
        Some(Arc::new(ConnectionPermit {
            permits: self.clone(),
            leave,
            open: Mutex::new(open),
            changed: Notify::new(),
        }))
    }

    /// Closes the connection of the least active client.
    pub(super) fn make_room(&self) {
        let mut connections = lock(&self.connections);
        if connections.close_least_active() {
            connections.taken -= 1;
        }
    }
}

impl Connections {
    /// Records that a connection may be closed to make room.
    fn put(&mut self, doing: Doing, leave: &CancellationToken) -> (Doing, u64) {
        let place = (doing, self.next);
        self.next += 1;
        self.idle.insert(place, leave.clone());
        place
    }

    /// Closes the least active connection. Its permit is passed on at once, while the connection is still closing.
    fn close_least_active(&mut self) -> bool {
        let Some((_, leave)) = self.idle.pop_first() else { return false };
        leave.cancel();
        metrics::connection_shown_out();
        true
    }
}

/// One connection's permit.
pub(super) struct ConnectionPermit {
    permits: Arc<ConnectionLimit>,
    /// Signals that the permit is needed for another connection.
    pub(super) leave: CancellationToken,
    open: Mutex<Open>,
    /// Notifies that a request began or ended.
    pub(super) changed: Notify,
}

/// Counts of the requests of one connection.
#[derive(Default)]
struct Open {
    /// Requests that have begun and whose response is not fully sent.
    requests: usize,
    /// Requests among these whose body is still being received.
    sending: usize,
    served: bool,
    place: Option<(Doing, u64)>,
}

impl ConnectionPermit {
    /// Number of open requests, and whether there has ever been one.
    pub(super) fn open(&self) -> (usize, bool) {
        let open = lock(&self.open);
        (open.requests, open.served)
    }

    /// Returns whether a request has been fully received and waits for its response.
    pub(super) fn is_needed(&self) -> bool {
        let open = lock(&self.open);
        open.requests > open.sending
    }

    /// Begins a request. It is open, and its body is being received, until these are dropped.
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
            let mut connections = lock(&self.permits.connections);
            if let Some(place) = open.place.take() {
                connections.idle.remove(&place);
            }
            // A closed connection has already passed its permit on.
            let doing = doing.filter(|_| !self.leave.is_cancelled());
            open.place = doing.map(|doing| connections.put(doing, &self.leave));
            if doing.is_some() {
                self.permits.freed.notify_one();
            }
        }
        drop(open);
        self.changed.notify_one();
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let place = lock(&self.open).place;
        let mut connections = lock(&self.permits.connections);
        // Its permit was passed on when it was closed.
        if self.leave.is_cancelled() {
            return;
        }
        if let Some(place) = place {
            connections.idle.remove(&place);
        }
        connections.taken -= 1;
        self.permits.freed.notify_one();
    }
}

/// One open request.
pub(super) struct Busy(Arc<ConnectionPermit>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.change(|open| open.requests -= 1);
    }
}

/// The body of a request that is being received.
pub(super) struct Sending(Arc<ConnectionPermit>);

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.change(|open| open.sending -= 1);
    }
}

/// Locks the value. It is consistent at every unlock, so a poisoned lock is safe to use.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use futures::FutureExt;

    use super::*;

    /// Takes a permit that must be free.
    fn take(permits: &Arc<ConnectionLimit>) -> Arc<ConnectionPermit> {
        permits.take().now_or_never().unwrap()
    }

    fn gone(permits: &[&Arc<ConnectionPermit>]) -> Vec<bool> {
        permits.iter().map(|permit| permit.leave.is_cancelled()).collect()
    }

    #[test]
    fn who_does_the_least_for_longest_makes_room() {
        let permits = ConnectionLimit::new(4);
        let (waits, sends, paused, silent) = (take(&permits), take(&permits), take(&permits), take(&permits));
        let (_waits, body) = waits.begin();
        drop(body);
        let _sends = sends.begin();
        drop(paused.begin());
        let all = [&silent, &paused, &sends, &waits];
        let mut busy = Vec::new();
        for shown_out in 1..=3 {
            let next = take(&permits);
            let (request, body) = next.begin();
            drop(body);
            busy.push(request);
            assert_eq!(gone(&all), [1, 2, 3, 4].map(|n| n <= shown_out));
        }
        assert!(permits.take().now_or_never().is_none());
        assert_eq!(gone(&all), [true, true, true, false]);
    }

    #[test]
    fn the_first_to_finish_makes_room_when_all_were_busy() {
        let permits = ConnectionLimit::new(2);
        let (one, two) = (take(&permits), take(&permits));
        let ((_one, body_one), (two_is_busy, body_two)) = (one.begin(), two.begin());
        drop((body_one, body_two));
        let mut waiting = Box::pin(permits.take());
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(two_is_busy);
        assert!(waiting.now_or_never().is_some());
        assert_eq!(gone(&[&one, &two]), [false, true]);
    }

    #[test]
    fn a_seat_that_was_passed_on_is_not_given_back_again() {
        let permits = ConnectionLimit::new(2);
        let (one, two) = (take(&permits), take(&permits));
        let three = take(&permits);
        // The first connection is closing, and begins another request.
        drop(one.begin());
        drop(one);
        assert_eq!(lock(&permits.connections).taken, 2);
        drop((two, three));
        assert_eq!(lock(&permits.connections).taken, 0);
        let _four = take(&permits);
        permits.make_room();
        let connections = lock(&permits.connections);
        assert_eq!((connections.taken, connections.idle.len()), (0, 0));
        drop(connections);
    }

    #[test]
    fn an_answer_that_begins_before_its_request_has_ended_is_still_sending() {
        let permits = ConnectionLimit::new(1);
        let permit = take(&permits);
        let (busy, body) = permit.begin();
        assert!(!permit.is_needed());
        drop(busy);
        // The response is sent while the body is still being received: neither more nor less than idle.
        drop(body);
        assert_eq!(permit.open(), (0, true));
        drop(permit);
        assert!(lock(&permits.connections).idle.is_empty());
    }
}
