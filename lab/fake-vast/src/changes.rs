//! Changes of instances: state, label, bid, price, end.

use serde_json::{Value, json};
use stokehold_vast::{Status, code, state};

use crate::faults::{Fault, OutbidLook, Point};
use crate::machines::Holder;
use crate::market::Market;
use crate::money::{in_usd, nano_usd};
use crate::search::number;
use crate::steps::To;
use crate::time::{ms, seconds};
use crate::wire::Answer;

const MAX_LABEL: usize = 1024;
const QUEUED: &str = "Required resources are currently unavailable, state change queued.";
/// Time until requested logs can be read, counted from the request.
const RESULT_AFTER_MS: u64 = 400;
const MAX_RESULTS: usize = 256;

fn unknown(id: u64) -> Answer {
    Answer::error(404, code::NO_SUCH_INSTANCE, &format!("Instance {id} not found."))
}

fn numbers(body: &Value, name: &str) -> Vec<u64> {
    body.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_u64).collect()
}

impl Market {
    pub(crate) fn end_one(&mut self, id: u64) -> Answer {
        let listed_for_ms = self.ghost_ms();
        if self.destroy(id, listed_for_ms) { Answer::done() } else { unknown(id) }
    }

    pub(crate) fn end_many(&mut self, body: &Value) -> Answer {
        let ids = numbers(body, "instance_ids");
        let ended = ids.iter().filter(|id| {
            let listed_for_ms = self.ghost_ms();
            self.destroy(**id, listed_for_ms)
        });
        match (ended.count(), ids.first()) {
            (_, None) => Answer::error(400, "invalid_args", "instance_ids is no list of instances"),
            (0, Some(id)) => unknown(*id),
            (_, Some(_)) => Answer::done(),
        }
    }

    fn ghost_ms(&mut self) -> u64 {
        let faults = self.faults.drawn(Point::End, seconds(self.now_ms), &mut self.chaos);
        let longest = |longest: u64, fault: Fault| match fault {
            Fault::Ghost { for_s } => longest.max(ms(for_s)),
            _ => longest,
        };
        faults.into_iter().fold(0, longest)
    }

    pub(crate) fn set_many(&mut self, body: &Value, faults: &[Fault]) -> Answer {
        let ids = numbers(body, "ids");
        let mut answer = Answer::error(400, "invalid_args", "ids is no list of instances");
        for id in ids {
            answer = self.set(id, body, faults);
        }
        answer
    }

    /// Starts, stops or labels an instance.
    pub(crate) fn set(&mut self, id: u64, body: &Value, faults: &[Fault]) -> Answer {
        if !self.instances.contains_key(&id) {
            return unknown(id);
        }
        match body.get("label") {
            None => {}
            Some(Value::String(label)) if label.len() <= MAX_LABEL => {
                let label = Some(label.clone()).filter(|label| !label.is_empty());
                self.change(id, |one| one.order.label = label);
            }
            Some(Value::Null) => self.change(id, |one| one.order.label = None),
            Some(_) => return Answer::error(400, "invalid_args", "label is no text of at most 1024 characters"),
        }
        match body.get("state").and_then(Value::as_str) {
            Some(state::STOPPED) => {
                self.stop(id);
                Answer::done()
            }
            Some(state::RUNNING) => self.start(id, faults),
            Some(_) => Answer::error(400, "invalid_args", "state is running or stopped"),
            None if body.get("label").is_some() => Answer::done(),
            None => Answer::error(400, "invalid_args", "nothing to change"),
        }
    }

    fn stop(&mut self, id: u64) {
        let Some(status) = self.instances.get(&id).map(|one| one.status) else { return };
        self.turn(id);
        self.change(id, |one| {
            one.wants_running = false;
            one.is_queued = false;
            one.outbid_by = None;
            one.next_state = state::STOPPED;
        });
        match status {
            // When it is back.
            Status::Offline | Status::Unknown => {}
            Status::Stopped | Status::Exited => self.halt(id, Status::Stopped),
            _ => self.plan_of(id, ms(self.settings.stop_s), To::Stopped),
        }
    }

    fn start(&mut self, id: u64, faults: &[Fault]) -> Answer {
        let Some(instance) = self.instances.get(&id) else { return unknown(id) };
        let (machine, block) = (instance.machine, instance.block);
        if self.is_broke {
            return Answer::error(400, code::INSUFFICIENT_CREDIT, "Your account lacks credit; see the billing page.");
        }
        if self.machines[machine].end_ms <= self.now_ms {
            return Answer::error(200, "expired", "The rental has expired and cannot be started.");
        }
        if !instance.status.is_halted() && instance.wants_running {
            return Answer::done();
        }
        if instance.status == Status::Running {
            // The stop that was on its way is void.
            self.turn(id);
            self.change(id, |one| {
                one.wants_running = true;
                one.states(state::RUNNING, state::RUNNING);
            });
            return Answer::done();
        }
        for fault in faults {
            if let Fault::QueuedStart { for_s } = fault {
                if self.instances.get(&id).is_some_and(|one| one.has_gpus) {
                    self.halt(id, Status::Stopped);
                }
                self.give_away(machine, block, ms(*for_s));
                self.relist(machine);
            }
        }
        if self.take_gpus(id) {
            self.restart(id);
            return Answer::done();
        }
        self.change(id, |one| {
            one.wants_running = true;
            one.is_queued = true;
            one.outbid_by = None;
            one.next_state = state::RUNNING;
        });
        Answer::error(self.settings.queued_start_status, "resources_unavailable", QUEUED)
    }

