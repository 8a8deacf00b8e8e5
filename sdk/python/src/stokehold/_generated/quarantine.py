# Generated from api/openapi.json by `make models`; do not edit.
"""The quarantine of the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from stokehold._generated.jobs import (
    JobState,
)
from stokehold._read import decode_time

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class QuarantinedJob:
    """A job whose record cannot be read.

    since: Since when the job is quarantined.
    why: What could not be read.
    endpoint: The endpoint; None if the record does not name it.
    state: The state before the quarantine; None if the record does not name it.
    tenant: The tenant; None if the record does not name it.
    """

    id: str
    since: datetime | None
    why: str
    endpoint: str | None = None
    state: JobState | None = None
    tenant: str | None = None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            id=raw["id"],
            since=decode_time(raw.get("since")),
            why=raw.get("why") or "",
            endpoint=raw.get("endpoint"),
            state=raw.get("state"),
            tenant=raw.get("tenant"),
        )


@dataclass(frozen=True)
class Quarantine:
    """The quarantined jobs, oldest first; at most 1,000 per shard.

    total: The number of quarantined jobs.
    """

    jobs: tuple[QuarantinedJob, ...]
    total: int

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            jobs=tuple(QuarantinedJob.decode(each) for each in raw.get("jobs") or ()),
            total=raw.get("total") or 0,
        )


@dataclass(frozen=True)
class QuarantineOutcome:
    """The outcome of one job.

    outcome: The new state, e.g. `queued` or `failed`; `deleted`; `unreadable`: the job stays quarantined; or
        `not_found`: it is not quarantined.
    why: Why the job stays quarantined; None if it does not.
    """

    id: str
    outcome: str
    why: str | None = None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            id=raw["id"],
            outcome=raw.get("outcome") or "",
            why=raw.get("why"),
        )
