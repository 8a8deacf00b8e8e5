"""Detects exceptions after which the process can no longer use its GPU: the error persists until it is restarted."""

from __future__ import annotations

from stokehold.runner.oom import chain, words_of

CUDA = "cuda_error"

# In lower case: CUDA's names for them, and its words. https://docs.nvidia.com/cuda/cuda-runtime-api/, cudaError: those
# after which "the process must be terminated and relaunched", and those that report a missing GPU.
_WORDS = (
    "an illegal memory access was encountered",
    "an illegal instruction was encountered",
    "device-side assert triggered",
    "hardware stack error",
    "invalid program counter",
    "misaligned address",
    "operation not supported on global/shared address space",
    "the launch timed out and was terminated",
    "unspecified launch failure",
    "uncorrectable ecc error encountered",
    "uncorrectable nvlink error",
    "cuda error: unknown error",
    "all cuda-capable devices are busy or unavailable",
    "no cuda-capable device is detected",
    "cuda_error_illegal_address",
    "cuda_error_illegal_instruction",
    "cuda_error_assert",
    "cuda_error_hardware_stack_error",
    "cuda_error_invalid_pc",
    "cuda_error_misaligned_address",
    "cuda_error_launch_timeout",
    "cuda_error_launch_failed",
    "cuda_error_ecc_uncorrectable",
    "cuda_error_unknown",
    "cudaerrorillegaladdress",
    "cudaerrorassert",
    "cudaerrorlaunchfailure",
    "cudaerrorlaunchtimeout",
    "cudaerroreccuncorrectable",
)


def is_one(error: BaseException) -> bool:
    """Whether the exception, or one of its causes, is such an error."""
    return any(words in words_of(each) for each in chain(error) for words in _WORDS)
