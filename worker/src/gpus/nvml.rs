//! Readings through NVML. No other file calls it.

use std::path::Path;
use std::time::Duration;

use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError, TemperatureSensor, TemperatureThreshold};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, cuda_driver_version_major, cuda_driver_version_minor};
use stokehold_protocol::gateway::Gpu;

use super::health::{ReadError, Signs};

const MIB: u64 = 1024 * 1024;

/// One reading of a GPU.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reading {
    pub(crate) used_mib: u64,
    pub(crate) utilisation_pct: Option<u32>,
    pub(crate) power_w: Option<u32>,
    pub(crate) signs: Signs,
    /// Process ids and their memory in MiB; `None` if the GPU does not report them.
    pub(crate) processes: Option<Vec<(u32, u64)>>,
}

/// Loads the driver's library: `library`, or the system's.
pub(crate) fn open(library: Option<&Path>) -> Result<Nvml, NvmlError> {
    match library {
        Some(path) => Nvml::builder().lib_path(path.as_os_str()).init(),
        None => Nvml::init(),
    }
}

/// The driver's version, and the CUDA version, e.g. `12.8`.
pub(crate) fn versions(nvml: &Nvml) -> (Option<String>, Option<String>) {
    let cuda = |version| format!("{}.{}", cuda_driver_version_major(version), cuda_driver_version_minor(version));
    (nvml.sys_driver_version().ok(), nvml.sys_cuda_driver_version().ok().map(cuda))
}

/// All readable GPUs. Others are logged and ignored.
pub(crate) fn gpus(nvml: &Nvml) -> Vec<Gpu> {
    let gpu = |index| {
        let read = read_gpu(nvml, index);
        read.inspect_err(|error| tracing::warn!(gpu.index = index, %error, "cannot read a GPU; ignoring it")).ok()
    };
    (0..nvml.device_count().unwrap_or(0)).filter_map(gpu).collect()
}

fn read_gpu(nvml: &Nvml, index: u32) -> Result<Gpu, NvmlError> {
    let device = nvml.device_by_index(index)?;
    let capability = device.cuda_compute_capability().ok();
    // nvmlDeviceGetMigMode: 1 is enabled. A GPU without MIG returns an error.
    let is_mig = device.mig_mode().is_ok_and(|mode| mode.current == 1);
    if is_mig {
        tracing::warn!(
            gpu.index = index,
            "a GPU in MIG mode is used as a single GPU; expose its MIG instances individually instead"
        );
    }
    Ok(Gpu {
        index,
        uuid: device.uuid()?,
        name: device.name()?,
        vram_mib: device.memory_info()?.total / MIB,
        compute_capability: capability.map(|capability| format!("{}.{}", capability.major, capability.minor)),
        is_mig,
    })
}

/// The number in the name of the device file; with most drivers it equals NVML's index.
pub(crate) fn minor(nvml: &Nvml, index: u32) -> u32 {
    nvml.device_by_index(index).and_then(|device| device.minor_number()).unwrap_or(index)
}

/// Reads a GPU. A value that this kind of GPU does not support is absent; any other error fails the reading.
pub(crate) fn read(nvml: &Nvml, index: u32) -> Result<Reading, ReadError> {
    let read = || -> Result<Reading, NvmlError> {
        let device = nvml.device_by_index(index)?;
        let slowdown = device.temperature_threshold(TemperatureThreshold::Slowdown);
        Ok(Reading {
            used_mib: device.memory_info()?.used / MIB,
            utilisation_pct: given(device.utilization_rates())?.map(|rates| rates.gpu),
            power_w: given(device.power_usage())?.map(|milliwatts| milliwatts / 1_000),
            signs: Signs {
                temperature_c: given(device.temperature(TemperatureSensor::Gpu))?,
                slowdown_c: given(slowdown)?,
                ecc_uncorrected: given(device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile))?,
            },
            processes: processes(&device)?,
        })
    };
    read().map_err(|error| match error {
        NvmlError::GpuLost | NvmlError::ResetRequired | NvmlError::NotFound | NvmlError::InvalidArg => {
            ReadError::Lost(format!("NVML has lost the GPU: {error}"))
        }
        error => ReadError::Unread(error.to_string()),
    })
}

/// The compute and graphics processes. A model may be both.
fn processes(device: &Device<'_>) -> Result<Option<Vec<(u32, u64)>>, NvmlError> {
    let Some(mut found) = given(device.running_compute_processes())? else { return Ok(None) };
    for process in given(device.running_graphics_processes())?.unwrap_or_default() {
        if found.iter().all(|known| known.pid != process.pid) {
            found.push(process);
        }
    }
    let used = |memory| if let UsedGpuMemory::Used(bytes) = memory { Some(bytes / MIB) } else { None };
    // If the memory of one process is unknown, the list is not usable.
    Ok(found.into_iter().map(|process| Some((process.pid, used(process.used_gpu_memory)?))).collect())
}

/// `None` if the GPU or the driver does not support the value.
fn given<T>(read: Result<T, NvmlError>) -> Result<Option<T>, NvmlError> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(
            NvmlError::NotSupported
            | NvmlError::FunctionNotFound
            | NvmlError::FailedToLoadSymbol(_)
            | NvmlError::NoPermission,
        ) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Calls `take` for each critical Xid of a GPU, and with `None` every `wait_ms`, until it returns `false`. Returns
/// immediately if the GPU or the driver does not support events.
pub(crate) fn xids(nvml: &Nvml, index: u32, wait_ms: u32, mut take: impl FnMut(Option<u64>) -> bool) {
    let Ok(device) = nvml.device_by_index(index) else { return };
    let Ok(set) = nvml.create_event_set() else { return };
    let Ok(set) = device.register_events(EventTypes::CRITICAL_XID_ERROR, set) else { return };
    loop {
        let xid = match set.wait(wait_ms) {
            Ok(event) => {
                event.event_data.and_then(|data| if let XidError::Value(xid) = data { Some(xid) } else { None })
            }
            Err(NvmlError::Timeout) => None,
            // The next reading detects the cause.
            Err(_) => {
                std::thread::sleep(Duration::from_millis(u64::from(wait_ms)));
                None
            }
        };
        if !take(xid) {
            return;
        }
    }
}
