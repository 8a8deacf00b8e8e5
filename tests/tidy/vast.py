"""Words of Vast.ai's API in Rust source outside `crates/vast`, which holds each of them once.

Tests spell the words themselves, so that a typing error in `crates/vast` fails.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from pathlib import Path

import structure
from source import TOKEN, read, tracked, without_tests

HOME = Path("crates/vast/src")
CONSTANT = re.compile(r'pub const \w+: &str =\s*"([^"]+)";')

# Words of more than one part: a common word such as `bid` has other meanings elsewhere.
DISTINCT = re.compile(r"[_/]")
OF_OTHERS = {"not_found"}


@functools.cache
def words() -> frozenset[str]:
    found = {word for path in tracked(".rs") if path.is_relative_to(HOME) for word in CONSTANT.findall(read(path))}
    return frozenset(word for word in found if DISTINCT.search(word)) - OF_OTHERS


def product_files() -> list[Path]:
    """Source files of all crates, without those of tests."""
    files = {file for folder in structure.packages() for file in structure.modules(folder).values()}
    return sorted(file for file in files if not file.is_relative_to(HOME))


def findings() -> Counter:
    """String literals that spell a word of Vast.ai, or begin with one of its paths, by file."""
    paths = tuple(word for word in words() if word.startswith("/"))
    found = Counter()
    for path in product_files():
        for token in TOKEN.finditer(without_tests(read(path))):
            text = (token["string"] or "").strip('"')
            if text in words() or text.startswith(paths):
                found[f"{path}: {text}"] += 1
    return found
