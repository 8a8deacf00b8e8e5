"""A generator like a language model: many small outputs, as fast as they are read, or at a fixed rate."""

import random
import string
import time
from collections.abc import Iterator

from stokehold import endpoint

SYMBOLS = string.ascii_letters + string.digits + "!#$%&()*+,-./:;<=>?@[]^_`{|}~"


@endpoint(name="tokens")
def tokens(count: int, size: int = 4, every_s: float = 0.0) -> Iterator[str]:
    for n in range(count):
        if every_s:
            time.sleep(every_s)
        # Without repetitions: outputs that repeat one another are stored compressed.
        yield str(n) + "".join(random.choices(SYMBOLS, k=size - len(str(n))))
