//! Records of the instances that the autoscaler runs or is about to rent. A record is written before the provider is
//! asked for the instance, so that the next leader finds it after a crash and releases it. One autoscaler leads; writes
//! with an older term are refused.

use std::collections::{BTreeMap, HashMap};

use redis::AsyncCommands;
use serde::{Deserialize, Serialize};

use super::{Registry, TokenRecord, WorkerRecord, from_json, readable, to_json};
use crate::error::Error;
use crate::scripts;

/// The target state of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wanted {
    /// The instance runs.
    Running,
    /// The instance is stopped: its GPUs are released and its disk is kept.
    Stopped,
    /// The instance is released for good. Its record stays until its provider no longer has it.
    Gone,
}

/// An instance that the autoscaler runs, or is about to rent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MachineRecord {
    /// Stokehold's id of the instance: the name of its worker, and its name at the provider.
    pub id: String,
    /// Name of the provider.
    pub provider: String,
    /// The provider's id of the instance, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rental: Option<String>,
    /// The offer at the time of the rental, in the autoscaler's own format.
    pub offer: serde_json::Value,
    /// The target state.
    pub wanted: Wanted,
    /// Time at which the target state was set, Unix milliseconds. The instance has been booting or resuming since then.
    pub wanted_ms: u64,
    /// Whether the provider has confirmed the request. The request is repeated until then.
    pub is_done: bool,
    /// Time of the rental, Unix milliseconds.
    pub rented_ms: u64,
    /// Start of the drain, Unix milliseconds. The instance takes no more jobs since then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained_ms: Option<u64>,
    /// The target state once the instance has finished its jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub then: Option<Wanted>,
    /// Total price of an hour while the instance runs: what the provider charges, once known.
    pub usd_micros_per_hour: u64,
    /// The price in the offer, or the bid, at the time of the rental.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreed_usd_micros_per_hour: Option<u64>,
    /// Price of an hour until the instance runs, if that is less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub booting_usd_micros_per_hour: Option<u64>,
    /// Time at which the provider confirmed the creation, Unix milliseconds. The instance is billed from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_ms: Option<u64>,
    /// Time at which the provider's list first had the instance, Unix milliseconds. Absent in records of the previous
    /// release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listed_ms: Option<u64>,
    /// Time at which the provider first confirmed the release, Unix milliseconds. The instance is billed until then,
    /// even if the provider lists it for longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_ms: Option<u64>,
    /// Price of an hour while the instance is stopped.
    #[serde(default)]
    pub stopped_usd_micros_per_hour: u64,
    /// Whether the provider may interrupt the instance for a higher bidder.
    #[serde(default)]
    pub is_interruptible: bool,
    /// Time since which none of the provider's lists has the instance, Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed_ms: Option<u64>,
    /// Endpoints, `<tenant>/<name>`, that the instance had loaded: their files are on its disk.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_disk: Vec<String>,
}

/// The state of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MachineState {
    /// The instance is rented; its worker has not joined yet.
    Booting,
    /// The worker of the instance takes jobs.
    Ready,
    /// The worker takes no more jobs and finishes those it has.
    Draining,
    /// The GPUs are released; the disk is kept.
    Stopped,
    /// The instance was stopped and is starting again.
    Resuming,
    /// The worker sends no heartbeats any more.
    Lost,
    /// The instance is being released.
    Ending,
}

impl MachineRecord {
    /// Price of an hour that counts towards limits while the instance runs: the charged or the agreed price, whichever
    /// is higher.
    #[must_use]
    pub fn counted_usd_micros_per_hour(&self) -> u64 {
        self.usd_micros_per_hour.max(self.agreed_usd_micros_per_hour.unwrap_or(0))
    }

    /// Whether the provider charges more than was agreed, by more than a rounding error.
    #[must_use]
    pub fn is_overcharged(&self) -> bool {
        self.agreed_usd_micros_per_hour.is_some_and(|agreed| self.usd_micros_per_hour > agreed + agreed / 100)
    }

