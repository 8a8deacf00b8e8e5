"""Schedules: jobs submitted at set times. Shared by both clients; does no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from stokehold._files import InputEncoder
from stokehold._generated.options import JobOptions, ScheduleTiming
from stokehold._generated.schedules import ScheduleFields
from stokehold._options import given, job_options
from stokehold._request import Plan

if TYPE_CHECKING:
    from stokehold._api import Api

PATH = "/v1/schedules"

# Options of a single job. The schedule sets the time of each of its jobs.
_NOT_SCHEDULED = ("run_after", "depends_on")


class ScheduleRecord(ScheduleFields):
    """A schedule in the state that the API last returned. Members are decoded when they are read."""

    __slots__ = ()

    @property
    def job(self) -> dict[str, Any]:
        """The job that it submits: endpoint, input and options."""
        return dict(self.raw.get("job") or {})


class ScheduleOptions(JobOptions, ScheduleTiming, total=False):
    """When a schedule submits its job, and how the job is run."""


def create(
    api: Api,
    cron: str,
    endpoint: str,
    value: Any,
    options: Mapping[str, Any],
    idempotency_key: str | None,
) -> Plan[ScheduleRecord]:
    timing = {name: option for name, option in options.items() if name in ScheduleTiming.__annotations__}
    of_job = {name: option for name, option in options.items() if name not in timing}
    for name in _NOT_SCHEDULED:
        if of_job.get(name) is not None:
            raise TypeError(f"{name} applies to a single job; a schedule submits many, so leave it out")
    job = {"endpoint": endpoint, "input": value, **job_options(of_job)}
    body = yield from api.encode({"cron": cron, **given(timing, timing), "job": job}, InputEncoder())
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
