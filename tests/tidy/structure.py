"""Cycles of modules, dependencies of crates, sizes of files and names of types."""

from __future__ import annotations

import functools
import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from source import ROOT, code_only, read, tracked, without_tests

LINES_MAX = 500
CYCLE_MAX = 3

# A crate depends on crates of lower layers alone.
LAYERS = [
    {"crates/vast"},
    {"crates/metrics", "crates/wire", "lab/fake-vast", "tests/nvml"},
    {"crates/supervise", "crates/objects"},
    {"crates/queue"},
    {"crates/backup", "crates/vram"},
    {"api", "autoscaler", "worker", "sdk/python/rust"},
    {"cli"},
    {"tests"},
    {"tests/chaos"},
]

# Types whose names were replaced by the standard terms of the field.
OLD_NAMES = {
    "Eyes", "Look", "Hands", "Mind", "Pulls", "Waits", "Keepers", "Seats", "Uses", "Paces", "Bells",
    "Trouble", "Course", "Took", "Using", "Rhythm", "Teller", "Homes", "Vitals", "Fitness", "Demands",
    "Shelf", "Place", "Purse", "Books",
}  # fmt: skip
PUBLIC = re.compile(r"\bpub(?:\([^)]*\))?\s+(?:struct|enum|trait|type)\s+(\w+)")
# `App` is only a list of parts: its methods belong to the parts.
APP = Path("api/src/state.rs")
APP_IMPL = re.compile(r"^impl\b(?:<[^>]*>)?\s+(?:(?P<of>[\w:]+)(?:<[^{]*>)?\s+for\s+)?App\b", re.MULTILINE)
PATH = re.compile(r"\b(crate|super|self)((?:::\w+)*)(?:::(?=\{)(\{))?")


@functools.cache
def packages() -> dict[Path, list[str]]:
    """Folder of each crate of the workspace -> names of the crates that it depends on, tests aside."""
    command = ["cargo", "metadata", "--format-version", "1", "--no-deps", "--offline"]
    found = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    folder = {package["name"]: Path(package["manifest_path"]).parent.relative_to(ROOT) for package in found["packages"]}
    normal = {
        folder[package["name"]]: [other["name"] for other in package["dependencies"] if other["kind"] is None]
        for package in found["packages"]
    }
    return {path: [str(folder[name]) for name in names if name in folder] for path, names in normal.items()}


def modules(folder: Path) -> dict[tuple[str, ...], Path]:
    """Path of each module of a crate -> its file. The test modules are left out."""
    found, tests = {}, set()
    for file in tracked(".rs"):
        if not file.is_relative_to(folder / "src"):
            continue
        name = file.relative_to(folder / "src").with_suffix("").parts
        if name[-1] in ("lib", "main", "mod"):
            name = name[:-1]
        found[name] = file
    for name, file in found.items():
        for test in re.findall(r"#\[cfg\(test\)\]\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+);", read(file)):
            tests.add((*name, test))
    return {name: file for name, file in found.items() if not any(name[: len(test)] == test for test in tests)}


def _paths(text: str, start: int) -> Iterator[list[str]]:
    """The paths of a `{a, b::{c, d}}` that begins at `start`."""
    depth, stack, word, position = 0, [[]], "", start
    while position < len(text):
        character = text[position]
        if character == "{":
            stack.append(stack[-1] + [word.rstrip(":")] if word else stack[-1])
            depth, word = depth + 1, ""
        elif character in ",}":
            if word.strip():
                yield stack[-1] + [part for part in word.strip().split(" as ")[0].split("::") if part]
            word = ""
            if character == "}":
                stack.pop()
                depth -= 1
                if depth == 0:
                    return
        elif not character.isspace() or word.strip():
            word += character if not character.isspace() else " "
        position += 1


