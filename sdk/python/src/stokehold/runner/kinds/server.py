"""`server`: a program that serves HTTP. The runner starts it, waits until it is ready, and sends jobs as requests."""

from __future__ import annotations

import asyncio
import http.client
import json
import mimetypes
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, NamedTuple

from stokehold._wire import BODY_BYTES_MAX, Load
from stokehold.runner.attempt import Attempt
from stokehold.runner.context import CURRENT
from stokehold.runner.errors import BadOutput, Reject
from stokehold.runner.handler import Handler, HandlerNotFound
from stokehold.runner.kinds.child import Child
from stokehold.runner.kinds.pressure import Condition, next_capacity
from stokehold.runner.kinds.whole import Whole

_LOOPBACK = "127.0.0.1"
_POLL_S = 0.05
_POLL_TIMEOUT_S = 5.0
_ERROR_BYTES = 2_000
_METRICS_PATH = "/metrics"
_METRICS_BYTES_MAX = 16 << 20
_METRICS_EVERY_S = 1.0
# Not the fault of the request: it may succeed later.
_PASSING = {408, 425, 429}
_METHODS = ("POST", "GET", "PUT", "PATCH", "DELETE")
# After a crash, the watcher of the program ends this process within this time.
_LAST_LOOK_S = 2.0

# Placeholders of the command: the variable with the value, and why it can be missing.
_ON_CPU = "without vram_gib it runs on the CPU"
_FILLED = {
    "{vram_mib}": ("STOKE_VRAM_MIB", _ON_CPU),
    "{vram_fraction}": ("STOKE_VRAM_FRACTION", _ON_CPU),
    "{weights}": ("STOKE_WEIGHTS", "the endpoint has no weights"),
}


class ServerError(Exception):
    """The server failed to respond to a request."""


class Request(NamedTuple):
    method: str
    path: str
    body: bytes | None


def prepare(load: Load, wait: Callable[[Any], Any]) -> Handler:
    """Starts the server, and returns when it is ready. The worker enforces the timeout."""
    settings = json.loads(load.settings)
    server = Server(settings, load.max_concurrency)
    server.start()
    return server


def describe(where: str) -> dict[str, Any]:
    raise HandlerNotFound("an endpoint of kind 'server' is described in stoke.toml")


class Connection(http.client.HTTPConnection):
    """A connection that another thread can close, even when `sock` is None because the server will close it."""

    is_given_up = False
    _line: socket.socket | None = None

    def connect(self) -> None:
        super().connect()
        self._line = self.sock
        if self.is_given_up:
            raise ConnectionAbortedError("the job no longer waits for the response")

    def hang_up(self) -> None:
        """Ends reads and writes with an `OSError`, or as if the response had ended."""
        self.is_given_up = True
        if self._line is not None:
            with suppress(OSError):
                self._line.shutdown(socket.SHUT_RDWR)


