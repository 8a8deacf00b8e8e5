"""A model on stand-in cards that takes what it is told to, and ends as it is told to."""

import os
import time
from pathlib import Path

from stokehold import endpoint

CLAIMS = Path("@CLAIMS@")


def hold(mib: int) -> None:
    for card in os.environ["CUDA_VISIBLE_DEVICES"].split(","):
        claim = CLAIMS / f"{os.getpid()}.{card}"
        claim.with_suffix(".new").write_text(str(mib))
        claim.with_suffix(".new").replace(claim)


@endpoint(name="history")
class Model:
    def setup(self) -> None:
        hold(500)

    def predict(self, mib: int, how: str) -> int:
        hold(mib)
        if how == "crash":
            os._exit(3)
        if how == "raise":
            raise ValueError("as told")
        while how == "hang":
            time.sleep(3_600)
        return mib
