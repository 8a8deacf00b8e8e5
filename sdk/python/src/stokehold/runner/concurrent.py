"""Async handlers: several runs at once on one event loop, in the main thread."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from stokehold._wire import BODY_BYTES_MAX, Run, Wire
from stokehold.runner import failure
from stokehold.runner.context import CURRENT, Current
from stokehold.runner.errors import Cancelled
from stokehold.runner.handler import Handler
from stokehold.runner.outputs import Outputs


class Concurrent:
    """Runs an async function or an async generator."""

    def __init__(self, wire: Wire, handler: Handler, max_concurrency: int) -> None:
        self._wire = wire
        self._handler = handler
        self._max_concurrency = max_concurrency
        self._tasks: set[asyncio.Task[None]] = set()
        # The tasks whose handler has begun. One that is cancelled earlier would end without a report.
        self._begun: dict[int, asyncio.Task[None]] = {}
        self._shutdown = False
        self._exit: SystemExit | None = None
        self._ended = asyncio.Event()

    async def serve(self) -> None:
        """Returns after a shutdown, when all that came before it has run."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._wire.fileno(), self._take)
        self._take()
        await self._ended.wait()
        loop.remove_reader(self._wire.fileno())
        if self._exit is not None:
            raise self._exit

    def _take(self) -> None:
        """Takes what came in, as far as there is room for it."""
        self._wire.silence()
        for number in self._wire.take_cancels():
            task = self._begun.get(number)
            if task is not None:
                task.cancel()
        while not self._shutdown and len(self._tasks) < self._max_concurrency:
            control = self._wire.try_recv()
            if control is None:
                break
            if not isinstance(control, Run):
                self._shutdown = True
                break
            task = asyncio.ensure_future(self._run(control))
            self._tasks.add(task)
            task.add_done_callback(self._finished)
        if self._shutdown and not self._tasks:
            self._ended.set()

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._take()

    async def _run(self, run: Run) -> None:
        number = run.number
        outputs = Outputs(run.scratch, BODY_BYTES_MAX)
        CURRENT.set(Current(self._wire, run))
        started = time.monotonic()
        try:
            try:
                if self._wire.is_cancelled(number):
                    raise Cancelled("the job was cancelled before it began")
                task = asyncio.current_task()
                assert task is not None  # noqa: S101 - ensure_future made one
                self._begun[number] = task
                body = await self._result(run, outputs)
            finally:
                self._begun.pop(number, None)
        except SystemExit as error:
            self._wire.flush(number)
            self._exit = error
            self._ended.set()
        except asyncio.CancelledError as error:
            code = "cancelled" if self._wire.is_cancelled(number) else None
            self._wire.error(number, _since(started), failure.describe(error, code))
        except BaseException as error:
            self._wire.error(number, _since(started), failure.describe(error))
        else:
            self._wire.done(number, _since(started), body, outputs.files)

    async def _result(self, run: Run, outputs: Outputs) -> bytes:
        value: Any = self._handler.call(**self._handler.inputs.load(run.input, run.files))
        if not self._handler.kind.yields:
            return outputs.encode(await value)
        items: list[bytes] = []
        try:
            async for item in value:
                body = outputs.encode(item, f"result[{len(items)}]")
                self._wire.output(run.number, len(items), body)
                items.append(body)
        finally:
            await value.aclose()
        return outputs.bounded(b"[" + b",".join(items) + b"]")


def _since(started: float) -> int:
    return int((time.monotonic() - started) * 1000)