class Server(Handler):
    """Forwards each job as one request.

    settings:
    command: the command. `{port}` is replaced by the port to listen on, on 127.0.0.1, `{weights}` by the folder of the
        weights (`STOKE_WEIGHTS`), and `{vram_mib}` and `{vram_fraction}` by its share of each of its GPUs
        (`STOKE_VRAM_MIB`, `STOKE_VRAM_FRACTION`).
    ready_path: returns 2xx when the server is ready.
    path: the path that inputs are posted to. Without it, an input is `{"path": ..., "body": ..., "method"?: ...}`.
    port: the port of a server whose port cannot be set.
    busy: the metric of the server that shows that it has no room, and its limit. See `pressure.py`.
    """

    def __init__(self, settings: dict[str, Any], max_concurrency: int) -> None:
        super().__init__(self._answer, Whole())
        self._settings = settings
        self._port: int = settings.get("port") or _free_port()
        self._threads = ThreadPoolExecutor(max_concurrency, thread_name_prefix="request")
        self._child: Child | None = None
        self._most = max_concurrency
        self._running = 0
        self._closing = threading.Event()

    def start(self) -> None:
        command = [self._filled(part) for part in self._settings["command"]]
        try:
            self._child = Child(command, {"PORT": str(self._port)})
        except OSError as error:
            raise HandlerNotFound(f"{command[0]} cannot be started: {error}") from None
        while not self._is_ready():
            self._child.check()
            time.sleep(_POLL_S)
        self._child.watch()

    def _filled(self, part: str) -> str:
        for name, (variable, why) in _FILLED.items():
            if name in part:
                value = os.environ.get(variable)
                if value is None:
                    raise HandlerNotFound(f"the command contains {name}, but {why}")
                part = part.replace(name, value)
        return part.replace("{port}", str(self._port))

    def begin(self, report: Callable[[int], None]) -> None:
        if self._settings.get("busy") is not None:
            busy = Condition.parse(self._settings["busy"])
            threading.Thread(target=self._watch_pressure, args=(busy, report), name="metrics", daemon=True).start()

    def _watch_pressure(self, busy: Condition, report: Callable[[int], None]) -> None:
        capacity, problem = self._most, ""
        while not self._closing.wait(_METRICS_EVERY_S):
            try:
                is_busy = busy.holds(self._metrics())
                new = "" if is_busy is not None else f"{_METRICS_PATH} has no metric {busy.metric}"
            except (OSError, ValueError, http.client.HTTPException, ServerError) as error:
                is_busy, new = None, f"{_METRICS_PATH} cannot be read: {error or type(error).__name__}"
            if new and new != problem:
                sys.stderr.write(f"stokehold: server.busy has no effect: {new}\n")
            problem = new
            # Without a reading, the number rises, so that a server is not left with few jobs.
            after = next_capacity(capacity, self._running, is_busy is True, self._most)
            if after != capacity:
                capacity = after
                report(capacity)

    def _metrics(self) -> str:
        connection = http.client.HTTPConnection(_LOOPBACK, self._port, timeout=_POLL_TIMEOUT_S)
        try:
            connection.request("GET", _METRICS_PATH)
            response = connection.getresponse()
            if response.status != http.client.OK:
                raise ServerError(f"it returned {response.status} {response.reason}")
            return response.read(_METRICS_BYTES_MAX).decode("utf-8", "replace")
        finally:
            connection.close()

    def close(self) -> None:
        self._closing.set()
        if self._child is not None:
            self._child.stop()

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection(_LOOPBACK, self._port, timeout=_POLL_TIMEOUT_S)
        try:
            connection.request("GET", self._settings["ready_path"])
            return 200 <= connection.getresponse().status < 300
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    async def _answer(self, value: Any) -> Any:
        attempt = CURRENT.get()
        assert isinstance(attempt, Attempt)  # noqa: S101 - called for an attempt only
        request = self._request(value)
        connection = Connection(_LOOPBACK, self._port)
        forwarding = asyncio.get_running_loop().run_in_executor(
            self._threads, self._forward, connection, request, attempt
        )
        self._running += 1
        try:
            return await asyncio.shield(forwarding)
        except asyncio.CancelledError:
            # The server sees the closed connection, and the thread is released.
            connection.hang_up()
            with suppress(Exception):
                await forwarding
            raise
        finally:
            self._running -= 1

    def _request(self, value: Any) -> Request:
        path = self._settings.get("path")
        if path is not None:
            return Request("POST", path, json.dumps(value).encode())
        path, method = value.get("path"), value.get("method", "POST")
        if not isinstance(path, str) or not path.startswith("/") or any(c <= " " for c in path):
            raise Reject(f"input.path: {path!r} is not a path of the server, e.g. /v1/models")
        if method not in _METHODS:
            raise Reject(f"input.method: {method!r}: use one of {', '.join(_METHODS)}")
        unknown = value.keys() - {"path", "method", "body"}
        if unknown:
            raise Reject(f"input: unknown members {', '.join(sorted(unknown))}; use path, body and method")
        return Request(method, path, json.dumps(value["body"]).encode() if "body" in value else None)

    def _forward(self, connection: Connection, request: Request, attempt: Attempt) -> Any:
        headers = {"Accept": "*/*"} if request.body is None else {"Content-Type": "application/json"}
        headers["X-Request-ID"] = attempt.id
        if attempt.traceparent is not None:
            headers["traceparent"] = attempt.traceparent
        try:
            connection.request(request.method, request.path, request.body, headers)
            response = connection.getresponse()
            if not 200 <= response.status < 300:
                raise _refusal(response)
            return _result(response, attempt)
        except (OSError, http.client.HTTPException) as error:
            if connection.is_given_up:
                raise
            # If the server crashed, this process ends here, and the worker reports the crash instead of this error.
            time.sleep(_LAST_LOOK_S)
            raise ServerError(f"the connection to the server failed: {error or type(error).__name__}") from None
        finally:
            connection.close()


