"""The API of RunPod that the package `runpod` uses: scripts take jobs and post their results."""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections import deque
from typing import Any, Callable

from stokehold._wire import BODY_BYTES_MAX
from stokehold.runner.attempt import Attempt
from stokehold.runner.context import progress
from stokehold.runner.errors import BadOutput
from stokehold.runner.kinds.loopback import Request
from stokehold.runner.kinds.runpod_words import failure_of, fraction_of, message_of

# How long a request of a script is held. The package gives up after 90 s, and older versions after 30 s. It requests
# jobs again at once, but after a response without jobs to stop it waits for a second, so these must be rare.
TAKE_HOLD_S = 20.0
_STOP_HOLD_S = 80.0
# The package puts a job in a queue of its own first, which it polls ten times a second. Until it has taken the job from
# there, it ignores a stop of the job, and older versions do not count it as in progress.
_PICKUP_S = 0.3
# Until then, the package also counts the job twice, and requests fewer jobs than it has room for. A request in that
# time gets an empty response after the poll, and the package repeats it at once with the right count.
_RECOUNT_S = 0.12
# When the package counts itself as full, it requests nothing for a second. Jobs that arrive together are therefore
# handed out together: after the first time without a new job, and at the latest after the second.
_GATHER_QUIET_S = 0.01
_GATHER_MOST_S = 0.05
# `progress_update` posts from a thread of its own, so the result may arrive first. The end of a job with progress waits
# this long for late reports. The package requests no other job in the meantime.
_LAST_PROGRESS_S = 0.1
# How often the script sends requests while a job is being stopped: only requests contain whether jobs are in progress.
_LOOK_S = 0.1
# Below the 2 s after which the worker ends a runner with a cancelled run.
_CANCEL_GRACE_S = 1.7


class NoResult(Exception):  # noqa: N818
    """The script finished a job without reporting a result."""


class Ticket:
    """A run that waits for a script, or that a script has taken. Created in the context of the run."""

    def __init__(self, attempt: Attempt, value: Any) -> None:
        self.id = attempt.id
        self.value = value
        self.items: list[Any] = []
        self.taken_at = 0.0
        self.has_progressed = False
        self.has_result = False
        self.ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._attempt = attempt
        self._context = contextvars.copy_context()
        self._fraction = 0.0

    def yielded(self, item: Any) -> None:
        """Sends an output. Raises `BadOutput` if it cannot be sent."""
        self._attempt.yielded(item)
        self.items.append(item)

    def progressed(self, report: Any) -> None:
        """Reports progress. The fraction is unchanged if the report has no number."""
        self.has_progressed = True
        fraction = fraction_of(report)
        if fraction is not None:
            self._fraction = fraction
        self._context.run(progress, self._fraction, message_of(report))


