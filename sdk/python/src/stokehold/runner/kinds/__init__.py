"""The kinds of endpoint. Each says how to describe one, and how to get one ready to run."""

from __future__ import annotations

import importlib
from typing import Any, Callable, Protocol, cast

from stokehold._wire import Load
from stokehold.runner.handler import Handler

KINDS = ("python", "cog", "runpod", "server", "command")


class EndpointKind(Protocol):
    """What the modules beside this one have."""

    def describe(self, where: str) -> dict[str, Any]:
        """The document that `stoke deploy` asks for."""

    def prepare(self, load: Load, wait: Callable[[Any], Any]) -> Handler:
        """A handler that is ready for jobs; `wait` runs a coroutine. What it raises is why it cannot be loaded."""


def of(name: str) -> EndpointKind:
    """The kind of that name. A runner imports the one that it runs."""
    if name not in KINDS:
        raise ValueError(f"kind {name!r}: use one of {', '.join(KINDS)}")
    return cast(EndpointKind, importlib.import_module(f"stokehold.runner.kinds.{name}"))
