# Generated from api/openapi.json by `make models`; do not edit.
"""The schedules of the API."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from stokehold._read import decode_time

Missed = Literal["skip", "run_once", "run_all"]
"""What happens with ticks that were missed."""


class ScheduleFields:
    """A schedule, with the members of the API. Members are decoded when they are read."""

    __slots__ = ("raw",)

    def __init__(self, raw: dict[str, Any]) -> None:
        self.raw = raw

    @property
    def id(self) -> str:
        """`sch_` and 32 hex digits."""
        return str(self.raw["id"])

    @property
    def cron(self) -> str:
        """The cron expression."""
        return str(self.raw.get("cron") or "")

    @property
    def time_zone(self) -> str:
        """The IANA time zone."""
        return str(self.raw.get("time_zone") or "UTC")

    @property
    def missed(self) -> Missed:
        """What happens with missed ticks."""
        value: Missed = self.raw.get("missed") or "run_once"
        return value

    @property
    def grace_s(self) -> int:
        """Seconds after which a tick counts as missed."""
        return int(self.raw.get("grace_s") or 0)

    @property
    def is_paused(self) -> bool:
        """Whether the schedule is paused."""
        return bool(self.raw.get("paused"))

    @property
    def ticks(self) -> int:
        """How many ticks have created a job."""
        return int(self.raw.get("ticks") or 0)

    @property
    def created_at(self) -> datetime | None:
        """When it was created."""
        return decode_time(self.raw.get("created_at"))

    @property
    def job(self) -> Any:
        """The job of each tick, as submitted."""
        return self.raw.get("job")

    @property
    def last_at(self) -> datetime | None:
        """The last tick that created a job."""
        return decode_time(self.raw.get("last_at"))

    @property
    def last_error(self) -> str | None:
        """Why the last tick created no job: the `code` that `POST /v1/jobs` would have returned, a colon, and what to
        change.

        None if it created one.
        """
        return self.raw.get("last_error")

    @property
    def last_job_id(self) -> str | None:
        """The job of that tick."""
        return self.raw.get("last_job_id")

    @property
    def name(self) -> str | None:
        """Your own name for the schedule."""
        return self.raw.get("name")

    @property
    def next_at(self) -> datetime | None:
        """The next tick; None while paused."""
        return decode_time(self.raw.get("next_at"))
