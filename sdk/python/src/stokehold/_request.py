"""Calls without I/O, shared by both clients.

A plan is a generator that yields steps and returns what the caller wants. `Client` and `AsyncClient` carry the steps
out, each in its own way, and hand the outcome of each back in; everything else, retries and waiting included, is
decided here and in `_api.py`, once.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any, Callable, NamedTuple, TypeVar, Union

import httpx

from stokehold._errors import (
    ApiError,
    ConnectionFailed,
    FieldProblem,
    StokeholdError,
    TimedOut,
    api_error_class,
)
from stokehold._retry import Retry
from stokehold._transfer import Body, Sink

CONNECT_TIMEOUT_S = 5.0
WRITE_TIMEOUT_S = 30.0
# For a free connection of the pool, when a hundred threads share one client.
POOL_TIMEOUT_S = 60.0

# A connection that idles is kept for a minute, so that a job now and then does not pay for a new one.
LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=60.0)

OK = 200

# An answer that is no problem+json (a proxy's error page) is quoted up to here.
_DETAIL_CHARS_MAX = 500


@dataclass(frozen=True)
class Call:
    """Step: make a request. The outcome is a `Reply`, or the error that there was none."""

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | Body | None = field(default=None, repr=False)
    read_timeout_s: float = 30.0
    sink: Sink | None = None


class Reply(NamedTuple):
    """An answer, whatever its status. `body` is empty when a sink took it."""

    status: int
    headers: httpx.Headers
    body: bytes

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise ConnectionFailed(
                f"the answer is not JSON, so it is not the API's; is a proxy between? {error}"
            ) from error


@dataclass(frozen=True)
class Pause:
    """Step: let time pass. No outcome."""

    seconds: float


@dataclass(frozen=True)
class Work:
    """Step: run a function that blocks (files, hashing, a subprocess). The outcome is what it returns."""

    run: Callable[[], Any]


Step = Union[Call, Pause, Work]
T = TypeVar("T")
Plan = Generator[Step, Any, T]


def ask(call: Call, retry: Retry, deadline: float | None = None) -> Plan[Reply]:
    """Makes the call until it succeeds, as often as the policy allows and until the deadline (monotonic seconds)."""
    retries = 0
    while True:
        outcome: Reply | StokeholdError = yield call
        if isinstance(outcome, Reply):
            if outcome.status < 400:
                return outcome
            error: StokeholdError = decode_error(outcome)
        else:
            error = outcome
        delay_s = retry.delay_s(retries, error, random.random())  # noqa: S311 (jitter is no secret)
        if delay_s is None or (deadline is not None and time.monotonic() + delay_s > deadline):
            raise error
        yield Pause(delay_s)
        retries += 1


# A client asks the same few routes again and again, and parsing a URL is half the price of building a request.
_parse_url = lru_cache(maxsize=256)(httpx.URL)


def build_request(call: Call, content: Any) -> httpx.Request:
    """The call in httpx's words. `content` is the body in the shape that the client's half can send."""
    timeout = {
        "connect": CONNECT_TIMEOUT_S,
        "read": call.read_timeout_s,
        "write": WRITE_TIMEOUT_S,
        "pool": POOL_TIMEOUT_S,
    }
    return httpx.Request(
        call.method, _parse_url(call.url), headers=call.headers, content=content, extensions={"timeout": timeout}
    )


def transport_error(call: Call, error: httpx.RequestError | httpx.InvalidURL) -> StokeholdError:
    """What httpx's failure means to a caller. The message names no query, which may hold a signature."""
    where = call.url.partition("?")[0]
    failure: StokeholdError
    if isinstance(error, (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError)):
        failure = StokeholdError(f"{call.method} {where} cannot be sent: {error}")
    elif isinstance(error, httpx.TimeoutException):
        failure = TimedOut(f"{call.method} {where} had no answer in time ({type(error).__name__})")
    else:
        failure = ConnectionFailed(f"{call.method} {where} had no answer: {error or type(error).__name__}")
    failure.__cause__ = error
    return failure


def decode_error(reply: Reply) -> ApiError:
    """The error that an answer of 400 and above tells."""
    problem: dict[str, Any] = {}
    try:
        decoded = json.loads(reply.body)
        problem = decoded if isinstance(decoded, dict) else {}
    except ValueError:
        problem = {"detail": reply.body[:_DETAIL_CHARS_MAX].decode("utf-8", "replace").strip()}
    code = str(problem.get("code") or f"http_{reply.status}")
    return api_error_class(reply.status, code)(
        str(problem.get("detail") or problem.get("title") or f"the API answered {reply.status}"),
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


def _retry_after_s(text: str | None) -> float | None:
    """`Retry-After` as seconds from now; it may be a number or a date."""
    if not text:
        return None
    if text.strip().isdigit():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, TypeError):
        return None
