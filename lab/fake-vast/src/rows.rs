//! Instances on the wire.

use serde_json::{Map, Value, json};
use stokehold_vast::{Status, field, state};

use crate::fields::joined;
use crate::instances::Instance;
use crate::market::Market;
use crate::offers::Quote;
use crate::search::Field;
use crate::time::seconds;

/// Ports from here on have the same number outside of the container.
const IDENTITY_PORT: u32 = 70_000;

impl Market {
    /// Fields of an instance that its offer does not have.
    fn state_fields(&self, one: &Instance) -> Map<String, Value> {
        let machine = &self.machines[one.machine];
        let block = &machine.blocks[one.block];
        #[expect(clippy::cast_precision_loss, reason = "disks are small")]
        let disk_gb = one.order.disk_mb as f64 / 1000.0;
        let quote = Quote::of(machine, block, false, disk_gb, self.now_ms);
        let (gpu_hour, disk_hour) = one.hourly_usd();
        let is_running = one.status == Status::Running;
        let env: Vec<(&String, &String)> = one.order.env.iter().map(|(name, value)| (name, value)).collect();
        let fields = json!({
            "id": one.id, (field::ASK_CONTRACT_ID): one.ask, "label": one.order.label,
            (field::ACTUAL_STATUS): one.status.word(), (field::INTENDED_STATUS): wanted(one),
            (field::CUR_STATE): one.cur_state, "next_state": one.next_state, (field::STATUS_MSG): one.message,
            "is_bid": one.order.bid.is_some(), (field::DPH_BASE): gpu_hour, (field::DPH_TOTAL): gpu_hour + disk_hour,
            "storage_total_cost": disk_hour, "search": quote.breakdown(gpu_hour), "instance": quote.breakdown(gpu_hour),
            "start_date": seconds(one.created_ms), "duration": quote.duration_s,
            "image_uuid": one.order.image, "image_runtype": one.order.runtype_word, "image_args": one.order.args,
            (field::ONSTART): one.order.onstart, "extra_env": env, (field::DISK_SPACE): disk_gb,
            "disk_usage": if is_running { 1.5 } else { -1.0 }, "disk_util": -1.0,
            "gpu_util": is_running.then_some(0.0), "gpu_temp": is_running.then_some(35.0), "cpu_util": 0.0,
            "uptime_mins": null, "ssh_host": "ssh1.vast.ai", "ssh_idx": "1", "ssh_port": 10_000 + one.id % 50_000,
            "ports": if is_running { self.ports(one) } else { Value::Null },
            "volume_info": null, "template_id": null, "template_hash_id": null,
            "rented": true, "local_ipaddrs": "10.0.0.2",
        });
        match fields {
            Value::Object(fields) => fields,
            _ => Map::new(),
        }
    }

    /// A whole instance, as lists contain it.
    pub(crate) fn instance_row(&self, one: &Instance) -> Map<String, Value> {
        let mut row = self.machines[one.machine].blocks[one.block].row.clone();
        row.extend(self.state_fields(one));
        row
    }

    /// Docker's map of the requested ports.
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

    /// Listed instances by ID: without those that are still hidden, with destroyed ones that are still shown.
    pub(crate) fn listed_instances(&self) -> Vec<Listed<'_>> {
        let live = self.instances.values().filter(|one| one.hidden_until_ms <= self.now_ms).map(Listed::Live);
        let ghosts = self.ghosts.values().filter(|(until_ms, _)| *until_ms > self.now_ms);
        let mut all: Vec<Listed<'_>> = live.chain(ghosts.map(|(_, row)| Listed::Ghost(row))).collect();
        all.sort_by_key(Listed::id);
        all
    }

    /// Value of a stored column.
    pub(crate) fn column<'a>(&'a self, listed: &'a Listed<'a>, name: &str) -> Field<'a> {
        match listed {
            Listed::Ghost(row) => Field::of(&row[name]),
            Listed::Live(one) => match name {
                #[expect(clippy::cast_precision_loss, reason = "numbers of contracts are small")]
                "id" => Field::Number(one.id as f64),
                "label" => one.order.label.as_deref().map_or(Field::Null, Field::Text),
                field::ACTUAL_STATUS => one.status.word().map_or(Field::Null, Field::Text),
                field::INTENDED_STATUS => Field::Text(wanted(one)),
                field::CUR_STATE => Field::Text(one.cur_state),
                "start_date" => Field::Number(seconds(one.created_ms)),
                name => self.machines[one.machine].blocks[one.block].row.get(name).map_or(Field::Null, Field::of),
            },
        }
    }

    /// Row as JSON, or some of its columns.
    pub(crate) fn listed_text(&self, listed: &Listed<'_>, columns: Option<&Vec<Value>>) -> String {
        match (listed, columns) {
            (Listed::Live(one), None) => {
                joined(&self.machines[one.machine].blocks[one.block].instance_text, &self.state_fields(one))
            }
            (Listed::Live(one), columns) => narrow(self.instance_row(one).into(), columns).to_string(),
            (Listed::Ghost(row), columns) => narrow((*row).clone(), columns).to_string(),
        }
    }
}

/// Row of a list.
#[derive(Clone, Copy)]
pub(crate) enum Listed<'a> {
    Live(&'a Instance),
    Ghost(&'a Value),
}

impl Listed<'_> {
    pub(crate) fn id(&self) -> u64 {
        match self {
            Listed::Live(one) => one.id,
            Listed::Ghost(row) => row["id"].as_u64().unwrap_or(0),
        }
    }
}

fn wanted(one: &Instance) -> &'static str {
    if one.wants_running { state::RUNNING } else { state::STOPPED }
}

/// The requested columns of a row.
pub(crate) fn narrow(row: Value, columns: Option<&Vec<Value>>) -> Value {
    match (row, columns) {
        (Value::Object(row), Some(columns)) if !columns.iter().any(|name| name == "*") => {
            let is_asked = |name: &str| columns.iter().any(|column| column == name);
            row.into_iter().filter(|(name, _)| is_asked(name)).collect::<Map<_, _>>().into()
        }
        (row, _) => row,
    }
}
