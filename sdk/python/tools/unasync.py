"""Generates the synchronous client from the asynchronous one: `_X.py` from each `_async_X.py`.

The rules below replace words in code, strings, docstrings and comments alike; ruff then sorts the imports and formats
the result. Code that differs by more than words (connections, sleeping, threads) is written by hand, in
`_async_transport.py` and `_async_pool.py`, and in `_transport.py` and `_pool.py`.

With `--check`, nothing is written, and the exit code is 1 if a generated file is stale.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "stokehold"
WRITTEN_BY_HAND = {"_async_pool.py", "_async_transport.py"}
HEADER = "# Generated from {source} by `make sync-client`; do not edit.\n"

# An expression whose parentheses are balanced and at most two deep.
EXPRESSION = r"(?:[^()]|\((?:[^()]|\([^()]*\))*\))*"

# (pattern, replacement), applied in this order.
RULES = [
    (rf"\(await ({EXPRESSION})\)(?=\.)", r"\1"),  # `(await f()).x` becomes `f().x`
    (r"\bawait ", ""),
    (r"\b([Aa])n(?= `?[Aa]sync)", r"\1"),
    (r"\basync (?=(?:def|for|with)\b)", ""),
    (r"\basynchronous\b", "synchronous"),
    (r'"async"', '"sync"'),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\b_async_(?=[a-z])", "_"),
    (r"\b__a(?=(?:enter|exit)__)", "__"),
    (r"\ba(?=(?:close|read|iter_bytes)\b)", ""),
    (r"\bBelongs to one event loop\b", "Safe to share between threads"),
]


def sources() -> list[Path]:
    """The files to generate from."""
    return [path for path in sorted(PACKAGE.glob("_async_*.py")) if path.name not in WRITTEN_BY_HAND]


def target(source: Path) -> Path:
    """The file that is generated from `source`."""
    return source.with_name(source.name.replace("_async_", "_", 1))


def generate(source: Path) -> str:
    """The text of the generated file."""
    text = source.read_text(encoding="utf-8")
    for pattern, replacement in RULES:
        text = re.sub(pattern, replacement, text)
    text = HEADER.format(source=source.name) + text
    # I sorts imports. UP028 turns `for x in y: yield x` into `yield from y`, which asynchronous generators lack.
    text = ruff(["check", "--fix", "--unsafe-fixes", "--select", "I,UP028"], target(source), text)
    return ruff(["format"], target(source), text)


def ruff(arguments: list[str], path: Path, text: str) -> str:
    """Runs ruff on `text` with the settings that apply to `path`."""
    command = [sys.executable, "-m", "ruff", *arguments, "--quiet", "--stdin-filename", str(path), "-"]
    return subprocess.run(command, input=text, stdout=subprocess.PIPE, check=True, encoding="utf-8").stdout


def main() -> None:
    parser = argparse.ArgumentParser(description="Generate the synchronous Python client from the asynchronous one.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a generated file is stale")
    check = parser.parse_args().check
    stale = []
    for source in sources():
        path, text = target(source), generate(source)
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if check:
            stale.append(f"{path.name} does not match {source.name}: run `make sync-client`")
        else:
            path.write_text(text, encoding="utf-8")
    if stale:
        sys.exit("\n".join(stale))


if __name__ == "__main__":
    main()
