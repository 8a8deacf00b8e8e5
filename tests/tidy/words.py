"""Words that plain technical English avoids, in doc comments and string literals of the Rust source."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from source import prose, read, tracked, without_tests

BANNED = [
    "told", "tells", "said", "whoever", "whom", "nobody", "somebody", "is to be", "are to be", "so many", "so long",
    "stands", "of late",
]  # fmt: skip
PATTERN = re.compile(r"\b(" + "|".join(word.replace(" ", r"\s+") for word in BANNED) + r")\b", re.IGNORECASE)


def product_files() -> list[Path]:
    folders = ("api/src", "worker/src", "autoscaler/src", "cli/src", "crates", "lab/fake-vast/src", "lab/simulator/src")
    files = (path for path in tracked(".rs") if any(path.is_relative_to(folder) for folder in folders))
    return [path for path in files if "tests" not in path.parts and path.stem != "tests"]


def uses() -> Iterator[tuple[Path, int, str, str]]:
    """File, line, word and the text of each use of a banned word."""
    for path in product_files():
        for line, text in prose(without_tests(read(path))):
            for word in PATTERN.findall(text):
                yield path, line, word.lower(), " ".join(text.split())


def findings() -> Counter:
    return Counter(str(path) for path, *_ in uses())
