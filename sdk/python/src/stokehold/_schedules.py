"""Schedules: jobs submitted at set times. Shared by both clients; does no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from stokehold._files import InputEncoder
from stokehold._models import decode_time
from stokehold._options import given, job_options
from stokehold._request import Plan

if TYPE_CHECKING:
    from stokehold._api import Api

Missed = Literal["skip", "run_once", "run_all"]

PATH = "/v1/schedules"

# Options of a single job. The schedule sets the time of each of its jobs.
_NOT_SCHEDULED = ("run_after", "depends_on")


class ScheduleRecord:
    """A schedule in the state that the API last returned. Members are decoded when they are read."""

    __slots__ = ("raw",)

    def __init__(self, raw: dict[str, Any]) -> None:
        self.raw = raw

    @property
    def id(self) -> str:
        return str(self.raw["id"])

    @property
    def name(self) -> str | None:
        return self.raw.get("name")

    @property
    def cron(self) -> str:
        return str(self.raw["cron"])

    @property
    def time_zone(self) -> str:
        return str(self.raw.get("time_zone") or "UTC")

    @property
    def missed(self) -> Missed:
        """What happens to runs that are more than `grace_s` late, e.g. after an outage."""
        missed: Missed = self.raw.get("missed") or "run_once"
        return missed

    @property
    def grace_s(self) -> int:
        return int(self.raw.get("grace_s") or 0)

    @property
    def is_paused(self) -> bool:
        return bool(self.raw.get("paused"))

    @property
    def created_at(self) -> datetime | None:
        return decode_time(self.raw.get("created_at"))

    @property
    def next_at(self) -> datetime | None:
        """The time of its next job; None while it is paused."""
        return decode_time(self.raw.get("next_at"))

    @property
    def last_at(self) -> datetime | None:
        return decode_time(self.raw.get("last_at"))

    @property
    def last_job_id(self) -> str | None:
        return self.raw.get("last_job_id")

    @property
    def last_error(self) -> str | None:
        """Why its last job could not be submitted, as `code: what to change`; None if it was submitted."""
        return self.raw.get("last_error")

    @property
    def ticks(self) -> int:
        """The number of jobs that it has submitted."""
        return int(self.raw.get("ticks") or 0)

    @property
    def job(self) -> dict[str, Any]:
        """The job that it submits: endpoint, input and options."""
        return dict(self.raw.get("job") or {})


def create(
    api: Api,
    timing: Mapping[str, Any],
    endpoint: str,
    value: Any,
    options: Mapping[str, Any],
    idempotency_key: str | None,
) -> Plan[ScheduleRecord]:
    for name in _NOT_SCHEDULED:
        if options.get(name) is not None:
            raise TypeError(f"{name} applies to a single job; a schedule submits many, so leave it out")
    job = {"endpoint": endpoint, "input": value, **job_options(options)}
    body = yield from api.encode({**given(timing, timing), "job": job}, InputEncoder())
    reply = yield from api.post(PATH, body, idempotency_key)
    return ScheduleRecord(reply.json())


def get(api: Api, schedule_id: str) -> Plan[ScheduleRecord]:
    return ScheduleRecord((yield from api.get_json(schedule_path(schedule_id))))


def change(api: Api, schedule_id: str, verb: Literal["pause", "resume"]) -> Plan[ScheduleRecord]:
    return ScheduleRecord((yield from api.post_json(f"{schedule_path(schedule_id)}/{verb}")))


def delete(api: Api, schedule_id: str) -> Plan[None]:
    yield from api.delete(schedule_path(schedule_id))


def schedule_path(schedule_id: str) -> str:
    return f"{PATH}/{quote(schedule_id, safe='')}"
