"""Describes a package for `stoke deploy`: its handler's name, options and schemas, as one JSON document."""

from __future__ import annotations

from typing import Any

from stokehold.runner import failure, kinds


def describe(kind: str, where: str) -> tuple[dict[str, Any], int]:
    """The document, and the exit code."""
    try:
        return kinds.of(kind).describe(where), 0
    except BaseException as error:
        failed = failure.describe(error)
        return {"error": {"class": failed.class_name, "message": failed.message, "traceback": failed.traceback}}, 1
