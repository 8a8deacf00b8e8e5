"""Endpoints with inputs and results of every kind, for the playground to be tried on. They need nothing but Python."""

import struct
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Optional

from stokehold import Field, current_job, endpoint, progress


def picture(path: Path, width: int, height: int, hue: int) -> Path:
    """A PNG with a gradient of one hue."""
    rows = bytearray()
    for y in range(height):
        rows.append(0)
        for x in range(width):
            rows += bytes(((x * 255 // width + hue) % 256, y * 200 // height, 255 - x * 255 // width))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(rows))), (b"IEND", b""))
    framed = (struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(framed))
    return path


@dataclass
class Size:
    """Width and height in pixels."""

    width: int = 120
    height: int = 80


@endpoint(name="poster")
def poster(
    prompt: Annotated[str, Field(description="What the poster shows.", min_length=3)],
    style: Annotated[Literal["ink", "oil", "photo"], "How it is drawn."] = "ink",
    copies: Annotated[int, Field(ge=1, le=4, description="How many pictures to draw.")] = 1,
    guidance: Annotated[float, Field(ge=0, le=20)] = 7.5,
    is_framed: bool = False,
    tags: Optional[list[str]] = None,
    size: Optional[Size] = None,
    seed: Optional[int] = None,
) -> dict:
    """Draws posters of a prompt."""
    print(f"drawing {copies} of {prompt}")
    size = size or Size()
    hue = sum(map(ord, prompt)) + (seed or 0)
    paths = [picture(current_job().scratch / f"poster-{n}.png", size.width, size.height, hue + 60 * n) for n in range(copies)]
    used = {"prompt": prompt, "style": style, "guidance": guidance, "is_framed": is_framed, "tags": tags, "seed": seed}
    return {"pictures": paths, "used": used}


@endpoint(name="measure")
def measure(document: Annotated[Path, Field(description="Any file.")], label: str = "") -> dict:
    """Counts the bytes of a file."""
    return {"bytes": len(document.read_bytes()), "name": document.name, "label": label}


@endpoint(name="recite")
def recite(about: str, words: int = 5, pause: float = 0.0) -> Iterator[str]:
    """Writes a text word by word."""
    for n in range(words):
        time.sleep(pause)
        yield f"{about} {n} "


@endpoint(name="tear", max_attempts=1)
def tear(reason: str = "the canvas tore") -> None:
    """Fails."""
    raise ValueError(reason)


@endpoint(name="dry")
def dry(seconds: float = 60.0) -> str:
    """Takes its time."""
    for step in range(100):
        progress(step / 100, f"layer {step}")
        time.sleep(seconds / 100)
    return "dry"


@endpoint(name="monument", vram_gib=190)
def monument() -> None:
    """Larger than any GPU here."""


@endpoint(name="hum")
def hum(seconds: Annotated[float, Field(gt=0, le=5)] = 0.5) -> dict:
    """A sound, and a text about it."""
    scratch = current_job().scratch
    samples = b"".join(struct.pack("<h", int(8000 * ((n // 40) % 2 * 2 - 1))) for n in range(int(8000 * seconds)))
    head = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + len(samples), b"WAVE", b"fmt ", 16, 1, 1, 8000, 16000, 2, 16, b"data", len(samples))
    (scratch / "hum.wav").write_bytes(head + samples)
    (scratch / "score.txt").write_text("one note")
    return {"sound": scratch / "hum.wav", "score": scratch / "score.txt"}


@endpoint(name="hum")
def hum_again() -> str:
    """The next version of it."""
    return "hum"


@endpoint(name="read")
def read(letter: Path) -> str:
    """The text of a file."""
    return letter.read_text()


@endpoint(name="far", regions=["mars"], min_trust="owned")
def far() -> None:
    """Only workers in a region that no machine is in may run it."""


@endpoint(name="forge")
def forge(markup: str = "<img src=x onerror=alert(1)>") -> dict:
    """Gives results that would be dangerous if they were a part of the page."""
    scratch = current_job().scratch
    (scratch / "page.html").write_text("<script>parent.document.title = 'forged'</script>")
    (scratch / "image.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'><script>parent.document.title = 'forged'</script></svg>")
    print(markup)
    return {"page": scratch / "page.html", "image": scratch / "image.svg", "markup": markup}
