"""Plain handlers: one run after the other, in the main thread."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

from stokehold._wire import Run, Wire
from stokehold.runner.attempt import Attempt
from stokehold.runner.context import CURRENT
from stokehold.runner.handler import Handler


class Serial:
    """Runs a plain function or a generator."""

    def __init__(self, wire: Wire, handler: Handler) -> None:
        self._wire = wire
        self._handler = handler
        # The run that a cancel may interrupt; None while no code of the handler is on the stack.
        self._interruptible: Attempt | None = None

    def serve(self) -> None:
        """Returns after a shutdown message, once all earlier runs have ended."""
        # The wire sends it to this thread. Unlike an asynchronous exception, a signal also interrupts a sleep or read.
        signal.signal(signal.SIGURG, self._interrupt)
        while isinstance(run := self._wire.recv(), Run):
            self._run(Attempt(self._wire, run))

    def _interrupt(self, _signal: int, _frame: FrameType | None) -> None:
        attempt = self._interruptible
        if attempt is not None and attempt.is_cancelled:
            # Only once, so that the handler can clean up.
            self._interruptible = None
            raise self._handler.interrupt("the job was cancelled")

    def _run(self, attempt: Attempt) -> None:
        CURRENT.set(attempt)
        try:
            try:
                self._interruptible = attempt
                attempt.refuse_if_cancelled()
                body = self._call(attempt)
            finally:
                self._interruptible = None
        except SystemExit:
            attempt.flush()
            raise
        except BaseException as error:
            attempt.failed(error, "cancelled" if isinstance(error, self._handler.interrupt) else None)
        else:
            attempt.done(body)
        finally:
            CURRENT.set(None)

    def _call(self, attempt: Attempt) -> bytes:
        value: Any = self._handler.call(**self._handler.inputs.load(attempt.input, attempt.files))
        if not self._handler.called.yields:
            return attempt.result(self._handler.portable(value))
        try:
            for item in value:
                attempt.yielded(self._handler.portable(item))
        finally:
            value.close()
        return attempt.results()
