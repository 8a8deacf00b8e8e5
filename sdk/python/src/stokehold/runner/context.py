"""The running job, as its handler sees it."""

from __future__ import annotations

import math
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stokehold.runner.attempt import Attempt
    from stokehold.runner.batched import Batch

# Fits into a report's header, and is longer than a progress bar needs.
_MESSAGE_CHARS_MAX = 1_000


@dataclass(frozen=True)
class Job:
    """The running job. `scratch` is an empty folder for this run: files returned from it are not copied.

    `traceparent` is the run's span in the job's trace (W3C Trace Context): use it as the parent of your own spans.
    None if the worker sent none.
    """

    id: str
    attempt: int
    scratch: Path
    traceparent: str | None = None


CURRENT: ContextVar[Attempt | Batch | None] = ContextVar("stokehold_run", default=None)


def current_job() -> Job:
    """The job that this handler runs.

    Raises `RuntimeError` outside a job (at import, in `setup()`, in a thread that the handler started) and in a batch.
    """
    current = CURRENT.get()
    if current is None:
        raise RuntimeError("no job runs here: call current_job() in the handler and pass what you need to your threads")
    return current.job()


def progress(fraction: float, message: str = "") -> None:
    """Reports the progress of the job, from 0 to 1. Has no effect outside a job.

    May be called at any rate: at most a dozen reports per second are sent, and always the last one.
    """
    fraction = float(fraction)
    if math.isnan(fraction):
        raise ValueError("progress(nan): give a number from 0 to 1")
    current = CURRENT.get()
    if current is not None:
        text = str(message)[:_MESSAGE_CHARS_MAX].encode("utf-8", "replace").decode()
        current.progress(min(max(fraction, 0.0), 1.0), text)
