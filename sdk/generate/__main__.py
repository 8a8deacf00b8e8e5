"""Writes the models of both SDKs, the fields of `stoke.toml` and the reference pages: `python3 -m generate`, in `sdk`.

`--check` writes nothing and fails if a file is stale. Needs ruff and rustfmt, which format the files.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from generate import client_pages, decorator, manifest, operations, reference, routes, shapes
from generate.python import HEADER as PYTHON_HEADER
from generate.python import Python
from generate.python_routes import PythonRoutes
from generate.schema import Document
from generate.typescript import TypeScript
from generate.typescript_routes import TypeScriptRoutes

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "api/openapi.json"
PYTHON = ROOT / "sdk/python/src/stokehold"
REFERENCE = ROOT / "docs/reference"
TYPESCRIPT = ROOT / "sdk/js/src/generated"
MANIFEST = ROOT / "crates/package/src/manifest/fields.rs"


def generate(raw: dict[str, Any]) -> dict[Path, str]:
    """The generated files and their texts."""
    document = Document(raw)
    shapes.check(document)
    called = operations.read(document, raw)
    texts = {}
    python = Python(document, "stokehold._generated", list(routes.fields(document, called)))
    modules = {**python.modules(), "decorator": decorator.module(document, python)}
    modules["_async_routes"] = PythonRoutes(document, called, python, is_async=True).module()
    modules["_routes"] = PythonRoutes(document, called, python, is_async=False).module()
    path = PYTHON / "types.py"
    texts[path] = formatted(path, types(python), keep=True)
    for module, text in modules.items():
        path = PYTHON / "_generated" / f"{module}.py"
        texts[path] = formatted(path, text)
    models = TypeScript(document, list(routes.fields(document, called)))
    for module, text in {**models.modules(), "routes": TypeScriptRoutes(document, called, models).module()}.items():
        texts[TYPESCRIPT / f"{module}.ts"] = text
    about = {**reference.pages(document), **client_pages.pages(document, python, models, texts)}
    for page, text in about.items():
        texts[REFERENCE / f"{page}.md"] = text
    texts[MANIFEST] = rustfmt(manifest.module(document))
    return texts


def types(python: Python) -> str:
    """The module that exports the models, except those that are the base of a class by hand."""
    lines = [PYTHON_HEADER, '"""The objects that the API returns, and the words in them."""', ""]
    names = []
    for home, found in python.homes().items():
        public = [name for name in found if not name.endswith("Fields")]
        lines.append(f"from stokehold._generated.{home} import {', '.join(public)}")
        names += public
    return "\n".join([*lines, "", f"__all__ = {sorted(names)!r}", ""])


def formatted(path: Path, text: str, *, keep: bool = False) -> str:
    """Python as ruff formats it, with sorted imports and, unless `keep`, without those that are not used."""
    text = ruff(["check", "--fix", "--select", "I" if keep else "I,F401"], path, text)
    return ruff(["format"], path, text)


def ruff(arguments: list[str], path: Path, text: str) -> str:
    """Runs ruff on `text` with the settings that apply to `path`."""
    command = [sys.executable, "-m", "ruff", *arguments, "--quiet", "--stdin-filename", str(path), "-"]
    return subprocess.run(command, input=text, stdout=subprocess.PIPE, check=True, encoding="utf-8").stdout


def rustfmt(text: str) -> str:
    """Rust as rustfmt formats it, with the settings of the repository."""
    command = ["rustfmt", "--edition", "2024", "--config-path", str(ROOT), "--emit", "stdout"]
    return subprocess.run(command, input=text, stdout=subprocess.PIPE, check=True, encoding="utf-8").stdout


def main() -> None:
    parser = argparse.ArgumentParser(description="Generate the models and the reference pages.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a generated file is stale")
    check = parser.parse_args().check
    raw = json.loads(SOURCE.read_text(encoding="utf-8"))
    stale = []
    for path, text in generate(raw).items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if check:
            stale.append(f"{path.relative_to(ROOT)} is out of date: run `make models`")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if stale:
        sys.exit("\n".join(stale))


if __name__ == "__main__":
    main()
