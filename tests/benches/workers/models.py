"""Models that sleep instead of computing on a GPU, so that only the overhead is measured."""

import asyncio
import time

from stokehold import endpoint


@endpoint(name="half-second", max_concurrency=4)
async def half_second() -> None:
    await asyncio.sleep(0.5)


@endpoint(name="second", max_concurrency=8)
async def second() -> None:
    await asyncio.sleep(1)


@endpoint(name="one-by-one")
def one_by_one(n: int) -> int:
    time.sleep(0.01)
    return n


@endpoint(name="together", max_batch_size=16, max_wait_ms=5)
def together(n: list[int]) -> list[int]:
    time.sleep(0.01)
    return n


@endpoint(name="tenth")
def tenth() -> list[float]:
    began = time.time()
    time.sleep(0.1)
    return [began, time.time()]


@endpoint(name="slow-load")
class SlowLoad:
    def setup(self) -> None:
        time.sleep(3)

    def predict(self) -> list[float]:
        began = time.time()
        time.sleep(0.3)
        return [began, time.time()]
