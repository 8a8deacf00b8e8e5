"""The I/O of `Client`. `_async_transport.py` is the same for `AsyncClient`; both are written by hand."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, Callable, TypeVar

from stokehold._errors import StokeholdError
from stokehold._origin import direct_origin
from stokehold._pool import Pool
from stokehold._request import CLOSED, Call, Reply
from stokehold._streams import Collector, build_request, limits
from stokehold._transfer import Body

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")


class Transport:
    """Sends requests, sleeps, and runs blocking functions, in the calling thread."""

    def __init__(self, base_url: str, transport: httpx.BaseTransport | None) -> None:
        """`transport` replaces the network."""
        self._replacement = transport
        self._origin = None if transport is not None else direct_origin(base_url)
        self._pool = None if self._origin is None else Pool(self._origin)
        self._http: httpx.Client | None = None
        self._is_closed = False
        self._lock = threading.Lock()

    def close(self) -> None:
        """Closes the connections."""
        with self._lock:
            self._is_closed = True
        if self._pool is not None:
            self._pool.close()
        if self._http is not None:
            self._http.close()

    def exchange(self, call: Call) -> Reply | StokeholdError | None:
        """The whole response to a call, over a connection of our own; None for a call that has to be streamed."""
        if self._pool is None or self._origin is None or call.sink is not None or isinstance(call.body, Body):
            return None
        target = self._origin.target(call.url)
        return None if target is None else self._pool.send(call, target, call.body)

    def send(self, call: Call) -> closing[httpx.Response]:
        """The response to a call, to be used in a `with`. Its body is not read yet."""
        content = _chunks(call.body) if isinstance(call.body, Body) else call.body
        return closing(self._streaming().send(build_request(call, content), stream=True))

    def reply(self, call: Call, response: httpx.Response) -> Reply:
        """A response with its whole body."""
        collector = Collector(call)
        for chunk in response.iter_bytes():
            collector.add(chunk)
        return Reply(response.status_code, response.headers, collector.body())

    def sleep(self, seconds: float) -> None:
        """Sleeps."""
        time.sleep(seconds)

    def run_blocking(self, function: Callable[..., T], *arguments: Any) -> T:
        """Runs a function that blocks."""
        return function(*arguments)

    def _streaming(self) -> httpx.Client:
        if self._http is None:
            import httpx

            with self._lock:
                if self._is_closed:
                    raise RuntimeError(CLOSED)
                if self._http is None:
                    self._http = httpx.Client(transport=self._replacement, limits=limits())
        return self._http


def _chunks(body: Body) -> Iterator[bytes]:
    for chunk in body.chunks():
        yield chunk
        body.sent(chunk)
