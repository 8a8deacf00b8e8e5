#!/usr/bin/env python3
"""Check that no line of a tracked Markdown file is longer than 100 columns.

Exempt are lines that cannot be broken, or whose text something else compares or generates:
fenced code blocks, table rows, lines that hold one link, image or URL and nothing else, and the
titles of ADRs, which are never edited.

Prints `file:line: N columns` for each line that is too long, and exits with 1 if there are any.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

MAX_COLUMNS = 100

# Fixtures that tests compare with generated text, byte by byte.
FIXTURES = {"autoscaler/src/simulate/table/golden.md"}

# An opening or closing code fence. At most three spaces or a list item's indentation precede it.
FENCE = re.compile(r"^\s*(?:>\s*)*(`{3,}|~{3,})(.*)$")

# What may precede the text of a line: quotes, one list marker, the indentation of a list item.
PREFIX = re.compile(r"^\s*(?:>\s*)*(?:[-+*]\s+|\d+[.)]\s+)?")

# A link or an image, or an image that is a link; punctuation may follow.
LINK = re.compile(r"^!?\[(?:!?\[[^\]]*\]\([^)]*\)|[^\]]*)\]\([^)]*\)[.,;:]?$")

# The definition of a link: `[name]: URL`.
DEFINITION = re.compile(r"^\[[^\]]+\]:\s+\S+$")


def is_unbreakable(line: str) -> bool:
    """Return whether the line is one word or one link after its list marker."""
    text = PREFIX.sub("", line, count=1).strip()
    return not re.search(r"\s", text) or bool(LINK.match(text) or DEFINITION.match(text))


def long_lines(text: str) -> Iterator[tuple[int, int]]:
    """Yield the number and the columns of each line that is too long, outside code and tables."""
    fence = ""
    for number, line in enumerate(text.splitlines(), start=1):
        match = FENCE.match(line)
        if match:
            marker, rest = match.groups()
            if not fence:
                fence = marker
            elif marker[0] == fence[0] and len(marker) >= len(fence) and not rest.strip():
                fence = ""
            continue
        is_table = line.lstrip("> \t").startswith("|")
        if not fence and not is_table and len(line) > MAX_COLUMNS and not is_unbreakable(line):
            yield number, len(line)


def tracked(root: Path) -> list[str]:
    """Return the Markdown files that git tracks, relative to the root."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--", "*.md"]
    names = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    return [name for name in names.decode("utf-8").split("\0") if name]


def main() -> int:
    root = Path(__file__).resolve().parents[2]
    found = 0
    for name in tracked(root):
        path = root / name
        if name in FIXTURES or not path.is_file():
            continue
        for number, columns in long_lines(path.read_text(encoding="utf-8")):
            if number == 1 and name.startswith("docs/adr/"):
                continue
            print(f"{name}:{number}: {columns} columns")  # noqa: T201
            found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
