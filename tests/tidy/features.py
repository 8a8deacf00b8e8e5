"""Whether `stoke` and the tests share one build of each dependency: Cargo unifies the features of what it builds."""

from __future__ import annotations

import re
import subprocess
from collections import Counter

from source import ROOT

UNIFIED = "--features stokehold-cli/unified"
BUILD = re.compile(r"^(BUILD_\w+) = cargo build --locked (.*) \$\(UNIFIED\)$", re.M)
"""A call of Cargo in the Makefile that builds packages without their tests."""


def _dependencies(packages: str, edges: str) -> set[str]:
    """The dependencies of packages, each with its features."""
    command = f"cargo tree --locked {packages} {UNIFIED} --edges {edges} --prefix none --format".split()
    tree = subprocess.run([*command, "{p} {f}"], cwd=ROOT, check=True, capture_output=True, text=True)
    return {line.removesuffix(" (*)").strip() for line in tree.stdout.splitlines()}


def findings() -> Counter:
    """Dependencies that a call builds again: `unified` in cli/Cargo.toml lacks a feature that tests turn on."""
    calls = BUILD.findall((ROOT / "Makefile").read_text())
    if not calls:
        raise ValueError("no call of `cargo build` with $(UNIFIED) was found in the Makefile")
    shared = _dependencies("--workspace", "all")
    return Counter(
        f"{name}: {dependency}"
        for name, packages in calls
        for dependency in _dependencies(packages, "normal,build") - shared
    )