def _refusal(response: http.client.HTTPResponse) -> Exception:
    detail = " ".join(response.read(_ERROR_BYTES).decode("utf-8", "replace").split())
    message = f"the server returned {response.status} {response.reason}: {detail}".rstrip(": ")
    is_for_good = 400 <= response.status < 500 and response.status not in _PASSING
    return Reject(message) if is_for_good else ServerError(message)


def _result(response: http.client.HTTPResponse, attempt: Attempt) -> Any:
    kind = response.headers.get_content_type()
    if kind == "text/event-stream":
        return _streamed(_events(response), attempt)
    if kind in ("application/x-ndjson", "application/jsonl", "application/x-jsonlines"):
        return _streamed((line for raw in _lines(response) if (line := raw.strip())), attempt)
    if kind == "application/json" or kind.endswith("+json"):
        body = _bounded(response)
        try:
            return json.loads(body) if body.strip() else None
        except ValueError as error:
            raise BadOutput(f"the response of the server is not JSON: {error}") from None
    if kind.startswith("text/"):
        return _bounded(response).decode(response.headers.get_content_charset() or "utf-8", "replace")
    return _file(response, kind, attempt)


def _streamed(texts: Iterator[str], attempt: Attempt) -> list[Any]:
    items: list[Any] = []
    room = BODY_BYTES_MAX
    for text in texts:
        room -= len(text)
        if room < 0:
            raise BadOutput(f"the response of the server has more than {BODY_BYTES_MAX} bytes")
        try:
            item = json.loads(text)
        except ValueError:
            item = text
        attempt.yielded(item)
        items.append(item)
    return items


def _events(response: http.client.HTTPResponse) -> Iterator[str]:
    """The data of server-sent events (WHATWG HTML, 9.2). `[DONE]` ends them, as in the API of OpenAI."""
    lines: list[str] = []
    for raw in _lines(response):
        line = raw.rstrip("\r\n")
        if line.startswith("data:"):
            lines.append(line[5:].removeprefix(" "))
        elif not line and lines:
            text, lines = "\n".join(lines), []
            if text == "[DONE]":
                return
            yield text


def _lines(response: http.client.HTTPResponse) -> Iterator[str]:
    while raw := response.readline(BODY_BYTES_MAX):
        yield raw.decode("utf-8", "replace")


def _bounded(response: http.client.HTTPResponse) -> bytes:
    body = response.read(BODY_BYTES_MAX + 1)
    if len(body) > BODY_BYTES_MAX:
        raise BadOutput(f"the response of the server has more than {BODY_BYTES_MAX} bytes")
    return body


def _file(response: http.client.HTTPResponse, kind: str, attempt: Attempt) -> Path:
    path = attempt.job().scratch / f"answer{mimetypes.guess_extension(kind) or '.bin'}"
    with path.open("wb") as file:
        while piece := response.read(1 << 20):
            file.write(piece)
    return path


def _free_port() -> int:
    """Returns a free port. The kernel does not assign it again at once."""
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port
