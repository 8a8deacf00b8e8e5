"""Pipelines: jobs that use each other's results, sent as one request. Does no I/O."""

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
    """The client of a job that is not sent yet. Every use raises an error."""

    def __getattr__(self, name: str) -> NoReturn:
        raise RuntimeError("this job is not sent yet; it is sent at the end of the `with` block of its pipeline")


class Plans(Generic[J]):
    """The jobs of a pipeline."""

    def __init__(self, idempotency_key: str | None) -> None:
        self._key = idempotency_key
        self._jobs: list[J] = []
        self._bodies: list[dict[str, Any]] = []
        self._is_open = True

    def add(self, endpoint: str, value: Any, options: Mapping[str, Any], make: Callable[[JobRecord], J]) -> J:
        """Adds a job, for later jobs to refer to."""
        if not self._is_open:
            raise RuntimeError("the pipeline has already ended; create another one")
        body = {"endpoint": endpoint, "input": value, **job_options(options, self._jobs)}
        job = make(JobRecord({"id": f"#{len(self._jobs)}", "endpoint": endpoint, "state": "blocked"}))
        self._jobs.append(job)
        self._bodies.append(body)
        return job

    def send(self, api: Api, adopt: Callable[[J, JobRecord], None]) -> Plan[None]:
        """Sends all jobs, or none. Calls `adopt` with each job and its record."""
        self._is_open = False
        records = yield from api.submit_planned(self._bodies, self._jobs, self._key)
        for job, record in zip(self._jobs, records):
            adopt(job, record)

    def drop(self) -> None:
        """Discards the jobs."""
        self._is_open = False
