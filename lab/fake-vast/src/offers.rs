//! Offers on the wire.

use serde_json::{Map, Value, json};
use stokehold_vast::field;

use crate::draw::Draw;
use crate::fields::{OF_QUOTES, joined};
use crate::machines::{Block, Machine};
use crate::money::in_usd;
use crate::time::seconds;

const HOURS_PER_MONTH: f64 = 720.0;

/// Drivers and the newest CUDA version that each supports.
const DRIVERS: [(&str, f64); 7] = [
    ("535.309.01", 12.2),
    ("550.127.05", 12.4),
    ("565.57.01", 12.7),
    ("570.133.20", 12.8),
    ("575.64.03", 12.9),
    ("580.82.07", 13.0),
    ("590.44.01", 13.1),
];
const CPUS: [(&str, u64, f64); 5] = [
    ("AMD EPYC 7B13 64-Core Processor", 128, 3.5),
    ("AMD EPYC 9J14 96-Core Processor", 192, 3.7),
    ("Xeon® Gold 6148 ", 80, 3.7),
    ("AMD Ryzen 9 7950X 16-Core Processor", 32, 5.7),
    ("Intel® Core™ i9-12900K", 24, 5.2),
];

/// Properties that all offers of a machine share and that have no effect.
pub(crate) struct Traits {
    driver: (&'static str, f64),
    cpu: (&'static str, u64, f64),
    cpu_ram_mb: u64,
    disk_bw: f64,
    pcie_bw: f64,
    is_static: bool,
}

impl Traits {
    pub(crate) fn drawn(machine: &Machine, draw: &mut Draw) -> Self {
        let from = if machine.kind.compute_cap >= 1000 { 3 } else { 0 };
        Self {
            driver: *draw.pick(&DRIVERS[from..]),
            cpu: *draw.pick(&CPUS),
            cpu_ram_mb: (machine.gpu_ids.len() as u64 * draw.whole(24_000, 129_000)).max(32_000),
            disk_bw: draw.between(500.0, 6000.0),
            pcie_bw: (draw.between(6.0, 54.0) * 10.0).round() / 10.0,
            is_static: draw.chance(0.4),
        }
    }
}

/// Fields of an offer that do not change while it is listed.
#[expect(clippy::cast_precision_loss, reason = "counts are small")]
pub(crate) fn row(machine: &Machine, block: &Block, traits: &Traits, draw: &mut Draw) -> Map<String, Value> {
    let kind = machine.kind;
    let (size, total) = (block.size as u64, machine.gpu_ids.len() as u64);
    let share = size as f64 / total as f64;
    let (driver, cuda) = traits.driver;
    let (cpu_name, cpu_cores, cpu_ghz) = traits.cpu;
    let bundle = draw.whole(100_000_000, 2_100_000_000);
    let verified = u64::from(machine.verification == "verified");
    let mut row = json!({
        "avail_vol_ask_id": null, "avail_vol_dph": null, "avail_vol_size": null,
        "bundle_id": bundle, "bundled_results": null,
        "bw_nvlink": if kind.compute_cap == 800 || kind.compute_cap == 900 { 150.0 } else { 0.0 },
        "cluster_id": null, (field::COMPUTE_CAP): kind.compute_cap, "cpu_arch": "amd64", "cpu_cores": cpu_cores,
        "cpu_cores_effective": cpu_cores as f64 * share, "cpu_ghz": cpu_ghz, "cpu_name": cpu_name,
        "cpu_ram": (traits.cpu_ram_mb as f64 * share).round() as u64,
        "credit_discount_max": 0.05, (field::CUDA_MAX_GOOD): cuda, "direct_port_count": machine.ports,
        "disk_bw": traits.disk_bw, "disk_name": "MTFDDAK960TDT", (field::DISK_SPACE): machine.disk_gb * share,
        (field::DLPERF): kind.dlperf * size as f64, "driver_version": driver, "driver_vers": driver_number(driver),
        "expected_reliability": 0.0, "external": null,
        (field::GEOLOCATION): machine.geolocation, "geolocode": draw.whole(1, 2_000_000_000),
        "gpu_arch": "nvidia", "gpu_display_active": false, "gpu_frac": share,
        (field::GPU_IDS): machine.gpu_ids[block.start..block.start + block.size],
        "gpu_lanes": 16, "gpu_max_power": kind.watts, "gpu_max_temp": 90.0, "gpu_mem_bw": kind.memory_gb_per_s,
        (field::GPU_NAME): kind.gpu_name, (field::GPU_RAM): kind.gpu_ram_mb, "gpu_total_ram": kind.gpu_ram_mb * size,
        "has_avx": 1, "host_id": machine.host_id, "hostname": null,
        (field::HOSTING_TYPE): u64::from(machine.is_datacenter),
        (field::INET_DOWN): machine.inet_down, (field::INET_DOWN_COST): in_usd(machine.down),
        "inet_up": machine.inet_up, "inet_up_cost": in_usd(machine.up),
        "internet_down_cost_per_tb": in_usd(machine.down) * 1024.0,
        "internet_up_cost_per_tb": in_usd(machine.up) * 1024.0,
        "is_bid": false, "is_vm_deverified": false, "logo": "/static/logos/vastai_small2.png",
        (field::MACHINE_ID): machine.id
    });
    let more = json!({
        (field::MIN_BID): in_usd(machine.min_bid * size),
        "mobo_name": "ROME2D32GM-2T", (field::NUM_GPUS): size,
        "nw_disk_avg_bw": null, "nw_disk_max_bw": null, "nw_disk_min_bw": null, "os_version": "22.04", "pci_gen": 4.0,
        "pcie_bw": traits.pcie_bw, "public_ipaddr": machine.ip, "reliability": machine.reliability,
        (field::RELIABILITY2): machine.reliability, "reliability_mult": machine.reliability.powi(4),
        (field::RENTABLE): true, "rented": false, "resource_type": "gpu", "rn": 1, "sla_broker_rate": null,
        "sla_r_claim": 0.0, "sla_sigma_x": null, "start_date": null, "static_ip": traits.is_static,
        (field::STORAGE_COST): in_usd(machine.storage), "target_reliability": 0.0,
        "time_remaining": "", "time_remaining_isbid": "", "total_flops": kind.tflops * size as f64,
        "vericode": if machine.verification == "deverified" { 2 } else { verified },
        "verification": machine.verification, "vms_enabled": false,
        "vram_costperhour": in_usd(machine.price) / (kind.gpu_ram_mb as f64 / 1024.0), "webpage": null,
        "end_date": seconds(machine.end_ms), "discount_rate": 0.0, "discounted_hourly": 0.0
    });
    match (&mut row, more) {
        (Value::Object(row), Value::Object(more)) => {
            row.extend(more);
            std::mem::take(row)
        }
        _ => Map::new(),
    }
}

/// Driver version as a number: `535.86.05` is 535086005.
fn driver_number(version: &str) -> u64 {
    version.split('.').filter_map(|part| part.parse::<u64>().ok()).fold(0, |number, part| number * 1000 + part)
}

/// Price of an offer with a disk, by type of rental.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quote {
    pub(crate) dph_base: f64,
    pub(crate) disk_hour: f64,
    pub(crate) dph_total: f64,
    pub(crate) duration_s: f64,
    traffic: f64,
    dlperf: f64,
    flops: f64,
    reliability_mult: f64,
}

impl Quote {
    #[expect(clippy::cast_precision_loss, reason = "counts are small")]
    pub(crate) fn of(machine: &Machine, block: &Block, is_bid: bool, disk_gb: f64, now_ms: u64) -> Self {
        let size = block.size as u64;
        let dph_base = in_usd(size * if is_bid { machine.min_bid } else { machine.price });
        let disk_hour = in_usd(machine.storage) * disk_gb / HOURS_PER_MONTH;
        Self {
            dph_base,
            disk_hour,
            dph_total: dph_base + disk_hour,
            duration_s: seconds(machine.end_ms.saturating_sub(now_ms)),
            traffic: in_usd(machine.down) + in_usd(machine.up),
            dlperf: machine.kind.dlperf * size as f64,
            flops: machine.kind.tflops * size as f64,
            reliability_mult: machine.reliability.powi(4),
        }
    }

