"""A real HTTP server that answers by script, and clients that speak to it."""

from __future__ import annotations

import contextlib
import json
import threading
from collections import deque
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Callable, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import pytest

from stokehold import Client, Retry

from .either import NEVER, Asyncio, Blocking, Calls, Connect

JOB_ID = "0192f0c1a2b37cde8f00112233445500"

SETTINGS = ("STOKE_URL", "STOKE_TOKEN", "STOKE_CREDENTIALS", "STOKE_UV")
PROXIES = tuple(
    name for proxy in ("http_proxy", "https_proxy", "all_proxy", "no_proxy") for name in (proxy, proxy.upper())
)

# Pauses of at most a millisecond: what is tested is that there are retries, not that they take long.
FAST = Retry(base_s=0.001, cap_s=0.001)


class Request(NamedTuple):
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Exchange(BaseHTTPRequestHandler):
    """One request and whatever the script does with it."""

    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class's name)
        pass

    def serve(self) -> None:
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, url.path, dict(parse_qsl(url.query)), headers, body)
        self.server.requests.append(request)
        self.server.arrived.set()
        self.server.answer_for(request)(self)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = serve  # noqa: N815 (the base class's names)

    def reply(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, *chunks: bytes) -> None:
        """An event stream that ends when its connection does."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for chunk in chunks:
            self.wfile.write(chunk)
        self.close_connection = True


Answer = Callable[[Exchange], None]


class Server(ThreadingHTTPServer):
    """Answers each route by its script: one answer a request, and the last one for ever."""

    daemon_threads = False
    block_on_close = True
    request_queue_size = 128  # a hundred clients connect at once

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Exchange)
        self.requests: list[Request] = []
        self.arrived = threading.Event()
        self.released = threading.Event()
        self._script: dict[tuple[str, str], deque[Answer]] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def on(self, route: str, *answers: Answer) -> None:
        method, path = route.split(" ")
        self._script[method, path] = deque(answers)

    def answer_for(self, request: Request) -> Answer:
        answers = self._script.get((request.method, request.path))
        if answers is None:
            return problem(404, "not_found", f"no script for {request.method} {request.path}")
        return answers.popleft() if len(answers) > 1 else answers[0]

    def seen(self, route: str) -> list[Request]:
        method, path = route.split(" ")
        return [request for request in self.requests if (request.method, request.path) == (method, path)]


def ok(body: Any, status: int = 200, **headers: str) -> Answer:
    return lambda exchange: exchange.reply(
        status, json.dumps(body).encode(), content_type="application/json", **headers
    )


def data(body: bytes) -> Answer:
    return lambda exchange: exchange.reply(200, body)


def problem(status: int, code: str, detail: str, errors: Any = None, dependents: Any = None, **headers: str) -> Answer:
    body = {
        "type": f"urn:stokehold:problem:{code}",
        "title": "A title",
        "status": status,
        "code": code,
        "detail": detail,
    }
    if errors is not None:
        body["errors"] = errors
    if dependents is not None:
        body["dependents"] = dependents
    text = json.dumps(body).encode()
    return lambda exchange: exchange.reply(
        status, text, content_type="application/problem+json", x_request_id="req-7", **headers
    )


def redirect(url: str) -> Answer:
    return lambda exchange: exchange.reply(307, b"", location=url)


def drop(exchange: Exchange) -> None:
    """Closes without an answer."""
    exchange.close_connection = True


def cut(exchange: Exchange) -> None:
    """Announces ten bytes and closes after four."""
    exchange.send_response(200)
    exchange.send_header("content-length", "10")
    exchange.end_headers()
    exchange.wfile.write(b"four")
    exchange.close_connection = True


def hang(exchange: Exchange) -> None:
    """Says nothing until the test is over."""
    exchange.server.released.wait(60)
    exchange.close_connection = True


def job(state: str = "queued", **members: Any) -> dict[str, Any]:
    """A job as every route shows it."""
    timing = {"queued_ms": 1, "env_ms": 0, "boot_ms": 0, "load_ms": 0, "run_ms": 2, "upload_ms": 0}
    return {
        "id": JOB_ID,
        "endpoint": "echo",
        "version": 1,
        "state": state,
        "priority": "standard",
        "created_at": "2026-11-21T05:50:00.123Z",
        "run_after": None,
        "ended_at": "2026-11-21T05:50:00.150Z" if state in ("succeeded", "failed", "cancelled", "expired") else None,
        "input": {"text": "hi"},
        "metadata": {},
        "progress": None,
        "attempts": [],
        "timing": timing if state == "succeeded" else None,
        "result": {"text": "hi"} if state == "succeeded" else None,
        "result_url": f"http://elsewhere.invalid/v1/jobs/{JOB_ID}/result" if state == "succeeded" else None,
        "error": None,
        **members,
    }


def start() -> tuple[Server, threading.Thread]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    return server, thread


def stop(server: Server, thread: threading.Thread) -> None:
    server.released.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def _no_settings_of_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (*SETTINGS, *PROXIES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture(params=["direct", "httpx"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How the requests are sent: over the connections of the clients, or through httpx, as with a proxy."""
    if request.param == "httpx":
        monkeypatch.setattr("stokehold._transport.direct_origin", lambda _: None)
        monkeypatch.setattr("stokehold._async_transport.direct_origin", lambda _: None)
    return str(request.param)


@pytest.fixture
def api(way: str) -> Iterator[Server]:
    server, thread = start()
    yield server
    stop(server, thread)


@pytest.fixture
def store() -> Iterator[Server]:
    """Another origin, as the object store is."""
    server, thread = start()
    yield server
    stop(server, thread)


@pytest.fixture
def client(api: Server) -> Iterator[Client]:
    # Closed before its server: a connection that is kept alive would hold the server's thread.
    with Client(api.url, "sk_test", retry=FAST) as client:
        yield client


@pytest.fixture(params=[Blocking, Asyncio])
def connect(way: str, request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Makes a client, which is closed before its server stops."""
    with contextlib.ExitStack() as stack:

        def make(url: str, retry: Retry = NEVER, timeout_s: float = 30.0) -> Calls:
            calls: Calls = request.param(url, retry, timeout_s)
            stack.callback(calls.close)
            return calls

        yield make


@pytest.fixture
def counted(api: Server, monkeypatch: pytest.MonkeyPatch) -> list[Exchange]:
    """The connections that the server has accepted, one entry each."""
    accepted: list[Exchange] = []
    setup = Exchange.setup

    def count(exchange: Exchange) -> None:
        accepted.append(exchange)
        setup(exchange)

    monkeypatch.setattr(Exchange, "setup", count)
    return accepted
