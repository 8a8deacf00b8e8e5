"""A handler that takes several jobs a call, and says how many each call had."""

import faulthandler
import os
import time

from stokehold import endpoint

sizes = []


@endpoint(name="batched", max_batch_size=4, max_wait_ms=2000)
def batched(how: list[str]) -> list[dict]:
    sizes.append(len(how))
    if "segfault" in how:
        faulthandler._sigsegv()
    if "wait" in how:
        print("waiting", flush=True)
        while not os.path.exists("@GATE@"):
            # Code that a cancel would interrupt continues anyway.
            time.sleep(0.01)
    return [ValueError("as it was told") if one == "fail" else {"pid": os.getpid(), "sizes": sizes} for one in how]
