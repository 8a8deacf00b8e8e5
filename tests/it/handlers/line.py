"""A line of a batch: quick, and refused for good where it says so, until the handler is mended."""

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
