# Generated from api/openapi.json by `make models`; do not edit.
"""The options of the calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from stokehold._generated.batches import (
    AtBudget,
    LineFormat,
    OnInvalid,
)
from stokehold._generated.endpoints import (
    OpenAiApi,
    SandboxLevel,
    Trust,
)
from stokehold._generated.jobs import (
    JobHookEvent,
    JobState,
    Priority,
)
from stokehold._generated.schedules import Missed

if TYPE_CHECKING:
    from stokehold._references import Dependency
    from stokehold.runner.policy import JobRetry, Step


BatchHookEvent = Literal["batch.completed"]
"""An event of a batch that a webhook can receive."""

Role = Literal["submit", "read", "cancel", "deploy", "admin", "operator", "worker"]
"""A predefined set of scopes."""


class JobOptions(TypedDict, total=False):
    """How a job is run.

    An option that is missing has the default of the endpoint or of the API.

    concurrency_key: At most `concurrency_max` of your jobs with the same key run concurrently. 1 to 255 characters.
    concurrency_max: The limit for `concurrency_key`. 1 to 10,000. Default 1.
    deadline_s: The job expires if it has not ended this many seconds after the submit. 1 to 2,592,000.
    depends_on: The jobs to wait for: up to 100.
    max_attempts: How many attempts may fail because of the handler. 1 to 100. Default: the endpoint's.
    metadata: Your own labels, up to 32, to list jobs by.
    priority: The job's priority. Default: the endpoint's, else `standard`.
    queue_timeout_s: The job expires if it has not started this many seconds after the submit. 1 to 2,592,000. Default:
        the endpoint's, else 604,800 (7 days), counted from `run_after` if that is later.
    retention_s: How many seconds after its end the job stays in the queue's memory before it moves to the archive. 60
        to 2,592,000. Default: the server's.
    run_after: The job does not start before this time.
    timeout_s: The longest that one attempt may run, seconds. 1 to 604,800. Default: the endpoint's.
    version: The endpoint's version; default: the current one. At least 1.
    webhook: An https URL that receives events of the job.
    webhook_events: The events to send. Default `["job.completed"]`.
    """

    concurrency_key: str | None
    concurrency_max: int | None
    deadline_s: int | None
    depends_on: Sequence[Dependency] | None
    max_attempts: int | None
    metadata: Mapping[str, str] | None
    priority: Priority | None
    queue_timeout_s: int | None
    retention_s: int | None
    run_after: datetime | None
    timeout_s: int | None
    version: int | None
    webhook: str | None
    webhook_events: Sequence[JobHookEvent] | None


class JobFilter(TypedDict, total=False):
    """Selects the jobs that match every given member.

    batch: Only lines of this batch.
    endpoint: Only jobs of this endpoint.
    error_code: Only jobs that failed with this error code.
    metadata: Only jobs with all of these labels.
    priority: Only jobs of this priority.
    schedule: Only jobs of this schedule.
    state: Only jobs in this state.
    """

    batch: str | None
    endpoint: str | None
    error_code: str | None
    metadata: Mapping[str, str] | None
    priority: Priority | None
    schedule: str | None
    state: JobState | None


class BatchOptions(TypedDict, total=False):
    """How a batch is run.

    An option that is missing has the default of the endpoint or of the API.

    at_budget: What happens when the budget is reached: lines that have not started are cancelled (`drain`, the
        default), or running lines as well (`stop`).
    budget_usd_micros: The budget of all lines together, micro-dollars. Lines that are already running when it is
        reached add to the cost. At least 1.
    deadline_s: Seconds until the batch must have ended; lines that are left then expire. 1 to 2,592,000.
    format: The format of the lines. Default `auto`: detected per line.
    max_attempts: How many attempts of a line may fail because of the handler. 1 to 100. Default: the endpoint's.
    metadata: Your own labels for the batch as a whole: up to 32.
    on_invalid: What to do with invalid lines: run nothing (`fail`, the default) or run the others (`skip`).
    priority: The priority of the jobs. Default `batch`.
    timeout_s: The longest that one attempt of a line may run, seconds. 1 to 604,800. Default: the endpoint's.
    version: The version of `endpoint`. At least 1. Default: the version that is current while the batch validates.
    webhook: An https URL that receives an event when the batch ends.
    webhook_events: The events to send. `batch.completed` is the only one and the default.
    """

    at_budget: AtBudget | None
    budget_usd_micros: int | None
    deadline_s: int | None
    format: LineFormat | None
    max_attempts: int | None
    metadata: Mapping[str, str] | None
    on_invalid: OnInvalid | None
    priority: Priority | None
    timeout_s: int | None
    version: int | None
    webhook: str | None
    webhook_events: Sequence[BatchHookEvent] | None


class ScheduleTiming(TypedDict, total=False):
    """When a schedule submits its job.

    An option that is missing has the default of the endpoint or of the API.

    grace_s: Seconds after which a tick counts as missed; 1 to 604800, default 60.
    missed: What to do with missed ticks: those later than `grace_s`. Default `run_once`.
    name: Your own name for the schedule, up to 255 characters. Names need not be unique.
    paused: Create the schedule paused.
    time_zone: The IANA time zone, e.g. `Europe/Berlin`. Default `UTC`.
    """

    grace_s: int | None
    missed: Missed | None
    name: str | None
    paused: bool | None
    time_zone: str | None


class Rating(TypedDict, total=False):
    """A rating of a result.

    At least one member is required.

    accepted: Whether the result was useful.
    comment: At most 2,000 characters.
    labels: 1 to 20 labels of 1 to 100 characters each.
    score: 1 to 5; 5 is best.
    """

    accepted: bool | None
    comment: str | None
    labels: Sequence[str] | None
    score: int | None


class DeployOptions(TypedDict, total=False):
    """Options of a version of an endpoint, as in `stoke.toml`.

    An option that is missing or None has the value in `stoke.toml`, else that of `@endpoint`, else the default. `env`
    is merged with that in `stoke.toml`; any other option replaces what is there. Paths are relative to the folder.

    kind: What runs the jobs.
    handler: The handler in the folder, e.g. `main.py:Greet`, or a script of RunPod.
    command: Program and arguments of a server or a command.
    server: `ready_path`, `path`, `port` and `busy` of a server.
    requirements: The name of a requirements file, or a list of requirements.
    input_schema: The name of the JSON Schema file of the input.
    output_schema: The name of the JSON Schema file of the result.
    weights: Files for the folder `STOKE_WEIGHTS`, each with `source` and optionally `path` and `sha256`.
    after: Up to 8 endpoints that must allow an output before it is returned.
    allow_pickle: Whether weights may contain pickles, which run code when they are loaded. They are scanned, and loaded
        without network on workers with a sandbox. Default False.
    before: Up to 8 endpoints that must allow an input before it runs.
    env: Environment variables of the runners: up to 64, each at most 4 KiB.
    keep_warm_s: How long the model stays loaded after its last job although others need the memory, 0 to 86,400
        seconds. Default 0.
    max_attempts: The number of attempts of jobs that set none. 1 to 100. Default 3.
    max_batch_size: Jobs that one call of the handler takes, 1 to 256; more than 1 only for handlers written for
        batches. Default 1.
    max_concurrency: Jobs that one runner runs concurrently; more than 1 only for async handlers. 1 to 1,000. Default 1.
    max_wait_ms: How long the first job of a call waits for others, 0 to 10,000 milliseconds. Default 0.
    min_warm: How many workers keep the model loaded without jobs, 0 to 1,000. Default 0.
    network: Whether runners have network access. Default False: only loopback, on workers that can enforce it.
    openai: What the endpoint answers below `/openai/v1`: `chat`, `embeddings`, `images` or `none`. Default: a server
        answers the call that its `path` names, or every call if it has no `path`; other kinds answer none.
    openai_models: Other names of the endpoint below `/openai/v1`: up to 16, each of up to 200 characters without `@`.
    openai_served_model: What the endpoint's own server calls its model, e.g. `Qwen/Qwen3-8B`: it replaces `model` in
        calls below `/openai/v1`. Default: the name in the call, without its version.
    priority: The priority of jobs that set none. Default `standard`.
    queue_timeout_s: How long after the submit jobs that set none may take to start, seconds; then they expire. 1 to
        2,592,000. Default 604,800 (7 days).
    retry: When and after which errors jobs are retried.
    secrets: Names of secrets that runners receive as environment variables: up to 32. They must exist.
    timeout_s: The longest run of jobs that set none, seconds. 1 to 604,800. Default 600.
    vram_fraction: The share of the memory that the model takes on any GPU, more than 0 and at most 1, for engines that
        fill the memory they are given; `vram_gib` is then the minimum. The memory of such an endpoint is never learned.
        Default: the model takes what it needs.
    vram_gib: The VRAM needed on one GPU, GiB, 0 to 384; 0 runs on the CPU.
    warmup: Up to 8 inputs that a worker runs once before the first job; the GPU memory they use replaces `vram_gib` on
        that worker.
    gpu_models: One of these GPU models, e.g. `RTX 4090`: words that appear in this order in the name that the driver
        reports. At most 16.
    gpus: The number of GPUs in one machine, 1 to 16. Default 1. With several, each GPU is used whole, and `vram_gib`
        applies to each.
    min_compute_capability: The minimum CUDA compute capability, e.g. `8.0`.
    min_cuda: The minimum CUDA version that the driver supports, e.g. `12.4`.
    min_sandbox: The minimum sandbox level of the handlers: `L0` to `L2`. Default `L0`.
    min_trust: The minimum trust in the machine's owner. Default `datacenter`.
    regions: One of these regions, as set on join tokens. At most 16.
    """

    kind: Literal["python", "cog", "runpod", "server", "command"] | None
    handler: str | None
    command: Sequence[str] | None
    server: Mapping[str, Any] | None
    requirements: str | Sequence[str] | None
    input_schema: str | None
    output_schema: str | None
    weights: Sequence[Mapping[str, str]] | None
    after: Sequence[Step | Mapping[str, Any]] | None
    allow_pickle: bool | None
    before: Sequence[Step | Mapping[str, Any]] | None
    env: Mapping[str, str] | None
    keep_warm_s: int | None
    max_attempts: int | None
    max_batch_size: int | None
    max_concurrency: int | None
    max_wait_ms: float | None
    min_warm: int | None
    network: bool | None
    openai: OpenAiApi | None
    openai_models: Sequence[str] | None
    openai_served_model: str | None
    priority: Priority | None
    queue_timeout_s: int | None
    retry: JobRetry | Mapping[str, Any] | None
    secrets: Sequence[str] | None
    timeout_s: int | None
    vram_fraction: float | None
    vram_gib: float | None
    warmup: Sequence[Any] | None
    gpu_models: Sequence[str] | None
    gpus: int | None
    min_compute_capability: str | None
    min_cuda: str | None
    min_sandbox: SandboxLevel | None
    min_trust: Trust | None
    regions: Sequence[str] | None
