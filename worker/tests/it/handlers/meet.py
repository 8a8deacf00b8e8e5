"""A job that ends when as many as it was told have begun: only if they run at the same time."""

import os
import time
from pathlib import Path

from stokehold import endpoint

PLACE = Path("@PLACE@")


@endpoint(name="meet")
def meet(who: str, of: int) -> str:
    (PLACE / who).write_text(str(os.getpid()))
    while len(list(PLACE.iterdir())) < of:
        time.sleep(0.01)
    return f"{os.environ['CUDA_VISIBLE_DEVICES']} {len({path.read_text() for path in PLACE.iterdir()})}"
