"""What may be said of a job, of a selection of jobs, and of a deploy: checked by name, and in the API's words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict

from stokehold._models import JobRecord, JobState, Priority, encode_time
from stokehold._references import Dependency, depends_on

# What the API gives with one page, and does with one request.
SELECTED_JOBS_MAX = 1_000


class JobOptions(TypedDict, total=False):
    """How a job is run. What is not given, or None, is the endpoint's or the API's to say.

    version: of the endpoint; default: the one that is current when the job is submitted.
    priority: "interactive", "standard" (default) or "batch".
    timeout_s: seconds that one attempt may run; default: the endpoint's.
    max_attempts: default: the endpoint's.
    run_after: not before this time, which needs a time zone.
    queue_timeout_s: seconds from submit in which it must have started, or it expires; 1 to 2,592,000, default none.
    deadline_s: seconds from submit in which it must have ended, or it expires; 1 to 2,592,000, default none.
    retention_s: seconds that its record stays quick to read after its end; 60 to 2,592,000, default the API's.
    metadata: texts of your own, to find it by.
    concurrency_key: of all jobs with this key, at most `concurrency_max` (1 to 10,000, default 1) run at once.
    depends_on: up to 100 jobs, or their ids, that must have succeeded before; `{"job": job, "on": "completion"}` for
        one that only must have ended.
    webhook: an https URL that is told, signed (see `verify_webhook`).
    webhook_events: of what: "job.started", "job.output", "job.progress", "job.completed" (default: only the last).
    """

    version: int | None
    priority: Priority | None
    timeout_s: int | None
    max_attempts: int | None
    run_after: datetime | None
    queue_timeout_s: int | None
    deadline_s: int | None
    retention_s: int | None
    metadata: Mapping[str, str] | None
    concurrency_key: str | None
    concurrency_max: int | None
    depends_on: Sequence[Dependency] | None
    webhook: str | None
    webhook_events: Sequence[str] | None


class JobFilter(TypedDict, total=False):
    """Which jobs: those that everything given is true of.

    batch and schedule are ids, error_code is a failed job's (such as "timeout").
    """

    state: JobState | None
    endpoint: str | None
    batch: str | None
    schedule: str | None
    priority: Priority | None
    error_code: str | None
    metadata: Mapping[str, str] | None


def job_options(options: Mapping[str, Any], planned: Sequence[JobRecord] = ()) -> dict[str, Any]:
    """The members of a submit that were given. `planned` are the jobs that a dependency may name as not sent yet."""
    members = given(options, JobOptions.__annotations__)
    if "run_after" in members:
        members["run_after"] = encode_time(members["run_after"])
    if "depends_on" in members:
        members["depends_on"] = depends_on(members["depends_on"], planned)
    return members


def job_filter(options: Mapping[str, Any]) -> dict[str, Any]:
    """The `filter` of a change to many jobs. An empty one is refused: it would mean every job."""
    members = given(options, JobFilter.__annotations__)
    if not members:
        raise ValueError(f"say which jobs: give at least one of {', '.join(JobFilter.__annotations__)}")
    return members


def list_query(options: Mapping[str, Any], page_size: int, known: Iterable[str] | None = None) -> list[tuple[str, str]]:
    """The query of a listing."""
    members = given(options, JobFilter.__annotations__ if known is None else known)
    metadata = members.pop("metadata", {})
    query = [("limit", str(page_size))]
    query += [(name, str(value)) for name, value in members.items()]
    return query + [(f"metadata.{name}", value) for name, value in metadata.items()]


def given(options: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """Those that are not None, nor an empty mapping or list. Raises `TypeError` for a name that is not known."""
    names = list(known)
    unknown = [name for name in options if name not in names]
    if unknown:
        raise TypeError(f"unexpected argument {unknown[0]!r}: known are {', '.join(names)}")
    return {name: value for name, value in options.items() if value is not None and value != {} and value != []}


def deploy_options(
    vram_gib: float | None, max_concurrency: int | None, timeout_s: int | None, max_attempts: int | None
) -> dict[str, Any]:
    """The options of a deploy that were given; what was not is the handler's to say."""
    options = {
        "vram_gib": vram_gib,
        "max_concurrency": max_concurrency,
        "timeout_s": timeout_s,
        "max_attempts": max_attempts,
    }
    return {name: value for name, value in options.items() if value is not None}
