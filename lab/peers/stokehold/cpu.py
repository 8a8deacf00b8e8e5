"""CPU time of the client for a submit, without a stack: the server is a process that responds at once.

    PYTHONPATH=sdk/python/src python lab/peers/stokehold/cpu.py

Each way is measured in seven rounds of 2,000 submits; the medians are printed. They exclude what a real stack adds:
the client's code and data leave the processor's caches while it waits.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import multiprocessing
import socket
import statistics
import sys
import time
import uuid
from collections.abc import Awaitable, Callable

import httpx

from stokehold import AsyncClient, Client

SUBMITS, ROUNDS = 2_000, 7
PAYLOAD = {"text": "x" * 183}
HEADERS = {
    "Accept": "application/json",
    "User-Agent": "x",
    "Authorization": f"Bearer sk_{'0' * 100}",
    "Content-Type": "application/json",
}
RECORD = {"id": "01a2146ffd6774a2b31de94ed1d85300", "endpoint": "noop", "state": "queued", "input": PAYLOAD}
# The size of a record of the API.
BODY = json.dumps({**RECORD, "metadata": {f"member_{number}": None for number in range(20)}}).encode()
HEAD = """HTTP/1.1 202 Accepted
content-type: application/json
stokehold-durability: strict
access-control-expose-headers: x-request-id,retry-after,stokehold-durability
access-control-allow-origin: *
x-request-id: 01a2146ffd6674d7adce2fef6c26bcf5
date: Wed, 25 Nov 2026 20:40:13 GMT
content-length:"""
RESPONSE = f"{HEAD} {len(BODY)}\n\n".replace("\n", "\r\n").encode() + BODY


def serve(listener: socket.socket) -> None:
    """Responds to each request, whose head and body arrive in any pieces."""

    class Connection(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport, self.buffer = transport, b""

        def data_received(self, data: bytes) -> None:
            self.buffer += data
            head, end, rest = self.buffer.partition(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
            if end and len(rest) >= length:
                self.buffer = rest[length:]
                self.transport.write(RESPONSE)

    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(Connection, sock=listener)
        await server.serve_forever()

    asyncio.run(run())


def show(name: str, samples_ms: list[float]) -> None:
    sys.stdout.write(f"{name:<32} {statistics.median(samples_ms):.3f} ms\n")


def measure(name: str, submit: Callable[[], object]) -> None:
    samples_ms = []
    for _ in range(ROUNDS):
        start = time.process_time()
        for _ in range(SUBMITS):
            submit()
        samples_ms.append((time.process_time() - start) * 1_000 / SUBMITS)
    show(name, samples_ms)


async def measure_async(name: str, submit: Callable[[], Awaitable[object]], at_once: int) -> None:
    async def submitter() -> None:
        for _ in range(SUBMITS // at_once):
            await submit()

    samples_ms = []
    for _ in range(ROUNDS):
        start = time.process_time()
        await asyncio.gather(*(submitter() for _ in range(at_once)))
        samples_ms.append((time.process_time() - start) * 1_000 / (SUBMITS // at_once * at_once))
    show(f"{name}, {at_once} at a time", samples_ms)


def request() -> tuple[bytes, dict[str, str]]:
    body = json.dumps({"endpoint": "noop", "input": PAYLOAD}).encode()
    return body, {**HEADERS, "Idempotency-Key": str(uuid.uuid4())}


async def asyncio_ways(url: str) -> None:
    ways = {"AsyncClient": None, "AsyncClient through httpx": httpx.AsyncHTTPTransport()}
    for name, transport in ways.items():
        async with AsyncClient(url, transport=transport) as client:
            for at_once in (1, 64):
                await measure_async(name, lambda: client.submit("noop", PAYLOAD), at_once)


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    host, port = listener.getsockname()
    server = multiprocessing.get_context("fork").Process(target=serve, args=(listener,), daemon=True)
    server.start()
    url = f"http://{host}:{port}"

    plain = socket.create_connection((host, port))
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def over_socket() -> None:
        body, headers = request()
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        plain.sendall(f"POST /v1/jobs HTTP/1.1\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        plain.recv(65536)

    library = http.client.HTTPConnection(host, port, timeout=30)

    def over_library() -> None:
        library.request("POST", "/v1/jobs", *request())
        library.getresponse().read()

    measure("a socket, no parsing", over_socket)
    measure("http.client", over_library)
    with httpx.Client() as bare:
        measure("httpx", lambda: bare.post(f"{url}/v1/jobs", content=request()[0], headers=request()[1]))
    for name, transport in {"Client": None, "Client through httpx": httpx.HTTPTransport()}.items():
        with Client(url, transport=transport) as client:
            measure(name, lambda: client.submit("noop", PAYLOAD))
    asyncio.run(asyncio_ways(url))
    server.terminate()


main()
