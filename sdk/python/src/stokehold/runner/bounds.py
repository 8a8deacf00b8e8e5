"""The bounds of options, checked before a deploy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Bounds:
    """The values that an option can have.

    kind: "integer", "number", "words", or "list" (whose number of items `most` limits).
    least, most: the limits of a number; a number must be above `above`.
    """

    kind: str
    least: float | None = None
    most: float | None = None
    above: float | None = None
    words: tuple[str, ...] = ()

    def check(self, option: str, value: Any) -> None:
        """Raises `ValueError` for a value out of bounds. The items of a list are checked elsewhere."""
        if self.kind == "list":
            if self.most is not None and isinstance(value, (list, tuple)) and len(value) > self.most:
                raise ValueError(f"{option} has {len(value)} items; use at most {self.most}")
            return
        if self.kind == "words":
            is_valid = value in self.words
        else:
            is_valid = (is_whole(value) if self.kind == "integer" else is_number(value)) and self._holds(value)
        if not is_valid:
            raise ValueError(f"{option}={value!r}: use {self}")

    def _holds(self, value: float) -> bool:
        if self.above is not None and value <= self.above:
            return False
        return (self.least or 0) <= value and (self.most is None or value <= self.most)

    def __str__(self) -> str:
        if self.kind == "words":
            return ", ".join(self.words)
        number = "a whole number" if self.kind == "integer" else "a number"
        if self.above is not None:
            return f"{number} above {self.above}, and at most {self.most}"
        return f"{number} from {self.least or 0} to {self.most}"


def check_all(bounds: Mapping[str, Bounds], options: Any, where: str = "") -> None:
    """Checks the attributes of a dataclass. None is accepted where it is the default."""
    defaults = {one.name: one.default for one in fields(options)}
    for name, limits in bounds.items():
        value = getattr(options, name)
        if value is not None or defaults[name] is not None:
            limits.check(f"{where}{name}", value)


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
