"""A model on a stand-in card: it takes memory by saying so where the stand-in looks, and runs out of it as PyTorch does."""

import json
import os
import signal
import time
from pathlib import Path

from stokehold import endpoint

CARD = int(os.environ.get("CUDA_VISIBLE_DEVICES") or 0)


class OutOfMemoryError(RuntimeError):
    """As torch's own."""

    __module__ = "torch"


def hold(mib: int) -> None:
    """Takes so much of the card altogether, or raises."""
    folder = next(each for each in map(Path, os.environ["LD_LIBRARY_PATH"].split(":")) if (each / "claims").is_dir())
    mine = folder / "claims" / f"{os.getpid()}.{CARD}"
    others = [path for path in mine.parent.glob(f"*.{CARD}") if path != mine and Path("/proc", path.stem).exists()]
    card = json.loads((folder / "cards.json").read_text())["cards"][CARD]
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
