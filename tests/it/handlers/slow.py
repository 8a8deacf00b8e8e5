"""A handler that takes its time, and says which process it ran in."""

import os
import time

from stokehold import endpoint


@endpoint(name="slow")
def slow(n: int, seconds: float = 0.0) -> dict:
    time.sleep(seconds)
    return {"n": n, "pid": os.getpid()}
