//! Names of wire fields by what they depend on, and rows that are written once and completed per answer.

use serde_json::{Map, Value};
use stokehold_vast::field;

/// The fields of an offer that depend on when and how it is asked about.
pub(crate) const OF_QUOTES: [&str; 13] = [
    field::DPH_BASE,
    field::DPH_TOTAL,
    "discounted_dph_total",
    "dph_total_adj",
    "storage_total_cost",
    "duration",
    "dlperf_per_dphtotal",
    "flops_per_dphtotal",
    "score",
    "id",
    field::ASK_CONTRACT_ID,
    "search",
    "instance",
];

/// The fields of an instance that its offer does not have, or has with another value.
pub(crate) const OF_INSTANCES: [&str; 37] = [
    "id",
    field::ASK_CONTRACT_ID,
    "label",
    field::ACTUAL_STATUS,
    field::INTENDED_STATUS,
    field::CUR_STATE,
    "next_state",
    field::STATUS_MSG,
    "is_bid",
    field::DPH_BASE,
    field::DPH_TOTAL,
    "storage_total_cost",
    "search",
    "instance",
    "start_date",
    "duration",
    "image_uuid",
    "image_runtype",
    "image_args",
    field::ONSTART,
    "extra_env",
    field::DISK_SPACE,
    "disk_usage",
    "disk_util",
    "gpu_util",
    "gpu_temp",
    "cpu_util",
    "uptime_mins",
    "ssh_host",
    "ssh_idx",
    "ssh_port",
    "ports",
    "volume_info",
    "template_id",
    "template_hash_id",
    "rented",
    "local_ipaddrs",
];

/// A row as JSON without braces and without some fields. Written once per row, since most of a row never changes.
pub(crate) fn text_without(row: &Map<String, Value>, fields: &[&str]) -> String {
    let kept = row.iter().filter(|(name, _)| !fields.contains(&name.as_str()));
    let text = Value::Object(kept.map(|(name, value)| (name.clone(), value.clone())).collect()).to_string();
    text[1..text.len() - 1].to_owned()
}

/// A JSON object of these fields and a part that [`text_without`] has written.
pub(crate) fn joined(written: &str, fields: &Map<String, Value>) -> String {
    let fields = serde_json::to_string(fields).unwrap_or_default();
    let open = fields.strip_suffix('}').unwrap_or("{");
    [open, ",", written, "}"].concat()
}
