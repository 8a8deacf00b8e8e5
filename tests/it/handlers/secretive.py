"""Reads its secret, and leaks it in every way except through the result."""

import os
import sys
from pathlib import Path

from stokehold import endpoint, progress


@endpoint(max_attempts=1)
def secretive(how: str) -> dict:
    value = os.environ["API_TOKEN"]
    if how == "look":
        return {
            "backwards": value[::-1],
            "others": sorted(name for name in os.environ if name.startswith("OTHER")),
            "is_in_proc": value.encode() in Path("/proc/self/environ").read_bytes(),
        }
    if how == "print":
        print("it is", value, flush=True)
        print(value, file=sys.stderr, flush=True)
        # In parts, as C code prints.
        for piece in (value[:5], value[5:] + "\n"):
            os.write(1, piece.encode())
        progress(0.5, f"with {value}")
        return {}
    if how == "raise":
        raise RuntimeError(f"{value} was refused")
    print("dying with", value, file=sys.stderr, flush=True)
    os._exit(3)
