"""A generator like a language model: many small outputs, as fast as they are read, or at a fixed rate."""

import time
from collections.abc import Iterator

from stokehold import endpoint


@endpoint(name="tokens")
def tokens(count: int, size: int = 4, every_s: float = 0.0) -> Iterator[str]:
    for n in range(count):
        if every_s:
            time.sleep(every_s)
        yield str(n).ljust(size)
