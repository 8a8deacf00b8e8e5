//! Calls that only the stand-in answers: faults, external events, the log of calls, the state.

use serde::Deserialize;
use serde_json::{Value, json};
use stokehold_vast::Status;

use crate::faults::{Faults, OutbidLook};
use crate::market::Market;
use crate::time::{ms, seconds};
use crate::wire::{Answer, Request};

/// An external event: something that no call of the API does.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Act {
    /// Another customer bids more.
    Outbid {
        /// The contract.
        instance: u64,
        /// How the instance looks afterwards.
        #[serde(default)]
        look: OutbidLook,
    },
    /// The host is disconnected.
    Offline {
        /// The contract.
        instance: u64,
        /// Duration, seconds.
        for_s: f64,
    },
    /// The host sends no heartbeats.
    Unknown {
        /// The contract.
        instance: u64,
        /// Duration, seconds.
        for_s: f64,
    },
    /// The container exits by itself.
    Exit {
        /// The contract.
        instance: u64,
    },
    /// The instance is paused in memory; its GPUs are still charged for.
    Freeze {
        /// The contract.
        instance: u64,
    },
    /// The account gets credit.
    PayIn {
        /// Amount, dollars.
        usd: f64,
    },
}

impl Market {
    /// Applies an external event.
    pub fn act(&mut self, now_s: f64, act: &Act) {
        self.move_to(now_s);
        match act {
            Act::Outbid { instance, look } => {
                if let Some(price) = self.instances.get(instance).map(|one| one.price) {
                    self.outbid(*instance, price + 1, *look);
                }
            }
            Act::Offline { instance, for_s } => self.lose_host(*instance, *for_s, Status::Offline),
            Act::Unknown { instance, for_s } => self.lose_host(*instance, *for_s, Status::Unknown),
            Act::Exit { instance } => self.container_exited(*instance),
            Act::Freeze { instance } => self.set_status(*instance, Status::Frozen),
            Act::PayIn { usd } => self.pay_in(now_s, *usd),
        }
    }

    fn lose_host(&mut self, instance: u64, for_s: f64, status: Status) {
        if let Some(machine) = self.instances.get(&instance).map(|one| one.machine) {
            self.host_gone(machine, ms(for_s), status);
        }
    }

    /// Answers calls below `/_fake/`.
    pub(crate) fn control(&mut self, request: &Request) -> Option<Answer> {
        let path = request.path.strip_prefix("/_fake/")?.trim_end_matches('/');
        let refuse = |error: serde_json::Error| Answer::error(400, "invalid_args", &error.to_string());
        Some(match (request.method.as_str(), path) {
            ("PUT", "faults") => match serde_json::from_slice::<Faults>(&request.body) {
                Ok(faults) => {
                    self.set_faults(faults);
                    Answer::done()
                }
                Err(error) => refuse(error),
            },
            ("GET", "faults") => Answer::json(200, &json!(self.faults)),
            ("POST", "acts") => match serde_json::from_slice::<Act>(&request.body) {
                Ok(act) => {
                    self.act(seconds(self.now_ms), &act);
                    Answer::done()
                }
                Err(error) => refuse(error),
            },
            ("GET", "log") => Answer::json(200, &json!(self.log.calls().collect::<Vec<_>>())),
            ("GET", "state") => Answer::json(200, &self.state()),
            _ => Answer::error(404, "not_found", "There is no such control"),
        })
    }

    fn state(&mut self) -> Value {
        let rows: Vec<Value> = self.instances.values().map(|one| self.instance_row(one).into()).collect();
        json!({
            "now_s": seconds(self.now_ms), "offers": self.asks.len(), "machines": self.machines.len(),
            "credit_usd": self.balance.credit_usd(), "spent_usd": self.balance.spent().usd(), "instances": rows,
        })
    }
}
