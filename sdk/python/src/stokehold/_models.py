"""The records of the API, decoded. Members that this version does not know are kept in `raw`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Literal, NamedTuple

from stokehold._references import Reference, checked_key

JobState = Literal["scheduled", "blocked", "queued", "running", "succeeded", "failed", "cancelled", "expired"]
Priority = Literal["interactive", "standard", "batch"]

TERMINAL_STATES: frozenset[str] = frozenset({"succeeded", "failed", "cancelled", "expired"})


@dataclass(frozen=True)
class Timing:
    """The duration of each phase of an attempt, in milliseconds.

    A phase that was not needed is 0, e.g. `boot_ms` on a warm runner.
    `worker_wait_ms` is the wait in the worker: for a slot, or for the call of the handler that several jobs share.
    """

    queued_ms: int = 0
    env_ms: int = 0
    weights_ms: int = 0
    boot_ms: int = 0
    load_ms: int = 0
    warmup_ms: int = 0
    worker_wait_ms: int = 0
    inputs_ms: int = 0
    run_ms: int = 0
    upload_ms: int = 0

    @classmethod
    def decode(cls, raw: Mapping[str, Any] | None) -> Timing:
        return cls(**{name: int((raw or {}).get(name) or 0) for name in cls.__dataclass_fields__})


@dataclass(frozen=True)
class Progress:
    """The latest progress that the handler reported. `fraction` is from 0 to 1."""

    fraction: float
    message: str = ""


@dataclass(frozen=True)
class Failure:
    """Why an attempt or a job failed. `code` is stable; `class_name` is the class of the exception or a signal name."""

    code: str
    class_name: str
    message: str
    traceback: str | None = None
    stderr: str | None = None

    @classmethod
    def decode(cls, raw: Mapping[str, Any] | None) -> Failure | None:
        if raw is None:
            return None
        return cls(
            code=raw.get("code", ""),
            class_name=raw.get("class") or "",
            message=raw.get("message") or "",
            traceback=raw.get("traceback"),
            stderr=raw.get("stderr"),
        )


@dataclass(frozen=True)
class Attempt:
    """An attempt at a job. `state` is running, succeeded, failed, released, lost, cancelled or expired."""

    attempt: int
    worker_id: str
    state: str
    started_at: datetime | None
    ended_at: datetime | None
    timing: Timing
    error: Failure | None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Attempt:
        return cls(
            attempt=raw["attempt"],
            worker_id=raw["worker_id"],
            state=raw["state"],
            started_at=decode_time(raw.get("started_at")),
            ended_at=decode_time(raw.get("ended_at")),
            timing=Timing.decode(raw.get("timing")),
            error=Failure.decode(raw.get("error")),
        )


class Retried(NamedTuple):
    """A job that was retried, and its new job."""

    id: str
    new_id: str


class Dependee(NamedTuple):
    """A job that another job depends on. `on` is success or completion."""

    job_id: str
    on: str


@dataclass(frozen=True)
class StepRun:
    """The outcome of a step before or after a job.

    `stage` is before or after. `decision` is allow, reject or rewrite, or None until the step has decided.
    """

    name: str
    stage: str
    endpoint: str
    job_id: str | None
    state: str
    decision: str | None
    reason: str | None
    scores: Mapping[str, float]
    timing: Timing
    cost_usd_micros: int | None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> StepRun:
        return cls(
            name=raw.get("name") or "",
            stage=raw.get("stage") or "",
            endpoint=raw.get("endpoint") or "",
            job_id=raw.get("job_id"),
            state=raw.get("state") or "",
            decision=raw.get("decision"),
            reason=raw.get("reason"),
            scores=dict(raw.get("scores") or {}),
            timing=Timing.decode(raw.get("timing")),
            cost_usd_micros=raw.get("cost_usd_micros"),
        )


class JobRecord:
    """A job in the state that the API last returned. Members are decoded when they are read.

    In the input of another job it is replaced by its result, and `job["boxes"][0]` by that part of its result.
    """

    __slots__ = ("raw",)

    # Without these, Python would treat a class with `[]` as a sequence and iterate over it endlessly.
    __iter__ = None
    __contains__ = None

    def __init__(self, raw: dict[str, Any]) -> None:
        self.raw = raw

    def __getitem__(self, key: str | int) -> Reference:
        return Reference(self, (checked_key(key),))

    @property
    def id(self) -> str:
        return str(self.raw["id"])

    @property
    def endpoint(self) -> str:
        return str(self.raw["endpoint"])

    @property
    def version(self) -> int | None:
        """The version of the endpoint that the job runs on; None until the first `refresh` after `submit_many`."""
        return self.raw.get("version")

    @property
    def state(self) -> JobState:
        state: JobState = self.raw["state"]
        return state

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended. An ended job never changes its state."""
        return self.raw["state"] in TERMINAL_STATES

    @property
    def priority(self) -> Priority:
        priority: Priority = self.raw.get("priority") or "standard"
        return priority

    @property
    def created_at(self) -> datetime | None:
        return decode_time(self.raw.get("created_at"))

    @property
    def run_after(self) -> datetime | None:
        return decode_time(self.raw.get("run_after"))

    @property
    def ended_at(self) -> datetime | None:
        return decode_time(self.raw.get("ended_at"))

    @property
    def input(self) -> Any:
        return self.raw.get("input")

    @property
    def metadata(self) -> dict[str, str]:
        return dict(self.raw.get("metadata") or {})

    @property
    def progress(self) -> Progress | None:
        raw = self.raw.get("progress")
        return None if raw is None else Progress(raw["fraction"], raw.get("message") or "")

    @property
    def attempts(self) -> list[Attempt]:
        return [Attempt.decode(raw) for raw in self.raw.get("attempts") or ()]

    @property
    def timing(self) -> Timing:
        """The timing of the last attempt. `queued_ms` is the time from submit to its lease."""
        return Timing.decode(self.raw.get("timing"))

    @property
    def result_url(self) -> str | None:
        """The URL of the result of a succeeded job. It requires the same token."""
        return self.raw.get("result_url")

    @property
    def error(self) -> Failure | None:
        return Failure.decode(self.raw.get("error"))

    @property
    def deadline_at(self) -> datetime | None:
        """The time at which the job expires if it has not ended."""
        return decode_time(self.raw.get("deadline_at"))

    @property
    def batch_id(self) -> str | None:
        """The id of the batch that the job belongs to."""
        return self.raw.get("batch_id")

    @property
    def line(self) -> int | None:
        """The number of its line in the batch, from 1."""
        return self.raw.get("line")

    @property
    def custom_id(self) -> str | None:
        """The `custom_id` of its line in the batch."""
        return self.raw.get("custom_id")

    @property
    def retry_of(self) -> str | None:
        """The id of the job that this job is a retry of."""
        return self.raw.get("retry_of")

    @property
    def schedule_id(self) -> str | None:
        """The id of the schedule that submitted the job."""
        return self.raw.get("schedule_id")

    @property
    def depends_on(self) -> list[Dependee]:
        """The jobs that this job depends on."""
        return [Dependee(raw["job"], raw.get("on") or "success") for raw in self.raw.get("depends_on") or ()]

    @property
    def concurrency_key(self) -> str | None:
        return self.raw.get("concurrency_key")

    @property
    def webhook(self) -> str | None:
        """The URL that receives the events of the job."""
        return self.raw.get("webhook")

    @property
    def webhook_events(self) -> list[str]:
        return list(self.raw.get("webhook_events") or ())

    @property
    def steps(self) -> list[StepRun]:
        """The outcomes of the steps before and after the job."""
        return [StepRun.decode(raw) for raw in self.raw.get("steps") or ()]

    @property
    def cost_usd_micros(self) -> int | None:
        """The cost of the job in micro-dollars (millionths of a US dollar); None if it is not known."""
        return self.raw.get("cost_usd_micros")

    @property
    def oom_events(self) -> int:
        """How often the job ran out of GPU or system memory. This does not count as an attempt."""
        return int(self.raw.get("oom_events") or 0)


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


