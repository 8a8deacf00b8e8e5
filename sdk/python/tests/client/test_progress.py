"""The progress of a batch: one line that is redrawn where somebody watches, and nothing elsewhere."""

from __future__ import annotations

import io
import sys
import types
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from stokehold import BatchRecord, Client
from stokehold._progress import duration, line, progress_for

from .conftest import Server, ok
from .test_batches import BATCH_ID, batch

NOW = datetime(2026, 11, 21, 6, 0, tzinfo=timezone.utc)
ETA = (NOW + timedelta(seconds=249)).isoformat().replace("+00:00", "Z")
COUNTS = {"total": 10_010, "invalid": 10, "accepted": 10_000, "succeeded": 4_990, "failed": 10, "open": 5_000}


class Terminal(io.StringIO):
    def __init__(self, *, is_tty: bool = True) -> None:
        super().__init__()
        self.is_tty = is_tty

    def isatty(self) -> bool:
        return self.is_tty


@pytest.fixture(autouse=True)
def _a_capable_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delitem(sys.modules, "IPython", raising=False)


def record(**members: Any) -> BatchRecord:
    return BatchRecord(batch(**{"counts": COUNTS, "eta_at": ETA, "rate_per_s": 20.04, **members}))


def test_it_tells_counts_rate_and_what_is_left() -> None:
    bar = "\u2588" * 12 + "\u2591" * 12
    text = line(record(), NOW, 120)
    assert text == f"running {bar} 5,000/10,000  50%  10 failed  10 invalid  20.0/s  4m 09s left"
    ended = line(record(state="completed"), NOW, 120)
    assert ended.endswith("10 invalid"), "an ended batch has no rate"
    unknown = line(record(counts={}, rate_per_s=None, eta_at=None, state="validating"), NOW, 120)
    assert unknown == f"validating {chr(0x2591) * 24} 0/0  0%"


@pytest.mark.parametrize("columns", [1, 2, 20, 45, 60, 80, 200])
def test_it_never_wraps(columns: int) -> None:
    assert len(line(record(), NOW, columns)) < max(columns, 2)


def test_durations() -> None:
    assert [duration(s) for s in (0, 12.4, 59.6, 249, 3600, 11_100)] == [
        "0s",
        "12s",
        "1m 00s",
        "4m 09s",
        "1h 00m",
        "3h 05m",
    ]


def test_a_terminal_has_one_line_that_is_redrawn() -> None:
    terminal = Terminal()
    progress = progress_for(terminal)
    assert progress is not None
    progress(record())
    progress(record(state="completed"))
    progress.done()
    _, first, last = terminal.getvalue().split("\r\x1b[2K")
    assert first.startswith("running")
    assert "\n" not in first
    assert last.startswith("completed")
    assert last.endswith("\n")


def test_a_terminal_without_unicode_has_a_plain_bar() -> None:
    raw = io.BytesIO()

    class Ascii(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    terminal = Ascii(raw, encoding="ascii")
    progress = progress_for(terminal)
    assert progress is not None
    progress(record())
    assert b"############............ 5,000/10,000" in raw.getvalue()


def test_nobody_watches_a_file_or_a_dumb_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert progress_for(Terminal(is_tty=False)) is None
    monkeypatch.setenv("TERM", "dumb")
    assert progress_for(Terminal()) is None


class Notebook:
    """IPython as a notebook's kernel shows it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, has_kernel: bool = True) -> None:
        self.shown: list[tuple[str, str]] = []
        ipython: Any = types.ModuleType("IPython")
        display: Any = types.ModuleType("IPython.display")
        ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object() if has_kernel else None)
        display.display = self.display
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        monkeypatch.setitem(sys.modules, "IPython.display", display)

    def display(self, data: dict[str, str], *, raw: bool, display_id: bool) -> Notebook:
        assert raw
        assert display_id
        self.shown.append(("new", data["text/plain"]))
        return self

    def update(self, data: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.shown.append(("update", data["text/plain"]))


def test_a_notebook_has_one_display_that_is_updated(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = Notebook(monkeypatch)
    terminal = Terminal()
    progress = progress_for(terminal)
    assert progress is not None
    progress(record())
    progress(record(state="completed"))
    progress.done()
    assert [how for how, _ in notebook.shown] == ["new", "update"]
    assert notebook.shown[1][1].startswith("completed")
    assert terminal.getvalue() == ""


def test_ipython_in_a_terminal_is_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = Notebook(monkeypatch, has_kernel=False)
    terminal = Terminal()
    progress = progress_for(terminal)
    assert progress is not None
    progress(record())
    assert notebook.shown == []
    assert terminal.getvalue() != ""


def test_wait_shows_it_when_asked(api: Server, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    route = f"GET /v1/batches/{BATCH_ID}"
    api.on(route, ok(batch()), ok(batch("finalizing")), ok(batch("completed")))
    client.batches.retrieve(BATCH_ID).wait(progress=True)
    assert [part.split(" ")[0] for part in terminal.getvalue().split("\r\x1b[2K")[1:]] == [
        "running",
        "finalizing",
        "completed",
    ]
    assert api.requests[-1].query == {"wait_s": "1"}
    before = terminal.getvalue()
    client.batches.retrieve(BATCH_ID).wait()
    assert terminal.getvalue() == before
