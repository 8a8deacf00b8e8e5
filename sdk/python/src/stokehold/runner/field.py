"""Constraints on one input or output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Field:
    """Adds constraints and a description to a type: `Annotated[int, Field(ge=1, le=50, description="how many")]`."""

    description: str | None = None
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    choices: Sequence[Any] | None = None


_NUMBER_KEYWORDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
_LENGTH_KEYWORDS = {"min_length": ("minLength", "minItems"), "max_length": ("maxLength", "maxItems")}


def keywords(metadata: Field | str | Any) -> dict[str, Any]:
    """JSON Schema keywords for one item of an `Annotated`: a text, a `Field`, or an `annotated_types` constraint."""
    if isinstance(metadata, str):
        return {"description": metadata}
    found: dict[str, Any] = {}
    for name, keyword in _NUMBER_KEYWORDS.items():
        value = getattr(metadata, name, None)
        if value is not None:
            found[keyword] = value
    for name, pair in _LENGTH_KEYWORDS.items():
        value = getattr(metadata, name, None)
        if value is not None:
            # A keyword for another type than the value's has no effect.
            found.update(dict.fromkeys(pair, value))
    if isinstance(metadata, Field):
        if metadata.description is not None:
            found["description"] = metadata.description
        if metadata.pattern is not None:
            found["pattern"] = metadata.pattern
        if metadata.choices is not None:
            found["enum"] = list(metadata.choices)
    return found
