"""Kills its own process if the input requests it; returns quickly otherwise."""

import os
import signal

from stokehold import endpoint


@endpoint(name="poison", max_attempts=10)
def poison(deadly: bool = False) -> dict:
    if deadly:
        os.kill(os.getpid(), signal.SIGSEGV)
    return {"alive": True}
