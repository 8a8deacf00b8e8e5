"""Out of memory, in the words of every framework."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from stokehold.runner import failure, oom


def _class(module: str, name: str, *bases: type[BaseException]) -> type[BaseException]:
    return type(name, bases, {"__module__": module})


_TORCH = _class("torch", "OutOfMemoryError", RuntimeError)
_ONNX = _class("onnxruntime.capi.onnxruntime_pybind11_state", "RuntimeException", Exception)
_XLA = _class("jaxlib.xla_extension", "XlaRuntimeError", RuntimeError)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (_TORCH("CUDA out of memory. Tried to allocate 20.00 GiB"), "oom_gpu"),
        (_class("torch.cuda", "OutOfMemoryError", RuntimeError)("HIP or CUDA"), "oom_gpu"),
        (_class("mine", "Wrapped", _TORCH)("a subclass"), "oom_gpu"),
        (
            _class("cupy.cuda.memory", "OutOfMemoryError", MemoryError)("Out of memory allocating 8,192 bytes"),
            "oom_gpu",
        ),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), "oom_gpu"),
        (RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"), "oom_gpu"),
        (
            RuntimeError('NVML_SUCCESS == r INTERNAL ASSERT FAILED at "../c10/cuda/CUDACachingAllocator.cpp":830'),
            "oom_gpu",
        ),
        (_class("numba.cuda.cudadrv.driver", "CudaAPIError", Exception)("[2] CUDA_ERROR_OUT_OF_MEMORY"), "oom_gpu"),
        (MemoryError(), "oom_host"),
        (_class("numpy.core._exceptions", "_ArrayMemoryError", MemoryError)("Unable to allocate 7.45 GiB"), "oom_host"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "oom_host"),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:114] . DefaultCPUAllocator: can't allocate memory"), "oom_host"),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), None),
        (ValueError("the prompt says: CUDA out of memory"), None),
        (OSError(errno.ENOSPC, "No space left on device"), None),
    ],
)
def test_the_words_of_each_framework(error: BaseException, expected: str | None) -> None:
    assert oom.which(error) == expected


@pytest.mark.parametrize(
    "error",
    [
        _XLA("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 6291456 bytes."),
        _ONNX(
            "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running Mul node. "
            "BFCArena::AllocateRawInternal(size_t, bool) "
            "Failed to allocate memory for requested buffer of size 939524096"
        ),
    ],
)
def test_what_may_be_either_is_the_gpus_where_there_is_one(error: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert oom.which(error) == "oom_gpu"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert oom.which(error) == "oom_host"


def test_the_exception_that_it_came_from_counts() -> None:
    assert failure.describe(_caused()).code == "oom_gpu"
    assert failure.describe(_dealt_with()).code == "handler_error", "the handler has dealt with it"


def _caused() -> Exception:
    error = ValueError("generation failed")
    error.__cause__ = _TORCH("CUDA out of memory")
    return error


def _dealt_with() -> Exception:
    """As `raise ... from None` leaves it."""
    error = ValueError("a smaller batch did not help either")
    error.__context__, error.__suppress_context__ = _TORCH("CUDA out of memory"), True
    return error


def test_an_exception_without_words_is_no_trouble() -> None:
    class BrokenError(RuntimeError):
        def __str__(self) -> str:
            raise TypeError

    assert oom.which(BrokenError()) is None
