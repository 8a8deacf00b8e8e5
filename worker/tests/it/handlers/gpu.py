"""A model on a fake GPU. It takes memory by saying so, in the folder that the stand-in reads."""

import os
import time
from pathlib import Path

from stokehold import endpoint

CLAIMS = Path("@CLAIMS@")


def hold(mib: int) -> None:
    for gpu in os.environ["CUDA_VISIBLE_DEVICES"].split(","):
        claim = CLAIMS / f"{os.getpid()}.{gpu}"
        claim.with_suffix(".new").write_text(str(mib))
        claim.with_suffix(".new").replace(claim)


@endpoint(name="gpu")
class Model:
    def setup(self) -> None:
        hold(2_000)
        self.most_mib = 0

    def predict(self, mib: int, linger_s: float = 0, how: str = "fine", gate: str = "") -> str:
        hold(mib)
        if how == "oom" or how == "tidy" and self.most_mib > 10_000:
            self.most_mib = max(self.most_mib, mib)
            raise RuntimeError("CUDA out of memory")
        self.most_mib = max(self.most_mib, mib)
        if gate:
            print("waiting", flush=True)
        while gate and not Path(gate).exists():
            time.sleep(0.005)
        time.sleep(linger_s)
        if how == "crash":
            os._exit(3)
        if how == "raise":
            raise ValueError("as told")
        while how == "hang":
            time.sleep(3_600)
        return os.environ["CUDA_VISIBLE_DEVICES"]
