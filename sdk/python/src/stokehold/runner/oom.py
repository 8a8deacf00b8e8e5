"""Detects exceptions that mean out of memory, on the GPU or the host; some frameworks report it only in the message."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

GPU = "oom_gpu"
HOST = "oom_host"

_CHAIN_MAX = 10
_TEXT_CHARS_MAX = 4_000

# PyTorch since 2.5 and before; CuPy, whose class is also a MemoryError.
_GPU_CLASSES = {
    ("torch", "OutOfMemoryError"),
    ("torch.cuda", "OutOfMemoryError"),
    ("cupy.cuda.memory", "OutOfMemoryError"),
}

# In lower case. The last one is how PyTorch's allocator fails if there is no memory even for its own message.
_GPU_WORDS = (
    "cuda out of memory",
    "cuda error: out of memory",
    "cuda_error_out_of_memory",
    "cudaerrormemoryallocation",
    "cuda failure 2: out of memory",
    "cublas_status_alloc_failed",
    "cudnn_status_alloc_failed",
    "nvml_success == r internal assert failed",
)

# Messages of JAX and ONNX Runtime for both GPU and host memory.
_EITHER_WORDS = (
    "resource_exhausted: out of memory",
    "resource exhausted: out of memory",
    "failed to allocate memory for requested buffer",
)

_HOST_WORDS = ("defaultcpuallocator: not enough memory", "defaultcpuallocator: can't allocate memory")


def which(error: BaseException) -> str | None:
    """`oom_gpu` or `oom_host` if the exception, or one of its causes, means out of memory."""
    for each in chain(error):
        found = _of(each)
        if found is not None:
            return found
    return None


def chain(error: BaseException) -> Iterator[BaseException]:
    """The exception and its causes, at most ten."""
    each: BaseException | None = error
    for _ in range(_CHAIN_MAX):
        if each is None:
            return
        yield each
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)


def _of(error: BaseException) -> str | None:
    if any((base.__module__, base.__qualname__) in _GPU_CLASSES for base in type(error).__mro__):
        return GPU
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return HOST
    text = words_of(error)
    if any(words in text for words in _GPU_WORDS):
        return GPU
    if any(words in text for words in _EITHER_WORDS):
        return GPU if os.environ.get("CUDA_VISIBLE_DEVICES") else HOST
    return HOST if any(words in text for words in _HOST_WORDS) else None


def words_of(error: BaseException) -> str:
    """The message of a framework's exception, in lower case; empty for other exceptions."""
    if not isinstance(error, RuntimeError) and type(error).__module__.split(".")[0] in ("builtins", "__main__"):
        return ""
    try:
        return str(error)[:_TEXT_CHARS_MAX].lower()
    except Exception:
        return ""