@dataclass(frozen=True)
class Endpoint:
    """A deployed version of an endpoint. Immutable."""

    name: str
    version: int
    created_at: datetime | None
    input_schema: Any
    output_schema: Any
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Endpoint:
        return cls(
            name=raw["name"],
            version=raw["version"],
            created_at=decode_time(raw.get("created_at")),
            input_schema=raw.get("input_schema"),
            output_schema=raw.get("output_schema"),
            raw=raw,
        )


@dataclass(frozen=True)
class Worker:
    """A worker. Other members that it reports (`slots`, `running`, `loaded`, `gpus`) are in `raw`."""

    id: str
    name: str
    state: str
    joined_at: datetime | None
    seen_at: datetime | None
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Worker:
        return cls(
            id=raw["id"],
            name=raw.get("name") or "",
            state=raw.get("state") or "",
            joined_at=decode_time(raw.get("joined_at")),
            seen_at=decode_time(raw.get("seen_at")),
            raw=raw,
        )


@dataclass(frozen=True)
class Limits:
    """Your limits and how much of them is used. None means no limit.

    limits: `weight`, `max_running`, `max_open`, `starts_per_minute`, `requests_per_minute`, `max_storage_bytes` and
        `max_memory_bytes` of the tenant.
    usage: the number of `open` and `running` jobs, `storage_bytes` if they are limited, and `memory_bytes`: the memory
        of the queue that the jobs of the tenant use.
    endpoints: `limits` and `usage` of each endpoint.
    """

    tenant: str
    limits: Mapping[str, Any]
    endpoints: Mapping[str, Mapping[str, Any]]
    usage: Mapping[str, int]

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Limits:
        return cls(
            tenant=raw["tenant"],
            limits=dict(raw.get("limits") or {}),
            endpoints=dict(raw.get("endpoints") or {}),
            usage=dict(raw.get("usage") or {}),
        )


def decode_time(text: str | None) -> datetime | None:
    """Parses RFC 3339 in UTC, to the millisecond. Python before 3.11 parses neither `Z` nor a one-digit fraction."""
    if text is None:
        return None
    whole, _, fraction = text.rstrip("Zz").partition(".")
    stamp = datetime.fromisoformat(whole).replace(tzinfo=timezone.utc)
    return stamp.replace(microsecond=int(fraction[:6].ljust(6, "0"))) if fraction else stamp


def encode_time(stamp: datetime) -> str:
    """Formats a time as RFC 3339 in UTC. Raises `ValueError` for a time without a zone, which is ambiguous."""
    if stamp.tzinfo is None:
        raise ValueError(f"{stamp!r} has no time zone; use datetime.now(timezone.utc) or .astimezone()")
    return stamp.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