    /// Value of a field that depends on the quote.
    pub(crate) fn field(&self, name: &str) -> Option<f64> {
        let per_total = |value: f64| value / self.dph_total.max(1e-6);
        Some(match name {
            field::DPH_BASE => self.dph_base,
            field::DPH_TOTAL | "dph" | "discounted_dph_total" => self.dph_total,
            "dph_total_adj" => self.dph_total + self.traffic,
            "storage_total_cost" => self.disk_hour,
            "duration" => self.duration_s,
            "dlperf_per_dphtotal" => per_total(self.dlperf),
            "flops_per_dphtotal" => per_total(self.flops),
            "score" => per_total(self.dlperf) * self.reliability_mult,
            _ => return None,
        })
    }

    /// Fields that depend on the quote.
    fn fields(&self, block: &Block) -> Map<String, Value> {
        let number = |name: &&str| Some(((*name).to_owned(), self.field(name)?.into()));
        let mut fields: Map<String, Value> = OF_QUOTES.iter().filter_map(number).collect();
        fields.insert("id".into(), block.ask.into());
        fields.insert(field::ASK_CONTRACT_ID.into(), block.ask.into());
        fields.insert("search".into(), self.breakdown(self.dph_base));
        fields.insert("instance".into(), self.breakdown(0.0));
        fields
    }

    /// The whole offer.
    pub(crate) fn row(&self, block: &Block) -> Map<String, Value> {
        let mut row = block.row.clone();
        row.extend(self.fields(block));
        row
    }

    /// The whole offer as JSON.
    pub(crate) fn text(&self, block: &Block) -> String {
        joined(&block.offer_text, &self.fields(block))
    }

    /// Cost per hour with this price of the GPUs, by part.
    pub(crate) fn breakdown(&self, gpu_hour: f64) -> Value {
        let total = gpu_hour + self.disk_hour;
        json!({
            "gpuCostPerHour": gpu_hour, "diskHour": self.disk_hour, "slaPremiumPerHour": 0.0, "totalHour": total,
            "discountTotalHour": 0, "discountedTotalPerHour": total,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::driver_number;

    #[test]
    fn a_driver_is_compared_as_a_number() {
        assert_eq!(driver_number("535.86.05"), 535_086_005);
        assert_eq!(driver_number("575.64.03"), 575_064_003);
    }
}
