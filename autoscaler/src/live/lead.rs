//! Leader election: one of several autoscalers leads. The others are on standby and take over some seconds after it
//! fails.

use std::time::Duration;

use stokehold_queue::nonce;
use stokehold_queue::registry::{Registry, Term};
use stokehold_supervise::{Rounds, Supervisor};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// Duration of the leader's lease.
const LEASE: Duration = Duration::from_secs(15);

/// Interval at which the lease is renewed; three renewals may fail.
const RENEW_EVERY: Duration = Duration::from_secs(4);

/// Claim to lead, renewed in the background until it is dropped.
pub(crate) struct Lead {
    registry: Registry,
    holder: String,
    term: watch::Receiver<Option<Term>>,
    task: tokio::task::JoinHandle<()>,
}

impl Lead {
    pub(crate) fn claim(registry: Registry, holder: Option<String>, supervisor: &Supervisor) -> Self {
        let holder = holder.unwrap_or_else(|| format!("a-{}", nonce()));
        let (sender, term) = watch::channel(None);
        let rounds = supervisor.rounds("autoscaler_lead", RENEW_EVERY);
        let task = tokio::spawn(renew(rounds, registry.clone(), holder.clone(), sender));
        Self { registry, holder, term, task }
    }

    /// Current term, if this autoscaler leads. The term may end before a write; the write is refused then.
    pub(crate) fn term(&self) -> Option<Term> {
        *self.term.borrow()
    }

    /// Completes when the term may have changed.
    pub(crate) async fn changed(&mut self) {
        if self.term.changed().await.is_err() {
            std::future::pending().await
        }
    }

    /// Gives up the lead at once.
    pub(crate) async fn give_up(&self) {
        self.task.abort();
        if self.term().is_some()
            && let Ok(Err(error)) = timeout(RENEW_EVERY, self.registry.lead(&self.holder, 0)).await
        {
            tracing::debug!(%error, "cannot give up the lead; it expires by itself");
        }
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn renew(rounds: Rounds, registry: Registry, holder: String, term: watch::Sender<Option<Term>>) {
    let mut renewed = Instant::now();
    let lease_ms = u64::try_from(LEASE.as_millis()).unwrap_or(u64::MAX);
    loop {
        let asked = Instant::now();
        // A failure has been logged.
        if let Ok(led) = rounds.run(async { Ok(registry.lead(&holder, lease_ms).await?) }).await {
            renewed = asked;
            publish(&term, led);
        }
        if renewed.elapsed() > LEASE {
            publish(&term, None);
        }
        if term.is_closed() {
            return;
        }
        rounds.pause(RENEW_EVERY).await;
    }
}

fn publish(term: &watch::Sender<Option<Term>>, led: Option<Term>) {
    term.send_if_modified(|term| {
        let is_new = *term != led;
        if is_new {
            tracing::info!("{}", if led.is_some() { "leading" } else { "another autoscaler leads; watching" });
        }
        *term = led;
        is_new
    });
}
