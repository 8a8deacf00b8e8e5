"""One run of the handler, and the reports about it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from stokehold._wire import BODY_BYTES_MAX, Run, Wire
from stokehold.runner import failure
from stokehold.runner.context import Job
from stokehold.runner.errors import Cancelled
from stokehold.runner.outputs import Outputs


class Attempt:
    """One run, which ends with exactly one of `done` and `failed`."""

    __slots__ = ("_items", "_outputs", "_run", "_started", "_wire", "number")

    def __init__(self, wire: Wire, run: Run) -> None:
        self.number = run.number
        self._wire = wire
        self._run = run
        self._outputs = Outputs(run.scratch, BODY_BYTES_MAX)
        self._items: list[bytes] = []
        self._started = time.monotonic()

    @property
    def numbers(self) -> list[int]:
        """The attempts that it represents; see `Batch`."""
        return [self.number]

    @property
    def id(self) -> str:
        """The job of this run."""
        return self._run.job

    @property
    def input(self) -> bytes:
        return self._run.input

    @property
    def files(self) -> dict[str, str]:
        return self._run.files

    @property
    def is_cancelled(self) -> bool:
        return self._wire.is_cancelled(self.number)

    @property
    def traceparent(self) -> str | None:
        return self._run.traceparent

    def job(self) -> Job:
        scratch = Path(self._run.scratch)
        # Created on first use; most runs never need it.
        scratch.mkdir(mode=0o700, exist_ok=True)
        return Job(self._run.job, self._run.attempt, scratch, self._run.traceparent)

    def refuse_if_cancelled(self) -> None:
        """Raises `Cancelled` if the run was cancelled while it waited."""
        if self.is_cancelled:
            raise Cancelled("the job was cancelled before it started")

    def progress(self, fraction: float, message: str) -> None:
        self._wire.progress(self.number, fraction, message)

    def flush(self) -> None:
        self._wire.flush(self.number)

    def result(self, value: Any) -> bytes:
        """Encodes a function's return value as JSON."""
        return self._outputs.encode(value)

    def yielded(self, value: Any) -> None:
        """Sends a value that a generator yielded, and keeps it for the result."""
        index = len(self._items)
        body = self._outputs.encode(value, f"result[{index}]")
        self._wire.output(self.number, index, body)
        self._items.append(body)

    def results(self) -> bytes:
        """Everything that a generator yielded, as JSON."""
        return self._outputs.bounded(b"[" + b",".join(self._items) + b"]")

    def done(self, body: bytes) -> None:
        self._wire.done(self.number, self._run_ms(), body, self._outputs.files)

    def failed(self, error: BaseException, code: str | None = None) -> None:
        self._wire.error(self.number, self._run_ms(), failure.describe(error, code))

    def _run_ms(self) -> int:
        return int((time.monotonic() - self._started) * 1000)
