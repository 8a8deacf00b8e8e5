"""A minimal HTTP/1.1 server through which a program on this machine talks to the runner that started it."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable
from typing import Any, Callable, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from stokehold._wire import BODY_BYTES_MAX

_LOOPBACK = "127.0.0.1"
_CHUNK_BYTES = 1 << 20


class Request(NamedTuple):
    """path: the segments after the server's address. body: `None` if it exceeds `BODY_BYTES_MAX`."""

    path: list[str]
    query: dict[str, str]
    body: bytes | None


Answer = Callable[[Request], Awaitable[Any]]


class Server:
    """Answers with JSON, on the running event loop; an answer of `None` is 204 No Content.

    Its address contains a secret; connections without it, e.g. of other programs on this machine, are closed.
    Connections with requests for which `answer` raises `ValueError` are closed too.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._secret = secrets.token_urlsafe(32)
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()

    async def start(self) -> str:
        """Listens, and returns the address."""
        self._server = server = await asyncio.start_server(self._serve, _LOOPBACK, 0)
        port = server.sockets[0].getsockname()[1]
        return f"http://{_LOOPBACK}:{port}/{self._secret}"

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            while True:
                request = await self._read(reader)
                writer.write(_response(await self._answer(request)))
                await writer.drain()
        except (EOFError, ConnectionError, ValueError, asyncio.LimitOverrunError):
            # The client closed the connection or is not allowed.
            pass
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> Request:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").rstrip().split("\r\n")
        _, target, _ = first.split(" ")
        url = urlsplit(target)
        secret, *path = (unquote(part) for part in url.path.removeprefix("/").split("/"))
        # Check it before reading the rest of the request.
        if not secrets.compare_digest(secret.encode(), self._secret.encode()):
            raise ValueError("wrong secret in the URL")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await _body(reader, int(headers.get("content-length", "0")))
        return Request(path, dict(parse_qsl(url.query)), body)


async def _body(reader: asyncio.StreamReader, length: int) -> bytes | None:
    if length <= BODY_BYTES_MAX:
        return await reader.readexactly(length)
    # Read the body anyway: a client that is still writing would not see the response.
    while length > 0:
        piece = await reader.read(min(length, _CHUNK_BYTES))
        if not piece:
            raise EOFError
        length -= len(piece)
    return None


def _response(value: Any) -> bytes:
    if value is None:
        return b"HTTP/1.1 204 No Content\r\n\r\n"
    body = json.dumps(value).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
