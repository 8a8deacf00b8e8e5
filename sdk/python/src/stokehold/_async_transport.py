"""The I/O of `AsyncClient`. `_transport.py` is the same for `Client`; both are written by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Any, Callable, TypeVar

from stokehold._async_pool import AsyncPool
from stokehold._errors import StokeholdError
from stokehold._origin import direct_origin
from stokehold._request import CLOSED, Call, Reply
from stokehold._streams import Collector, build_request, limits
from stokehold._transfer import Body

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")


class AsyncTransport:
    """Sends requests, sleeps, and runs blocking functions, without blocking the event loop."""

    def __init__(self, base_url: str, transport: httpx.AsyncBaseTransport | None) -> None:
        """`transport` replaces the network."""
        self._replacement = transport
        self._origin = None if transport is not None else direct_origin(base_url)
        self._pool = None if self._origin is None else AsyncPool(self._origin)
        self._http: httpx.AsyncClient | None = None
        self._is_closed = False

    async def aclose(self) -> None:
        """Closes the connections."""
        self._is_closed = True
        if self._pool is not None:
            await self._pool.aclose()
        if self._http is not None:
            await self._http.aclose()

    async def exchange(self, call: Call) -> Reply | StokeholdError | None:
        """The whole response to a call, over a connection of our own; None for a call that has to be streamed."""
        if self._pool is None or self._origin is None or call.sink is not None or isinstance(call.body, Body):
            return None
        target = self._origin.target(call.url)
        return None if target is None else await self._pool.send(call, target, call.body)

    @asynccontextmanager
    async def send(self, call: Call) -> AsyncIterator[httpx.Response]:
        """The response to a call. Its body is not read yet."""
        content = _chunks(call.body) if isinstance(call.body, Body) else call.body
        response = await self._streaming().send(build_request(call, content), stream=True)
        try:
            yield response
        finally:
            await response.aclose()

    async def reply(self, call: Call, response: httpx.Response) -> Reply:
        """A response with its whole body."""
        collector = Collector(call)
        async for chunk in response.aiter_bytes():
            collector.add(chunk)
        return Reply(response.status_code, response.headers, collector.body())

    async def sleep(self, seconds: float) -> None:
        """Sleeps; other tasks run meanwhile."""
        await asyncio.sleep(seconds)

    async def run_blocking(self, function: Callable[..., T], *arguments: Any) -> T:
        """Runs a function that blocks, in a thread."""
        return await asyncio.to_thread(function, *arguments)

    def _streaming(self) -> httpx.AsyncClient:
        if self._is_closed:
            raise RuntimeError(CLOSED)
        if self._http is None:
            import httpx

            self._http = httpx.AsyncClient(transport=self._replacement, limits=limits())
        return self._http


async def _chunks(body: Body) -> AsyncIterator[bytes]:
    with closing(body.chunks()) as chunks:
        while chunk := await asyncio.to_thread(next, chunks, b""):
            yield chunk
            body.sent(chunk)