def graph(folder: Path) -> dict[tuple[str, ...], set[tuple[str, ...]]]:
    """Which modules of a crate each of its modules names."""
    known = modules(folder)
    edges = {name: set() for name in known}
    for name, file in known.items():
        text = code_only(without_tests(read(file)))
        for path in PATH.finditer(text):
            first = [part for part in path[2].split("::") if part]
            for parts in [first] if not path[3] else [first + more for more in _paths(text, path.end() - 1)]:
                base = list(name) if path[1] != "crate" else []
                if path[1] == "super":
                    base = base[:-1]
                while parts and parts[0] == "super":
                    base, parts = base[:-1], parts[1:]
                target = tuple(base + parts)
                while target and target not in known:
                    target = target[:-1]
                # A module and those below it are one subject: what a parent declares is no edge upwards.
                if target and target != name and name[: len(target)] != target and target[: len(name)] != name:
                    edges[name].add(target)
    return edges


def cycles(edges: dict) -> list[list]:
    """Strongly connected components of more than one module (Tarjan, without recursion)."""
    index, low, on, stack, found = {}, {}, set(), [], []
    for root in edges:
        if root in index:
            continue
        work = [(root, iter(sorted(edges[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on.add(root)
        while work:
            node, successors = work[-1]
            for other in successors:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on.add(other)
                    work.append((other, iter(sorted(edges[other]))))
                    break
                if other in on:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = []
                    while True:
                        component.append(stack.pop())
                        on.discard(component[-1])
                        if component[-1] == node:
                            break
                    if len(component) > 1:
                        found.append(sorted(component))
    return sorted(found, key=len, reverse=True)


def cycle_findings() -> Counter:
    """Modules of a crate that lie in a cycle of more than three."""
    found = Counter()
    for folder in packages():
        for cycle in cycles(graph(folder)):
            if len(cycle) > CYCLE_MAX:
                found.update(f"{folder}: {'::'.join(module)}" for module in cycle)
    return found


def crate_findings() -> Counter:
    """Dependencies on a crate of the same or a higher layer."""
    layer = {folder: number for number, folders in enumerate(LAYERS) for folder in folders}
    found = Counter()
    for folder, dependencies in packages().items():
        if str(folder) not in layer:
            found[f"{folder} is in no layer of tests/tidy/structure.py"] += 1
            continue
        for other in dependencies:
            if layer.get(other, len(LAYERS)) >= layer[str(folder)]:
                found[f"{folder} depends on {other}"] += 1
    return found


def size_findings() -> Counter:
    """Lines beyond the limit of each source file."""
    sizes = {path: read(path).count("\n") for path in tracked(".rs", ".py", ".ts", ".tsx", ".lua", ".sh")}
    return Counter({str(path): lines - LINES_MAX for path, lines in sizes.items() if lines > LINES_MAX})


def name_findings() -> Counter:
    """Public types with a name that the field's own has replaced."""
    found = Counter()
    for path in tracked(".rs"):
        found.update(f"{path}: {name}" for name in PUBLIC.findall(code_only(read(path))) if name in OLD_NAMES)
    return found


def app_findings() -> Counter:
    """Implementations for the state of the API outside its own file, other than `FromRef`."""
    found = Counter()
    for path in tracked(".rs"):
        if path.is_relative_to(APP.parent) and path != APP:
            blocks = APP_IMPL.finditer(code_only(read(path)))
            found.update(f"{path}: impl for App" for block in blocks if block["of"] != "FromRef")
    return found


def describe() -> str:
    """The module graph of each crate, in figures and with its cycles."""
    lines = []
    for folder in sorted(packages()):
        edges = graph(folder)
        lines.append(f"{folder}: {len(edges)} modules, {sum(map(len, edges.values()))} uses of each other")
        for cycle in cycles(edges):
            lines.append(f"  cycle of {len(cycle)}: {', '.join('::'.join(module) or 'lib' for module in cycle)}")
    return "\n".join(lines)


def edges_of(folder: str) -> str:
    """Each use of one module by another, a line each."""
    edges = graph(Path(folder))
    rows = (
        f"{'::'.join(name) or 'lib'} -> {'::'.join(other)}" for name in sorted(edges) for other in sorted(edges[name])
    )
    return "\n".join(rows)
