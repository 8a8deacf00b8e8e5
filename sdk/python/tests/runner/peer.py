"""A worker's end of the wire, in a few lines of Python: what it sends and accepts is pinned by `tests/wire/*.json`."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

GOLDENS = Path(__file__).parent.parent / "wire"
# Far longer than anything here takes: a runner that hangs fails its test instead of stopping the suite.
PATIENCE_S = 60


def golden(name: str) -> dict[str, Any]:
    message: dict[str, Any] = json.loads((GOLDENS / f"{name}.json").read_text())
    return message


class Report(NamedTuple):
    """One frame from the runner."""

    header: dict[str, Any]
    body: bytes

    @property
    def type(self) -> str:
        return str(self.header["type"])

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Gone(Exception):  # noqa: N818
    """The runner closed its end."""


class Peer:
    """Starts a real runner in `folder` and talks to it."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self._folder = folder
        self._scratch = scratch
        self._runs = 0
        self._reports: list[Report] = []
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(PATIENCE_S)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "stokehold.runner", "serve"],
                cwd=folder,
                env={**os.environ, "STOKE_WIRE_FD": str(theirs.fileno()), "PYTHONDONTWRITEBYTECODE": "1"},
                pass_fds=[theirs.fileno()],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # A group of its own, as a worker gives it, so that what a handler started ends as well.
                start_new_session=True,
            )

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate(timeout=PATIENCE_S)

    def send(self, message: dict[str, Any], body: bytes = b"") -> None:
        header = json.dumps(message).encode()
        self._socket.sendall(struct.pack("<II", len(header), len(body)) + header + body)

    def send_raw(self, data: bytes) -> None:
        self._socket.sendall(data)

    def load(
        self, entry: str, max_concurrency: int = 1, kind: str = "python", settings: dict[str, Any] | None = None
    ) -> Report:
        """Loads the handler and gives `ready` or `failed`."""
        message = {"type": "load", "kind": kind, "entry": entry, "max_concurrency": max_concurrency}
        self.send(message, json.dumps(settings or {}).encode())
        return self.until(lambda report: report.type in ("ready", "failed"))

    def start(self, arguments: dict[str, Any] | None = None, files: dict[str, str] | None = None) -> int:
        """Starts a run in an empty folder of its own and gives its number."""
        self._runs += 1
        scratch = self.scratch(self._runs)
        scratch.mkdir()
        message = {"type": "run", "run": self._runs, "job": f"job-{self._runs}", "attempt": 1, "scratch": str(scratch)}
        self.send(message if files is None else {**message, "files": files}, json.dumps(arguments or {}).encode())
        return self._runs

    def start_batch(self, inputs: list[dict[str, Any]]) -> list[int]:
        """Starts a run for each input, as one call of a batched handler, and gives their numbers."""
        numbers = []
        for follow in reversed(range(len(inputs))):
            self._runs += 1
            scratch = self.scratch(self._runs)
            scratch.mkdir()
            message = {"type": "run", "run": self._runs, "job": f"job-{self._runs}", "attempt": 1}
            more = {"more": follow} if follow else {}
            arguments = inputs[len(inputs) - 1 - follow]
            self.send({**message, "scratch": str(scratch), **more}, json.dumps(arguments).encode())
            numbers.append(self._runs)
        return numbers

    def batch(self, inputs: list[dict[str, Any]]) -> list[Report]:
        return [self.end(run) for run in self.start_batch(inputs)]

    def scratch(self, run: int) -> Path:
        return self._scratch / str(run)

    def cancel(self, run: int) -> None:
        self.send({"type": "cancel", "run": run})

    def end(self, run: int) -> Report:
        """The `done` or `error` of a run."""
        ended = self.seen("done", run) + self.seen("error", run)
        return (
            ended[0] if ended else self.until(lambda each: each.type in ("done", "error") and each.header["run"] == run)
        )

    def run(self, arguments: dict[str, Any] | None = None, files: dict[str, str] | None = None) -> Report:
        return self.end(self.start(arguments, files))

    def until(self, wanted: Callable[[Report], bool]) -> Report:
        """Reads on to the first report that is wanted; `seen` has all so far."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            report = self.recv()
            if wanted(report):
                return report
        raise TimeoutError(f"the runner beats, but after {PATIENCE_S} s all it said is {self._reports[-5:]}")

    def seen(self, kind: str, run: int | None = None) -> list[Report]:
        return [
            report
            for report in self._reports
            if report.type == kind and (run is None or report.header.get("run") == run)
        ]

    def log(self, run: int, stream: str = "stdout") -> str:
        """What a run has logged so far."""
        return b"".join(report.body for report in self.seen("log", run) if report.header["stream"] == stream).decode()

    def recv(self) -> Report:
        header_bytes, body_bytes = struct.unpack("<II", self._read(8))
        report = Report(json.loads(self._read(header_bytes)), self._read(body_bytes))
        _check_shape(report.header)
        self._reports.append(report)
        return report

    def read_to_the_end(self) -> int:
        """Reads until the runner closes its end, and gives its exit code (negative: a signal)."""
        try:
            while True:
                self.recv()
        except Gone:
            return self.process.wait(timeout=PATIENCE_S)

    def hang_up(self) -> int:
        """Closes the worker's end, and gives the runner's exit code."""
        self._socket.close()
        return self.process.wait(timeout=PATIENCE_S)

    def stderr(self) -> str:
        """What came through fd 2, after the process has ended."""
        return self.process.communicate(timeout=PATIENCE_S)[1].decode()

    def stdout(self) -> str:
        """What came through fd 1, after the process has ended."""
        return self.process.communicate(timeout=PATIENCE_S)[0].decode()

    def _read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            try:
                piece = self._socket.recv(min(count - len(data), 1 << 20))
            except ConnectionResetError:
                piece = b""
            if not piece:
                raise Gone
            data += piece
        return bytes(data)


def _check_shape(header: dict[str, Any]) -> None:
    """Every report has the members, and the types, that the Rust side pinned."""
    pinned = golden(f"report_{header['type']}")
    # Left out when empty.
    header = {"files": [], **header} if "files" in pinned else header
    assert header.keys() == pinned.keys(), header
    for name, value in pinned.items():
        assert isinstance(header[name], type(value)), header
        if isinstance(value, dict):
            assert header[name].keys() == value.keys(), header
    for file in header.get("files", []):
        assert file.keys() == pinned["files"][0].keys(), header
