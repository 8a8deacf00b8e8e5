//! Rents.

use serde_json::{Value, json};
use stokehold_vast::{Status, code, field, state};

use crate::faults::Fault;
use crate::instances::{Instance, Order, Runtype};
use crate::machines::Holder;
use crate::market::Market;
use crate::money::{Account, nano_usd};
use crate::search::number;
use crate::wire::Answer;

const MAX_IMAGE: usize = 1024;
const MAX_LABEL: usize = 256;
const MAX_ONSTART: usize = 4048;
const MAX_ENV: usize = 32_768;
const MIN_DISK_GB: f64 = 8.0;
const MAX_BULK: usize = 64;

/// Error of a rent.
pub(crate) struct RentError {
    status: u16,
    code: &'static str,
    message: String,
    /// ID of the instance if it was created and stopped nevertheless.
    created: Option<u64>,
}

impl RentError {
    fn new(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), created: None }
    }

    pub(crate) fn no_such_ask(status: u16, ask: u64) -> Self {
        let message = format!("error 404/3603: no_such_ask Instance type by id {ask} is not available.");
        Self::new(status, code::NO_SUCH_ASK, message)
    }

    fn value(&self) -> Value {
        let mut value = json!({"success": false, "error": self.code, "msg": self.message});
        if let (Some(id), Value::Object(object)) = (self.created, &mut value) {
            object.insert(field::NEW_CONTRACT.into(), id.into());
        }
        value
    }

    pub(crate) fn answer(&self) -> Answer {
        Answer::json(self.status, &self.value())
    }
}

impl Order {
    /// Parses the body of a rent.
    pub(crate) fn read(body: &Value) -> Result<Self, RentError> {
        let wrong = |message: &str| RentError::new(400, "invalid_args", message);
        let text = |name: &str| body.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        if !body.is_object() {
            return Err(RentError::new(400, "invalid_request", "The body is no JSON object"));
        }
        let image = match (text("image"), text("template_hash_id")) {
            (Some(image), _) => image.to_owned(),
            (None, Some(template)) => format!("template/{template}"),
            (None, None) => return Err(wrong("image is required")),
        };
        let bid = match body.get("price") {
            None | Some(Value::Null) => None,
            price => {
                let usd = number(price).filter(|usd| (0.001..=128.0).contains(usd));
                Some(nano_usd(usd.ok_or_else(|| RentError::new(400, code::INVALID_PRICE, "price is out of range"))?))
            }
        };
        let disk_gb = number(body.get("disk")).unwrap_or(MIN_DISK_GB);
        if disk_gb < MIN_DISK_GB {
            return Err(wrong("disk is less than 8 GB"));
        }
        let env = match body.get("env") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Object(env)) => {
                let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                env.iter().map(|(name, value)| (name.clone(), plain(value))).collect()
            }
            Some(_) => return Err(wrong("env is no object")),
        };
        let args = match (body.get("args"), text("args_str")) {
            (Some(Value::Array(args)), _) => {
                let args: Option<Vec<String>> = args.iter().map(|one| one.as_str().map(str::to_owned)).collect();
                args.ok_or_else(|| wrong("args are no strings"))?
            }
            (None | Some(Value::Null), words) => {
                words.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
            }
            (Some(_), _) => return Err(wrong("args is no list")),
        };
        let onstart = text(field::ONSTART).map(str::to_owned);
        let label = text("label").map(str::to_owned);
        let too_long = |value: &Option<String>, limit: usize| value.as_ref().is_some_and(|text| text.len() > limit);
        if image.len() > MAX_IMAGE
            || too_long(&label, MAX_LABEL)
            || too_long(&onstart, MAX_ONSTART)
            || env.iter().map(|(name, value): &(String, String)| name.len() + value.len()).sum::<usize>() > MAX_ENV
        {
            return Err(wrong("image, label, onstart or env is too long"));
        }
        let word = text(field::RUNTYPE).unwrap_or("ssh");
        let runtype = match word.split(' ').next().unwrap_or_default() {
            "args" => Runtype::Args,
            one if one.starts_with("ssh") || one.starts_with("jupyter") => Runtype::Shell,
            _ => return Err(wrong("runtype is not known")),
        };
        let flag = |name: &str| body.get(name).and_then(Value::as_bool);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "disks are small")]
        let disk_mb = (disk_gb * 1000.0).round() as u64;
        Ok(Self {
            bid,
            disk_mb,
            label,
            image,
            runtype,
            runtype_word: word.to_owned(),
            onstart,
            args,
            env,
            cancel_unavail: flag(field::CANCEL_UNAVAIL).unwrap_or(bid.is_none()),
            is_stopped: text(field::TARGET_STATE) == Some(state::STOPPED),
        })
    }
}

