//! The cards of this machine: by NVML, or declared for tests, or none.

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use stokehold_queue::gateway::{Gpu, GpuReading};

/// What this machine has.
pub(crate) enum Inventory {
    /// No card: CPU jobs only.
    Cpu,
    /// Declared cards without hardware behind them.
    Fake(Vec<Gpu>),
    /// Cards that NVML sees.
    Nvml(Box<Nvml>, Vec<Gpu>),
}

const MIB: u64 = 1024 * 1024;

impl Inventory {
    /// Looks. A machine without an NVIDIA driver is a CPU worker; cards that cannot be read are left out and named.
    pub(crate) fn look(fake_gpus: Option<&[u64]>) -> Self {
        if let Some(sizes) = fake_gpus {
            return Self::Fake((0..).zip(sizes).map(|(index, vram_mib)| fake(index, *vram_mib)).collect());
        }
        let nvml = match Nvml::init() {
            Ok(nvml) => nvml,
            Err(error) => {
                tracing::info!(%error, "no NVIDIA driver: this worker takes CPU jobs only");
                return Self::Cpu;
            }
        };
        let gpus: Vec<Gpu> = (0..nvml.device_count().unwrap_or(0)).filter_map(|index| card(&nvml, index)).collect();
        if gpus.is_empty() { Self::Cpu } else { Self::Nvml(Box::new(nvml), gpus) }
    }

    /// The cards.
    pub(crate) fn gpus(&self) -> &[Gpu] {
        match self {
            Self::Cpu => &[],
            Self::Fake(gpus) | Self::Nvml(_, gpus) => gpus,
        }
    }

    /// What NVML says of each card now. A reading that a card does not give is absent.
    pub(crate) fn readings(&self) -> Vec<GpuReading> {
        let Self::Nvml(nvml, gpus) = self else { return Vec::new() };
        gpus.iter()
            .filter_map(|gpu| {
                let device = nvml.device_by_index(gpu.index).ok()?;
                Some(GpuReading {
                    index: gpu.index,
                    vram_used_mib: device.memory_info().ok()?.used / MIB,
                    temperature_c: device.temperature(TemperatureSensor::Gpu).ok(),
                    utilisation_pct: device.utilization_rates().ok().map(|rates| rates.gpu),
                    power_w: device.power_usage().ok().map(|milliwatts| milliwatts / 1_000),
                })
            })
            .collect()
    }
}

fn fake(index: u32, vram_mib: u64) -> Gpu {
    Gpu { index, uuid: format!("fake-{index}"), name: "declared by STOKE_FAKE_GPUS".to_owned(), vram_mib }
}

fn card(nvml: &Nvml, index: u32) -> Option<Gpu> {
    let read = || {
        let device = nvml.device_by_index(index)?;
        let vram_mib = device.memory_info()?.total / MIB;
        Ok::<_, nvml_wrapper::error::NvmlError>(Gpu { index, uuid: device.uuid()?, name: device.name()?, vram_mib })
    };
    read().inspect_err(|error| tracing::warn!(gpu.index = index, %error, "a card that cannot be read is left out")).ok()
}
