"""What runs for every job, of whatever kind the endpoint is."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Mapping
from typing import Any, Callable, Protocol

from stokehold.runner.errors import Cancelled
from stokehold.runner.inputs import Inputs, unwrapped
from stokehold.runner.shapes import UnknownHint


class HandlerNotFound(Exception):  # noqa: N818
    """No handler was found. The message states what to change."""


class Call(str, enum.Enum):
    """How a handler is run."""

    FUNCTION = "function"
    ASYNC_FUNCTION = "async_function"
    GENERATOR = "generator"
    ASYNC_GENERATOR = "async_generator"

    @property
    def is_async(self) -> bool:
        return self in (Call.ASYNC_FUNCTION, Call.ASYNC_GENERATOR)

    @property
    def yields(self) -> bool:
        return self in (Call.GENERATOR, Call.ASYNC_GENERATOR)


class Loads(Protocol):
    """How a job's input becomes the arguments of the call."""

    def load(self, body: bytes, files: Mapping[str, str]) -> dict[str, Any]:
        """The arguments. Raises `Reject` for an input that does not fit."""


class Handler:
    """A callable, how it is called, and where its arguments come from."""

    # What a cancel raises in a plain handler; a run that it ends is a cancelled one.
    interrupt: type[BaseException] = Cancelled

    def __init__(self, call: Callable[..., Any], inputs: Loads, *, batch: Inputs | None = None) -> None:
        """batch: `inputs` once more, of a handler whose calls take several jobs."""
        self.call = call
        self.called = call_of(call)
        self.inputs = inputs
        self.batch = batch
        if batch is not None and self.called is not Call.FUNCTION:
            raise UnknownHint(
                "max_batch_size requires a plain function; use max_concurrency for an async handler, and note that a "
                "generator runs one job at a time"
            )

    def portable(self, value: Any) -> Any:
        """What the call returned or yielded, in types that `Outputs` knows."""
        return value

    def close(self) -> None:
        """Ends what it has started beside this process, after the last job."""


def call_of(call: Callable[..., Any]) -> Call:
    """How a handler is called."""
    function = unwrapped(call)
    if inspect.isasyncgenfunction(call) or inspect.isasyncgenfunction(function):
        return Call.ASYNC_GENERATOR
    if inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(function):
        return Call.ASYNC_FUNCTION
    if inspect.isgeneratorfunction(call) or inspect.isgeneratorfunction(function):
        return Call.GENERATOR
    return Call.FUNCTION
