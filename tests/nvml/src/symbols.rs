//! The part of the C interface that a worker uses; other functions are missing from the library, as from an old
//! driver's. <https://docs.nvidia.com/deploy/nvml-api/>

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::libc;
use nvml_wrapper_sys::bindings as nvml;
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlEventSet_t, nvmlReturn_t};

use crate::folder::{Claim, FakeGpu, FakeGpus, claims, read, used};

const SUCCESS: nvmlReturn_t = nvml::nvmlReturn_enum_NVML_SUCCESS;
const MIB: u64 = 1 << 20;

/// The folder that this library was loaded from.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    // SAFETY: dladdr writes `info` if it does not return 0, and the name then lives as long as the library.
    let path = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr((&raw const NEXT_SET).cast::<c_void>(), &raw mut info) == 0 {
            return PathBuf::new();
        }
        CStr::from_ptr(info.dli_fname).to_string_lossy().into_owned()
    };
    Path::new(&path).parent().map(Path::to_owned).unwrap_or_default()
});

/// Sets of events by handle: the registered GPUs, and the number of each GPU's Xids that were delivered.
static SETS: LazyLock<Mutex<HashMap<usize, HashMap<usize, u64>>>> = LazyLock::new(Mutex::default);

/// Handle of the next set.
static NEXT_SET: AtomicUsize = AtomicUsize::new(1);

pub(crate) fn cards() -> Result<FakeGpus, nvmlReturn_t> {
    read(&FOLDER).map_err(|_| nvml::nvmlReturn_enum_NVML_ERROR_UNKNOWN)
}

/// A handle is the GPU's index plus one: none is null.
fn handle(index: usize) -> nvmlDevice_t {
    std::ptr::without_provenance_mut(index + 1)
}

fn index_of(device: nvmlDevice_t) -> usize {
    device.addr().wrapping_sub(1)
}

/// A GPU that answers calls.
fn card(device: nvmlDevice_t) -> Result<FakeGpu, nvmlReturn_t> {
    let card = cards()?.cards.into_iter().nth(index_of(device));
    let card = card.ok_or(nvml::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT)?;
    if card.answer == SUCCESS { Ok(card) } else { Err(card.answer) }
}

fn answered(answer: Result<(), nvmlReturn_t>) -> nvmlReturn_t {
    answer.err().unwrap_or(SUCCESS)
}

/// Writes a value to the caller's place.
///
/// # Safety
/// `place` is null or may be written.
unsafe fn put<T>(place: *mut T, value: Result<T, nvmlReturn_t>) -> nvmlReturn_t {
    answered(value.and_then(|value| {
        if place.is_null() {
            return Err(nvml::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT);
        }
        // SAFETY: as above.
        unsafe { place.write(value) };
        Ok(())
    }))
}

/// Writes a text with its terminator into a buffer of `length`.
///
/// # Safety
/// `place` may be written up to that length.
unsafe fn put_text(place: *mut c_char, length: c_uint, text: Result<String, nvmlReturn_t>) -> nvmlReturn_t {
    answered(text.and_then(|text| {
        if text.len() >= length as usize {
            return Err(nvml::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE);
        }
        // SAFETY: as above, and it fits with its end.
        unsafe {
            place.copy_from_nonoverlapping(text.as_ptr().cast(), text.len());
            place.add(text.len()).write(0);
        }
        Ok(())
    }))
}

/// # Safety
/// None of its own.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlInit_v2() -> nvmlReturn_t {
    cards().map_or_else(|error| error, |cards| cards.init)
}

/// # Safety
/// None of its own.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlShutdown() -> nvmlReturn_t {
    SUCCESS
}

/// # Safety
/// As NVIDIA's.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) -> nvmlReturn_t {
    unsafe { put_text(version, length, cards().map(|cards| cards.driver)) }
}

