//! Writes the bills of machines to Redis and reads the charges of providers.

use std::collections::BTreeMap;
use std::time::Duration;

use stokehold_queue::Error;
use stokehold_queue::costs::{DayBill, MachineBill, day_of};
use stokehold_queue::registry::{Registry, Term};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{Charges, Entry, ProviderCharges, entries, is_awaited, note_there, outdated};
use crate::observe::RawState;
use crate::provider::in_time;
use crate::providers::Providers;

/// Maximum interval between two queries of charges. The actual interval allows two queries before charges are final.
const ASK_EVERY: Duration = Duration::from_secs(60);

/// Interval at which all bills are read to remove those past their retention.
const READ_EVERY: Duration = Duration::from_secs(3_600);

/// The bills that may still change, as last written.
#[derive(Default)]
pub(crate) struct CostLedger {
    known: Option<(Term, BTreeMap<String, MachineBill>)>,
    read: Option<Instant>,
    /// Time at which each machine was last known to exist, unix milliseconds.
    there_ms: BTreeMap<String, u64>,
    asked: Option<Instant>,
    /// Query of charges that runs concurrently with the rounds.
    asking: Option<JoinHandle<Charges>>,
    /// A day, and the cost on it of bills that no longer change.
    settled_today: Option<(u32, u64)>,
}

impl CostLedger {
    /// Cost of rented machines on the day of a moment, including costs that are not charged yet, millionths of a
    /// dollar; `None` before the bills have been read.
    pub(crate) fn spent_today(&self, now_ms: u64) -> Option<u64> {
        let (_, known) = self.known.as_ref()?;
        let today = |bill: &MachineBill| bill.by_day(now_ms).get(&day_of(now_ms)).map_or(0, DayBill::total);
        Some(
            self.settled_today.filter(|(day, _)| *day == day_of(now_ms)).map_or(0, |(_, usd_micros)| usd_micros)
                + known.values().map(today).sum::<u64>(),
        )
    }

    /// Writes the changes. A failure is logged, and the next round retries.
    pub(crate) async fn keep(&mut self, registry: &Registry, term: Term, providers: &Providers, seen: &RawState) {
        if let Err(error) = self.written(registry, term, providers, seen).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "cannot write the bills of machines; the next round retries");
        }
    }

    async fn written(
        &mut self,
        registry: &Registry,
        term: Term,
        providers: &Providers,
        seen: &RawState,
    ) -> Result<(), Error> {
        // The bills are read again unless all changes were written, because a write of unknown outcome may have
        // succeeded.
        let now = Instant::now();
        let is_fresh = self.read.is_some_and(|read| now.duration_since(read) < READ_EVERY);
        let mut known = match self.known.take() {
            Some((of, known)) if of == term && is_fresh => known,
            _ => {
                self.read = Some(now);
                self.settled_today = None;
                registry.bills().await?
            }
        };
        for id in outdated(&known, seen.now_ms) {
            known.remove(&id);
            if !registry.drop_bill(term, &id).await? {
                return Ok(());
            }
        }
        let today = day_of(seen.now_ms);
        let mut settled = self.settled_today.filter(|(day, _)| *day == today).map_or(0, |(_, usd_micros)| usd_micros);
        known.retain(|id, bill| {
            let is_open = seen.machines.contains_key(id) || bill.ended_ms.is_none() || is_awaited(bill, seen.now_ms);
            if !is_open {
                settled += bill.by_day(seen.now_ms).get(&today).map_or(0, DayBill::total);
            }
            is_open
        });
        self.settled_today = Some((today, settled));
        for id in seen.machines.keys() {
            if !known.contains_key(id) {
                // A machine name that is used again already has a bill.
                known.extend(registry.bill(id).await?.map(|bill| (id.clone(), bill)));
            }
        }
        let charges = self.charges(providers, &known, seen.now_ms).await;
        note_there(seen, &mut self.there_ms);
        let entries = entries(seen, &known, &self.there_ms, &charges);
        self.there_ms.retain(|id, _| seen.machines.contains_key(id));
        for entry in entries {
            let is_ours = match entry {
                Entry::Write(bill) => {
                    let is_ours = registry.put_bill(term, &bill).await?;
                    known.insert(bill.machine.clone(), *bill);
                    is_ours
                }
                Entry::Drop(id) => {
                    known.remove(&id);
                    registry.drop_bill(term, &id).await?
                }
            };
            if !is_ours {
                // Another autoscaler leads and writes the bills.
                return Ok(());
            }
        }
        self.known = Some((term, known));
        Ok(())
    }

    /// Charges that providers reported since the last round. Providers are queried once a minute; those that failed are
    /// left out.
    async fn charges(&mut self, providers: &Providers, known: &BTreeMap<String, MachineBill>, now_ms: u64) -> Charges {
        if let Some(answered) = self.asking.take_if(|asking| asking.is_finished()) {
            return answered.await.unwrap_or_default();
        }
        let now = Instant::now();
        let soonest = providers.iter().map(|provider| provider.charges_settle_after() / 2).min();
        let every = soonest.unwrap_or(ASK_EVERY).min(ASK_EVERY);
        let is_due = self.asked.is_none_or(|asked| now.duration_since(asked) >= every);
        if self.asking.is_none() && is_due {
            let since = |name: &str| {
                let awaited = known.values().filter(|bill| bill.provider == name && is_awaited(bill, now_ms));
                awaited.map(|bill| bill.rented_ms / 1_000).min()
            };
            let questions: Vec<(&'static str, u64)> =
                providers.iter().filter_map(|provider| Some((provider.name(), since(provider.name())?))).collect();
            self.asked = Some(now);
            if !questions.is_empty() {
                self.asking = Some(tokio::spawn(ask(providers.clone(), questions)));
            }
        }
        Charges::new()
    }
}

/// Queries each provider for its charges since a moment in unix seconds.
async fn ask(providers: Providers, questions: Vec<(&'static str, u64)>) -> Charges {
    let mut charges = Charges::new();
    for (name, since_s) in questions {
        let Some(provider) = providers.get(name) else { continue };
        match in_time(provider, provider.charges(since_s)).await {
            Ok(Some(found)) => {
                let last_word_ms = u64::try_from(provider.charges_settle_after().as_millis()).unwrap_or(u64::MAX);
                charges.insert(name.to_owned(), ProviderCharges { charges: found, last_word_ms });
            }
            Ok(None) => {}
            Err(failure) => tracing::debug!(provider = name, %failure, "cannot read the charges of a provider"),
        }
    }
    charges
}
