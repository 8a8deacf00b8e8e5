"""Multiplies a number by FACTOR, 2 by default; a broken version raises."""

from stokehold import endpoint

FACTOR = 2


@endpoint(name="double", max_attempts=1)
def double(n: int) -> int:
    if FACTOR == 0:
        raise ValueError("this version is broken")
    return n * FACTOR
