"""The endpoints of a small studio, for a dashboard to show: they take time and memory as models would, and need nothing but Python."""

import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, Optional, TypedDict

from stokehold import Field, Reject, current_job, endpoint, progress


def picture(path: Path, width: int, height: int, hue: int) -> Path:
    """A PNG of hills in the evening."""
    rows = bytearray()
    for y in range(height):
        rows.append(0)
        for x in range(width):
            ridge = height * 0.55 + 40 * ((x * (hue % 7 + 3)) % 97 / 97 - 0.5) * ((x // 97) % 2 * 2 - 1)
            light = y / height
            sky = (int(70 + 170 * light), int(60 + 90 * light), int(130 + hue % 60 - 40 * light))
            rows += bytes(sky if y < ridge else (24 + hue % 20, int(30 + 40 * (1 - light)), 48))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(rows))), (b"IEND", b""))
    framed = (struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(framed))
    return path


class Drawing(TypedDict):
    """A picture, and what it was drawn for."""

    picture: Path
    prompt: str


@endpoint(name="draw", vram_gib=8, priority="interactive")
class Draw:
    """A picture for a prompt."""

    def setup(self) -> None:
        time.sleep(1.2)

    def predict(
        self,
        prompt: Annotated[str, Field(description="What the picture shows.", min_length=1)],
        style: Annotated[Literal["evening", "night", "dawn"], Field(description="The light.")] = "evening",
        steps: Annotated[int, Field(ge=1, le=50, description="More steps take longer.")] = 4,
        seed: Optional[int] = None,
        reference: Annotated[Optional[Path], Field(description="A picture to start from.")] = None,
        seconds: Annotated[float, Field(ge=0)] = 0.4,
    ) -> Drawing:
        """Draws a harbour for a prompt."""
        print(f"drawing {prompt!r}, {style}")
        for step in range(steps):
            progress(step / steps, f"step {step + 1} of {steps}")
            time.sleep(seconds / steps)
        hue = sum(map(ord, prompt + style)) + (seed or 0)
        path = picture(current_job().scratch / "picture.png", 320, 200, hue)
        return {"picture": path, "prompt": prompt}


@endpoint(name="write", vram_gib=16)
class Write:
    """A few lines of text."""

    def setup(self) -> None:
        time.sleep(2)

    def predict(self, about: str, seconds: float = 0.3) -> str:
        time.sleep(seconds)
        return f"{about.capitalize()} is best seen early, before the harbour wakes.\nThe rest of the day it is only {about}."


@endpoint(name="film", vram_gib=20, priority="batch")
class Film:
    """Slow; it tears the first `tears` times that it is tried."""

    def setup(self) -> None:
        time.sleep(1)

    def predict(self, scene: int, seconds: float = 1.0, tears: int = 0) -> Iterator[str]:
        for frame in range(4):
            time.sleep(seconds / 4)
            print(f"scene {scene}, frame {frame}")
            yield f"frame {frame}"
        if current_job().attempt <= tears:
            raise RuntimeError(f"the film tore in scene {scene}")


@endpoint(name="caption", priority="batch", max_attempts=1)
def caption(n: int, fails: str = "") -> dict:
    """One line of a batch."""
    time.sleep(0.15)
    if fails == "reject":
        raise Reject("there is nobody in this picture")
    if fails:
        raise ValueError(f"picture {n} has no pixels")
    return {"n": n, "caption": f"Picture {n}: a harbour in the morning"}


@endpoint(name="atlas", vram_gib=190)
def atlas() -> None:
    """Larger than any card that is offered here."""
