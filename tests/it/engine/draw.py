"""Draws the text of the prompt, over the images that it gets: bytes that a test can compute."""

from pathlib import Path

from stokehold import current_job, endpoint


@endpoint(name="draw", openai="images")
def draw(prompt: str, image: list[Path] | None = None, mask: Path | None = None, n: int = 1) -> list[Path]:
    layers = [path.read_bytes() for path in [*(image or []), *([mask] if mask else [])]]
    drawn = [current_job().scratch / f"{number}.png" for number in range(n)]
    for path in drawn:
        path.write_bytes(b"+".join([*layers, prompt.encode()]))
    return drawn
