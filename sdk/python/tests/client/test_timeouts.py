"""Timeouts of both clients, and large requests that are sent as the server reads them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import threading
import time
from typing import Any

import pytest

from stokehold import TimedOut
from stokehold._async_pool import _Connection
from stokehold._request import WRITE_BYTES, WRITE_TIMEOUT_S

from .conftest import JOB_ID, Exchange, Server, job
from .either import LARGE, Connect, served

WORKERS = b'{"workers": []}'

# Through httpx, the timeouts are those of httpx.
pytestmark = pytest.mark.parametrize("way", ["direct"], indirect=True)


def test_a_server_that_sends_nothing(api: Server, connect: Connect) -> None:
    def wait(exchange: Exchange) -> None:
        exchange.server.released.wait(60)
        exchange.close_connection = True

    api.on("GET /v1/workers", wait)
    with pytest.raises(TimedOut, match=r"GET http://127\.0\.0\.1:\d+/v1/workers: no response in time \(ReadTimeout\)"):
        connect(api.url, timeout_s=0.02).workers()


def test_a_slow_server_that_sends_something(api: Server, connect: Connect) -> None:
    """The timeout is the time without data, not the duration of the whole response."""
    pause = threading.Event()

    def slow(exchange: Exchange) -> None:
        exchange.send_response(200)
        exchange.send_header("content-length", str(len(WORKERS)))
        exchange.end_headers()
        for byte in WORKERS:
            pause.wait(0.05)
            exchange.wfile.write(bytes([byte]))

    api.on("GET /v1/workers", slow)
    connect(api.url, timeout_s=0.5).workers()


def test_a_head_that_arrives_byte_by_byte(connect: Connect) -> None:
    """The timeout of the head is its duration: otherwise a server could hold a call for as long as it likes."""
    pause = threading.Event()

    def drip(connection: socket.socket) -> None:
        connection.recv(1000)
        with contextlib.suppress(OSError):  # the client closes the connection
            while not pause.wait(0.02):
                connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")

    with served(drip) as url:
        start = time.monotonic()
        with pytest.raises(TimedOut, match="ReadTimeout"):
            connect(url, timeout_s=0.3).workers()
    assert 0.3 <= time.monotonic() - start < 10


def test_the_read_timeout_starts_when_the_request_is_sent(connect: Connect) -> None:
    """A server that reads a large request, slowly at first, and does not respond."""
    pause = threading.Event()

    def read(connection: socket.socket) -> None:
        pause.wait(0.1)
        while connection.recv(1 << 20):
            pass

    with served(read) as url:
        client = connect(url, timeout_s=0.2)
        start = time.monotonic()
        with pytest.raises(TimedOut, match="ReadTimeout"):
            client.submit(LARGE)
    assert time.monotonic() - start < WRITE_TIMEOUT_S / 2


def test_a_server_that_stops_reading(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    for pool in ("_pool", "_async_pool"):
        monkeypatch.setattr(f"stokehold.{pool}.WRITE_TIMEOUT_S", 0.2)
    done = threading.Event()

    def wait(connection: socket.socket) -> None:
        connection.recv(1000)
        done.wait(60)

    with served(wait) as url:
        with pytest.raises(TimedOut, match="WriteTimeout"):
            connect(url).submit(LARGE)
        done.set()


def test_a_server_that_reads_slowly(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write timeout is the time without progress, not the duration of the whole request."""
    for pool in ("_pool", "_async_pool"):
        monkeypatch.setattr(f"stokehold.{pool}.WRITE_TIMEOUT_S", 0.4)
    pause = threading.Event()
    body = json.dumps(job()).encode()

    def read(connection: socket.socket) -> None:
        left = len(LARGE)
        while left > 0:
            pause.wait(0.1)
            left -= len(connection.recv(1 << 20, socket.MSG_WAITALL if left > 1 << 20 else 0))
        connection.sendall(b"HTTP/1.1 202 x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    with served(read) as url:
        start = time.monotonic()
        assert connect(url).submit(LARGE).id == JOB_ID
    assert time.monotonic() - start > 0.4


class Slow(asyncio.Transport):
    """Keeps what is written, and has sent it in the next turn of the event loop."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.pieces: list[bytes] = []
        self.protocol = protocol
        self.pair = socket.socketpair()

    def write(self, data: Any) -> None:
        self.pieces.append(bytes(data))
        self.protocol.pause_writing()
        asyncio.get_running_loop().call_soon(self.sent)

    def sent(self) -> None:
        self.protocol.resume_writing()
        if sum(map(len, self.pieces)) > WRITE_BYTES * 2:
            asyncio.get_running_loop().call_soon(self.protocol.data_received, b"HTTP/1.1 204 x\r\n\r\n")

    def get_write_buffer_size(self) -> int:
        return len(self.pieces[-1])

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.pair[0]

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return False


def test_a_large_request_is_written_in_pieces_as_the_earlier_ones_are_sent(way: str) -> None:
    async def play() -> None:
        connection = _Connection(asyncio.get_running_loop(), set())
        transport = Slow(connection)
        connection.connection_made(transport)
        request = os.urandom(WRITE_BYTES * 2 + 1)
        assert (await connection.exchange(request, 30)).reusable
        assert [len(piece) for piece in transport.pieces] == [WRITE_BYTES, WRITE_BYTES, 1]
        assert b"".join(transport.pieces) == request
        for end in transport.pair:
            end.close()

    asyncio.run(play())
