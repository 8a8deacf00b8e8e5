"""Kills its own process when it is told to, and is quick otherwise."""

import os
import signal

from stokehold import endpoint


@endpoint(name="poison", max_attempts=10)
def poison(deadly: bool = False) -> dict:
    if deadly:
        os.kill(os.getpid(), signal.SIGSEGV)
    return {"alive": True}
