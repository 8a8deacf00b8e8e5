"""Async handlers: several runs at once on one event loop, in the main thread."""

from __future__ import annotations

import asyncio
from typing import Any

from stokehold._wire import Run, Wire
from stokehold.runner.attempt import Attempt
from stokehold.runner.context import CURRENT
from stokehold.runner.handler import Handler


class Concurrent:
    """Runs an async function or an async generator."""

    def __init__(self, wire: Wire, handler: Handler, max_concurrency: int) -> None:
        self._wire = wire
        self._handler = handler
        self._max_concurrency = max_concurrency
        self._tasks: set[asyncio.Task[None]] = set()
        # Tasks whose handler has started. Cancelling a task earlier would end it without a report.
        self._begun: dict[int, asyncio.Task[None]] = {}
        self._shutdown = False
        self._exit: SystemExit | None = None
        self._ended = asyncio.Event()

    async def serve(self) -> None:
        """Returns after a shutdown message, once all earlier runs have ended."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._wire.fileno(), self._rung)
        self._take()
        await self._ended.wait()
        loop.remove_reader(self._wire.fileno())
        if self._exit is not None:
            raise self._exit

    def _rung(self) -> None:
        self._wire.silence()
        for number in self._wire.take_cancels():
            task = self._begun.get(number)
            if task is not None:
                task.cancel()
        self._take()

    def _take(self) -> None:
        """Starts the received runs, up to the concurrency limit."""
        while not self._shutdown and len(self._tasks) < self._max_concurrency:
            control = self._wire.try_recv()
            if control is None:
                break
            if not isinstance(control, Run):
                self._shutdown = True
                break
            task = asyncio.ensure_future(self._run(Attempt(self._wire, control)))
            self._tasks.add(task)
            task.add_done_callback(self._finished)
        if self._shutdown and not self._tasks:
            self._ended.set()

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._take()

    async def _run(self, attempt: Attempt) -> None:
        CURRENT.set(attempt)
        try:
            try:
                attempt.refuse_if_cancelled()
                self._begun[attempt.number] = _this_task()
                body = await self._call(attempt)
            finally:
                self._begun.pop(attempt.number, None)
        except SystemExit as error:
            attempt.flush()
            self._exit = error
            self._ended.set()
        except asyncio.CancelledError as error:
            attempt.failed(error, "cancelled" if attempt.is_cancelled else None)
        except BaseException as error:
            attempt.failed(error)
        else:
            attempt.done(body)

    async def _call(self, attempt: Attempt) -> bytes:
        value: Any = self._handler.call(**self._handler.inputs.load(attempt.input, attempt.files))
        if not self._handler.called.yields:
            return attempt.result(self._handler.portable(await value))
        try:
            async for item in value:
                attempt.yielded(self._handler.portable(item))
        finally:
            await value.aclose()
        return attempt.results()


def _this_task() -> asyncio.Task[None]:
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - it is asked for inside of one
    return task
