"""A module that loads only once a file exists."""

import time
from pathlib import Path

from stokehold import endpoint

while not Path("@PLACE@", "go").exists():
    time.sleep(0.02)


@endpoint(name="held")
def held() -> str:
    return "loaded"
