"""The I/O of `Client`. `_async_transport.py` is the same for `AsyncClient`; both are written by hand."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Callable, TypeVar

import httpx

from stokehold._request import LIMITS, Call, build_request
from stokehold._transfer import Body

T = TypeVar("T")


class Transport:
    """Sends requests, sleeps, and runs blocking functions, in the calling thread."""

    def __init__(self, transport: httpx.BaseTransport | None) -> None:
        self._http = httpx.Client(transport=transport, limits=LIMITS)

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def send(self, call: Call) -> closing[httpx.Response]:
        """The response to a call, to be used in a `with`. Its body is not read yet."""
        content = _chunks(call.body) if isinstance(call.body, Body) else call.body
        return closing(self._http.send(build_request(call, content), stream=True))

    def sleep(self, seconds: float) -> None:
        """Sleeps."""
        time.sleep(seconds)

    def run_blocking(self, function: Callable[..., T], *arguments: Any) -> T:
        """Runs a function that blocks."""
        return function(*arguments)


def _chunks(body: Body) -> Iterator[bytes]:
    for chunk in body.chunks():
        yield chunk
        body.sent(chunk)
