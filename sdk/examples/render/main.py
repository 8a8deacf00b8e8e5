"""Draws a landscape for a prompt: the same prompt and seed give the same picture, anywhere.

No model: hills are sums of sines, mist is how far away they are, and the light is one of a few palettes. It stands for
what a diffusion model would do to the queue: some work, progress on the way, a PNG at the end.
"""

import hashlib
import re
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from PIL import Image, ImageFilter

from stokehold import Field, current_job, endpoint, progress

RIDGES = 6

# Drawn at twice the size and scaled down: that is what makes the edges smooth.
OVERSAMPLING = 2


class Palette(NamedTuple):
    """The light of one hour, as RGB, and the words of a prompt that ask for it."""

    words: tuple[str, ...]
    zenith: tuple[int, int, int]
    horizon: tuple[int, int, int]
    disc: tuple[int, int, int]
    near: tuple[int, int, int]
    stars: int


PALETTES = (
    Palette(("dawn", "morning", "sunrise"), (94, 128, 178), (255, 214, 186), (255, 244, 214), (38, 52, 74), 0),
    Palette(("dusk", "evening", "sunset"), (58, 38, 92), (255, 132, 88), (255, 226, 160), (34, 18, 44), 40),
    Palette(("night", "moon", "stars"), (8, 12, 36), (52, 84, 132), (240, 244, 255), (6, 10, 22), 420),
    Palette(("forest", "rain", "jungle"), (120, 168, 170), (226, 240, 214), (255, 255, 240), (14, 48, 40), 0),
    Palette(("desert", "dune", "canyon"), (88, 150, 190), (250, 224, 176), (255, 250, 226), (120, 54, 34), 0),
    Palette(("aurora", "dream", "space"), (16, 10, 52), (126, 92, 190), (214, 255, 236), (14, 8, 34), 260),
)


@endpoint(name="render")
def render(
    prompt: Annotated[str, Field(min_length=1, max_length=200)],
    seed: int = 0,
    width: Annotated[int, Field(ge=64, le=2048)] = 768,
    height: Annotated[int, Field(ge=64, le=2048)] = 512,
) -> Path:
    """A PNG."""
    chance = np.random.default_rng(list(hashlib.sha256(f"{seed}:{prompt}".encode()).digest()))
    palette = palette_for(prompt, chance)
    progress(0.05, "sky")
    picture = sky(palette, width * OVERSAMPLING, height * OVERSAMPLING, chance)
    for ridge in range(RIDGES):
        progress(0.2 + 0.6 * ridge / RIDGES, f"ridge {ridge + 1} of {RIDGES}")
        paint_ridge(picture, palette, (ridge + 1) / RIDGES, chance)
    progress(0.85, "water")
    mirror(picture, palette, chance)
    progress(0.95, "developing")
    path = current_job().scratch / "render.png"
    develop(picture, width, height, chance).save(path)
    progress(1, "done")
    return path


def palette_for(prompt: str, chance: np.random.Generator) -> Palette:
    """The first whose word the prompt names; else any."""
    drawn = PALETTES[chance.integers(len(PALETTES))]
    asked = set(re.findall(r"[a-z]+", prompt.lower()))
    named = (palette for palette in PALETTES if asked.intersection(palette.words))
    return next(named, drawn)


def colour(rgb: tuple[int, int, int]) -> np.ndarray:
    return np.array(rgb, np.float32)


def sky(palette: Palette, width: int, height: int, chance: np.random.Generator) -> np.ndarray:
    """The gradient, stars that fade towards the horizon, sun or moon in its glow. (height, width, RGB), 0 to 255."""
    down = np.linspace(0, 1, height, dtype=np.float32)[:, None]
    blend = np.clip(down / 0.68, 0, 1)[:, :, None] ** 1.4
    gradient = colour(palette.zenith) * (1 - blend) + colour(palette.horizon) * blend
    picture = np.broadcast_to(gradient, (height, width, 3)).copy()

    size = OVERSAMPLING
    for x, y, light in chance.random((palette.stars, 3)):
        y = y**1.6 * 0.5
        row, column = int(y * (height - size)), int(x * (width - size))
        picture[row : row + size, column : column + size] += 190 * light * (1 - y * 1.8)

    centre_x, centre_y = width * chance.uniform(0.2, 0.8), height * chance.uniform(0.2, 0.44)
    radius = height * chance.uniform(0.045, 0.085)
    across = np.arange(width, dtype=np.float32)[None, :] - centre_x
    far = np.sqrt(across**2 + (down * height - centre_y) ** 2)
    glow = 0.55 * np.exp(-far / (radius * 3.2)) + 0.25 * np.exp(-far / (radius * 9))
    disc = np.clip(radius - far, 0, OVERSAMPLING) / OVERSAMPLING
    light = np.maximum(glow, disc)[:, :, None]
    return picture * (1 - light) + colour(palette.disc) * light