    /// The last record of this instance's worker, if the worker has reported since the instance was last requested.
    #[must_use]
    pub fn worker<'a>(&self, workers: &'a [WorkerRecord]) -> Option<&'a WorkerRecord> {
        let named = workers.iter().filter(|worker| worker.name == self.id && worker.seen_ms >= self.wanted_ms);
        named.max_by_key(|worker| worker.seen_ms)
    }

    /// The state of the instance, and the time since which it holds, Unix milliseconds. A worker that has not reported
    /// for `silent_ms` is lost.
    #[must_use]
    pub fn state(&self, worker: Option<&WorkerRecord>, now_ms: u64, silent_ms: u64) -> (MachineState, u64) {
        let is_silent = |worker: &WorkerRecord| now_ms.saturating_sub(worker.seen_ms) > silent_ms;
        match self.wanted {
            Wanted::Gone => (MachineState::Ending, self.wanted_ms),
            Wanted::Stopped => (MachineState::Stopped, self.wanted_ms),
            Wanted::Running => match (worker, self.drained_ms) {
                (Some(worker), _) if is_silent(worker) => (MachineState::Lost, worker.seen_ms),
                (Some(_), Some(drained_ms)) => (MachineState::Draining, drained_ms),
                (Some(worker), None) => (MachineState::Ready, worker.joined_ms.max(self.wanted_ms)),
                (None, _) if self.wanted_ms > self.rented_ms => (MachineState::Resuming, self.wanted_ms),
                (None, _) => (MachineState::Booting, self.wanted_ms),
            },
        }
    }
}

/// The right of a leader to write instance records. If two autoscalers both act as leader, the one with the later term
/// has the right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Term(u64);

impl From<u64> for Term {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

/// Limits on all rented instances together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Instances that run or may run, including those that are being released.
    pub machines: u32,
    /// Cost per hour, including stopped instances.
    pub usd_micros_per_hour: u64,
    /// Instances rented within `window_ms`. This bounds the cost of any bug that rents in a loop.
    pub rents: u32,
    /// Length of the window of `rents`.
    pub window_ms: u64,
}

/// Outcome of a request to record an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Granted {
    /// The instance is recorded and may be requested from the provider.
    Yes,
    /// Another autoscaler leads now.
    Stale,
    /// The limit of instances is reached; the number of existing ones.
    Machines(u64),
    /// The limit of the cost is reached; the cost of the existing instances, micro-dollars per hour.
    Spend(u64),
    /// The limit of recent rentals is reached; the number of instances rented recently.
    Rents(u64),
}

const LIST_MACHINES: &str = "list the instances";

impl Registry {
    /// Records an instance that is about to be rented or resumed, unless the total would exceed the limits. The check
    /// and the write are one step: if two autoscalers rent at once, the total stays within the limits. `now_ms` is the
    /// time of Redis if absent.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; retry.
    pub async fn rent(
        &self,
        term: Term,
        machine: &MachineRecord,
        caps: Caps,
        now_ms: Option<u64>,
    ) -> Result<Granted, Error> {
        let (lead, machines, rents) = (self.keys.lead(), self.keys.machines(), self.keys.rents());
        let mut call = scripts::RENT.call(&[&lead, &machines, &rents]);
        call.arg(term.0)
            .arg(&machine.id)
            .arg(to_json("store an instance", machine)?)
            .arg(machine.counted_usd_micros_per_hour());
        call.arg(caps.machines).arg(caps.usd_micros_per_hour).arg(caps.rents).arg(caps.window_ms);
        call.arg(now_ms.map_or(String::new(), |now_ms| now_ms.to_string()));
        let (answer, figure): (String, String) = self.connection.eval(&scripts::RENT, &call).await?;
        let figure = figure.parse().unwrap_or(0);
        match answer.as_str() {
            "ok" => Ok(Granted::Yes),
            "stale" => Ok(Granted::Stale),
            "machines" => Ok(Granted::Machines(figure)),
            "spend" => Ok(Granted::Spend(figure)),
            "rents" => Ok(Granted::Rents(figure)),
            _ => Err(scripts::unexpected(&scripts::RENT, &answer)),
        }
    }

    /// Makes `holder` the leading autoscaler for the next `ttl_ms`, or extends its leadership. `None` while another one
    /// leads.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; retry.
    pub async fn lead(&self, holder: &str, ttl_ms: u64) -> Result<Option<Term>, Error> {
        let mut call = scripts::LEAD.call(&[&self.keys.lead()]);
        call.arg(holder).arg(ttl_ms);
        let (answer, term): (String, String) = self.connection.eval(&scripts::LEAD, &call).await?;
        if answer != "yes" {
            return Ok(None);
        }
        let term = term.parse().map_err(|_| scripts::unexpected(&scripts::LEAD, &term))?;
        Ok(Some(Term(term)))
    }

