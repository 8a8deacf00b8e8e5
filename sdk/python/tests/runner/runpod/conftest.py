"""Fixtures: a runner with a RunPod script."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ..peer import Peer
from .models import Script


@pytest.fixture
def script(package: Callable[..., Path], start: Callable[[Path], Peer]) -> Script:
    """Starts a runner whose script is `source`, and gives its peer when the script asks for jobs."""

    def script(source: str, max_concurrency: int = 1) -> Peer:
        peer = start(package(source, "handler.py"))
        report = peer.load("handler.py", max_concurrency, "runpod")
        assert report.type == "ready", report.header
        return peer

    return script
