"""A handler that can fail in every possible way."""

import ctypes
import math
import os
import sys
import time
from typing import Literal

from stokehold import Reject, endpoint

How = Literal["raise", "reject", "exit", "segfault", "flood", "set", "nan", "hang", "fine"]


@endpoint(name="faults", max_attempts=1, timeout_s=2)
def faults(how: How) -> object:
    print(f"about to {how}", file=sys.stderr, flush=True)
    if how == "raise":
        raise LookupError("no such thing")
    if how == "reject":
        raise Reject("not this one")
    if how == "exit":
        os._exit(3)
    if how == "segfault":
        ctypes.string_at(0)
    if how == "flood":
        for _ in range(1_000):
            print("x" * 100_000)
    if how == "set":
        return {"numbers": {1, 2}}
    if how == "nan":
        return [1.0, math.nan]
    if how == "hang":
        time.sleep(3_600)
    return how
