"""An endpoint whose model loads slowly, for pages that show what a job waits for."""

import time

from stokehold import endpoint


@endpoint(name="slow", vram_gib=8, priority="interactive")
class Slow:
    """A model that takes its time."""

    def setup(self) -> None:
        time.sleep(3)

    def predict(self, n: int, seconds: float = 0.5) -> int:
        time.sleep(seconds)
        return n
