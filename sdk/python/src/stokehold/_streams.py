"""Requests and errors of httpx, which both clients use for bodies that are streamed, for proxies, and in tests.

httpx is imported when it is first needed: importing it takes longer than a hundred submits.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from stokehold._errors import ConnectionFailed, StokeholdError
from stokehold._http1 import RESPONSE_BYTES_MAX, too_large
from stokehold._request import (
    CONNECT_TIMEOUT_S,
    CONNECTIONS_MAX,
    IDLE_CONNECTIONS_MAX,
    IDLE_S,
    POOL_TIMEOUT_S,
    WRITE_TIMEOUT_S,
    Call,
    call_error,
    too_slow,
)

if TYPE_CHECKING:
    import httpx


class Collector:
    """The body of a response that is held in memory."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._chunks: list[bytes] = []
        self._size = 0

    def add(self, chunk: bytes) -> None:
        """Adds the next bytes. Raises `StokeholdError` if there are too many."""
        self._size += len(chunk)
        if self._size > RESPONSE_BYTES_MAX:
            raise call_error(self._call, StokeholdError, str(too_large()))
        self._chunks.append(chunk)

    def body(self) -> bytes:
        """All bytes."""
        return b"".join(self._chunks)


def limits() -> httpx.Limits:
    """The limits of the connections."""
    import httpx

    return httpx.Limits(
        max_connections=CONNECTIONS_MAX, max_keepalive_connections=IDLE_CONNECTIONS_MAX, keepalive_expiry=IDLE_S
    )


@lru_cache(maxsize=256)
def _parse_url(url: str) -> httpx.URL:
    """Clients use few routes many times, and parsing the URL is half the cost of building a request."""
    import httpx

    return httpx.URL(url)


def build_request(call: Call, content: Any) -> httpx.Request:
    """Converts a call to a request. `content` is the body, as a type that the client can send."""
    import httpx

    timeout = {
        "connect": CONNECT_TIMEOUT_S,
        "read": call.read_timeout_s,
        "write": WRITE_TIMEOUT_S,
        "pool": POOL_TIMEOUT_S,
    }
    return httpx.Request(
        call.method, _parse_url(call.url), headers=call.headers, content=content, extensions={"timeout": timeout}
    )


def stream_errors() -> tuple[type[Exception], ...]:
    """The exceptions of httpx for a request without a whole response, for an `except`."""
    import httpx

    return httpx.RequestError, httpx.InvalidURL


def stream_error(call: Call, error: Exception) -> StokeholdError:
    """Converts one of `stream_errors`."""
    import httpx

    if isinstance(error, (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError)):
        return call_error(call, StokeholdError, f"the request cannot be sent: {error}", error)
    if isinstance(error, httpx.TimeoutException):
        return too_slow(call, type(error).__name__, error)
    return call_error(call, ConnectionFailed, f"no response: {error or type(error).__name__}", error)
