"""Fixtures: a runner with a Cog model, and a web server."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ..peer import Peer
from .models import Load, Package


@pytest.fixture
def load(package: Package, start: Callable[[Path], Peer]) -> Load:
    """Starts a runner with the predictor of `source` loaded."""

    def load(source: str, entry: str = "predict.py:Predictor", max_concurrency: int = 1) -> Peer:
        peer = start(package(source, entry.partition(":")[0]))
        report = peer.load(entry, max_concurrency, kind="cog")
        assert report.type == "ready", report.header
        return peer

    return load


@pytest.fixture
def website() -> Iterator[str]:
    """Serves `/hello.txt`, and nothing else."""

    class Pages(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_there = self.path == "/hello.txt"
            self.send_response(200 if is_there else 404)
            self.end_headers()
            self.wfile.write(b"from afar" if is_there else b"")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()
