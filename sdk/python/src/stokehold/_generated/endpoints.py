# Generated from api/openapi.json by `make models`; do not edit.
"""The endpoints of the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from stokehold._generated.jobs import (
    Priority,
)
from stokehold._read import decode_time, optional, word

if TYPE_CHECKING:
    from typing_extensions import Self


SandboxLevel = Literal["L0", "L1", "L2"]
"""The sandbox level of a worker's handlers."""

Trust = Literal["community", "datacenter", "owned"]
"""The owner of a machine."""

OpenAiApi = Literal["chat", "embeddings", "images", "none"]
"""A part of the API of OpenAI."""


@dataclass(frozen=True)
class EndpointStep:
    """An endpoint that decides on a job.

    endpoint: The endpoint that decides.
    name: The step's name in the job's record. Default: its endpoint's name.
    thresholds: The highest allowed score of each label, 0 to 1.
    timeout_s: The longest that one attempt of the step may run, seconds. 1 to 604,800. Default: the deciding
        endpoint's.
    version: The version; default: the version that is current at each submit.
    """

    endpoint: str
    name: str | None = None
    thresholds: Mapping[str, float] = field(default_factory=dict)
    timeout_s: int | None = None
    version: int | None = None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            endpoint=raw.get("endpoint") or "",
            name=raw.get("name"),
            thresholds=dict(raw.get("thresholds") or {}),
            timeout_s=raw.get("timeout_s"),
            version=raw.get("version"),
        )


@dataclass(frozen=True)
class EndpointRetry:
    """When and after which errors a job is retried.

    `max_attempts` limits how often.

    backoff_max_s: The longest wait before any retry, seconds. 0 to 86,400. Default 60.
    backoff_s: The longest wait before the first retry, seconds; it doubles with each retry. 0 to 86,400. Default 1.
    jitter: The random part of the wait, 0 to 1. Default 0.5.
    on: The job error codes that are retried. Default: all that may be.
    """

    backoff_max_s: float | None = None
    backoff_s: float | None = None
    jitter: float | None = None
    on: tuple[str, ...] = ()

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            backoff_max_s=raw.get("backoff_max_s"),
            backoff_s=raw.get("backoff_s"),
            jitter=raw.get("jitter"),
            on=tuple(raw.get("on") or ()),
        )


