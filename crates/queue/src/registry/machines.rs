//! The instances that the autoscaler has, or is about to have: recorded before any provider is asked for them, so that
//! a successor finds each after a crash and ends it. One autoscaler leads; writes of an older term are refused.

use std::collections::{BTreeMap, HashMap};

use redis::AsyncCommands;
use serde::{Deserialize, Deserializer, Serialize};

use super::{Registry, TokenRecord, WorkerRecord, from_json, to_json};
use crate::error::Error;
use crate::scripts;

/// What is wanted of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wanted {
    /// It is to run.
    Running,
    /// Its GPUs should be released, its disk kept.
    Stopped,
    /// It should be released for good. Its record stays until its provider has nothing of it.
    Gone,
}

/// A machine that the autoscaler has, or is about to have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MachineRecord {
    /// Our id: its worker's name, and its name at the provider.
    pub id: String,
    /// Whose it is.
    pub provider: String,
    /// Its provider's id of it, once that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rental: Option<String>,
    /// The offer at the time of renting, in the autoscaler's own format.
    pub offer: serde_json::Value,
    /// What is wanted of it.
    pub wanted: Wanted,
    /// Since when, unix milliseconds. It boots, or resumes, since then.
    pub wanted_ms: u64,
    /// Whether its provider has confirmed the request; it is repeated until then.
    pub is_done: bool,
    /// When it was rented, unix milliseconds.
    pub rented_ms: u64,
    /// Since when it takes no more jobs, unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained_ms: Option<u64>,
    /// What becomes of it when the jobs that it has are done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub then: Option<Wanted>,
    /// What an hour of it costs while it runs, all in all: what its provider charges, once that is known.
    pub usd_micros_per_hour: u64,
    /// The price in its offer, or the bid, when it was rented.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreed_usd_micros_per_hour: Option<u64>,
    /// What it costs until it runs, where that is less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub booting_usd_micros_per_hour: Option<u64>,
    /// When its provider confirmed that it is made, unix milliseconds: it is paid for since then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_ms: Option<u64>,
    /// When its provider first confirmed that it is given back, unix milliseconds: it is paid for until then, however long it is listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_ms: Option<u64>,
    /// While it is stopped.
    #[serde(default)]
    pub stopped_usd_micros_per_hour: u64,
    /// Whether who pays more may take it away.
    #[serde(default)]
    pub is_interruptible: bool,
    /// Since when it is in none of its provider's lists, unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed_ms: Option<u64>,
    /// Endpoints, `<tenant>/<name>`, that it had loaded: they are on its disk.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_disk: Vec<String>,
}

/// Where a machine is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MachineState {
    /// Rented; its worker has not joined yet.
    Booting,
    /// Its worker takes jobs.
    Ready,
    /// It takes no more jobs, and ends those it has.
    Draining,
    /// Its cards are given back; its disk is kept.
    Stopped,
    /// Was stopped, and is asked to start again.
    Resuming,
    /// It has fallen silent.
    Lost,
    /// It is given back.
    Ending,
}

impl MachineRecord {
    /// What an hour of it counts for in limits while it runs: what is charged or what was agreed, whichever is more.
    #[must_use]
    pub fn counted_usd_micros_per_hour(&self) -> u64 {
        self.usd_micros_per_hour.max(self.agreed_usd_micros_per_hour.unwrap_or(0))
    }

    /// Whether more is charged for it than was agreed, by more than rounding.
    #[must_use]
    pub fn is_overcharged(&self) -> bool {
        self.agreed_usd_micros_per_hour.is_some_and(|agreed| self.usd_micros_per_hour > agreed + agreed / 100)
    }

    /// The worker of this machine among all of them, as it last was, if it has been heard of since the machine was last asked for.
    #[must_use]
    pub fn worker<'a>(&self, workers: &'a [WorkerRecord]) -> Option<&'a WorkerRecord> {
        let named = workers.iter().filter(|worker| worker.name == self.id && worker.seen_ms >= self.wanted_ms);
        named.max_by_key(|worker| worker.seen_ms)
    }

    /// Where it is, and since when, unix milliseconds. A worker that was not heard of for `silent_ms` is lost.
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

/// The right to write down what is done with machines: of two that believe to lead, the later one has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Term(u64);

impl From<u64> for Term {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

/// Condition that an operator should know of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// Kind of the condition, and its subject if there are several, e.g. `provider_unreachable vast`.
    #[serde(deserialize_with = "notice_kind")]
    pub kind: String,
    /// In words, with what to do.
    pub text: String,
    /// Since when it is so, unix milliseconds.
    pub since_ms: u64,
}

/// Reads the kind of a notice. Autoscalers of the release before wrote `blind`, `offers` and `deaf`.
fn notice_kind<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let kind = String::deserialize(deserializer)?;
    Ok(match kind.split_once(' ') {
        Some(("blind", provider)) => format!("provider_unreachable {provider}"),
        Some(("offers", provider)) => format!("no_offers {provider}"),
        None if kind == "deaf" => "gateway_unreachable".to_owned(),
        _ => kind,
    })
}

/// When the work that waits now will have been done, as things are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eta {
    /// `<tenant>/<name>`.
    pub endpoint: String,
    /// Of which priority: 0 is interactive, 2 batch.
    pub priority: u8,
    /// In this many seconds; `None`: no instance that could run it exists or is coming.
    pub seconds: Option<u64>,
}

