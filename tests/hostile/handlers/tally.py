"""Counts an attack's attempts, and records what they obtained."""

import subprocess
from typing import Any, Callable


class Tally:
    def __init__(self) -> None:
        self.attempted = 0
        self.got: list[str] = []

    def tried(self, what: str, attempt: Callable[[], Any]) -> None:
        self.attempted += 1
        try:
            got = attempt()
        except (OSError, ValueError, subprocess.SubprocessError):
            return
        if got:
            self.got.append(f"{what}: {str(got)[:200]}")

    def report(self) -> dict[str, Any]:
        return {"attempted": self.attempted, "got": self.got}
