"""The handler that runs for every job, for all kinds of endpoint."""

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
    """The type of a handler."""

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
    """Converts the input of a job to the arguments of the call."""

    def load(self, body: bytes, files: Mapping[str, str]) -> dict[str, Any]:
        """Returns the arguments. Raises `Reject` for an input that does not match."""


class Handler:
    """A callable, its type, and the decoder of its arguments."""

    # The exception that a cancel raises in a plain handler. A run that ends with it is cancelled.
    interrupt: type[BaseException] = Cancelled

    def __init__(self, call: Callable[..., Any], inputs: Loads, *, batch: Inputs | None = None) -> None:
        """batch: `inputs` again, for a handler whose calls take several jobs."""
        self.call = call
        self.called = call_of(call)
        self.inputs = inputs
        self.batch = batch
        if batch is not None and self.called is not Call.FUNCTION:
            raise UnknownHint(
                "max_batch_size requires a plain function; use max_concurrency for an async handler, and note that a "
                "generator runs one job at a time"
            )

    def begin(self, report: Callable[[int], None]) -> None:
        """Called once when the handler is ready. `report` sets how many jobs at once the worker sends from now on."""

    def portable(self, value: Any) -> Any:
        """Converts a returned or yielded value to types that `Outputs` supports."""
        return value

    def close(self) -> None:
        """Stops the processes that the handler started. Called after the last job."""


def call_of(call: Callable[..., Any]) -> Call:
    """Returns the type of a handler."""
    function = unwrapped(call)
    if inspect.isasyncgenfunction(call) or inspect.isasyncgenfunction(function):
        return Call.ASYNC_GENERATOR
    if inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(function):
        return Call.ASYNC_FUNCTION
    if inspect.isgeneratorfunction(call) or inspect.isgeneratorfunction(function):
        return Call.GENERATOR
    return Call.FUNCTION
