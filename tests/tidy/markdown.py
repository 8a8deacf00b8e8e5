"""Lines of Markdown that are longer than 100 columns.

Exempt are lines that cannot be broken, or whose text something else compares or generates:
fenced code blocks, table rows, lines that hold one link, image or URL and nothing else, and the
titles of ADRs, which are never edited.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from source import read, tracked

MAX_COLUMNS = 100

# Fixtures that tests compare with generated text, byte by byte.
FIXTURES = {"lab/simulator/src/table/golden.md"}

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


def findings() -> Counter:
    """The number of lines that are too long, by file."""
    found = Counter()
    for path in tracked(".md"):
        name = str(path)
        if name in FIXTURES:
            continue
        for number, _ in long_lines(read(path)):
            if number > 1 or not name.startswith("docs/adr/"):
                found[name] += 1
    return found
