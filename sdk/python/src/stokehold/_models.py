"""The records of the API, decoded. Members that this version does not know are kept in `raw`."""

from __future__ import annotations

from dataclasses import dataclass

from stokehold._generated.endpoints import Endpoint
from stokehold._generated.jobs import (
    Attempt,
    AttemptState,
    Dependee,
    Failure,
    JobCost,
    JobFields,
    JobState,
    Priority,
    Progress,
    Retried,
    StepRun,
    Timing,
    Waiting,
    WaitingReason,
)
from stokehold._generated.limits import Limits
from stokehold._generated.workers import Worker
from stokehold._references import Reference, checked_key

__all__ = [
    "Attempt",
    "AttemptState",
    "Dependee",
    "Endpoint",
    "Failure",
    "FileInfo",
    "JobCost",
    "JobRecord",
    "JobState",
    "Limits",
    "Priority",
    "Progress",
    "Retried",
    "StepRun",
    "Timing",
    "Waiting",
    "WaitingReason",
    "Worker",
]

TERMINAL_STATES: frozenset[str] = frozenset({"succeeded", "failed", "cancelled", "expired"})


class JobRecord(JobFields):
    """A job in the state that the API last returned. Members are decoded when they are read.

    In the input of another job it is replaced by its result, and `job["boxes"][0]` by that part of its result.
    """

    __slots__ = ()

    # Without these, Python would treat a class with `[]` as a sequence and iterate over it endlessly.
    __iter__ = None
    __contains__ = None

    def __getitem__(self, key: str | int) -> Reference:
        return Reference(self, (checked_key(key),))

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended. An ended job never changes its state."""
        return self.raw["state"] in TERMINAL_STATES


NO_OWNER = "this file has no client, because it was created directly; use a file from upload() or from a result"


@dataclass(frozen=True)
class FileInfo:
    """A file: an uploaded file, which inputs refer to by its `id`, or a file in a result, which has no id."""

    name: str
    url: str
    id: str | None = None
    size_bytes: int | None = None
    sha256: str | None = None
    content_type: str | None = None
