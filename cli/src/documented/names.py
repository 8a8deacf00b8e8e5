"""Faults in blocks of Python, as a JSON list: what does not compile, and names of the SDK that do not exist.

Reads `[{"place", "text"}]` from standard input. The argument is the folder of the SDK's sources.
"""

from __future__ import annotations

import ast
import builtins
import json
import sys
from collections.abc import Iterator

sys.path.insert(0, sys.argv[1])

import stokehold

# Names that the pages give to a client.
CLIENTS = {"client"}


def chain(node: ast.expr) -> list[str]:
    """The names of `a.b.c`, or nothing if it begins with anything but a name."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    return [node.id, *names] if isinstance(node, ast.Name) else []


def undefined(tree: ast.AST) -> Iterator[str]:
    """Names that the block uses and nothing in it defines: it would not run as it stands."""
    used, defined = set(), {*dir(builtins), "__name__", "__file__"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else defined).add(node.id)
        elif isinstance(node, ast.arg):
            defined.add(node.arg)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            defined.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            defined |= {(name.asname or name.name).partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ExceptHandler) and node.name:
            defined.add(node.name)
    yield from (f"{name} is not defined" for name in sorted(used - defined))


def others(tree: ast.AST) -> Iterator[str]:
    """The variables that hold an object of a class that the block imports from another package, e.g. `openai`."""
    classes = {
        name.asname or name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module != "stokehold"
        for name in node.names
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and classes & {*chain(node.value.func)[:1]}
        ):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def missing(tree: ast.AST, client: stokehold.Client) -> Iterator[str]:
    """What the block imports from `stokehold`, or calls on a client, and does not exist."""
    clients = CLIENTS - set(others(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "stokehold":
            yield from (f"stokehold has no {name.name}" for name in node.names if not hasattr(stokehold, name.name))
        elif isinstance(node, ast.Call):
            names = chain(node.func)
            found: object = client
            for name in names[1:] if names[:1] and names[0] in clients else []:
                if not hasattr(found, name):
                    yield f"{'.'.join(names)} does not exist"
                    break
                found = getattr(found, name)


def main() -> None:
    faults = []
    with stokehold.Client(base_url="http://127.0.0.1:9", token="none") as client:  # noqa: S106
        for block in json.load(sys.stdin):
            try:
                tree = ast.parse(block["text"], block["place"])
                compile(tree, block["place"], "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            except SyntaxError as error:
                faults.append(f"{block['place']}: {error}")
                continue
            faults += [f"{block['place']}: {why}" for why in (*undefined(tree), *missing(tree, client))]
    json.dump(faults, sys.stdout)


main()
