"""A program of a user: submits 12 jobs, follows them, and uses their results.

Four texts go to `embed`, eight prompts to `render`. The address and the token are in STOKE_URL and STOKE_TOKEN.
"""
# ruff: noqa: T201 (it prints for the user)

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

from stokehold import Client, Job

TEXTS = [
    "A kitten naps in the sun by the window.",
    "The cat is sleeping on the warm windowsill.",
    "The stoker shovels coal into the furnace.",
    "The central bank raised interest rates again.",
]
RELATED, UNRELATED = (0, 1), (0, 3)
PROMPTS = [
    "a quiet lake at dawn",
    "dusk over the islands",
    "a clear winter night",
    "rain in the forest",
    "the desert before noon",
    "an aurora above the fjord",
    "steam rising from a harbour",
    "the last ridge before the sea",
]
SHOWN = ("id", "endpoint", "state", "timing", "result_url")
PARTS = ("queued", "env", "boot", "load", "run", "upload")

# Longer than any job takes, including the first load on a slow machine.
TIMEOUT_S = 300


class Board:
    """One line per job, rewritten in place on a terminal; elsewhere one line per job that ended."""

    def __init__(self, titles: list[str], shown: bool) -> None:
        self.lines = [("queued", 0.0, title) for title in titles]
        self.lock = threading.Lock()
        self.live = shown and sys.stderr.isatty()
        self.shown = shown
        if self.live:
            sys.stderr.write("\n" * len(titles))
            self.draw()

    def update(self, line: int, state: str | None = None, fraction: float | None = None) -> None:
        with self.lock:
            was, done, title = self.lines[line]
            self.lines[line] = (state or was, done if fraction is None else fraction, title)
            if self.live:
                self.draw()
            elif self.shown and state in ("succeeded", "failed", "cancelled", "expired"):
                print(f"  {state:<9}  {title}", file=sys.stderr)

    def draw(self) -> None:
        rows = []
        for state, fraction, title in self.lines:
            fraction = 1.0 if state == "succeeded" else fraction
            bar = "━" * round(fraction * 20)
            colour = {"succeeded": 32, "failed": 31, "running": 36}.get(state, 2)
            rows.append(f"\x1b[2K  \x1b[{colour}m{state:<9}\x1b[0m  \x1b[36m{bar:<20}\x1b[0m  {title}\n")
        sys.stderr.write(f"\x1b[{len(rows)}F{''.join(rows)}")
        sys.stderr.flush()


def follow(job: Job, line: int, board: Board) -> None:
    for event in job.events():
        if event.type == "state":
            board.update(line, state=event.state)
        elif event.type == "progress":
            board.update(line, fraction=event.fraction)


def similarity(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other))


def main() -> None:
    out, as_json = Path(sys.argv[1]), "--json" in sys.argv[2:]
    with Client() as client:
        embeds = [client.submit("embed", {"texts": [text]}) for text in TEXTS]
        renders = [client.submit("render", {"prompt": prompt, "seed": 7}) for prompt in PROMPTS]
        jobs = embeds + renders
        board = Board([f"embed   {text}" for text in TEXTS] + [f"render  {prompt}" for prompt in PROMPTS], not as_json)
        # Daemon threads, so that an error in this thread ends the program while the others wait.
        watching = [threading.Thread(target=follow, args=(job, n, board), daemon=True) for n, job in enumerate(jobs)]
        for thread in watching:
            thread.start()

        vectors = [job.result(timeout=TIMEOUT_S)[0] for job in embeds]
        related = similarity(vectors[RELATED[0]], vectors[RELATED[1]])
        unrelated = similarity(vectors[UNRELATED[0]], vectors[UNRELATED[1]])
        images = []
        for prompt, job in zip(PROMPTS, renders):
            name = "-".join(prompt.split()) + ".png"
            images.append(job.result(timeout=TIMEOUT_S).save(out / name))
        for thread in watching:
            thread.join(TIMEOUT_S)
        for job in jobs:
            job.refresh()

    if as_json:
        document = {
            "jobs": [{name: job.raw[name] for name in SHOWN} for job in jobs],
            "similarity": {"related": related, "unrelated": unrelated},
            "images": [str(image) for image in images],
        }
        print(json.dumps(document, indent=2))
        return

    print("\nSimilarity")
    for value, pair in ((related, RELATED), (unrelated, UNRELATED)):
        print(f"  {value:+.3f}  {TEXTS[pair[0]]} / {TEXTS[pair[1]]}")
    print("\nPictures")
    for image in images:
        print(f"  {image}")
    print("\nTime per phase, ms")
    print(f"  {'job':<34}{'endpoint':<10}" + "".join(f"{part:>8}" for part in PARTS))
    for job in jobs:
        times = "".join(f"{getattr(job.timing, part + '_ms'):>8}" for part in PARTS)
        print(f"  {job.id:<34}{job.endpoint:<10}{times}")


if __name__ == "__main__":
    main()
