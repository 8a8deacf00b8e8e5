"""Decodes failures and progress of RunPod handlers, which have no fixed format."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from stokehold.runner.failure import relayed

# The format of an exception that a generator raised, in the package.
_OF_A_GENERATOR = re.compile(r"handler: (.*) \ntraceback: (.*)", re.DOTALL)
_CLASS = re.compile(r"<class '(.+)'>")

_PERCENT = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) ?%")
_PART = re.compile(r"(\d{1,9}) ?(?:/|of) ?(\d{1,9})")
_FRACTION_NAMES = ("progress", "percent", "percentage", "fraction")


class HandlerError(Exception):
    """The handler returned an `error`."""


def failure_of(error: Any) -> Exception:
    """Returns the exception as the package encoded it, or one for the `error` that the handler returned."""
    text = error if isinstance(error, str) else json.dumps(error, ensure_ascii=False)
    raw = _json(text)
    if isinstance(raw, dict) and {"error_type", "error_message", "error_traceback"} <= raw.keys():
        class_name = _CLASS.sub(r"\1", str(raw["error_type"]))
        return relayed(class_name, str(raw["error_message"]), str(raw["error_traceback"]))
    match = _OF_A_GENERATOR.fullmatch(text)
    if match is not None:
        message, traceback = match.groups()
        return relayed(_class_at_the_end(traceback, message), message, traceback)
    return HandlerError(text)


def fraction_of(report: Any) -> float | None:
    """Decodes the progress of a job, from 0 to 1; None if it cannot be decoded.

    All of these are one half: 0.5, 50, 50.0, "50 % done", "Step 1/2", and {"progress": 0.5} or another of
    `_FRACTION_NAMES`.
    """
    if isinstance(report, dict):
        return next((fraction_of(report[name]) for name in _FRACTION_NAMES if name in report), None)
    if isinstance(report, str):
        return _fraction_in(report)
    if isinstance(report, int) and not isinstance(report, bool):
        return max(0, min(report, 100)) / 100
    if isinstance(report, float) and math.isfinite(report):
        return report if report <= 1 else report / 100
    return None


def message_of(report: Any) -> str:
    """Returns the message of a progress report; empty if it is only a number."""
    if isinstance(report, str):
        return report
    if isinstance(report, dict) and isinstance(report.get("message"), str):
        return str(report["message"])
    return "" if isinstance(report, (int, float)) else json.dumps(report, ensure_ascii=False)


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
