"""What the tests of RunPod scripts share."""

from __future__ import annotations

import json
from collections.abc import Callable

from ..peer import Peer, Report

Script = Callable[..., Peer]


def raised(class_name: str, message: str) -> str:
    """As the package posts what a handler has raised."""
    failure = {"error_type": f"<class '{class_name}'>", "error_message": message, "error_traceback": "Traceback ..."}
    return json.dumps({**failure, "hostname": "unknown"})


def began(peer: Peer, run: int) -> None:
    """Waits until the handler has reported progress."""
    if not peer.seen("progress", run):
        peer.until(lambda report: report.type == "progress" and report.header["run"] == run)


def error_of(report: Report) -> dict[str, str]:
    assert report.type == "error", report.header
    error: dict[str, str] = report.header["error"]
    return error
