"""Whether `stoke` and the tests share one build of each dependency: Cargo unifies the features of what it builds."""

from __future__ import annotations

import subprocess
from collections import Counter

from source import ROOT

UNIFIED = ["--features", "stokehold-cli/unified"]
CALLS = {
    "make stoke": ["-p", "stokehold-cli", "-p", "stokehold-runner-wire"],
    "make chaos": ["-p", "stokehold-cli", "-p", "stokehold-chaos"],
}
"""The packages that the Makefile builds without tests, by the target that does."""


def _dependencies(packages: list[str], edges: str) -> set[str]:
    """The dependencies of a call of Cargo, each with its features."""
    command = [
        "cargo",
        "tree",
        "--locked",
        *packages,
        *UNIFIED,
        "--edges",
        edges,
        "--format",
        "{p} {f}",
        "--prefix",
        "none",
    ]
    lines = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    return {line.removesuffix(" (*)").strip() for line in lines}


def findings() -> Counter:
    """Dependencies that a call builds again: `unified` in cli/Cargo.toml lacks a feature that tests turn on."""
    shared = _dependencies(["--workspace"], "all")
    found: Counter = Counter()
    for target, packages in CALLS.items():
        for dependency in _dependencies(packages, "normal,build") - shared:
            found[f"{target}: {dependency}"] += 1
    return found
