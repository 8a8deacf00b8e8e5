"""GPUs that a process can no longer use, and the probe that tests them, against a fake driver."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import pytest

from stokehold.runner import __main__, failure, fault, probe


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("CUDA error: an illegal memory access was encountered\nCompile with ..."), True),
        (RuntimeError("CUDA error: device-side assert triggered"), True),
        (type("CudaAPIError", (Exception,), {"__module__": "numba.cuda"})("[719] CUDA_ERROR_LAUNCH_FAILED"), True),
        (type("RT", (RuntimeError,), {"__module__": "cupy_backends"})("cudaErrorIllegalAddress: an illegal"), True),
        (RuntimeError("CUDA error: invalid device ordinal"), False),
        (RuntimeError("CUDA out of memory"), False),
        (ValueError("the prompt says: device-side assert triggered"), False),
    ],
)
def test_errors_that_a_process_does_not_get_rid_of(error: BaseException, expected: bool) -> None:
    assert fault.is_one(error) == expected
    wrapped = ValueError("in my handler")
    wrapped.__cause__ = error
    assert fault.is_one(wrapped) == expected
    assert (failure.describe(wrapped).code == "cuda_error") == expected


class Driver:
    """As much of the CUDA driver as the probe calls: what each call answers, and memory that may forget."""

    def __init__(self, answers: dict[str, int], forgets: bool = False) -> None:
        self.answers, self.forgets, self.calls = answers, forgets, list[str]()

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.calls.append(name)
            if name == "cuDeviceGetCount":
                arguments[0]._obj.value = 2
            elif name == "cuMemcpyDtoH_v2" and not self.forgets:
                ctypes.memset(arguments[0], 0xA5, arguments[2].value)
            elif name == "cuGetErrorName":
                arguments[1]._obj.value = b"CUDA_ERROR_LAUNCH_FAILED"
            return self.answers.get(name, 0)

        return call


@pytest.mark.parametrize(
    ("driver", "wrong"),
    [
        (Driver({}), None),
        (Driver({"cuInit": 719}), "cuInit returned CUDA_ERROR_LAUNCH_FAILED"),
        (Driver({"cuMemsetD8_v2": 700, "cuGetErrorName": 1}), "cuMemsetD8_v2 returned error 700"),
        (Driver({"cuCtxCreate_v2": 2}), None),
        (Driver({"cuMemAlloc_v2": 2}), None),
        (Driver({}, forgets=True), "reading its memory does not return the written data"),
    ],
)
def test_a_gpu_is_tried(monkeypatch: pytest.MonkeyPatch, driver: Driver, wrong: str | None) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    assert probe.probe() == wrong
    if wrong is None and not driver.answers:
        assert driver.calls.count("cuCtxDestroy_v2") == 2, "each of them"


def test_where_there_is_no_driver_nothing_is_wrong() -> None:
    assert probe.probe() is None


def test_the_exit_code_says_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["runner", "probe"])
    assert __main__.main() == 0
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver({"cuInit": 719}))
    assert __main__.main() == 3
    assert capsys.readouterr().err == "cuInit returned CUDA_ERROR_LAUNCH_FAILED\n"
