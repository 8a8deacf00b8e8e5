"""The current job, for handlers."""

from __future__ import annotations

import math
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stokehold.runner.attempt import Attempt
    from stokehold.runner.batched import Batch

# Fits in the header of a report, and is enough for a progress bar.
_MESSAGE_CHARS_MAX = 1_000


@dataclass(frozen=True)
class Job:
    """The current job.

    scratch: an empty folder for the job. Files that are returned from it are not copied.
    traceparent: the trace context of this run (W3C Trace Context), to use as the parent of your own spans. None if the
        worker sent none.
    """

    id: str
    attempt: int
    scratch: Path
    traceparent: str | None = None


CURRENT: ContextVar[Attempt | Batch | None] = ContextVar("stokehold_run", default=None)


def current_job() -> Job:
    """Returns the job that the handler is running.

    Raises `RuntimeError` where there is no single job: at import, in `setup()`, in a thread that the handler started,
    and in a call for a batch.
    """
    current = CURRENT.get()
    if current is None:
        raise RuntimeError(
            "no job is running here; call current_job() in the handler, and pass what you need to your threads"
        )
    return current.job()


def progress(fraction: float, message: str = "") -> None:
    """Reports the progress of the job, from 0 to 1. Has no effect outside of a job.

    Can be called at any rate. About a dozen reports a second are sent, and always the last one.
    """
    fraction = float(fraction)
    if math.isnan(fraction):
        raise ValueError("progress(nan): use a number from 0 to 1")
    current = CURRENT.get()
    if current is not None:
        text = str(message)[:_MESSAGE_CHARS_MAX].encode("utf-8", "replace").decode()
        current.progress(min(max(fraction, 0.0), 1.0), text)