/// # Safety
/// As NVIDIA's.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetCudaDriverVersion_v2(version: *mut c_int) -> nvmlReturn_t {
    unsafe { put(version, cards().map(|cards| cards.cuda)) }
}

/// # Safety
/// As NVIDIA's.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> nvmlReturn_t {
    unsafe { put(count, cards().map(|cards| c_uint::try_from(cards.cards.len()).unwrap_or(0))) }
}

/// # Safety
/// As NVIDIA's.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut nvmlDevice_t) -> nvmlReturn_t {
    let handle = handle(index as usize);
    unsafe { put(device, card(handle).map(|_| handle)) }
}

/// # Safety
/// As NVIDIA's.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetIndex(device: nvmlDevice_t, index: *mut c_uint) -> nvmlReturn_t {
    unsafe { put(index, card(device).map(|_| c_uint::try_from(index_of(device)).unwrap_or(0))) }
}

/// # Safety
/// As NVIDIA's.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetName(device: nvmlDevice_t, name: *mut c_char, length: c_uint) -> nvmlReturn_t {
    unsafe { put_text(name, length, card(device).map(|card| card.name)) }
}

/// # Safety
/// As NVIDIA's.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetUUID(device: nvmlDevice_t, uuid: *mut c_char, length: c_uint) -> nvmlReturn_t {
    unsafe { put_text(uuid, length, card(device).map(|card| card.uuid)) }
}

/// # Safety
/// As NVIDIA's.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(
    device: nvmlDevice_t,
    memory: *mut nvml::nvmlMemory_v2_t,
) -> nvmlReturn_t {
    let info = card(device).map(|card| {
        let used = used(&card, &claims(&FOLDER, index_of(device))) * MIB;
        let total = card.total_mib * MIB;
        nvml::nvmlMemory_v2_t { version: 0, total, reserved: 0, free: total - used, used }
    });
    unsafe { put(memory, info) }
}

/// # Safety
/// As NVIDIA's.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvml::nvmlProcessInfo_t,
) -> nvmlReturn_t {
    let found = card(device).map(|card| {
        let mut claims: Vec<Claim> = claims(&FOLDER, index_of(device));
        claims.retain(|claim| claim.is_alive && !card.hides_processes);
        claims
    });
    answered(found.and_then(|claims| {
        let wanted = c_uint::try_from(claims.len()).unwrap_or(0);
        // SAFETY: the caller gives the capacity in `count`.
        unsafe {
            let room = count.replace(wanted);
            if room < wanted {
                return Err(nvml::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE);
            }
            for (n, claim) in claims.iter().enumerate() {
                infos.add(n).write(nvml::nvmlProcessInfo_t {
                    pid: claim.pid,
                    usedGpuMemory: claim.mib * MIB,
                    gpuInstanceId: c_uint::MAX,
                    computeInstanceId: c_uint::MAX,
                });
            }
        }
        Ok(())
    }))
}

/// # Safety
/// As NVIDIA's.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTemperature(
    device: nvmlDevice_t,
    _: nvml::nvmlTemperatureSensors_t,
    degrees: *mut c_uint,
) -> nvmlReturn_t {
    unsafe { put(degrees, card(device).map(|card| card.temperature_c)) }
}

/// # Safety
/// As NVIDIA's.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTemperatureThreshold(
    device: nvmlDevice_t,
    _: nvml::nvmlTemperatureThresholds_t,
    degrees: *mut c_uint,
) -> nvmlReturn_t {
    unsafe { put(degrees, card(device).map(|card| card.slowdown_c)) }
}

/// # Safety
/// As NVIDIA's.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetUtilizationRates(
    device: nvmlDevice_t,
    rates: *mut nvml::nvmlUtilization_t,
) -> nvmlReturn_t {
    let rate =
        |card: FakeGpu| nvml::nvmlUtilization_t { gpu: card.utilisation_percent, memory: card.utilisation_percent };
    unsafe { put(rates, card(device).map(rate)) }
}

