"""Batched handlers: one call for several runs, in the main thread. The worker decides which runs form a batch."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, Union

from stokehold._wire import Run, Wire
from stokehold.runner import oom
from stokehold.runner.attempt import Attempt
from stokehold.runner.context import CURRENT
from stokehold.runner.errors import BadOutput, Cancelled
from stokehold.runner.handler import Handler
from stokehold.runner.inputs import Inputs

Outcome = Union[bytes, BaseException]


class Batch:
    """The runs of one call of the handler: its progress and output count for each of them."""

    def __init__(self, attempts: Sequence[Attempt]) -> None:
        self.attempts = attempts

    @property
    def numbers(self) -> list[int]:
        return [attempt.number for attempt in self.attempts]

    def job(self) -> Any:
        raise RuntimeError("a batched call runs several jobs, so current_job() is ambiguous")

    def progress(self, fraction: float, message: str) -> None:
        for attempt in self.attempts:
            attempt.progress(fraction, message)


class Batched:
    """Runs a plain function whose arguments are lists, with one item per run."""

    def __init__(self, wire: Wire, handler: Handler, inputs: Inputs) -> None:
        self._wire = wire
        self._handler = handler
        self._inputs = inputs
        # Runs of the batch without a report; None while no code of the handler is on the stack.
        self._interruptible: list[Attempt] | None = None
        # Calls with more items than this ran out of memory.
        self._at_once: int | None = None

    def serve(self) -> None:
        """Returns after a shutdown message, once all earlier runs have ended."""
        signal.signal(signal.SIGURG, self._interrupt)
        while isinstance(run := self._wire.recv(), Run):
            attempts = [Attempt(self._wire, run)]
            for _ in range(run.more):
                following = self._wire.recv()
                if not isinstance(following, Run):
                    raise TypeError("another message arrived before the batch was complete")
                attempts.append(Attempt(self._wire, following))
            self._run(attempts)

    def _interrupt(self, _signal: int = 0, _frame: FrameType | None = None) -> None:
        """Ends the cancelled runs; the call continues for the others and is interrupted when none is left."""
        # A nested interrupt finds nothing to do, and its run is handled here.
        waiting, self._interruptible = self._interruptible, None
        if waiting is None:
            return
        while gone := [attempt for attempt in waiting if attempt.is_cancelled]:
            for attempt in gone:
                waiting.remove(attempt)
                attempt.failed(Cancelled("the job was cancelled"))
        if not waiting:
            raise Cancelled("every job of the batch was cancelled")
        self._interruptible = waiting

    def _run(self, attempts: list[Attempt]) -> None:
        ready: list[tuple[Attempt, dict[str, Any]]] = []
        for attempt in attempts:
            try:
                attempt.refuse_if_cancelled()
                ready.append((attempt, self._inputs.load(attempt.input, attempt.files)))
            except BaseException as error:
                attempt.failed(error)
        waiting = [attempt for attempt, _ in ready]
        for chunk in _chunks(ready, self._at_once or len(ready)):
            self._call(chunk, waiting)

    def _call(self, items: list[tuple[Attempt, dict[str, Any]]], waiting: list[Attempt]) -> None:
        """Runs these items and reports each one that is still in `waiting`."""
        CURRENT.set(Batch([attempt for attempt, _ in items]))
        try:
            try:
                self._interruptible = waiting
                # Handle cancels that arrived while nothing could be interrupted.
                self._interrupt()
                items = [item for item in items if item[0] in waiting]
                if not items:
                    return
                values = _one_each(self._handler.call(**self._inputs.columns([each for _, each in items])), items)
            finally:
                self._interruptible = None
        except SystemExit:
            for attempt in waiting:
                attempt.flush()
            raise
        except Cancelled:
            # Each one is reported already, unless the handler raised the exception by itself.
            self._report(waiting, items, [Cancelled("the handler stopped")] * len(items))
        except BaseException as error:
            self._divide(items, waiting, error)
        else:
            self._report(waiting, items, values)
        finally:
            CURRENT.set(None)

    def _divide(
        self, items: list[tuple[Attempt, dict[str, Any]]], waiting: list[Attempt], error: BaseException
    ) -> None:
        """Handles a failed call of several items: runs each half again, so that only the items at fault fail."""
        if len(items) == 1:
            self._report(waiting, items, [error])
            return
        half = (len(items) + 1) // 2
        if oom.which(error) is not None:
            self._at_once = min(self._at_once or half, half)
        # Its frames refer to the handler's objects on the GPU.
        error.__traceback__ = None
        for part in (items[:half], items[half:]):
            for chunk in _chunks(part, self._at_once or len(part)):
                self._call(chunk, waiting)

    def _report(
        self, waiting: list[Attempt], items: list[tuple[Attempt, dict[str, Any]]], values: Sequence[Any]
    ) -> None:
        for (attempt, _), value in zip(items, values):
            # A run that was cancelled meanwhile is already reported.
            if attempt not in waiting:
                continue
            waiting.remove(attempt)
            if isinstance(value, BaseException):
                attempt.failed(value)
                continue
            try:
                body = attempt.result(value)
            except Exception as error:
                attempt.failed(error)
            else:
                attempt.done(body)


def _chunks(items: list[Any], size: int) -> Iterator[list[Any]]:
    for start in range(0, len(items), max(size, 1)):
        yield items[start : start + size]


def _one_each(values: Any, items: Sequence[Any]) -> list[Any]:
    """The values that the handler returned, one per item. Any sized iterable is accepted."""
    if isinstance(values, (str, bytes, dict)) or not hasattr(values, "__len__") or not hasattr(values, "__iter__"):
        raise BadOutput(f"a batched handler must return a list with one result per item, got a {type(values).__name__}")
    if len(values) != len(items):
        raise BadOutput(f"a batched handler must return one result per item, got {len(values)} for {len(items)} items")
    return list(values)
