"""Models whose `setup()` waits: for as many processes as there are to be, or, in every process but the first, for a gate."""

import os
import time
from pathlib import Path

from stokehold import endpoint

PLACE = Path("@PLACE@")


def wait_for(is_there) -> None:
    while not is_there():
        time.sleep(0.01)


@endpoint(name="gather")
class Gather:
    def setup(self) -> None:
        (PLACE / str(os.getpid())).touch()
        wait_for(lambda: len(list(PLACE.iterdir())) >= 4)

    def predict(self) -> int:
        time.sleep(0.05)
        return os.getpid()


@endpoint(name="gated")
class Gated:
    def setup(self) -> None:
        try:
            (PLACE / "first").touch(exist_ok=False)
        except FileExistsError:
            (PLACE / str(os.getpid())).touch()
            wait_for((PLACE / "gate").exists)

    def predict(self) -> int:
        return os.getpid()