/// The status of the leading autoscaler.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutoscalerStatus {
    /// When, unix milliseconds.
    pub at_ms: u64,
    /// What the operator is to know.
    pub notices: Vec<Notice>,
    /// Of endpoints whose jobs wait.
    pub etas: Vec<Eta>,
    /// What it did last and why, the newest first; at most [`DECISIONS_MAX`].
    #[serde(default)]
    pub decisions: Vec<Decision>,
}

/// Decisions that are kept to be looked at.
pub const DECISIONS_MAX: usize = 20;

/// What was decided about a machine, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// When, unix milliseconds.
    pub at_ms: u64,
    /// `rent`, `resume`, `drain`, `undrain`, `stop` or `release`.
    pub action: String,
    /// Why, in words.
    pub reason: String,
    /// The machine, once there is one.
    pub machine: Option<String>,
    /// Why it failed; `None` where it did not.
    pub failure: Option<String>,
}

/// What rented machines may come to, all together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Machines that run or may run, those that are being given back among them.
    pub machines: u32,
    /// What they cost, stopped ones among them.
    pub usd_micros_per_hour: u64,
    /// Machines that are rented within `window_ms`: whatever goes wrong, no more are bought.
    pub rents: u32,
    /// See `rents`.
    pub window_ms: u64,
}

/// What became of a machine that was to be written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Granted {
    /// It is written down, and may be asked for.
    Yes,
    /// Another autoscaler leads by now.
    Stale,
    /// This many instances exist already.
    Machines(u64),
    /// They cost so much already, millionths of a dollar per hour.
    Spend(u64),
    /// This many were rented recently.
    Rents(u64),
}

impl Registry {
    /// Writes a machine down that is about to be asked for, or to be resumed, unless the machines that there are would come to more than they
    /// may: of two autoscalers that rent at once, both are within the limits. `now_ms`: Redis's time without.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: unknown, repeat.
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

    /// Makes `holder` the autoscaler that leads for the next `ttl_ms`, or keeps it so. `None` while another one does.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: unknown, ask again.
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

    /// The machines, by id.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn machines(&self) -> Result<BTreeMap<String, MachineRecord>, Error> {
        let step = "list the instances";
        let texts: HashMap<String, String> =
            self.connection.redis().hgetall(self.keys.machines()).await.map_err(Error::redis(step))?;
        texts.into_iter().map(|(id, text)| Ok((id, from_json(step, &text)?))).collect()
    }

    /// One machine, by its id.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn machine(&self, id: &str) -> Result<Option<MachineRecord>, Error> {
        let step = "read an instance";
        let text: Option<String> =
            self.connection.redis().hget(self.keys.machines(), id).await.map_err(Error::redis(step))?;
        text.map(|text| from_json(step, &text)).transpose()
    }

    /// Writes a machine down. `false`: another one leads by now, and nothing was written.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: unknown, repeat.
    pub async fn put_machine(&self, term: Term, machine: &MachineRecord) -> Result<bool, Error> {
        let text = to_json("store an instance", machine)?;
        self.lead_write(term, &self.keys.machines(), &machine.id, &text).await
    }

    /// Forgets a machine that is gone, that it was drained, and what it would join with.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: unknown, repeat.
    pub async fn drop_machine(&self, term: Term, id: &str) -> Result<bool, Error> {
        if !self.drain(term, id, None).await? || !self.lead_write(term, &self.keys.machines(), id, "").await? {
            return Ok(false);
        }
        // It opens nothing without the machine; here it is cleared away.
        self.delete_token(&TokenRecord::id_of_machine(id)).await?;
        Ok(true)
    }

    /// Stores the autoscaler's status.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: unknown, repeat.
    pub async fn put_autoscaler(&self, term: Term, status: &AutoscalerStatus) -> Result<bool, Error> {
        let text = to_json("store the autoscaler's status", status)?;
        self.lead_write(term, &self.keys.autoscaler(), "status", &text).await
    }

    /// The autoscaler's last status; `None` if there never was one.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn autoscaler(&self) -> Result<Option<AutoscalerStatus>, Error> {
        let step = "read the autoscaler's status";
        let text: Option<String> =
            self.connection.redis().hget(self.keys.autoscaler(), "status").await.map_err(Error::redis(step))?;
        text.map(|text| from_json(step, &text)).transpose()
    }

    /// From now on the worker of this name is given no more jobs; with `None` it is again.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: unknown, repeat.
    pub async fn drain(&self, term: Term, worker: &str, since_ms: Option<u64>) -> Result<bool, Error> {
        let since = since_ms.map_or(String::new(), |since_ms| since_ms.to_string());
        self.lead_write(term, &self.keys.drains(), worker, &since).await
    }

    /// Since when workers are drained, unix milliseconds by name.
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

    /// Nothing is rented of this host, or this offer, until then; with 0 it may be again.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: unknown, repeat.
    pub async fn shun(&self, term: Term, host: &str, until_ms: u64) -> Result<bool, Error> {
        let until = if until_ms == 0 { String::new() } else { until_ms.to_string() };
        self.lead_write(term, &self.keys.shunned(), host, &until).await
    }

    /// Until when hosts and offers are left alone, unix milliseconds.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn notices_of_the_release_before_are_read_with_their_new_kinds() {
        let kinds = [
            ("blind vast", "provider_unreachable vast"),
            ("offers vast", "no_offers vast"),
            ("deaf", "gateway_unreachable"),
            ("credit vast", "credit vast"),
            ("no_offers vast", "no_offers vast"),
        ];
        for (written, read) in kinds {
            let notice = serde_json::json!({"kind": written, "text": "", "since_ms": 1});
            assert_eq!(serde_json::from_value::<Notice>(notice).unwrap().kind, read);
        }
    }
}
