//! The part of the CUDA driver's interface that the worker's probe uses: the same library under another name. Memory is
//! the host's. <https://docs.nvidia.com/cuda/cuda-driver-api/>

use std::ffi::{c_char, c_int, c_uint, c_void};

use nix::libc;

use crate::symbols::cards;

const SUCCESS: c_int = 0;
const INVALID_VALUE: c_int = 1;

/// The GPUs that are visible to this process, in its order.
fn visible() -> Vec<usize> {
    let listed = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
    listed.split(',').filter_map(|index| index.trim().parse().ok()).collect()
}

#[unsafe(no_mangle)]
extern "C" fn cuInit(_flags: c_uint) -> c_int {
    SUCCESS
}

/// # Safety
/// `count` may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> c_int {
    // SAFETY: as above.
    unsafe { count.write(c_int::try_from(visible().len()).unwrap_or(0)) };
    SUCCESS
}

/// # Safety
/// `device` may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_int {
    let index = usize::try_from(ordinal).ok().and_then(|ordinal| visible().get(ordinal).copied());
    let Some(index) = index.and_then(|index| c_int::try_from(index).ok()) else { return INVALID_VALUE };
    // SAFETY: as above.
    unsafe { device.write(index) };
    SUCCESS
}

/// Returns the code in the GPU's file.
///
/// # Safety
/// `context` may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxCreate_v2(context: *mut *mut c_void, _flags: c_uint, device: c_int) -> c_int {
    let card = |cards: crate::FakeGpus| cards.cards.into_iter().nth(usize::try_from(device).ok()?);
    let answer = cards().ok().and_then(card).map_or(INVALID_VALUE, |card| card.cuda);
    // SAFETY: as above.
    unsafe { context.write(std::ptr::dangling_mut::<u8>().cast()) };
    answer
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxDestroy_v2(_context: *mut c_void) -> c_int {
    SUCCESS
}

/// # Safety
/// `memory` may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAlloc_v2(memory: *mut u64, bytes: usize) -> c_int {
    // SAFETY: the address is only passed back to the functions below.
    unsafe { memory.write(libc::malloc(bytes).addr() as u64) };
    SUCCESS
}

fn at(memory: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(usize::try_from(memory).unwrap_or(0))
}

/// # Safety
/// `memory` comes from [`cuMemAlloc_v2`], and has this number of bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemsetD8_v2(memory: u64, byte: u8, bytes: usize) -> c_int {
    // SAFETY: as above.
    unsafe { libc::memset(at(memory), c_int::from(byte), bytes) };
    SUCCESS
}

/// # Safety
/// `memory` comes from [`cuMemAlloc_v2`]; both have this number of bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoH_v2(host: *mut c_void, memory: u64, bytes: usize) -> c_int {
    // SAFETY: as above.
    unsafe { libc::memcpy(host, at(memory), bytes) };
    SUCCESS
}

/// # Safety
/// `memory` comes from [`cuMemAlloc_v2`], and is not used again.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemFree_v2(memory: u64) -> c_int {
    // SAFETY: as above.
    unsafe { libc::free(at(memory)) };
    SUCCESS
}

/// # Safety
/// `name` may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(code: c_int, name: *mut *const c_char) -> c_int {
    let known = match code {
        700 => c"CUDA_ERROR_ILLEGAL_ADDRESS",
        719 => c"CUDA_ERROR_LAUNCH_FAILED",
        999 => c"CUDA_ERROR_UNKNOWN",
        _ => return INVALID_VALUE,
    };
    // SAFETY: as above.
    unsafe { name.write(known.as_ptr()) };
    SUCCESS
}