    /// The instances by id. One whose record cannot be read is logged and left out.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn machines(&self) -> Result<BTreeMap<String, MachineRecord>, Error> {
        let texts = self.machine_texts().await?;
        let readable = |(id, text): (String, String)| {
            let machine = readable(&format!("read instance {id}"), &text)?;
            Some((id, machine))
        };
        Ok(texts.into_iter().filter_map(readable).collect())
    }

    /// All instances by id, for a caller that gives back what is not among them.
    ///
    /// # Errors
    /// [`Error::Unavailable`]; [`Error::Corrupt`] if a record cannot be read.
    pub async fn every_machine(&self) -> Result<BTreeMap<String, MachineRecord>, Error> {
        let texts = self.machine_texts().await?;
        texts.into_iter().map(|(id, text)| Ok((id, from_json(LIST_MACHINES, &text)?))).collect()
    }

    async fn machine_texts(&self) -> Result<HashMap<String, String>, Error> {
        self.connection.redis().hgetall(self.keys.machines()).await.map_err(Error::redis(LIST_MACHINES))
    }

    /// The instance with this id.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn machine(&self, id: &str) -> Result<Option<MachineRecord>, Error> {
        let step = "read an instance";
        let text: Option<String> =
            self.connection.redis().hget(self.keys.machines(), id).await.map_err(Error::redis(step))?;
        text.map(|text| from_json(step, &text)).transpose()
    }

    /// Stores the record of an instance. `false`: another autoscaler leads now, and nothing was written.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; retry.
    pub async fn put_machine(&self, term: Term, machine: &MachineRecord) -> Result<bool, Error> {
        let text = to_json("store an instance", machine)?;
        self.lead_write(term, &self.keys.machines(), &machine.id, &text).await
    }

    /// Deletes the record of an instance that is gone, together with its drain mark and its join token.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; retry.
    pub async fn drop_machine(&self, term: Term, id: &str) -> Result<bool, Error> {
        if !self.drain(term, id, None).await? || !self.lead_write(term, &self.keys.machines(), id, "").await? {
            return Ok(false);
        }
        // The token is useless without the instance; deleting it only frees its memory.
        self.delete_token(&TokenRecord::id_of_machine(id)).await?;
        Ok(true)
    }

    /// Drains the worker of this name: the queue gives it no more jobs. `None` ends the drain.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; retry.
    pub async fn drain(&self, term: Term, worker: &str, since_ms: Option<u64>) -> Result<bool, Error> {
        let since = since_ms.map_or(String::new(), |since_ms| since_ms.to_string());
        self.lead_write(term, &self.keys.drains(), worker, &since).await
    }

    /// Start of the drain of each drained worker, Unix milliseconds by name.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn drains(&self) -> Result<HashMap<String, u64>, Error> {
        self.connection
            .redis()
            .hgetall(self.keys.drains())
            .await
            .map_err(Error::redis("read which workers are draining"))
    }

    /// Starts the cooldown of a host or an offer: the autoscaler rents nothing from it until `until_ms`. 0 ends the
    /// cooldown.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; retry.
    pub async fn shun(&self, term: Term, host: &str, until_ms: u64) -> Result<bool, Error> {
        let until = if until_ms == 0 { String::new() } else { until_ms.to_string() };
        self.lead_write(term, &self.keys.shunned(), host, &until).await
    }

    /// End of the cooldown of each host and offer, Unix milliseconds.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn shunned(&self) -> Result<HashMap<String, u64>, Error> {
        self.connection
            .redis()
            .hgetall(self.keys.shunned())
            .await
            .map_err(Error::redis("read which hosts and offers to avoid"))
    }

    pub(super) async fn lead_write(&self, term: Term, key: &str, field: &str, value: &str) -> Result<bool, Error> {
        let mut call = scripts::LEAD_WRITE.call(&[&self.keys.lead(), key]);
        call.arg(term.0).arg(field).arg(value);
        let (answer,): (String,) = self.connection.eval(&scripts::LEAD_WRITE, &call).await?;
        Ok(answer == "ok")
    }
}
