"""The `@endpoint` decorator."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Callable, TypeVar, overload

T = TypeVar("T", bound=Callable[..., Any])

_ATTRIBUTE = "__stokehold_endpoint__"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


@dataclass(frozen=True)
class Options:
    """How an endpoint is run."""

    name: str | None = None
    vram_gib: float = 0
    max_concurrency: int = 1
    timeout_s: int = 600
    max_attempts: int = 3

    def __post_init__(self) -> None:
        if self.name is not None and not _NAME.fullmatch(self.name):
            raise ValueError(f"endpoint name {self.name!r}: use 1 to 63 of a-z, 0-9 and -, not starting with -")
        if self.vram_gib < 0:
            raise ValueError(f"vram_gib={self.vram_gib}: use 0 for a model that needs no GPU")
        for option in ("max_concurrency", "timeout_s", "max_attempts"):
            value = getattr(self, option)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{option}={value!r}: use a whole number from 1 on")


@overload
def endpoint(target: T, /) -> T: ...


@overload
def endpoint(
    *,
    name: str | None = None,
    vram_gib: float = 0,
    max_concurrency: int = 1,
    timeout_s: int = 600,
    max_attempts: int = 3,
) -> Callable[[T], T]: ...


def endpoint(target: T | None = None, /, **options: Any) -> T | Callable[[T], T]:
    """Marks a function, or a class with `predict()`, as what is deployed. It stays callable as before.

    name: defaults to the object's own, in lower case with `-` for `_`.
    vram_gib: GPU memory it needs; 0 runs without a GPU.
    max_concurrency: jobs one process takes at once; more than 1 only makes sense for an async handler.
    timeout_s, max_attempts: defaults for its jobs.
    """
    marked = Options(**options)

    def mark(target: T) -> T:
        setattr(target, _ATTRIBUTE, marked)
        return target

    return mark if target is None else mark(target)


def options_of(target: Any) -> Options | None:
    """The options of an object that was marked itself: not of the base class it inherits from."""
    found = vars(target).get(_ATTRIBUTE) if hasattr(target, "__dict__") else None
    return found if isinstance(found, Options) else None


def default_name(target: Any) -> str:
    """An endpoint name from an object's own."""
    name = getattr(target, "__name__", type(target).__name__)
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:63] or "endpoint"