/// # Safety
/// As NVIDIA's.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetPowerUsage(device: nvmlDevice_t, milliwatts: *mut c_uint) -> nvmlReturn_t {
    unsafe { put(milliwatts, card(device).map(|card| card.power_w * 1_000)) }
}

/// # Safety
/// As NVIDIA's.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCudaComputeCapability(
    device: nvmlDevice_t,
    major: *mut c_int,
    minor: *mut c_int,
) -> nvmlReturn_t {
    let capability = card(device).map(|card| card.compute_capability);
    unsafe {
        match put(major, capability.map(|capability| capability.0)) {
            SUCCESS => put(minor, capability.map(|capability| capability.1)),
            error => error,
        }
    }
}

/// # Safety
/// As NVIDIA's.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTotalEccErrors(
    device: nvmlDevice_t,
    _: nvml::nvmlMemoryErrorType_t,
    _: nvml::nvmlEccCounterType_t,
    count: *mut c_ulonglong,
) -> nvmlReturn_t {
    let not_supported = nvml::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED;
    unsafe { put(count, card(device).and_then(|card| card.ecc_uncorrected.ok_or(not_supported))) }
}

/// # Safety
/// As NVIDIA's.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMigMode(
    device: nvmlDevice_t,
    current: *mut c_uint,
    pending: *mut c_uint,
) -> nvmlReturn_t {
    let mode = card(device).map(|card| c_uint::from(card.mig));
    unsafe {
        match put(current, mode) {
            SUCCESS => put(pending, mode),
            error => error,
        }
    }
}

fn sets() -> MutexGuard<'static, HashMap<usize, HashMap<usize, u64>>> {
    SETS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// # Safety
/// As NVIDIA's.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlEventSetCreate(set: *mut nvmlEventSet_t) -> nvmlReturn_t {
    let handle = NEXT_SET.fetch_add(1, Ordering::Relaxed);
    sets().insert(handle, HashMap::new());
    unsafe { put(set, Ok(std::ptr::without_provenance_mut(handle))) }
}

/// # Safety
/// As NVIDIA's.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlEventSetFree(set: nvmlEventSet_t) -> nvmlReturn_t {
    sets().remove(&set.addr());
    SUCCESS
}

/// # Safety
/// As NVIDIA's.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceRegisterEvents(
    device: nvmlDevice_t,
    _: c_ulonglong,
    set: nvmlEventSet_t,
) -> nvmlReturn_t {
    answered(card(device).map(|card| {
        if let Some(cards) = sets().get_mut(&set.addr()) {
            cards.insert(index_of(device), card.xid.1);
        }
    }))
}

/// Waits for the next critical Xid of a registered card.
///
/// # Safety
/// As NVIDIA's.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlEventSetWait_v2(
    set: nvmlEventSet_t,
    data: *mut nvml::nvmlEventData_t,
    timeout_ms: c_uint,
) -> nvmlReturn_t {
    let until = Instant::now() + Duration::from_millis(u64::from(timeout_ms));
    loop {
        if let Some(event) = next_xid(set.addr()) {
            return unsafe { put(data, Ok(event)) };
        }
        if Instant::now() >= until {
            return nvml::nvmlReturn_enum_NVML_ERROR_TIMEOUT;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn next_xid(set: usize) -> Option<nvml::nvmlEventData_t> {
    let cards = cards().ok()?.cards;
    let mut sets = sets();
    let told = sets.get_mut(&set)?;
    let (index, card) =
        cards.iter().enumerate().find(|(index, card)| told.get(index).is_some_and(|told| card.xid.1 > *told))?;
    told.insert(index, card.xid.1);
    Some(nvml::nvmlEventData_t {
        device: handle(index),
        eventType: u64::from(nvml::nvmlEventTypeXidCriticalError),
        eventData: card.xid.0,
        gpuInstanceId: c_uint::MAX,
        computeInstanceId: c_uint::MAX,
    })
}
