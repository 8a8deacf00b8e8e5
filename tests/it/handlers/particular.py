"""Models that require certain GPUs, and two small models that share a GPU with a large one."""

import os
import time

from stokehold import endpoint

GPU = int(os.environ.get("CUDA_VISIBLE_DEVICES") or 0)


@endpoint(name="particular", vram_gib=4, gpu_models=["RTX 4090"], min_compute_capability="8.0")
def particular() -> dict:
    return {"card": GPU}


@endpoint(name="left", vram_gib=10)
def left() -> dict:
    time.sleep(0.2)
    return {"card": GPU}


@endpoint(name="right", vram_gib=10)
def right() -> dict:
    time.sleep(0.2)
    return {"card": GPU}


@endpoint(name="large", vram_gib=20)
def large() -> dict:
    return {"card": GPU}
