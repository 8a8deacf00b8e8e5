"""Calls without I/O, shared by both clients.

A plan is a generator that yields steps and returns a result. `Client` and `AsyncClient` carry out each step in their
own way and send its outcome back into the plan. Everything else, including retries and waiting, is implemented once,
here and in `_api.py`.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Callable, NamedTuple, TypeVar, Union

from stokehold._errors import (
    ApiError,
    ConnectionFailed,
    FieldProblem,
    InUse,
    NotFound,
    StokeholdError,
    TimedOut,
    api_error_class,
)
from stokehold._generated.deletion import Dependent
from stokehold._retry import UNCERTAIN_STATUSES, Retry
from stokehold._transfer import Body, Sink

CONNECT_TIMEOUT_S = 5.0
WRITE_TIMEOUT_S = 30.0
# The most that is written at once. Each piece that is sent counts as progress.
WRITE_BYTES = 64 << 10
# Waiting for a free connection of the pool, e.g. if a hundred threads share a client.
POOL_TIMEOUT_S = 60.0

# Idle connections are kept for a minute, so that occasional jobs do not need a new one each.
CONNECTIONS_MAX = 100
IDLE_CONNECTIONS_MAX = 20
IDLE_S = 60.0

CLOSED = "the client is closed; create another one"

OK = 200

# The length to which a response that is not problem+json is quoted, e.g. the error page of a proxy.
_DETAIL_CHARS_MAX = 500


@dataclass(frozen=True)
class Call:
    """Step: make a request. The outcome is a `Reply`, or an error if there was no response."""

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | Body | None = field(default=None, repr=False)
    read_timeout_s: float = 30.0
    sink: Sink | None = None


class Reply(NamedTuple):
    """A response of any status. `body` is empty if the bytes went to a sink."""

    status: int
    headers: Mapping[str, str]
    """The headers. Names are in lower case, or in any case if httpx has read them."""
    body: bytes

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise ConnectionFailed(
                f"the response is not JSON, so it is not from the API; check for a proxy in between: {error}"
            ) from error


@dataclass(frozen=True)
class Pause:
    """Step: sleep. No outcome."""

    seconds: float


@dataclass(frozen=True)
class Work:
    """Step: run a blocking function (files, hashing, a subprocess). The outcome is its return value."""

    run: Callable[[], Any]


Step = Union[Call, Pause, Work]
T = TypeVar("T")
Plan = Generator[Step, Any, T]


def ask(call: Call, retry: Retry, deadline: float | None = None, gone: Reply | None = None) -> Plan[Reply]:
    """Repeats a call until it succeeds, within the retry policy and until the deadline (in monotonic seconds).

    `gone` is the reply if the API finds nothing (404) after an earlier try that it may have carried out.
    """
    retries = 0
    is_uncertain = False
    while True:
        outcome: Reply | StokeholdError = yield call
        if isinstance(outcome, Reply):
            if outcome.status < 400:
                return outcome
            error: StokeholdError = decode_error(outcome)
            if gone is not None and is_uncertain and isinstance(error, NotFound):
                return gone
            is_uncertain = is_uncertain or outcome.status in UNCERTAIN_STATUSES
        else:
            error = outcome
            is_uncertain = True
        delay_s = retry.delay_s(retries, error, random.random())  # noqa: S311 (jitter is no secret)
        if delay_s is None or (deadline is not None and time.monotonic() + delay_s > deadline):
            raise error
        yield Pause(delay_s)
        retries += 1


def call_error(call: Call, kind: type[StokeholdError], why: str, cause: BaseException | None = None) -> StokeholdError:
    """The error for a call without a response. The message has no query string, which may contain a signature."""
    error = kind(f"{call.method} {call.url.partition('?')[0]}: {why}")
    error.__cause__ = cause
    return error


def too_slow(call: Call, step: str, cause: BaseException | None = None) -> StokeholdError:
    """The error for a call without a response in time. `step` is what took too long, e.g. `ReadTimeout`."""
    return call_error(call, TimedOut, f"no response in time ({step})", cause)


def decode_error(reply: Reply) -> ApiError:
    """The error for a response of status 400 or above."""
    problem: dict[str, Any] = {}
    try:
        decoded = json.loads(reply.body)
        problem = decoded if isinstance(decoded, dict) else {}
    except (ValueError, RecursionError):
        problem = {"detail": reply.body[:_DETAIL_CHARS_MAX].decode("utf-8", "replace").strip()}
    code = str(problem.get("code") or f"http_{reply.status}")
    error = api_error_class(reply.status, code)(
        str(problem.get("detail") or problem.get("title") or f"the API returned status {reply.status}"),
        status=reply.status,
        code=code,
        request_id=reply.headers.get("x-request-id"),
        errors=[
            FieldProblem(str(place.get("path", "")), str(place.get("message", "")))
            for place in problem.get("errors") or ()
            if isinstance(place, dict)
        ],
        retry_after_s=_retry_after_s(reply.headers.get("retry-after")),
    )
    if isinstance(error, InUse):
        error.dependents = tuple(Dependent.decode(each) for each in problem.get("dependents") or ())
    return error


def _retry_after_s(text: str | None) -> float | None:
    """Converts `Retry-After`, a number or a date, to seconds from now."""
    if not text:
        return None
    if text.isascii() and text.strip().isdigit():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None
