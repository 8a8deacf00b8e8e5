"""A job's input for a program that is no Python function: all of it, as one value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from stokehold.runner.errors import Reject

INPUT_SCHEMA: dict[str, Any] = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object"}


class Whole:
    """Passes the input as the argument `value`, with each file reference replaced by the file's path."""

    def load(self, body: bytes, files: Mapping[str, str]) -> dict[str, Any]:
        value = json.loads(body)
        return {"value": _with_paths(value, files) if files else value}


def _with_paths(value: Any, files: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_with_paths(item, files) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"$file"}:
        path = files.get(value["$file"])
        if path is None:
            raise Reject(f"file {value['$file']!r} was not attached to the job")
        return path
    return {name: _with_paths(item, files) for name, item in value.items()}
