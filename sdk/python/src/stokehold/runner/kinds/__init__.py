"""The kinds of endpoints. Each module describes an endpoint of its kind and loads it."""

from __future__ import annotations

import importlib
from typing import Any, Callable, Protocol, cast

from stokehold._wire import Load
from stokehold.runner.handler import Handler

KINDS = ("python", "cog", "runpod", "server", "command")


class EndpointKind(Protocol):
    """The interface of the modules in this package."""

    def describe(self, where: str) -> dict[str, Any]:
        """The document for `stoke deploy`."""

    def prepare(self, load: Load, wait: Callable[[Any], Any]) -> Handler:
        """Loads a handler; `wait` runs a coroutine. Raises the reason if that fails."""


def of(name: str) -> EndpointKind:
    """The kind of this name. A runner imports only its own kind."""
    if name not in KINDS:
        raise ValueError(f"kind {name!r}: use one of {', '.join(KINDS)}")
    return cast(EndpointKind, importlib.import_module(f"stokehold.runner.kinds.{name}"))
