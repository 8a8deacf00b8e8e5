"""Scores the picture that another endpoint made: how much of it is all but black, how much of it is a glaring red.

Measured, not guessed: shares of pixels. It stands for a classifier in the place where one belongs.
"""

import io
import urllib.request
import warnings
from pathlib import Path
from typing import Any, Optional, Union

from PIL import Image, ImageChops, UnidentifiedImageError

from stokehold import endpoint as stokehold_endpoint
from stokehold import reject

# A picture is measured at this size: the shares are the same, and a large one costs no more.
MEASURED_PIXELS = 512

# A file of a few kilobytes can claim to be any number of pixels.
PIXELS_MAX = 64_000_000
BYTES_MAX = 64 << 20
FETCH_TIMEOUT_S = 20

# Of 255: below this much light no shape can be seen on a screen.
DARK_BELOW = 24
# Of 255, in hue, saturation and value: red is at both ends of the circle of hues.
RED_HUE, RED_SATURATION, RED_VALUE = 9, 180, 110


@stokehold_endpoint(name="image-check", timeout_s=60)
def image_check(
    endpoint: str,
    input: Any,  # noqa: A002 (what a step is given)
    output: Union[Path, dict[str, Any], str],
    thresholds: Optional[dict[str, float]] = None,
) -> dict:
    """Shares of the picture, 0 to 1, as scores `dark` and `red`; `thresholds` then decide."""
    try:
        picture = opened(output)
    except (UnidentifiedImageError, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        return reject(f"the output of {endpoint} is no picture that can be looked at: {error}")
    return {"scores": {"dark": round(dark(picture), 4), "red": round(red(picture), 4)}}


def opened(output: Union[Path, dict[str, Any], str]) -> Image.Image:
    """The picture, small, as RGB on black. The output is a file, or says where one is."""
    if isinstance(output, dict):
        output = str(output.get("url"))
    source = output if isinstance(output, Path) else io.BytesIO(fetched(output))
    Image.MAX_IMAGE_PIXELS = PIXELS_MAX
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        with Image.open(source) as picture:
            picture.draft("RGB", (MEASURED_PIXELS, MEASURED_PIXELS))
            picture.thumbnail((MEASURED_PIXELS, MEASURED_PIXELS))
            seen = picture.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", seen.size, "black"), seen).convert("RGB")


def fetched(url: str) -> bytes:
    """Raises `ValueError` for what is no URL, and for a file that is too large."""
    if not url.startswith(("https://", "http://")):
        raise ValueError(f"{url[:100]!r} is no URL that a picture can be fetched from")
    with urllib.request.urlopen(url, timeout=FETCH_TIMEOUT_S) as answer:  # noqa: S310 (the scheme is checked)
        body: bytes = answer.read(BYTES_MAX + 1)
    if len(body) > BYTES_MAX:
        raise ValueError(f"the picture is larger than {BYTES_MAX >> 20} MiB")
    return body


def dark(picture: Image.Image) -> float:
    """The share that is all but black."""
    light = picture.convert("L").histogram()
    return sum(light[:DARK_BELOW]) / sum(light)


def red(picture: Image.Image) -> float:
    """The share that is red, strong and bright."""
    hue, saturation, value = picture.convert("HSV").split()
    masks = (
        hue.point([255 if each <= RED_HUE or each >= 256 - RED_HUE else 0 for each in range(256)]),
        saturation.point([255 if each >= RED_SATURATION else 0 for each in range(256)]),
        value.point([255 if each >= RED_VALUE else 0 for each in range(256)]),
    )
    both = ImageChops.multiply(ImageChops.multiply(masks[0], masks[1]), masks[2])
    return both.histogram()[255] / (picture.width * picture.height)
