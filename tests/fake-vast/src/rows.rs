//! Instances on the wire.

use serde_json::{Map, Value, json};

use crate::instances::Instance;
use crate::machines::seconds;
use crate::market::Market;
use crate::offers::Quote;

/// A port from here on is the same outside.
const IDENTITY_PORT: u32 = 70_000;

impl Market {
    /// One instance with everything that the list says.
    pub(crate) fn instance_row(&self, one: &Instance) -> Map<String, Value> {
        let machine = &self.machines[one.machine];
        let block = &machine.blocks[one.block];
        #[expect(clippy::cast_precision_loss, reason = "disks are small")]
        let disk_gb = one.order.disk_mb as f64 / 1000.0;
        let quote = Quote::of(machine, block, false, disk_gb, self.now_ms);
        let (gpu_hour, disk_hour) = one.hourly_usd();
        let is_running = one.status == crate::instances::Status::Running;
        let wanted = if one.wants_running { "running" } else { "stopped" };
        let env: Vec<(&String, &String)> = one.order.env.iter().map(|(name, value)| (name, value)).collect();
        let fields = json!({
            "id": one.id, "ask_contract_id": one.ask, "label": one.order.label,
            "actual_status": one.status.word(), "intended_status": wanted,
            "cur_state": one.cur_state, "next_state": one.next_state, "status_msg": one.message,
            "is_bid": one.order.bid.is_some(), "dph_base": gpu_hour, "dph_total": gpu_hour + disk_hour,
            "storage_total_cost": disk_hour, "search": quote.breakdown(gpu_hour), "instance": quote.breakdown(gpu_hour),
            "start_date": seconds(one.created_ms), "duration": quote.duration_s,
            "image_uuid": one.order.image, "image_runtype": one.order.runtype_word, "image_args": one.order.args,
            "onstart": one.order.onstart, "extra_env": env, "disk_space": disk_gb,
            "disk_usage": if is_running { 1.5 } else { -1.0 }, "disk_util": -1.0,
            "gpu_util": is_running.then_some(0.0), "gpu_temp": is_running.then_some(35.0), "cpu_util": 0.0,
            "uptime_mins": null, "ssh_host": "ssh1.vast.ai", "ssh_idx": "1", "ssh_port": 10_000 + one.id % 50_000,
            "ports": if is_running { self.ports(one) } else { Value::Null },
            "volume_info": null, "template_id": null, "template_hash_id": null,
            "rented": true, "local_ipaddrs": "10.0.0.2",
        });
        let mut row = block.row.clone();
        if let Value::Object(fields) = fields {
            row.extend(fields);
        }
        row
    }

    /// Docker's map of the ports that were asked for.
    fn ports(&self, one: &Instance) -> Value {
        let mut ports = Map::new();
        let asked = one.order.env.iter().filter_map(|(name, _)| name.strip_prefix("-p "));
        for (index, port) in asked.enumerate() {
            let (_, inside) = port.rsplit_once(':').unwrap_or((port, port));
            let (inside, protocol) = inside.split_once('/').unwrap_or((inside, "tcp"));
            let Ok(number) = inside.trim().parse::<u32>() else { continue };
            let outside =
                if number >= IDENTITY_PORT { u64::from(number) } else { 40_000 + one.id % 5000 * 4 + index as u64 };
            let binding = json!([{"HostIp": "0.0.0.0", "HostPort": outside.to_string()}]);
            ports.insert(format!("{number}/{protocol}"), binding);
        }
        Value::Object(ports)
    }

    /// What a list says: those that are not hidden yet, and those that are gone and still shown.
    pub(crate) fn listed_rows(&self) -> Vec<Value> {
        let live = self.instances.values().filter(|one| one.hidden_until_ms <= self.now_ms);
        let mut rows: Vec<(u64, Value)> = live.map(|one| (one.id, self.instance_row(one).into())).collect();
        let ghosts = self.ghosts.iter().filter(|(_, (until_ms, _))| *until_ms > self.now_ms);
        rows.extend(ghosts.map(|(id, (_, row))| (*id, row.clone())));
        rows.sort_by_key(|(id, _)| *id);
        rows.into_iter().map(|(_, row)| row).collect()
    }
}