    /// Changes a bid. A null price bids just enough to get the GPUs.
    pub(crate) fn change_bid(&mut self, id: u64, body: &Value) -> Answer {
        let Some(instance) = self.instances.get(&id) else { return unknown(id) };
        if instance.order.bid.is_none() {
            return Answer::error(400, "invalid_request", "The instance is on demand.");
        }
        let (machine, block) = (instance.machine, instance.block);
        let least = self.least_bid(machine, block);
        let rival = instance.outbid_by;
        #[expect(clippy::cast_precision_loss, reason = "counts are small")]
        let most = 32.0 * self.span(machine, block).1 as f64;
        let price = match body.get("price") {
            None | Some(Value::Null) => least.max(rival.map_or(0, |rival| rival + nano_usd(0.001))),
            price => match number(price).filter(|usd| (0.001..=most).contains(usd)) {
                Some(usd) => nano_usd(usd),
                None => return Answer::error(400, code::INVALID_PRICE, "price is out of range"),
            },
        };
        self.change(id, |one| {
            one.price = price;
            one.order.bid = Some(price);
        });
        self.reprice(id);
        let has_gpus = self.instances.get(&id).is_some_and(|one| one.has_gpus);
        if has_gpus && price < least {
            self.outbid(id, least, OutbidLook::default());
        } else if rival.is_some_and(|rival| price > rival) && price >= least {
            // Whoever has the cards loses them.
            let (start, size) = self.span(machine, block);
            let is_ours = |holder: &Option<Holder>| matches!(holder, Some(Holder::Instance(_)));
            if !self.machines[machine].holders[start..start + size].iter().any(is_ours) {
                self.machines[machine].hold(start, size, None);
                self.resume_waiting(machine);
                self.relist(machine);
            }
        }
        Answer::done()
    }

    pub(crate) fn reboot(&mut self, id: u64, pulls: bool) -> Answer {
        let Some(instance) = self.instances.get(&id) else { return unknown(id) };
        if instance.status != Status::Running {
            return Answer::error(400, "invalid_request", "The instance does not run.");
        }
        self.restart(id);
        self.set_status(id, if pulls { Status::Loading } else { Status::Rebooting });
        Answer::done()
    }

    pub(crate) fn request_log(&mut self, id: u64, body: &Value) -> Answer {
        if !self.instances.contains_key(&id) {
            return unknown(id);
        }
        let text = self.written.get(&id).cloned().unwrap_or_else(|| format!("instance {id} has written nothing\n"));
        let filter = body.get("filter").and_then(Value::as_str).unwrap_or_default();
        let lines: Vec<&str> = text.lines().filter(|line| line.contains(filter)).collect();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not below zero, and a count of lines"
        )]
        let tail = number(body.get("tail")).map_or(1000, |tail| tail.max(0.0) as usize);
        let text: String = lines[lines.len().saturating_sub(tail)..].iter().flat_map(|line| [*line, "\n"]).collect();
        if self.results.len() == MAX_RESULTS {
            self.results.pop_first();
        }
        self.sequence += 1;
        let token = format!("{:016x}{}", self.sequence, self.chaos.hex(24));
        let url = format!("{}/_logs/{token}", self.address);
        self.results.insert(token, (self.now_ms + RESULT_AFTER_MS, text));
        Answer::json(200, &json!({"success": true, "result_url": url, "msg": "Requested logs."}))
    }

    /// Needs no key. Answers 404 until the result is ready.
    pub(crate) fn read_result(&mut self, token: &str) -> Answer {
        match self.results.get(token) {
            Some((ready_ms, text)) if *ready_ms <= self.now_ms => Answer::text(200, text),
            _ => Answer::typed(404, "application/xml", b"<Error><Code>NoSuchKey</Code></Error>".to_vec()),
        }
    }

    pub(crate) fn increases(&mut self) -> Answer {
        let row = |one: &crate::instances::Instance| {
            let increase = one.increase?;
            let machine = &self.machines[one.machine];
            let per_s = |nano: u64| in_usd(nano) / 3600.0;
            let disk = in_usd(one.storage) * seconds(one.order.disk_mb) / 720.0 / 3600.0;
            Some(json!({
                "pending_price_increase_id": increase.id, "contract_id": one.id, "host_id": machine.host_id,
                "old_gpu_costpersec": per_s(one.price), "new_gpu_costpersec": per_s(increase.price),
                "old_disk_ram_costpersec": disk, "new_disk_ram_costpersec": disk,
                "old_bwu_cost": in_usd(machine.up), "new_bwu_cost": in_usd(machine.up),
                "old_bwd_cost": in_usd(machine.down), "new_bwd_cost": in_usd(machine.down),
                "old_platform_fee": null, "new_platform_fee": null,
                "contract_end_date": seconds(machine.end_ms), "ask_end_date": seconds(machine.end_ms),
                "created_at": seconds(increase.created_ms),
            }))
        };
        let rows: Vec<Value> = self.instances.values().filter_map(row).collect();
        let count = rows.len();
        Answer::json(
            200,
            &json!({"success": true, "count": count, "truncated": false, "pending_price_increases": rows}),
        )
    }

    pub(crate) fn answer_increase(&mut self, body: &Value, accepts: bool) -> Answer {
        let asked =
            body.as_object().filter(|body| body.len() == 1).and_then(|body| body.get("pending_price_increase_id"));
        let Some(asked) = asked.and_then(Value::as_u64) else {
            return Answer::error(400, "invalid_args", "pending_price_increase_id and no other key");
        };
        let of = |one: &&crate::instances::Instance| one.increase.is_some_and(|increase| increase.id == asked);
        let Some(id) = self.instances.values().find(of).map(|one| one.id) else {
            return Answer::error(409, "no_pending_price_increase", "There is no such price increase.");
        };
        self.change(id, |one| {
            if let Some(increase) = one.increase.take().filter(|_| accepts) {
                one.price = increase.price;
            }
        });
        self.reprice(id);
        Answer::done()
    }
}
