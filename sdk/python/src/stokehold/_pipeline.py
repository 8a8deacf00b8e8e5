"""Jobs that use each other's results, planned together and sent as one request. Nothing here does I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Callable, Generic, NoReturn, TypeVar

from stokehold._models import JobRecord
from stokehold._options import job_options
from stokehold._request import Plan

if TYPE_CHECKING:
    from stokehold._api import Api

J = TypeVar("J", bound=JobRecord)


class Unsent:
    """In the place of a planned job's client: whatever is asked of it says what is missing."""

    def __getattr__(self, name: str) -> NoReturn:
        raise RuntimeError("this job is not sent: that happens where the pipeline's `with` block ends without an error")


class Plans(Generic[J]):
    """What a pipeline has collected."""

    def __init__(self, idempotency_key: str | None) -> None:
        self._key = idempotency_key
        self._jobs: list[J] = []
        self._bodies: list[dict[str, Any]] = []
        self._is_open = True

    def add(self, endpoint: str, value: Any, options: Mapping[str, Any], make: Callable[[JobRecord], J]) -> J:
        """The job as those after it may name it."""
        if not self._is_open:
            raise RuntimeError("the pipeline is sent: begin another one")
        body = {"endpoint": endpoint, "input": value, **job_options(options, self._jobs)}
        job = make(JobRecord({"id": f"#{len(self._jobs)}", "endpoint": endpoint, "state": "blocked"}))
        self._jobs.append(job)
        self._bodies.append(body)
        return job

    def send(self, api: Api, adopt: Callable[[J, JobRecord], None]) -> Plan[None]:
        """All of them, or none. `adopt` is given each job and what it is now."""
        self._is_open = False
        records = yield from api.submit_planned(self._bodies, self._jobs, self._key)
        for job, record in zip(self._jobs, records):
            adopt(job, record)

    def drop(self) -> None:
        """Nothing of it is sent."""
        self._is_open = False
