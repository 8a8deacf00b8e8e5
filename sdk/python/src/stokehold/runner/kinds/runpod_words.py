"""What a RunPod handler says of a failure and of its progress, which may be about anything, in our words."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from stokehold.runner.failure import relayed

# The package's format for exceptions of generators.
_OF_A_GENERATOR = re.compile(r"handler: (.*) \ntraceback: (.*)", re.DOTALL)
_CLASS = re.compile(r"<class '(.+)'>")

_PERCENT = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) ?%")
_PART = re.compile(r"(\d{1,9}) ?(?:/|of) ?(\d{1,9})")
_FRACTION_NAMES = ("progress", "percent", "percentage", "fraction")


class HandlerError(Exception):
    """The handler returned an `error`."""


def failure_of(error: Any) -> Exception:
    """What was raised, as the package wrote it down; or what the handler returned as its `error`."""
    text = error if isinstance(error, str) else json.dumps(error, ensure_ascii=False)
    told = _json(text)
    if isinstance(told, dict) and {"error_type", "error_message", "error_traceback"} <= told.keys():
        class_name = _CLASS.sub(r"\1", str(told["error_type"]))
        return relayed(class_name, str(told["error_message"]), str(told["error_traceback"]))
    match = _OF_A_GENERATOR.fullmatch(text)
    if match is not None:
        message, traceback = match.groups()
        return relayed(_class_at_the_end(traceback, message), message, traceback)
    return HandlerError(text)


def fraction_of(said: Any) -> float | None:
    """How far a job is, 0 to 1; `None` where it cannot be read.

    All of these are one half: 0.5, 50, 50.0, "50 % done", "Step 1/2", and {"progress": 0.5} or another of
    `_FRACTION_NAMES`.
    """
    if isinstance(said, dict):
        return next((fraction_of(said[name]) for name in _FRACTION_NAMES if name in said), None)
    if isinstance(said, str):
        return _fraction_in(said)
    if isinstance(said, int) and not isinstance(said, bool):
        return max(0, min(said, 100)) / 100
    if isinstance(said, float) and math.isfinite(said):
        return said if said <= 1 else said / 100
    return None


def message_of(said: Any) -> str:
    """The same as a text to show; empty where the number says it all."""
    if isinstance(said, str):
        return said
    if isinstance(said, dict) and isinstance(said.get("message"), str):
        return str(said["message"])
    return "" if isinstance(said, (int, float)) else json.dumps(said, ensure_ascii=False)


def _fraction_in(text: str) -> float | None:
    percent = _PERCENT.search(text)
    if percent is not None:
        return float(percent[1]) / 100
    part = _PART.search(text)
    return int(part[1]) / int(part[2]) if part is not None and int(part[2]) else None


def _class_at_the_end(traceback: str, message: str) -> str:
    name = traceback.rstrip().removesuffix(message.rstrip()).rstrip(": ").rpartition("\n")[2]
    return name if name.replace(".", "").isidentifier() else "Exception"


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
