"""Doubles a number; the version that FACTOR makes triples it, and one that is broken raises."""

from stokehold import endpoint

FACTOR = 2


@endpoint(name="double", max_attempts=1)
def double(n: int) -> int:
    if FACTOR == 0:
        raise ValueError("this version is broken")
    return n * FACTOR