def skyline(width: int, roughness: float, chance: np.random.Generator) -> np.ndarray:
    """Heights along a ridge, about -1 to 1: octaves of sines, each half as high and about twice as fast as the last."""
    along = np.linspace(0, 2 * np.pi, width, dtype=np.float32)
    line = np.zeros(width, np.float32)
    for octave in range(9):
        speed = 1.9**octave * chance.uniform(0.5, 1.0)
        line += np.sin(along * speed + chance.uniform(0, 2 * np.pi)) * roughness**octave
    return line / np.abs(line).max()


def paint_ridge(picture: np.ndarray, palette: Palette, nearness: float, chance: np.random.Generator) -> None:
    """Nearer ridges are lower, darker and rougher; the mist at a ridge's foot is what lies between it and the next."""
    height, width, _ = picture.shape
    base = height * (0.44 + 0.27 * nearness)
    top = base - skyline(width, 0.44 + 0.1 * nearness, chance) * height * (0.13 - 0.06 * nearness)
    rows = np.arange(height, dtype=np.float32)[:, None]
    inside = np.clip(rows - top, 0, OVERSAMPLING) / OVERSAMPLING
    air = (1 - nearness) ** 1.25
    rock = colour(palette.near) * (1 - air) + colour(palette.horizon) * air * 0.86 + colour(palette.zenith) * air * 0.08
    depth = np.clip((rows - top) / (height * 0.24), 0, 1)[:, :, None] * (0.55 - 0.3 * nearness)
    painted = rock * (1 - depth) + colour(palette.horizon) * depth
    picture += (painted - picture) * inside[:, :, None]


def mirror(picture: np.ndarray, palette: Palette, chance: np.random.Generator) -> None:
    """Water below the nearest shore: what is above it, upside down, rippled more the nearer it comes."""
    height, width, _ = picture.shape
    shore = int(height * 0.78)
    depth = np.arange(height - shore, dtype=np.float32)
    waves = np.sin(depth * 0.35 + 5 * np.sin(depth * 0.05)) + chance.normal(0, 0.34, depth.size)
    ripple = waves * depth * 0.035
    source = np.clip(shore - 1 - depth * 1.9, 0, shore - 1).astype(int)
    columns = np.clip(np.arange(width)[None, :] + ripple[:, None], 0, width - 1).astype(int)
    reflected = picture[source[:, None], columns]
    fade = (0.22 + 0.4 * depth / depth.size)[:, None, None]
    picture[shore:] = reflected * (1 - fade) + colour(palette.near) * fade
    picture[shore : shore + OVERSAMPLING] += (colour(palette.horizon) - picture[shore : shore + OVERSAMPLING]) * 0.45


def develop(picture: np.ndarray, width: int, height: int, chance: np.random.Generator) -> Image.Image:
    """Bloom, vignette, and grain, without which the sky would show bands."""
    large = Image.fromarray(np.clip(picture, 0, 255).astype(np.uint8))
    small = large.resize((width, height), Image.Resampling.LANCZOS)
    bloom = np.asarray(small.filter(ImageFilter.GaussianBlur(height / 40)), np.float32)
    sharp = np.asarray(small, np.float32)
    across = np.linspace(-1, 1, width, dtype=np.float32)[None, :]
    down = np.linspace(-1, 1, height, dtype=np.float32)[:, None]
    vignette = (1 - 0.16 * (across**2 + down**2) ** 1.2)[:, :, None]
    mixed = (np.maximum(sharp, sharp * 0.72 + bloom * 0.34)) * vignette + chance.normal(0, 1.6, (height, width, 1))
    return Image.fromarray(np.clip(mixed, 0, 255).astype(np.uint8))
