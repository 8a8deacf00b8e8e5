"""The options of a job, a selection of jobs and a deploy: names are checked, values are converted for the API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict

from stokehold._models import JobRecord, JobState, Priority, encode_time
from stokehold._references import Dependency, depends_on
from stokehold.runner import JobRetry, Step

EndpointKind = Literal["python", "cog", "runpod", "server", "command"]
"""The kind of program that runs the jobs of an endpoint."""

# The most jobs that one request retries or cancels.
SELECTED_JOBS_MAX = 1_000


class JobOptions(TypedDict, total=False):
    """How a job is run. An option that is missing or None has the default of the endpoint or of the API.

    version: the version of the endpoint; default: the one that is current when the job is submitted.
    priority: "interactive", "standard" (default) or "batch".
    timeout_s: seconds that one attempt may run; default: that of the endpoint.
    max_attempts: the number of attempts; default: that of the endpoint.
    run_after: the earliest time to start at. It needs a time zone.
    queue_timeout_s: seconds after submit by which the job must have started, or it expires; 1 to 2,592,000, default
        none.
    deadline_s: seconds after submit by which the job must have ended, or it expires; 1 to 2,592,000, default none.
    retention_s: seconds for which the record of the job stays quick to read after its end; 60 to 2,592,000, default
        that of the API.
    metadata: strings of your own, to find the job by.
    concurrency_key: at most `concurrency_max` (1 to 10,000, default 1) of the jobs with this key run at once.
    depends_on: up to 100 jobs, or their ids, that must succeed first. Use `{"job": job, "on": "completion"}` for a job
        that must only have ended.
    webhook: an https URL that receives the events of the job, signed (see `verify_webhook`).
    webhook_events: which events: "job.started", "job.output", "job.progress", "job.completed" (default: the last only).
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


class DeployOptions(TypedDict, total=False):
    """Options of a version of an endpoint. Each has the name, the bounds and the meaning that it has in `stoke.toml`.

    An option that is missing or None has the value in `stoke.toml`, else that of `@endpoint`, else the default.
    `env` is merged with the variables in `stoke.toml`; any other option replaces what is there. Paths are relative to
    the folder.

    kind: "python", "cog", "runpod", "server" or "command".
    handler: the handler in the folder, e.g. "main.py:Greet", or "handler.py" for a RunPod script.
    command: program and arguments of a server or a command.
    server: `ready_path`, `path` and `port` of a server.
    requirements: the name of a requirements file, or a list of requirements.
    input_schema, output_schema: the names of JSON Schema files.
    weights: files for the folder `STOKE_WEIGHTS`, each with `source` and optionally `path` and `sha256`.
    secrets: the names of secrets that become environment variables.
    """

    kind: EndpointKind | None
    handler: str | None
    command: Sequence[str] | None
    server: Mapping[str, Any] | None
    requirements: str | Sequence[str] | None
    input_schema: str | None
    output_schema: str | None
    vram_gib: float | None
    vram_fraction: float | None
    gpus: int | None
    gpu_models: Sequence[str] | None
    min_compute_capability: str | None
    min_cuda: str | None
    regions: Sequence[str] | None
    min_trust: str | None
    min_sandbox: str | None
    max_concurrency: int | None
    max_batch_size: int | None
    max_wait_ms: float | None
    keep_warm_s: int | None
    min_warm: int | None
    priority: Priority | None
    timeout_s: int | None
    max_attempts: int | None
    retry: JobRetry | Mapping[str, Any] | None
    warmup: Sequence[Mapping[str, Any]] | None
    before: Sequence[Step | Mapping[str, Any]] | None
    after: Sequence[Step | Mapping[str, Any]] | None
    network: bool | None
    weights: Sequence[Mapping[str, str]] | None
    allow_pickle: bool | None
    secrets: Sequence[str] | None
    env: Mapping[str, str] | None


class JobFilter(TypedDict, total=False):
    """Selects the jobs that match every given member.

    batch, schedule: ids.
    error_code: the error code of a failed job, e.g. "timeout".
    """

    state: JobState | None
    endpoint: str | None
    batch: str | None
    schedule: str | None
    priority: Priority | None
    error_code: str | None
    metadata: Mapping[str, str] | None


def job_options(options: Mapping[str, Any], planned: Sequence[JobRecord] = ()) -> dict[str, Any]:
    """The given members of a submit. `planned` are jobs that are not sent yet and that a dependency may refer to."""
    members = given(options, JobOptions.__annotations__)
    if "run_after" in members:
        members["run_after"] = encode_time(members["run_after"])
    if "depends_on" in members:
        members["depends_on"] = depends_on(members["depends_on"], planned)
    return members


def job_filter(options: Mapping[str, Any]) -> dict[str, Any]:
    """The `filter` of a change to many jobs. An empty filter raises `ValueError`: it would select every job."""
    members = given(options, JobFilter.__annotations__)
    if not members:
        raise ValueError(f"no jobs selected; pass at least one of {', '.join(JobFilter.__annotations__)}")
    return members


def list_query(options: Mapping[str, Any], page_size: int, known: Iterable[str] | None = None) -> list[tuple[str, str]]:
    """The query of a listing."""
    members = given(options, JobFilter.__annotations__ if known is None else known)
    metadata = members.pop("metadata", {})
    query = [("limit", str(page_size))]
    query += [(name, str(value)) for name, value in members.items()]
    return query + [(f"metadata.{name}", value) for name, value in metadata.items()]


def given(options: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """The options that are neither None nor an empty mapping or list. Raises `TypeError` for an unknown name."""
    names = list(known)
    unknown = [name for name in options if name not in names]
    if unknown:
        raise TypeError(f"unexpected argument {unknown[0]!r}; the arguments are {', '.join(names)}")
    return {name: value for name, value in options.items() if value is not None and value != {} and value != []}


def deploy_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The given options of a deploy, as members of `stoke.toml`."""
    members = given(options, DeployOptions.__annotations__)
    for steps in ("before", "after"):
        if steps in members:
            members[steps] = [step.to_json() if isinstance(step, Step) else dict(step) for step in members[steps]]
    if isinstance(members.get("retry"), JobRetry):
        members["retry"] = members["retry"].to_json()
    return members
