"""A model that takes a moment to load."""

import time

from stokehold import endpoint


@endpoint(name="loading", vram_gib=8, priority="interactive")
class Loading:
    def setup(self) -> None:
        time.sleep(3)

    def predict(self, n: int) -> int:
        return n
