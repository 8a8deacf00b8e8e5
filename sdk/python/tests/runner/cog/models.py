"""What the tests of Cog models share."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..peer import Peer, Report

Load = Callable[..., Peer]


Package = Callable[..., Path]


FILE = {
    "type": "object",
    "properties": {"$file": {"type": "string"}},
    "required": ["$file"],
    "format": "stokehold-file",
}


HELLO = """
from cog import BasePredictor, Input


class Predictor(BasePredictor):
    def setup(self):
        self.prefix = "hello"

    def predict(self, text: str = Input(description="Text to prefix with 'hello '")) -> str:
        return self.prefix + " " + text
"""


MANY = """
from typing import Optional
from cog import BasePredictor, Input

class Predictor(BasePredictor):
    def predict(
        self,
        no_default: str,
        default_without_input: str = "default",
        steps: int = Input(default=10, ge=1, le=500),
        scale: float = Input(default=1.5, ge=0.5),
        size: str = Input(choices=["small", "large"], default="small"),
        code: str = Input(regex="[a-z]+", default="a", min_length=1, max_length=5),
        seed: Optional[int] = Input(description="Random seed", default=None, ge=0),
        tags: list[str] = Input(default=["x"], max_length=3),
        exact: bool = False,
    ) -> dict:
        return dict(locals(), self=None)
"""


def describe(where: Path | str, code: int = 0) -> dict[str, Any]:
    process = subprocess.run(
        [sys.executable, "-m", "stokehold.runner", "describe", str(where), "--kind", "cog"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert process.returncode == code, process
    document: dict[str, Any] = json.loads(process.stdout)
    return document


def data_uri(content: bytes, kind: str = "text/plain") -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def refusal(report: Report) -> str:
    error = report.header["error"]
    assert error["code"] == "rejected", error
    return str(error["message"])


READS = """
import os
from cog import BasePredictor, Path
from typing import Optional

class Predictor(BasePredictor):
    def predict(self, paths: list[Path], file: Optional[Path] = None) -> dict:
        every = [*paths, *([file] if file else [])]
        return {"texts": [path.read_text() for path in every], "places": [str(path) for path in every]}
"""
