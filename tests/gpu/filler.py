"""A model that fills memory of a real GPU through the driver's library, so that no packages are needed."""

import ctypes
import os
import signal
import time

from stokehold import endpoint

MIB = 1 << 20
OUT_OF_MEMORY = 2
# A part of the share of an engine that its context may take.
CONTEXT_MIB = 1024


class Gpu:
    """The context of a process, and its memory."""

    def setup(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        self.blocks = []
        self.filled_mib = 0

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self.cuda, name)(*arguments)
        if status == OUT_OF_MEMORY:
            raise RuntimeError(f"CUDA error: out of memory ({name})")
        if status:
            raise RuntimeError(f"{name} failed with {status}")

    def fill(self, mib: int) -> None:
        """Allocates memory up to this much in total, and makes the GPU write all of it."""
        while self.filled_mib < mib:
            size = min(mib - self.filled_mib, 1024)
            block = ctypes.c_uint64()
            self._call("cuMemAlloc_v2", ctypes.byref(block), ctypes.c_size_t(size * MIB))
            self.blocks.append(block)
            self._call("cuMemsetD32_v2", block, ctypes.c_uint(0xC0FFEE), ctypes.c_size_t(size * MIB // 4))
            self.filled_mib += size
        self._call("cuCtxSynchronize")

    def free_and_total_mib(self) -> tuple[int, int]:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value // MIB, total.value // MIB


class Filler(Gpu):
    def predict(self, mib: int, deaf: bool = False) -> dict:
        """Allocates this much memory in total, and makes the GPU write all of it."""
        started = time.monotonic()
        self.fill(mib)
        while deaf:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            try:
                time.sleep(3_600)
            except BaseException:
                pass
        return {"pid": os.getpid(), "mib": self.filled_mib, "fill_s": time.monotonic() - started}


One = endpoint(name="one", vram_gib=4, warmup=[{"mib": 1024}])(type("One", (Filler,), {}))
Two = endpoint(name="two", vram_gib=4, warmup=[{"mib": 1024}])(type("Two", (Filler,), {}))


@endpoint(name="engine", vram_gib=8, vram_fraction=0.9)
class Engine(Gpu):
    """Takes its share of the GPU when it loads, as vLLM does."""

    def setup(self) -> None:
        super().setup()
        free_mib, total_mib = self.free_and_total_mib()
        fraction = float(os.environ["STOKE_VRAM_FRACTION"])
        self.facts = {"fraction": fraction, "total_mib": total_mib, "free_mib": free_mib}
        self.fill(int(fraction * total_mib) - CONTEXT_MIB)

    def predict(self) -> dict:
        return self.facts | {"mib": self.filled_mib}
