"""A handler that sleeps, and returns the id of its process."""

import os
import time

from stokehold import endpoint


@endpoint(name="slow")
def slow(n: int, seconds: float = 0.0) -> dict:
    time.sleep(seconds)
    return {"n": n, "pid": os.getpid()}