impl Market {
    /// `PUT /asks/{id}/`.
    pub(crate) fn rent(&mut self, ask: u64, body: &Value, faults: &[Fault]) -> Answer {
        match Order::read(body).and_then(|order| self.accept(ask, &order, faults)) {
            Ok(id) => Answer::json(200, &self.accepted(id)),
            Err(error) => error.answer(),
        }
    }

    fn accepted(&self, id: u64) -> Value {
        let key = self.instances.get(&id).map(|one| one.key.as_str());
        json!({"success": true, (field::NEW_CONTRACT): id, "instance_api_key": key})
    }

    /// `POST /asks/bulk/`. The response is not documented; here each offer has its own outcome, in the given order.
    pub(crate) fn rent_many(&mut self, body: &Value) -> Answer {
        let asks: Vec<u64> =
            body.get("ids").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_u64).collect();
        if asks.is_empty() || asks.len() > MAX_BULK {
            return Answer::error(400, "invalid_args", "ids is no list of 1 to 64 offers");
        }
        let order = match Order::read(body) {
            Ok(order) => order,
            Err(error) => return error.answer(),
        };
        let mut contracts = Vec::new();
        let outcome = |ask: u64| match self.accept(ask, &order, &[]) {
            Ok(id) => {
                contracts.push(id);
                self.accepted(id)
            }
            Err(error) => error.value(),
        };
        let results: Vec<Value> = asks.into_iter().map(outcome).collect();
        Answer::json(200, &json!({"success": !contracts.is_empty(), "new_contracts": contracts, "results": results}))
    }

    fn accept(&mut self, ask: u64, order: &Order, faults: &[Fault]) -> Result<u64, RentError> {
        for fault in faults {
            match fault {
                Fault::NoSuchAsk { status } => return Err(RentError::no_such_ask(*status, ask)),
                Fault::InsufficientCredit => return Err(broke()),
                _ => {}
            }
        }
        if self.is_broke {
            return Err(broke());
        }
        let Some((machine, block)) = self.asks.get(&ask).copied() else {
            return Err(RentError::no_such_ask(404, ask));
        };
        let size = self.machines[machine].blocks[block].size as u64;
        #[expect(clippy::cast_precision_loss, reason = "disks are small")]
        let (asked_gb, share) =
            (order.disk_mb as f64 / 1000.0, size as f64 / self.machines[machine].gpu_ids.len() as f64);
        if asked_gb > self.machines[machine].disk_gb * share {
            return Err(RentError::new(400, "invalid_args", "disk is more than the machine has"));
        }
        let least = self.least_bid(machine, block);
        let is_low = order.bid.is_some_and(|bid| bid < least);
        if is_low && order.cancel_unavail {
            return Err(too_low(None));
        }
        let is_refused = is_low || faults.contains(&Fault::RefusedButCreated);
        let id = self.create(ask, (machine, block), order, is_refused);
        for fault in faults {
            if let Fault::ChargedTimes { factor } = fault {
                self.change(id, |one| one.price = nano_usd(crate::money::in_usd(one.price) * factor));
                self.reprice(id);
            }
        }
        if is_refused { Err(too_low(Some(id))) } else { Ok(id) }
    }

    /// Creates the instance. A refused one is stopped and has no GPUs.
    fn create(&mut self, ask: u64, place: (usize, usize), order: &Order, is_refused: bool) -> u64 {
        let (machine, block) = place;
        let id = self.contract();
        let is_stopped = is_refused || order.is_stopped;
        let (start, size) = self.span(machine, block);
        let instance = Instance {
            id,
            ask,
            machine,
            block,
            price: order.bid.unwrap_or(self.machines[machine].price * size as u64),
            storage: self.machines[machine].storage,
            order: order.clone(),
            key: self.looks.hex(64),
            created_ms: self.now_ms,
            status: if is_stopped { Status::Stopped } else { Status::None },
            wants_running: !is_stopped,
            cur_state: if is_stopped { state::STOPPED } else { "unloaded" },
            next_state: if is_stopped { state::STOPPED } else { state::RUNNING },
            message: None,
            has_gpus: !is_refused,
            is_queued: false,
            outbid_by: None,
            life: 0,
            starts: 0,
            is_up: false,
            hidden_until_ms: 0,
            account: Account::opened(self.now_ms),
            increase: None,
        };
        self.instances.insert(id, instance);
        if is_refused {
            // The offer is used up.
            self.asks.remove(&ask);
            self.machines[machine].blocks[block].ask = None;
        } else {
            self.machines[machine].hold(start, size, Some(Holder::Instance(id)));
        }
        self.relist(machine);
        self.reprice(id);
        if !is_stopped {
            self.boot(id);
        }
        id
    }
}

fn broke() -> RentError {
    RentError::new(400, code::INSUFFICIENT_CREDIT, "Your account lacks credit; see the billing page.")
}

fn too_low(created: Option<u64>) -> RentError {
    RentError { created, ..RentError::new(400, code::INVALID_PRICE, "Bid is too low to start the instance.") }
}
