# Generated from api/openapi.json by `make models`; do not edit.
"""The jobs of the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from stokehold._generated.costs import TokenUsage
from stokehold._read import decode_time, optional, word

if TYPE_CHECKING:
    from typing_extensions import Self


AttemptState = Literal["running", "succeeded", "failed", "released", "lost", "cancelled", "expired"]
"""The outcome of an attempt, or that it is still running."""

DependencyOn = Literal["success", "completion"]
"""The end of a job that another one waits for: `success`, or `completion` if any end will do."""

StepStage = Literal["before", "after"]
"""When a step decides: before or after the endpoint runs the job."""

JobState = Literal["scheduled", "blocked", "queued", "running", "succeeded", "failed", "cancelled", "expired"]
"""The state of a job."""

StepDecision = Literal["allow", "reject", "rewrite"]
"""The decision of a step."""

WaitingReason = Literal[
    "unschedulable",
    "busy",
    "budget",
    "limit",
    "concurrency_key",
    "dependency",
    "behind_others",
    "renting",
    "booting",
    "environment",
    "loading",
    "soon",
]
"""The reasons why a job waits."""

Priority = Literal["interactive", "standard", "batch"]
"""The priority of a job."""

JobHookEvent = Literal["job.started", "job.output", "job.progress", "job.completed"]
"""An event of a job that a webhook can receive."""


@dataclass(frozen=True)
class Timing:
    """Where the milliseconds of an attempt went.

    queued_ms: From ready to leased.
    env_ms: Building or fetching the environment.
    weights_ms: Fetching the weights, as far as it took longer than the environment.
    boot_ms: Starting the runner.
    load_ms: Loading the model.
    warmup_ms: Running its warm-up inputs.
    run_ms: The handler itself.
    upload_ms: Uploading result and files to S3.
    batch_size: How many jobs shared the call of the handler, including this one, as reported by the worker; at most
        what the version allows. Absent if it takes one at a time.
    inputs_ms: Fetching the input's files; absent if there are none.
    worker_wait_ms: Waiting in the worker for a slot, or for the shared call of the handler; absent if it did not wait.
    """

    queued_ms: int = 0
    env_ms: int = 0
    weights_ms: int = 0
    boot_ms: int = 0
    load_ms: int = 0
    warmup_ms: int = 0
    run_ms: int = 0
    upload_ms: int = 0
    batch_size: int | None = None
    inputs_ms: int = 0
    worker_wait_ms: int = 0

    @classmethod
    def decode(cls, raw: Mapping[str, Any] | None) -> Self:
        raw = raw or {}
        return cls(
            queued_ms=raw.get("queued_ms") or 0,
            env_ms=raw.get("env_ms") or 0,
            weights_ms=raw.get("weights_ms") or 0,
            boot_ms=raw.get("boot_ms") or 0,
            load_ms=raw.get("load_ms") or 0,
            warmup_ms=raw.get("warmup_ms") or 0,
            run_ms=raw.get("run_ms") or 0,
            upload_ms=raw.get("upload_ms") or 0,
            batch_size=raw.get("batch_size"),
            inputs_ms=raw.get("inputs_ms") or 0,
            worker_wait_ms=raw.get("worker_wait_ms") or 0,
        )


@dataclass(frozen=True)
class Progress:
    """The progress of a running job.

    fraction: 0 to 1.
    message: What the job is doing.
    """

    fraction: float
    message: str

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            fraction=raw.get("fraction") or 0.0,
            message=raw.get("message") or "",
        )


@dataclass(frozen=True)
class Failure:
    """Why an attempt or a job failed.

    code: The kind of failure; stable.
    class_name: The exception's class, the signal's name, or empty.
    message: One sentence.
    stderr: The last lines written to stderr.
    traceback: The traceback, when there was an exception.
    """

    code: str
    class_name: str
    message: str
    stderr: str | None = None
    traceback: str | None = None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            code=raw.get("code") or "",
            class_name=raw.get("class") or "",
            message=raw.get("message") or "",
            stderr=raw.get("stderr"),
            traceback=raw.get("traceback"),
        )


@dataclass(frozen=True)
class Attempt:
    """One attempt at a job.

    attempt: 1, 2, 3, ...
    worker_id: The worker that ran it.
    state: The outcome of the attempt, or that it is still running.
    started_at: When it started.
    ended_at: When it ended; None until then.
    timing: Where its time went.
    error: Why it failed.
    cost_usd_micros: The cost; None if the worker's price is not known.
    """

    attempt: int
    worker_id: str
    state: AttemptState
    started_at: datetime | None
    ended_at: datetime | None
    timing: Timing
    error: Failure | None
    cost_usd_micros: int | None = None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            attempt=raw["attempt"],
            worker_id=raw.get("worker_id") or "",
            state=raw["state"],
            started_at=decode_time(raw.get("started_at")),
            ended_at=decode_time(raw.get("ended_at")),
            timing=Timing.decode(raw.get("timing")),
            error=optional(Failure.decode, raw.get("error")),
            cost_usd_micros=raw.get("cost_usd_micros"),
        )


class Dependee(NamedTuple):
    """A job that this job waits for.

    job_id: The job's id.
    on: `success`, or `completion` if any end will do.
    """

    job_id: str
    on: DependencyOn

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            job_id=raw["job"],
            on=raw.get("on") or "success",
        )


@dataclass(frozen=True)
class StepRun:
    """An endpoint that decides whether a job may run or its output may be returned.

    name: The step's name.
    stage: `before` or `after`.
    endpoint: The endpoint that decides.
    job_id: The job that runs the step; None before its turn.
    state: The state of that job, as last seen.
    decision: `allow`, `reject` or `rewrite`; None until it has decided.
    reason: Why it rejected.
    scores: The score of each label, 0 to 1.
    timing: Where its time went.
    cost_usd_micros: The cost; None if the worker's price is not known.
    """

    name: str
    stage: StepStage
    endpoint: str
    job_id: str | None
    state: str
    decision: StepDecision | None
    reason: str | None
    scores: Mapping[str, float]
    timing: Timing
    cost_usd_micros: int | None = None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            name=raw.get("name") or "",
            stage=word(raw, "stage"),
            endpoint=raw.get("endpoint") or "",
            job_id=raw.get("job_id"),
            state=raw.get("state") or "",
            decision=raw.get("decision"),
            reason=raw.get("reason"),
            scores=dict(raw.get("scores") or {}),
            timing=Timing.decode(raw.get("timing")),
            cost_usd_micros=raw.get("cost_usd_micros"),
        )


@dataclass(frozen=True)
class JobCost:
    """The cost of a job.

    Its steps are separate jobs.

    run_usd_micros: The cost of its runs, at the instances' prices.
    load_usd_micros: The cost of loading its model.
    overhead_usd_micros: Its part of the other costs of the instances: boot, idle, stopped, disk, traffic.
    total_usd_micros: The sum of these costs.
    is_estimate: Whether a provider has not yet billed the final amount.
    """

    run_usd_micros: int
    load_usd_micros: int
    overhead_usd_micros: int
    total_usd_micros: int
    is_estimate: bool

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            run_usd_micros=raw.get("run_usd_micros") or 0,
            load_usd_micros=raw.get("load_usd_micros") or 0,
            overhead_usd_micros=raw.get("overhead_usd_micros") or 0,
            total_usd_micros=raw.get("total_usd_micros") or 0,
            is_estimate=bool(raw.get("is_estimate")),
        )


@dataclass(frozen=True)
class Waiting:
    """Why a job has not started.

    reason: The reasons why a job waits.
    message: The reason in words.
    ahead: The number of jobs that are expected to start before it; absent if there are none, and in lists.
    estimate_s: Seconds until the job is expected to start; absent if unknown, or if a step takes longer than usual.
    phase_s: Seconds since this phase began; absent if unknown, and in lists.
    """

    reason: WaitingReason
    message: str
    ahead: int | None = None
    estimate_s: int | None = None
    phase_s: int | None = None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            reason=word(raw, "reason"),
            message=raw.get("message") or "",
            ahead=raw.get("ahead"),
            estimate_s=raw.get("estimate_s"),
            phase_s=raw.get("phase_s"),
        )


class JobFields:
    """A job, with the members of the API. Members are decoded when they are read."""

    __slots__ = ("raw",)

    def __init__(self, raw: dict[str, Any]) -> None:
        self.raw = raw

    @property
    def id(self) -> str:
        """32 lower-case hex digits; ids sort by creation time."""
        return str(self.raw["id"])

    @property
    def endpoint(self) -> str:
        """The endpoint it runs on."""
        return str(self.raw.get("endpoint") or "")

    @property
    def version(self) -> int | None:
        """The endpoint's version, fixed at submit. None until the first `refresh` after `submit_many`."""
        return self.raw.get("version")

    @property
    def state(self) -> JobState:
        """The state of the job."""
        value: JobState = self.raw["state"]
        return value

    @property
    def priority(self) -> Priority:
        """The job's priority."""
        value: Priority = self.raw.get("priority") or "standard"
        return value

    @property
    def created_at(self) -> datetime | None:
        """When it was submitted. None until the first `refresh` after `submit_many`."""
        return decode_time(self.raw.get("created_at"))

    @property
    def input(self) -> Any:
        """The input as submitted; an input over 64 KiB is `{"$file": "<id>", "as": "input"}`, and GET /v1/files/<id>
        returns its address.
        """
        return self.raw.get("input")

    @property
    def metadata(self) -> dict[str, str]:
        """Your own labels."""
        return dict(self.raw.get("metadata") or {})

    @property
    def depends_on(self) -> list[Dependee]:
        """The jobs that it waits for or has waited for."""
        return [Dependee.decode(each) for each in self.raw.get("depends_on") or ()]

    @property
    def webhook_events(self) -> list[JobHookEvent]:
        """The events to send."""
        return list(self.raw.get("webhook_events") or ())

    @property
    def steps(self) -> list[StepRun]:
        """The steps before and after, so far."""
        return [StepRun.decode(each) for each in self.raw.get("steps") or ()]

    @property
    def oom_events(self) -> int:
        """How often it ran out of GPU or host memory. This does not count towards `max_attempts`."""
        return int(self.raw.get("oom_events") or 0)

    @property
    def attempts(self) -> list[Attempt]:
        """Every attempt so far, oldest first."""
        return [Attempt.decode(each) for each in self.raw.get("attempts") or ()]

    @property
    def batch_id(self) -> str | None:
        """The batch that it is a line of."""
        return self.raw.get("batch_id")

    @property
    def concurrency_key(self) -> str | None:
        """The key that limits how many of your jobs run concurrently."""
        return self.raw.get("concurrency_key")

    @property
    def cost(self) -> JobCost | None:
        """The cost including its part of boot, idle and disk, for an ended job; only when a single job is requested."""
        return optional(JobCost.decode, self.raw.get("cost"))

    @property
    def cost_usd_micros(self) -> int | None:
        """The cost so far, including its steps; None if the workers' prices are not known."""
        return self.raw.get("cost_usd_micros")

    @property
    def custom_id(self) -> str | None:
        """The line's `custom_id`."""
        return self.raw.get("custom_id")

    @property
    def deadline_at(self) -> datetime | None:
        """When the job expires if it has not ended."""
        return decode_time(self.raw.get("deadline_at"))

    @property
    def ended_at(self) -> datetime | None:
        """When it ended; None until then."""
        return decode_time(self.raw.get("ended_at"))

    @property
    def error(self) -> Failure | None:
        """Why it failed."""
        return optional(Failure.decode, self.raw.get("error"))

    @property
    def line(self) -> int | None:
        """The line of that batch's input, from 1."""
        return self.raw.get("line")

    @property
    def progress(self) -> Progress | None:
        """The latest progress of the running job."""
        return optional(Progress.decode, self.raw.get("progress"))

    @property
    def result_url(self) -> str | None:
        """The address of the result, once succeeded. Requires the same bearer token."""
        return self.raw.get("result_url")

    @property
    def retry_of(self) -> str | None:
        """The job that this job retries."""
        return self.raw.get("retry_of")

    @property
    def run_after(self) -> datetime | None:
        """When a scheduled job becomes ready."""
        return decode_time(self.raw.get("run_after"))

    @property
    def schedule_id(self) -> str | None:
        """The schedule that created it."""
        return self.raw.get("schedule_id")

    @property
    def step_of(self) -> str | None:
        """The job that it is a step of."""
        return self.raw.get("step_of")

    @property
    def timing(self) -> Timing:
        """The last attempt's timing, with `queued_ms` counted from submit to that lease."""
        return Timing.decode(self.raw.get("timing"))

    @property
    def usage(self) -> TokenUsage | None:
        """The tokens that its result reports; absent without tokens."""
        return optional(TokenUsage.decode, self.raw.get("usage"))

    @property
    def waiting(self) -> Waiting | None:
        """Why a queued or blocked job has not started, or why the handler of a running job has not; only when a single
        job is requested.
        """
        return optional(Waiting.decode, self.raw.get("waiting"))

    @property
    def webhook(self) -> str | None:
        """The URL that receives its events."""
        return self.raw.get("webhook")


class Retried(NamedTuple):
    """A retried job.

    id: The job that had ended.
    new_id: The job that retries it.
    """

    id: str
    new_id: str

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            id=raw["id"],
            new_id=raw["new_id"],
        )
