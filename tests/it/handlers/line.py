"""Runs a line of a batch quickly. Rejects lines that request it, until the handler is corrected."""

import time

from stokehold import Reject, endpoint

MENDED = False


@endpoint(name="line")
def line(n: int, fail: bool = False) -> dict:
    # Long enough that a kill usually hits a running job.
    time.sleep(0.005)
    if fail and not MENDED:
        raise Reject("as asked")
    return {"n": n, "mended": MENDED}
