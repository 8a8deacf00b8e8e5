//! The task that maintains a connection: reconnects it, and follows the primary.

use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use super::locate::{Found, Locator};
use super::long::LongCalls;
use super::{Link, RECONNECT_MAX, RECONNECT_MIN, jittered};

/// Interval of the check whether the primary has moved.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);

/// Maximum delay between two searches for a primary. The primary must be found within 5 s of its promotion.
const SEEK_MAX: Duration = Duration::from_secs(1);

/// The only reconnect loop. It ends when the last [`Connection`] is dropped.
pub(super) async fn keep(locator: &mut Locator, link: &watch::Sender<Link>, reports: &mut mpsc::Receiver<u64>) {
    loop {
        // Also true if a panic interrupted the search for a new connection.
        if link.borrow().connection.is_none() {
            let found = tokio::select! {
                found = seek(locator) => found,
                () = link.closed() => return,
            };
            renew(link, found);
        }
        tokio::select! {
            report = reports.recv() => match report {
                None => return,
                Some(number) if number == link.borrow().number => link.send_modify(|link| link.connection = None),
                Some(_) => {}
            },
            () = sleep(jittered(FOLLOW_EVERY)), if locator.moves() => {
                if let Some(found) = moved(locator, link).await {
                    renew(link, found);
                }
            }
        }
    }
}

fn renew(link: &watch::Sender<Link>, found: Found) {
    link.send_modify(|link| {
        let before = std::mem::replace(link, Link::new(link.number + 1, found));
        before.long.inspect(LongCalls::close);
    });
}

/// Tries to connect until it succeeds.
async fn seek(locator: &mut Locator) -> Found {
    let most = if locator.moves() { SEEK_MAX } else { RECONNECT_MAX };
    let mut wait = RECONNECT_MIN;
    loop {
        match timeout(RECONNECT_MAX, locator.connect()).await {
            Ok(Ok(found)) => {
                tracing::info!(address = %found.info.addr(), "connected to Redis again");
                return found;
            }
            Ok(Err(error)) => tracing::warn!(%error, "cannot connect to Redis, trying again"),
            Err(_) => tracing::warn!("connecting to Redis timed out, trying again"),
        }
        sleep(jittered(wait)).await;
        wait = (wait * 2).min(most);
    }
}

/// The new primary, if another one than that in use is reported and is verified to be a primary.
async fn moved(locator: &mut Locator, link: &watch::Sender<Link>) -> Option<Found> {
    let said = locator.primary().await.ok()?;
    if said.addr() == link.borrow().info.addr() {
        return None;
    }
    let found = timeout(RECONNECT_MAX, locator.connect_to(said)).await.ok()?.ok()?;
    tracing::info!(address = %found.info.addr(), "Redis has a new primary");
    Some(found)
}
