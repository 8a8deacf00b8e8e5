"""Fixtures: a package written on the spot, and a real runner in it."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from .peer import Peer

Serve = Callable[..., Peer]


class Gate:
    """Holds a handler until the test opens it: the handler reads a byte from a FIFO."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        # Open for both, so that neither side waits for the other to open it.
        self._fd = os.open(path, os.O_RDWR)

    def open(self, times: int = 1) -> None:
        os.write(self._fd, b"x" * times)

    def close(self) -> None:
        os.close(self._fd)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate(tmp_path / "gate")
    yield gate
    gate.close()


@pytest.fixture
def package(tmp_path: Path) -> Callable[[str], Path]:
    """Writes `endpoint.py` into a folder of its own and gives the folder."""

    def write(source: str, file: str = "endpoint.py") -> Path:
        folder = tmp_path / "package"
        folder.mkdir(exist_ok=True)
        (folder / file).write_text(textwrap.dedent(source))
        return folder

    return write


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[Path], Peer]]:
    """Starts a runner in a folder, without loading anything."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with ExitStack() as stack:
        yield lambda folder: stack.enter_context(Peer(folder, scratch))


@pytest.fixture
def serve(package: Callable[[str], Path], start: Callable[[Path], Peer]) -> Serve:
    """Starts a runner with `handler` (the name of an object in `source`) loaded."""

    def serve(source: str, handler: str = "handler", max_concurrency: int = 1) -> Peer:
        peer = start(package(source))
        report = peer.load(f"endpoint.py:{handler}", max_concurrency)
        assert report.type == "ready", report.header
        return peer

    return serve
