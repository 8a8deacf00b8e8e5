"""Tests the GPUs that this process may use: allocates a little memory on each, writes it and reads it back.

Calls the CUDA driver itself, so that it needs no framework: https://docs.nvidia.com/cuda/cuda-driver-api/.
"""

from __future__ import annotations

import ctypes
from typing import Any

_LIBRARY = "libcuda.so.1"
_BYTES = 1 << 20
_PATTERN = 0xA5
_OUT_OF_MEMORY = 2


class FaultError(Exception):
    """A GPU does not work."""


def probe() -> str | None:
    """Describes what is wrong; `None` if the GPUs work, or if there is no CUDA driver."""
    try:
        cuda = ctypes.CDLL(_LIBRARY)
    except OSError:
        return None
    try:
        _call(cuda, "cuInit", ctypes.c_uint(0))
        count = ctypes.c_int()
        _call(cuda, "cuDeviceGetCount", ctypes.byref(count))
        for ordinal in range(count.value):
            _try(cuda, ordinal)
    except FaultError as fault:
        return str(fault)
    return None


def _try(cuda: Any, ordinal: int) -> None:
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    size = ctypes.c_size_t(_BYTES)
    _call(cuda, "cuDeviceGet", ctypes.byref(device), ctypes.c_int(ordinal))
    # A GPU without free memory is not faulty.
    if _call(cuda, "cuCtxCreate_v2", ctypes.byref(context), ctypes.c_uint(0), device) == _OUT_OF_MEMORY:
        return
    if _call(cuda, "cuMemAlloc_v2", ctypes.byref(memory), size) == _OUT_OF_MEMORY:
        return
    _call(cuda, "cuMemsetD8_v2", memory, ctypes.c_ubyte(_PATTERN), size)
    found = (ctypes.c_ubyte * _BYTES)()
    _call(cuda, "cuMemcpyDtoH_v2", found, memory, size)
    if bytes(found) != bytes([_PATTERN]) * _BYTES:
        raise FaultError("reading its memory does not return the written data")
    _call(cuda, "cuMemFree_v2", memory)
    _call(cuda, "cuCtxDestroy_v2", context)


def _call(cuda: Any, function: str, *arguments: Any) -> int:
    code: int = getattr(cuda, function)(*arguments)
    if code not in (0, _OUT_OF_MEMORY):
        raise FaultError(f"{function} returned {_name(cuda, code)}")
    return code


def _name(cuda: Any, code: int) -> str:
    name = ctypes.c_char_p()
    known = cuda.cuGetErrorName(ctypes.c_int(code), ctypes.byref(name)) == 0
    return name.value.decode() if known and name.value else f"error {code}"
