"""The kinds of endpoint. Each kind is a module that describes its endpoints and prepares them to run."""

from __future__ import annotations

import importlib
from typing import Any, Callable, Protocol, cast

from stokehold._wire import Load
from stokehold.runner.handler import Handler

KINDS = ("python", "cog", "runpod", "server", "command")


class EndpointKind(Protocol):
    """The interface of the modules in this package."""

    def describe(self, where: str) -> dict[str, Any]:
        """Returns the description for `stoke deploy`."""

    def prepare(self, load: Load, wait: Callable[[Any], Any]) -> Handler:
        """Returns a handler that is ready for jobs, or raises if it cannot be loaded. `wait` runs a coroutine."""


def of(name: str) -> EndpointKind:
    """Returns the kind of this name. A runner imports only the kind that it runs."""
    if name not in KINDS:
        raise ValueError(f"kind {name!r}: use one of {', '.join(KINDS)}")
    return cast(EndpointKind, importlib.import_module(f"stokehold.runner.kinds.{name}"))
