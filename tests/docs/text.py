"""Parts of generated Markdown."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

WIDTH = 100


def header(sources: str) -> str:
    return f"<!-- Generated from {sources} by `make models`; do not edit. -->"


def wrapped(text: str) -> str:
    """A paragraph, or a list whose items begin with `- `."""
    indent = "  " if text.startswith("- ") else ""
    return "\n".join(
        textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([cell(text) for text in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(text: str) -> str:
    """A cell of a table: one line, without characters that Markdown would interpret outside of code."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    parts = [one if one.startswith("`") else one.replace("<", "&lt;") for one in parts]
    return re.sub(r"(?<!\\)\|", r"\\|", "".join(parts))


def page(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"
