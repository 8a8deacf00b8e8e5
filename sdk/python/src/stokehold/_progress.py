"""The progress bar of a batch: one line, redrawn in a terminal or a notebook, and absent elsewhere."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from typing import IO, Any

from stokehold._batches import BatchRecord

_BAR_CHARS = 24
_FULL, _EMPTY = "\u2588", "\u2591"


class Progress:
    """Shows the progress of a batch on each call. `done` ends the line."""

    def __init__(self, write: Callable[[str], None], finish: Callable[[], None], columns: Callable[[], int]) -> None:
        self._write = write
        self._finish = finish
        self._columns = columns

    def __call__(self, batch: BatchRecord) -> None:
        self._write(line(batch, datetime.now(timezone.utc), self._columns()))

    def done(self) -> None:
        """Ends the line, which stays visible."""
        self._finish()


def progress_for(stream: IO[str] | None = None) -> Progress | None:
    """Returns a progress bar for a notebook or a terminal, or None if there is neither."""
    return _notebook() or _terminal(sys.stderr if stream is None else stream)


def line(batch: BatchRecord, now: datetime, columns: int) -> str:
    """Counts, rate and estimated time left. Parts that do not fit are left out, from the right."""
    counts = batch.counts
    share = counts.ended / counts.accepted if counts.accepted else 0.0
    filled = int(share * _BAR_CHARS)
    head = f"{batch.state} {_FULL * filled}{_EMPTY * (_BAR_CHARS - filled)} {counts.ended:,}/{counts.accepted:,}"
    parts = [head, f"{share:.0%}"]
    parts += [
        f"{count:,} {what}"
        for count, what in (
            (counts.failed, "failed"),
            (counts.expired, "expired"),
            (counts.cancelled, "cancelled"),
            (counts.invalid, "invalid"),
        )
        if count
    ]
    if not batch.is_terminal:
        if batch.rate_per_s:
            parts.append(f"{batch.rate_per_s:,.1f}/s")
        if batch.eta_at is not None:
            parts.append(f"{duration(max(0.0, (batch.eta_at - now).total_seconds()))} left")
    while len(parts) > 1 and len("  ".join(parts)) >= columns:
        parts.pop()
    return "  ".join(parts)[: max(1, columns - 1)]


def duration(seconds: float) -> str:
    """At most two units: `3h 05m`, `4m 09s`, `12s`."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
    return f"{whole // 60}m {whole % 60:02d}s" if whole >= 60 else f"{whole}s"


def _terminal(stream: IO[str]) -> Progress | None:
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        return None

    def write(text: str) -> None:
        try:
            stream.write(f"\r\x1b[2K{text}")
        except UnicodeEncodeError:  # the encoding of the terminal has no block characters
            stream.write(f"\r\x1b[2K{text.replace(_FULL, '#').replace(_EMPTY, '.')}")
        stream.flush()

    def finish() -> None:
        stream.write("\n")
        stream.flush()

    return Progress(write, finish, lambda: shutil.get_terminal_size().columns)


def _notebook() -> Progress | None:
    """Returns a progress bar if IPython runs as the kernel of a notebook. IPython in a terminal is a terminal."""
    ipython = sys.modules.get("IPython")
    get_ipython: Any = getattr(ipython, "get_ipython", None)
    shell = get_ipython() if get_ipython is not None else None
    if shell is None or getattr(shell, "kernel", None) is None:
        return None
    display: Any = getattr(sys.modules.get("IPython.display"), "display", None)
    if display is None:
        return None
    handle: list[Any] = []

    def write(text: str) -> None:
        shown = {"text/plain": text}
        if handle:
            handle[0].update(shown, raw=True)
        else:
            handle.append(display(shown, raw=True, display_id=True))

    return Progress(write, lambda: None, lambda: 120)