@dataclass(frozen=True)
class EndpointRequirements:
    """An endpoint's requirements for workers besides memory.

    Absent members require nothing.

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

    gpu_models: tuple[str, ...] = ()
    gpus: int | None = None
    min_compute_capability: str | None = None
    min_cuda: str | None = None
    min_sandbox: SandboxLevel | None = None
    min_trust: Trust | None = None
    regions: tuple[str, ...] = ()

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            gpu_models=tuple(raw.get("gpu_models") or ()),
            gpus=raw.get("gpus"),
            min_compute_capability=raw.get("min_compute_capability"),
            min_cuda=raw.get("min_cuda"),
            min_sandbox=raw.get("min_sandbox"),
            min_trust=raw.get("min_trust"),
            regions=tuple(raw.get("regions") or ()),
        )


@dataclass(frozen=True)
class EndpointRunner:
    """What a worker starts for an endpoint.

    busy: The metric in the server's `GET /metrics` that shows that it has no room for another job, and its limit, e.g.
        `vllm:num_requests_waiting > 0` (`>` or `>=`). While it holds, the server is sent fewer jobs at once, down to 1.
    command: The program and its arguments; `{port}` is replaced by the port to listen on, which is also in `PORT`.
    path: The path that inputs are posted to. Without it, an input is `{"path": …, "body": …, "method": …}`.
    port: The port of a server whose port is fixed.
    ready_path: The path that answers 2xx once the server is ready. Default `/health`.
    """

    kind: Literal["python", "cog", "runpod", "server", "command"]
    busy: str | None = None
    command: tuple[str, ...] = ()
    path: str | None = None
    port: int | None = None
    ready_path: str | None = None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            kind=word(raw, "kind"),
            busy=raw.get("busy"),
            command=tuple(raw.get("command") or ()),
            path=raw.get("path"),
            port=raw.get("port"),
            ready_path=raw.get("ready_path"),
        )


@dataclass(frozen=True)
class EndpointWeight:
    """One file of an endpoint's weights.

    path: The file's path in the folder `STOKE_WEIGHTS`, e.g. `unet/model.safetensors`.
    source: The origin of the file, for people to read, e.g. `hf://org/model@<commit>/model.safetensors`.
    sha256: The SHA-256 of the file, lower-case hex; workers reject other content.
    url: The address that workers fetch it from: `https://`, `http://` or `s3://`. None if it was uploaded, see `POST
        /v1/weights`.
    """

    path: str
    source: str
    sha256: str
    size_bytes: int
    url: str | None = None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            path=raw.get("path") or "",
            source=raw.get("source") or "",
            sha256=raw.get("sha256") or "",
            size_bytes=raw.get("size_bytes") or 0,
            url=raw.get("url"),
        )


@dataclass(frozen=True)
class Endpoint:
    """A version of an endpoint.

    Versions never change.

    name: The endpoint's name: 1 to 63 of a-z, 0-9 and -, not starting with -.
    version: 1, 2, 3, ...
    created_at: When it was deployed.
    package_sha256: The uploaded package, see `POST /v1/packages`.
    package_size_bytes: The package's size.
    entry: `file.py:object` inside the package; each runner kind other than `python` describes its own format.
    requirements_lock: The locked requirements, one per line: `name==version`, or `name @ https://...` with a hash, each
        optionally with a marker and `--hash=sha256:...`, and `--index-url` lines. Indexes and URLs must be below those
        that the operator allows. Up to 512 KiB. No other `requirements.txt` syntax is allowed.
    python: The Python version, e.g. `3.11`; empty means the worker's own.
    network: Whether runners have network access. Default False: only loopback, on workers that can enforce it.
    input_schema: The JSON Schema of the input. It must not refer to other documents.
    output_schema: The JSON Schema of the result.
    vram_gib: The VRAM needed on one GPU, GiB, 0 to 384; 0 runs on the CPU.
    max_concurrency: Jobs that one runner runs concurrently; more than 1 only for async handlers. Default 1.
    timeout_s: The longest run of jobs that set none, seconds. Default 600.
    max_attempts: The number of attempts of jobs that set none. Default 3.
    after: Up to 8 endpoints that must allow an output before it is returned.
    allow_pickle: Whether weights may contain pickles, which run code when they are loaded. They are scanned, and loaded
        without network on workers with a sandbox. Default False.
    before: Up to 8 endpoints that must allow an input before it runs.
    demands: Other requirements for workers.
    env: Environment variables of the runners: up to 64, each at most 4 KiB.
    keep_warm_s: How long the model stays loaded after its last job although others need the memory, 0 to 86,400
        seconds. Default 0.
    max_batch_size: Jobs that one call of the handler takes, 1 to 256; more than 1 only for handlers written for
        batches. Default 1.
    max_wait_ms: How long the first job of a call waits for others, 0 to 10,000 milliseconds. Default 0.
    min_warm: How many workers keep the model loaded without jobs, 0 to 1,000. Default 0.
    openai: What the endpoint answers below `/openai/v1`: `chat`, `embeddings`, `images` or `none`. Default: a server
        answers the call that its `path` names, or every call if it has no `path`; other kinds answer none.
    openai_models: Other names of the endpoint below `/openai/v1`: up to 16, each of up to 200 characters without `@`.
    openai_served_model: What the endpoint's own server calls its model, e.g. `Qwen/Qwen3-8B`: it replaces `model` in
        calls below `/openai/v1`. Default: the name in the call, without its version.
    priority: The priority of jobs that set none. Default `standard`.
    queue_timeout_s: How long after the submit jobs that set none may take to start, seconds; then they expire. Default
        604,800 (7 days).
    retry: When and after which errors jobs are retried.
    runner: What the worker starts. Default `{"kind": "python"}`.
    secrets: Names of secrets that runners receive as environment variables: up to 32. They must exist.
    vram_fraction: The share of the memory that the model takes on any GPU, more than 0 and at most 1, for engines that
        fill the memory they are given; `vram_gib` is then the minimum. The memory of such an endpoint is never learned.
        Default: the model takes what it needs.
    warmup: Up to 8 inputs that a worker runs once before the first job; the GPU memory they use replaces `vram_gib` on
        that worker.
    weights: Files that runners find in the folder `STOKE_WEIGHTS`: up to 1,000.
    """

    name: str
    version: int
    created_at: datetime | None
    package_sha256: str
    package_size_bytes: int
    entry: str
    requirements_lock: str
    python: str
    network: bool
    input_schema: Any
    output_schema: Any
    vram_gib: float
    max_concurrency: int
    timeout_s: int
    max_attempts: int
    after: tuple[EndpointStep, ...] = ()
    allow_pickle: bool = False
    before: tuple[EndpointStep, ...] = ()
    demands: EndpointRequirements | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    keep_warm_s: int | None = None
    max_batch_size: int | None = None
    max_wait_ms: float | None = None
    min_warm: int | None = None
    openai: OpenAiApi | None = None
    openai_models: tuple[str, ...] = ()
    openai_served_model: str | None = None
    priority: Priority | None = None
    queue_timeout_s: int | None = None
    retry: EndpointRetry | None = None
    runner: EndpointRunner | None = None
    secrets: tuple[str, ...] = ()
    vram_fraction: float | None = None
    warmup: tuple[Any, ...] = ()
    weights: tuple[EndpointWeight, ...] = ()
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            name=raw.get("name") or "",
            version=raw.get("version") or 0,
            created_at=decode_time(raw.get("created_at")),
            package_sha256=raw.get("package_sha256") or "",
            package_size_bytes=raw.get("package_size_bytes") or 0,
            entry=raw.get("entry") or "",
            requirements_lock=raw.get("requirements_lock") or "",
            python=raw.get("python") or "",
            network=bool(raw.get("network")),
            input_schema=raw.get("input_schema"),
            output_schema=raw.get("output_schema"),
            vram_gib=raw.get("vram_gib") or 0.0,
            max_concurrency=raw.get("max_concurrency") or 0,
            timeout_s=raw.get("timeout_s") or 0,
            max_attempts=raw.get("max_attempts") or 0,
            after=tuple(EndpointStep.decode(each) for each in raw.get("after") or ()),
            allow_pickle=bool(raw.get("allow_pickle")),
            before=tuple(EndpointStep.decode(each) for each in raw.get("before") or ()),
            demands=optional(EndpointRequirements.decode, raw.get("demands")),
            env=dict(raw.get("env") or {}),
            keep_warm_s=raw.get("keep_warm_s"),
            max_batch_size=raw.get("max_batch_size"),
            max_wait_ms=raw.get("max_wait_ms"),
            min_warm=raw.get("min_warm"),
            openai=raw.get("openai"),
            openai_models=tuple(raw.get("openai_models") or ()),
            openai_served_model=raw.get("openai_served_model"),
            priority=raw.get("priority"),
            queue_timeout_s=raw.get("queue_timeout_s"),
            retry=optional(EndpointRetry.decode, raw.get("retry")),
            runner=optional(EndpointRunner.decode, raw.get("runner")),
            secrets=tuple(raw.get("secrets") or ()),
            vram_fraction=raw.get("vram_fraction"),
            warmup=tuple(raw.get("warmup") or ()),
            weights=tuple(EndpointWeight.decode(each) for each in raw.get("weights") or ()),
            raw=raw,
        )
