"""What a handler knows of the job it runs."""

from __future__ import annotations

import math
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stokehold.runner.attempt import Attempt
    from stokehold.runner.batched import Batch

# Room in a report's header, and more than anybody reads off a progress bar.
_MESSAGE_CHARS_MAX = 1_000


@dataclass(frozen=True)
class Job:
    """The job that runs. `scratch` is an empty folder of its own: files returned from there are not copied.

    `traceparent` is the run's place in the job's trace (W3C Trace Context): make your own spans parts of it. None
    where no worker gave it.
    """

    id: str
    attempt: int
    scratch: Path
    traceparent: str | None = None


CURRENT: ContextVar[Attempt | Batch | None] = ContextVar("stokehold_run", default=None)


def current_job() -> Job:
    """The job this handler runs.

    Raises `RuntimeError` where none does: at import, in `setup()`, in a thread of the handler's own; and in a batch.
    """
    current = CURRENT.get()
    if current is None:
        raise RuntimeError("no job runs here: call current_job() in the handler and hand what you need to your threads")
    return current.job()


def progress(fraction: float, message: str = "") -> None:
    """Tells how far the job is, 0 to 1. No effect outside of a job.

    May be called as often as you like: a dozen a second are sent, and always the last one.
    """
    fraction = float(fraction)
    if math.isnan(fraction):
        raise ValueError("progress(nan): give a number from 0 to 1")
    current = CURRENT.get()
    if current is not None:
        text = str(message)[:_MESSAGE_CHARS_MAX].encode("utf-8", "replace").decode()
        current.progress(min(max(fraction, 0.0), 1.0), text)
