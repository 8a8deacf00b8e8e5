"""Plain handlers: one run after the other, in the main thread."""

from __future__ import annotations

import signal
import time
from types import FrameType
from typing import Any

from stokehold._wire import BODY_BYTES_MAX, Run, Wire
from stokehold.runner import failure
from stokehold.runner.context import CURRENT, Current
from stokehold.runner.errors import Cancelled
from stokehold.runner.handler import Handler
from stokehold.runner.outputs import Outputs


class Serial:
    """Runs a plain function or a generator."""

    def __init__(self, wire: Wire, handler: Handler) -> None:
        self._wire = wire
        self._handler = handler
        # The run that a cancel may interrupt; 0 while none of the handler's code is on the stack.
        self._interruptible = 0

    def serve(self) -> None:
        """Returns after a shutdown, when all that came before it has run."""
        # Sent by the wire to this very thread. Unlike an asynchronous exception, a signal also ends a sleep or a read.
        signal.signal(signal.SIGURG, self._interrupt)
        while isinstance(run := self._wire.recv(), Run):
            self._run(run)

    def _interrupt(self, _signal: int, _frame: FrameType | None) -> None:
        run = self._interruptible
        if run and self._wire.is_cancelled(run):
            # Once is enough: the handler may clean up in peace.
            self._interruptible = 0
            raise Cancelled("the job was cancelled")

    def _run(self, run: Run) -> None:
        number = run.number
        outputs = Outputs(run.scratch, BODY_BYTES_MAX)
        CURRENT.set(Current(self._wire, run))
        started = time.monotonic()
        try:
            try:
                self._interruptible = number
                if self._wire.is_cancelled(number):
                    raise Cancelled("the job was cancelled before it began")
                body = self._result(run, outputs)
            finally:
                self._interruptible = 0
        except SystemExit:
            self._wire.flush(number)
            raise
        except BaseException as error:
            self._wire.error(number, _since(started), failure.describe(error))
        else:
            self._wire.done(number, _since(started), body, outputs.files)
        finally:
            CURRENT.set(None)

    def _result(self, run: Run, outputs: Outputs) -> bytes:
        value: Any = self._handler.call(**self._handler.inputs.load(run.input, run.files))
        if not self._handler.kind.yields:
            return outputs.encode(value)
        items: list[bytes] = []
        try:
            for item in value:
                where = f"result[{len(items)}]"
                body = outputs.encode(item, where)
                self._wire.output(run.number, len(items), body)
                items.append(body)
        finally:
            value.close()
        return outputs.bounded(b"[" + b",".join(items) + b"]")


def _since(started: float) -> int:
    return int((time.monotonic() - started) * 1000)
