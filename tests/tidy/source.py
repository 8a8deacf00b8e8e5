"""The files of the project and the parts of Rust source that the checks read."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Literals and comments of Rust, in the order in which a scanner has to try them.
TOKEN = re.compile(
    r"""
      (?P<line>//[^\n]*)
    | (?P<block>/\*.*?\*/)
    | (?P<raw>b?r(?P<fence>\#*)".*?"(?P=fence))
    | (?P<string>b?"(?:\\.|[^"\\])*")
    | (?P<char>'(?:\\.[^']*|[^'\\])')
    """,
    re.VERBOSE | re.DOTALL,
)
TEST_MODULE = re.compile(
    r"#\[cfg\([^\]]*\btest\b[^\]]*\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*([;{])"
)


def tracked(*suffixes: str) -> list[Path]:
    """Files under version control, or about to be, with one of these suffixes, relative to the root."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    paths = (Path(name) for name in listing.split("\0") if name.endswith(suffixes))
    return sorted({path for path in paths if (ROOT / path).is_file() and not (ROOT / path).is_symlink()})


def read(path: Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def without_tests(text: str) -> str:
    """The source without its `#[cfg(test)] mod name { ... }`. Line numbers stay."""
    kept, position = [], 0
    while found := TEST_MODULE.search(text, position):
        kept.append(text[position : found.start()])
        end = _end_of_block(text, found.end() - 1) if found[2] == "{" else found.end()
        kept.append("\n" * text.count("\n", found.start(), end))
        position = end
    return "".join([*kept, text[position:]])


def _end_of_block(text: str, opening: int) -> int:
    depth, position = 0, opening
    for token in re.finditer(TOKEN.pattern + r"|(?P<brace>[{}])", text[opening:], re.VERBOSE | re.DOTALL):
        if brace := token["brace"]:
            depth += 1 if brace == "{" else -1
            position = opening + token.end()
            if depth == 0:
                break
    return position


def code_only(text: str) -> str:
    """The source with comments and literals blanked. Line numbers stay."""
    return TOKEN.sub(lambda token: "\n" * token[0].count("\n") or " ", text)


def prose(text: str) -> list[tuple[int, str]]:
    """Doc comments and string literals of Rust source, each with its line number."""
    found = []
    for token in TOKEN.finditer(text):
        line = text.count("\n", 0, token.start()) + 1
        if comment := token["line"]:
            if comment.startswith(("///", "//!")):
                found.append((line, comment[3:]))
        elif token["string"] or token["raw"]:
            found.append((line, token[0]))
    return found
