"""Paths in Markdown that do not exist: text in backticks that begins with a top folder of the project."""

from __future__ import annotations

import re
from collections import Counter

from source import ROOT, read, tracked

FOLDERS = "api|worker|autoscaler|cli|crates|lab|sdk|deploy|tests|fuzz|docs"
QUOTED = re.compile(rf"`((?:{FOLDERS})/[\w./*{{}},-]*)`")
BRACES = re.compile(r"\{([^}]*)\}")

# Created at run time, so no checkout has them.
CREATED = {"api/dashboard/dist", "deploy/.env", "fuzz/found"}

# ADRs and the changelog describe earlier states.
HISTORY = ("docs/adr/", "CHANGELOG.md")


def expand(path: str) -> list[str]:
    """Expands `a/{b,c}.rs` to `a/b.rs` and `a/c.rs`."""
    if found := BRACES.search(path):
        parts = (path[: found.start()] + part + path[found.end() :] for part in found[1].split(","))
        return [expanded for part in parts for expanded in expand(part)]
    return [path]


def findings() -> Counter:
    found = Counter()
    for page in tracked(".md"):
        if str(page).startswith(HISTORY):
            continue
        for quoted in QUOTED.findall(read(page)):
            for path in expand(quoted):
                if path not in CREATED and not list(ROOT.glob(path.rstrip("/"))):
                    found[f"{page}: {path}"] += 1
    return found
