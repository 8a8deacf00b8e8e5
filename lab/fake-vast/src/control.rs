//! What only the stand-in answers: faults, acts of fate, the log, the state.

use serde::Deserialize;
use serde_json::{Value, json};
use stokehold_vast::Status;

use crate::faults::{Faults, OutbidLook};
use crate::market::Market;
use crate::time::{ms, seconds};
use crate::wire::{Answer, Request};

/// Something done to one instance, by nobody that the API knows of.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Act {
    /// Somebody bids more.
    Outbid {
        /// The contract.
        instance: u64,
        /// What is seen of it.
        #[serde(default)]
        look: OutbidLook,
    },
    /// Its host is disconnected.
    Offline {
        /// The contract.
        instance: u64,
        /// For how long.
        for_s: f64,
    },
    /// Its host sends no heartbeat.
    Unknown {
        /// The contract.
        instance: u64,
        /// For how long.
        for_s: f64,
    },
    /// Its container ends by itself.
    Exit {
        /// The contract.
        instance: u64,
    },
    /// It is paused in memory, and its cards are charged on.
    Freeze {
        /// The contract.
        instance: u64,
    },
    /// Somebody pays.
    PayIn {
        /// Dollars.
        usd: f64,
    },
}

impl Market {
    /// Does something that no call of the API can.
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

    /// Calls below `/_fake/`.
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
