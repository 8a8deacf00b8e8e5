"""`python -m stokehold.runner describe`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Package = Callable[..., Path]


def _describe(where: str, code: int = 0) -> dict[str, Any]:
    process = subprocess.run(
        [sys.executable, "-m", "stokehold.runner", "describe", where],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert process.returncode == code, process
    document: dict[str, Any] = json.loads(process.stdout)
    return document


def test_a_folder(package: Package) -> None:
    folder = package(
        """
        import os
        from stokehold import endpoint
        print("noise while importing"); os.system("echo more noise")

        @endpoint(name="greeter", vram_gib=1.5, max_concurrency=4, timeout_s=60, max_attempts=2)
        class Greeter:
            def setup(self): raise RuntimeError("is not called")
            async def predict(self, name: str) -> dict:
                \"\"\"Greets.\"\"\"
        """
    )
    assert _describe(str(folder)) == {
        "name": "greeter",
        "entry": "endpoint.py:Greeter",
        "kind": "python",
        "options": {"vram_gib": 1.5, "max_concurrency": 4, "timeout_s": 60, "max_attempts": 2},
        "input_schema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {"name": {"type": "string"}},
            "required": ["name"],
            "additionalProperties": False,
            "description": "Greets.",
        },
        "output_schema": {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object"},
    }


@pytest.mark.parametrize("file", ["endpoint.py", "main.py", "predict.py", "the_only_one.py"])
def test_a_folder_has_a_usual_file_or_only_one(package: Package, file: str) -> None:
    folder = package("from stokehold import endpoint\n@endpoint\ndef Say_It(): pass", file)
    found = _describe(str(folder))
    assert (found["entry"], found["name"]) == (f"{file}:Say_It", "say-it")
    assert found["options"] == {"vram_gib": 0, "max_concurrency": 1, "timeout_s": 600, "max_attempts": 3}


def test_an_object_that_is_picked_needs_no_mark(package: Package) -> None:
    folder = package("def first(): yield 1\ndef second(): pass")
    assert _describe(f"{folder}:first")["output_schema"]["type"] == "array"
    assert _describe(f"{folder / 'endpoint.py'}:second")["entry"] == "endpoint.py:second"


def test_a_base_class_s_mark_does_not_count(package: Package) -> None:
    folder = package(
        """
        from stokehold import endpoint
        @endpoint
        class Base:
            def predict(self): pass
        class Other(Base): pass
        alias = Base
        """
    )
    assert _describe(str(folder))["name"] == "base"


@pytest.mark.parametrize(
    ("files", "suffix", "message"),
    [
        ({}, "", "has no .py file: name the handler's file endpoint.py"),
        ({"a.py": "", "b.py": ""}, "", "has a.py, b.py: name the handler's file endpoint.py"),
        ({"endpoint.py": "def f(): pass"}, "", "endpoint.py has no @endpoint: mark one function or class"),
        (
            {"endpoint.py": "from stokehold import endpoint\n@endpoint\ndef f(): pass\n@endpoint\ndef g(): pass"},
            "",
            "several endpoints (f, g)",
        ),
        ({"endpoint.py": ""}, ":f", "endpoint.py:f does not exist"),
        ({"json.py": "def f(): pass"}, ":f", "the name conflicts with the Python module json: rename the file"),
        ({"endpoint.py": "def f(x: set): pass"}, ":f", "x: set has no JSON form"),
        (
            {"endpoint.py": "from stokehold import endpoint\n@endpoint(timeout_s=0)\ndef f(): pass"},
            "",
            "timeout_s=0: use a whole number",
        ),
        (
            {"endpoint.py": "from stokehold import endpoint\n@endpoint(name='A b')\ndef f(): pass"},
            "",
            "use 1 to 63 of a-z",
        ),
    ],
)
def test_what_cannot_be_described_says_what_to_change(
    package: Package, tmp_path: Path, files: dict[str, str], suffix: str, message: str
) -> None:
    folder = tmp_path / "package"
    folder.mkdir()
    for name, source in files.items():
        package(source, name)
    error = _describe(f"{folder}{suffix}", code=1)["error"]
    assert error.keys() == {"class", "message", "traceback"}
    assert message in error["message"]


def test_a_raise_while_importing_shows_the_packages_own_frames(package: Package) -> None:
    error = _describe(str(package("def load(): raise OSError('no weights')\nload()")), code=1)["error"]
    assert (error["class"], error["message"]) == ("OSError", "no weights")
    assert "endpoint.py" in error["traceback"]
    assert "importlib" not in error["traceback"]


def test_a_path_that_is_not_there() -> None:
    assert "no such file or folder" in _describe("nowhere", code=1)["error"]["message"]


def test_serve_without_a_worker_says_what_to_do() -> None:
    process = subprocess.run(
        [sys.executable, "-m", "stokehold.runner", "serve"], capture_output=True, text=True, check=False, timeout=60
    )
    assert process.returncode == 2
    assert "describe PATH" in process.stderr
