"""A model on a fake GPU: it takes memory by writing a file that the stand-in reads, and runs out of it as
PyTorch does.
"""

import json
import os
import signal
import time
from pathlib import Path

from stokehold import endpoint

CARD = int(os.environ.get("CUDA_VISIBLE_DEVICES") or 0)


class OutOfMemoryError(RuntimeError):
    """The exception of torch."""

    __module__ = "torch"


def stand_in() -> Path:
    return next(each for each in map(Path, os.environ["LD_LIBRARY_PATH"].split(":")) if (each / "claims").is_dir())


def card_of(folder: Path) -> dict:
    return json.loads((folder / "cards.json").read_text())["cards"][CARD]


def hold(mib: int) -> None:
    """Takes this much of the GPU in total, or raises."""
    folder = stand_in()
    mine = folder / "claims" / f"{os.getpid()}.{CARD}"
    others = [path for path in mine.parent.glob(f"*.{CARD}") if path != mine and Path("/proc", path.stem).exists()]
    card = card_of(folder)
    free = card["total_mib"] - card["foreign_mib"] - sum(int(path.read_text()) for path in others)
    if mib > free:
        raise OutOfMemoryError(f"CUDA out of memory. Tried to allocate {mib}.00 MiB. GPU {CARD} has {free}.00 MiB free")
    mine.with_suffix(".new").write_text(str(mib))
    mine.with_suffix(".new").replace(mine)


@endpoint(name="vram", vram_gib=4)
class Vram:
    def setup(self) -> None:
        hold(1_000)

    def predict(self, mib: int, deaf: bool = False, says: str = "") -> dict:
        hold(mib)
        if says:
            raise RuntimeError(says)
        while deaf:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            try:
                time.sleep(3_600)
            except BaseException:
                pass
        return {"pid": os.getpid(), "card": CARD, "mib": mib}


class Share:
    """An engine that takes a share of its GPU when it loads, as vLLM does: 90 % by default."""

    def setup(self) -> None:
        total_mib = card_of(stand_in())["total_mib"]
        # The share is given in thousandths, rounded down.
        share = float(os.environ["STOKE_VRAM_FRACTION"]) if self.is_told else 0.9
        assert not self.is_told or abs(share - 0.9) < 0.002, share
        self.mib = total_mib * 9 // 10
        assert not self.is_told or abs(int(os.environ["STOKE_VRAM_MIB"]) - self.mib) <= 1, os.environ["STOKE_VRAM_MIB"]
        hold(self.mib)

    def predict(self) -> dict:
        return {"mib": self.mib, "card": CARD}


@endpoint(name="engine", vram_gib=8)
class Engine(Share):
    is_told = False


@endpoint(name="elastic", vram_gib=8, vram_fraction=0.9)
class Elastic(Share):
    is_told = True


@endpoint(name="eighteen", vram_gib=18)
class Eighteen:
    def predict(self, mib: int) -> dict:
        hold(mib)
        return {"mib": mib}


@endpoint(name="twenty-four", vram_gib=24)
class TwentyFour:
    def predict(self, mib: int) -> dict:
        hold(mib)
        return {"mib": mib}
