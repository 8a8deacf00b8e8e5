"""The I/O of `AsyncClient`. `_transport.py` is the same for `Client`; both are written by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any, Callable, TypeVar

import httpx

from stokehold._request import LIMITS, Call, build_request
from stokehold._transfer import Body

T = TypeVar("T")


class AsyncTransport:
    """Sends requests, sleeps, and runs blocking functions, without blocking the event loop."""

    def __init__(self, transport: httpx.AsyncBaseTransport | None) -> None:
        self._http = httpx.AsyncClient(transport=transport, limits=LIMITS)

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    @asynccontextmanager
    async def send(self, call: Call) -> AsyncIterator[httpx.Response]:
        """The response to a call. Its body is not read yet."""
        content = _chunks(call.body) if isinstance(call.body, Body) else call.body
        response = await self._http.send(build_request(call, content), stream=True)
        try:
            yield response
        finally:
            await response.aclose()

    async def sleep(self, seconds: float) -> None:
        """Sleeps; other tasks run meanwhile."""
        await asyncio.sleep(seconds)

    async def run_blocking(self, function: Callable[..., T], *arguments: Any) -> T:
        """Runs a function that blocks, in a thread."""
        return await asyncio.to_thread(function, *arguments)


async def _chunks(body: Body) -> AsyncIterator[bytes]:
    with closing(body.chunks()) as chunks:
        while chunk := await asyncio.to_thread(next, chunks, b""):
            yield chunk
            body.sent(chunk)