class Api:
    """The API for one process of a script.

    The process requests as many jobs as it has room for, and receives jobs of `waiting`, which the next process
    continues with. A retired process receives no more jobs, and `done` is called when its last job has ended.

    A job ends with the first result that is posted; later results are ignored. If the package cannot post a result,
    e.g. an output that cannot be encoded as JSON, it posts nothing, and on RunPod the job stays in progress until its
    timeout. Here it fails, because a request for jobs also contains whether any jobs are in progress.
    """

    def __init__(self, waiting: deque[Ticket], done: Callable[[], None]) -> None:
        self.asked = asyncio.Event()
        self._waiting = waiting
        self._done = done
        self._taken: dict[str, Ticket] = {}
        # Jobs that are being stopped and that the script has not received yet.
        self._to_stop: set[str] = set()
        self._stopping: set[str] = set()
        self._is_retired = False
        self._is_closed = False
        self._takers = _Bell()
        self._stoppers = _Bell()

    def offer(self) -> None:
        """Reports that a job is waiting."""
        self._takers.ring()

    def close(self) -> None:
        """Responds to all held requests, so that the script can end."""
        self._is_closed = self._is_retired = True
        self._takers.ring()
        self._stoppers.ring()

    async def cancel(self, ticket: Ticket) -> None:
        """Stops a job that the script has taken. Retires the script if it does not end the job in time."""
        now = asyncio.get_running_loop().time
        until = now() + _CANCEL_GRACE_S
        await asyncio.sleep(ticket.taken_at + _PICKUP_S - now())
        for ids in (self._to_stop, self._stopping):
            ids.add(ticket.id)
        self._stoppers.ring()
        self._takers.ring()
        await asyncio.wait([ticket.ended], timeout=until - now())
        for ids in (self._to_stop, self._stopping):
            ids.discard(ticket.id)
        if not ticket.ended.done():
            self._is_retired = True
            self._end(ticket)

    async def answer(self, request: Request) -> Any:
        """Responds to a request. Raises `ValueError` for a request that RunPod does not have."""
        what, about = request.path
        if what == "job-take":
            return next(iter(await self._take(1, request.query)), None)
        if what == "job-take-batch":
            return await self._take(int(request.query.get("batch_size", "")), request.query) or None
        if what == "job-stop":
            return await self._stop()
        if what not in ("job-done", "job-stream"):
            raise ValueError(what)
        ticket = self._taken.get(about)
        if ticket is not None:
            self._hear(ticket, what, request.body)
        return {}

    async def _take(self, count: int, query: dict[str, str]) -> list[dict[str, Any]]:
        self.asked.set()
        if query.get("job_in_progress") == "0":
            self._find_lost()
        recount_s = self._recount_s()
        if recount_s > 0:
            await asyncio.sleep(recount_s)
            return []
        if not self._offered():
            await self._takers.wait(self._hold_s())
        if count > 1 and self._offered():
            await self._gather(count)
        offered = self._offered()
        # All that it has room for, or else few enough that the package, which counts them twice, still has room.
        count = count if len(offered) >= count else max(1, (count - 1) // 2)
        return [self._hand_out(ticket) for ticket in offered[:count]]

    def _recount_s(self) -> float:
        """How long the package may still count its last job twice."""
        if self._is_closed or not self._taken:
            return 0.0
        last = max(ticket.taken_at for ticket in self._taken.values())
        return last + _RECOUNT_S - asyncio.get_running_loop().time()

    async def _gather(self, count: int) -> None:
        """Waits for the other jobs of a burst."""
        now = asyncio.get_running_loop().time
        until = now() + _GATHER_MOST_S
        before = 0
        while before < len(self._offered()) < count and now() < until:
            before = len(self._offered())
            await asyncio.sleep(_GATHER_QUIET_S)

    def _offered(self) -> list[Ticket]:
        """The waiting jobs, except one that was cancelled and retried while the script still has it."""
        return [] if self._is_retired else [ticket for ticket in self._waiting if ticket.id not in self._taken]

    def _hold_s(self) -> float:
        if self._is_closed:
            return 0.0
        return _LOOK_S if self._stopping else TAKE_HOLD_S

    def _hand_out(self, ticket: Ticket) -> dict[str, Any]:
        self._waiting.remove(ticket)
        ticket.taken_at = asyncio.get_running_loop().time()
        self._taken[ticket.id] = ticket
        return {"id": ticket.id, "input": ticket.value}

    def _find_lost(self) -> None:
        """Ends the taken jobs, none of which is in progress any more."""
        before = asyncio.get_running_loop().time() - _PICKUP_S
        lost = [ticket for ticket in self._taken.values() if ticket.taken_at < before and not ticket.has_result]
        for ticket in lost:
            self._end(ticket, NoResult("the script ended the job without a result; see its log"))

    async def _stop(self) -> dict[str, list[str]] | None:
        if not self._to_stop and not self._is_closed:
            await self._stoppers.wait(_STOP_HOLD_S)
        ids = list(self._to_stop)
        self._to_stop.clear()
        return {"jobsToStop": ids} if ids else None

    def _hear(self, ticket: Ticket, what: str, body: bytes | None) -> None:
        try:
            report = _parsed(body)
            if what == "job-stream":
                ticket.yielded(report.get("output"))
            elif report.get("status") == "IN_PROGRESS":
                ticket.progressed(report.get("output"))
            else:
                self._finish(ticket, report)
        except BadOutput as error:
            self._end(ticket, error)

    def _finish(self, ticket: Ticket, report: dict[str, Any]) -> None:
        if ticket.has_result:
            return
        ticket.has_result = True
        self._is_retired |= bool(report.get("stopPod"))
        error = failure_of(report["error"]) if report.get("error") else None
        output = report.get("output")
        # After streamed outputs, the package posts an empty list, unless it aggregates them.
        value = ticket.items if output == [] else output
        delay_s = _LAST_PROGRESS_S if ticket.has_progressed else 0.0
        if delay_s:
            asyncio.get_running_loop().call_later(delay_s, self._end, ticket, error, value)
        else:
            self._end(ticket, error, value)

    def _end(self, ticket: Ticket, error: Exception | None = None, value: Any = None) -> None:
        if ticket.ended.done():
            return
        del self._taken[ticket.id]
        if error is None:
            ticket.ended.set_result(value)
        else:
            ticket.ended.set_exception(error)
        if self._is_retired and not self._taken:
            self._done()


class _Bell:
    """Wakes the tasks that wait at that moment."""

    def __init__(self) -> None:
        self._rung = self._unrung()

    def ring(self) -> None:
        self._rung.set_result(None)
        self._rung = self._unrung()

    async def wait(self, at_most_s: float) -> None:
        # Not an event and `wait_for`, which before Python 3.12 starts to wait later and can miss a ring.
        await asyncio.wait([self._rung], timeout=at_most_s)

    @staticmethod
    def _unrung() -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_future()


def _parsed(body: bytes | None) -> dict[str, Any]:
    if body is None:
        raise BadOutput(f"the output has more than {BODY_BYTES_MAX} bytes; upload it and return its URL")
    try:
        report = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadOutput(f"the output is not JSON: {error}") from None
    if not isinstance(report, dict):
        raise BadOutput("the posted output is not a JSON object")
    return report
