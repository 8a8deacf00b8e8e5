# Generated from api/openapi.json by `make models`; do not edit.
"""The options of `@endpoint`, of its steps and of its retries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

from stokehold.runner.bounds import Bounds

if TYPE_CHECKING:
    from stokehold.runner.policy import JobRetry, Step

# The options that are requirements for workers.
DEMANDS = frozenset({"gpu_models", "gpus", "min_compute_capability", "min_cuda", "min_sandbox", "min_trust", "regions"})

ENDPOINT_BOUNDS: Mapping[str, Bounds] = {
    "after": Bounds("list", most=8),
    "before": Bounds("list", most=8),
    "gpu_models": Bounds("list", most=16),
    "gpus": Bounds("integer", least=1, most=16),
    "keep_warm_s": Bounds("integer", least=0, most=86400),
    "max_attempts": Bounds("integer", least=1, most=100),
    "max_batch_size": Bounds("integer", least=1, most=256),
    "max_concurrency": Bounds("integer", least=1, most=1000),
    "max_wait_ms": Bounds("number", least=0, most=10000),
    "min_sandbox": Bounds("words", words=("L0", "L1", "L2")),
    "min_trust": Bounds("words", words=("community", "datacenter", "owned")),
    "min_warm": Bounds("integer", least=0, most=1000),
    "openai": Bounds("words", words=("chat", "embeddings", "images", "none")),
    "openai_models": Bounds("list", most=16),
    "priority": Bounds("words", words=("interactive", "standard", "batch")),
    "queue_timeout_s": Bounds("integer", least=1, most=2592000),
    "regions": Bounds("list", most=16),
    "secrets": Bounds("list", most=32),
    "timeout_s": Bounds("integer", least=1, most=604800),
    "vram_fraction": Bounds("number", most=1, above=0),
    "vram_gib": Bounds("number", least=0, most=384),
    "warmup": Bounds("list", most=8),
}

STEP_BOUNDS: Mapping[str, Bounds] = {
    "timeout_s": Bounds("integer", least=1, most=604800),
}

RETRY_BOUNDS: Mapping[str, Bounds] = {
    "backoff_s": Bounds("number", least=0, most=86400),
    "backoff_max_s": Bounds("number", least=0, most=86400),
    "jitter": Bounds("number", least=0, most=1),
}


class EndpointOptions(TypedDict, total=False):
    """The options of `@endpoint`.

    name: The name of the endpoint.
    after: Up to 8 endpoints that must allow an output before it is returned.
    before: Up to 8 endpoints that must allow an input before it runs.
    gpu_models: One of these GPU models, e.g. `RTX 4090`: words that appear in this order in the name that the driver
        reports. At most 16.
    gpus: The number of GPUs in one machine, 1 to 16. Default 1. With several, each GPU is used whole, and `vram_gib`
        applies to each.
    keep_warm_s: How long the model stays loaded after its last job although others need the memory, 0 to 86,400
        seconds. Default 0.
    max_attempts: The number of attempts of jobs that set none. 1 to 100. Default 3.
    max_batch_size: Jobs that one call of the handler takes, 1 to 256; more than 1 only for handlers written for
        batches. Default 1.
    max_concurrency: Jobs that one runner runs concurrently; more than 1 only for async handlers. 1 to 1,000. Default 1.
    max_wait_ms: How long the first job of a call waits for others, 0 to 10,000 milliseconds. Default 0.
    min_compute_capability: The minimum CUDA compute capability, e.g. `8.0`.
    min_cuda: The minimum CUDA version that the driver supports, e.g. `12.4`.
    min_sandbox: The minimum sandbox level of the handlers: `L0` to `L2`. Default `L0`.
    min_trust: The minimum trust in the machine's owner. Default `datacenter`.
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
    regions: One of these regions, as set on join tokens. At most 16.
    retry: When and after which errors jobs are retried.
    secrets: Names of secrets that runners receive as environment variables: up to 32. They must exist.
    timeout_s: The longest run of jobs that set none, seconds. 1 to 604,800. Default 600.
    vram_fraction: The share of the memory that the model takes on any GPU, more than 0 and at most 1, for engines that
        fill the memory they are given; `vram_gib` is then the minimum. The memory of such an endpoint is never learned.
        Default: the model takes what it needs.
    vram_gib: The VRAM needed on one GPU, GiB, 0 to 384; 0 runs on the CPU.
    warmup: Up to 8 inputs that a worker runs once before the first job; the GPU memory they use replaces `vram_gib` on
        that worker.
    """

    name: str | None
    after: Sequence[Step]
    before: Sequence[Step]
    gpu_models: Sequence[str]
    gpus: int
    keep_warm_s: int
    max_attempts: int
    max_batch_size: int
    max_concurrency: int
    max_wait_ms: float
    min_compute_capability: str | None
    min_cuda: str | None
    min_sandbox: str | None
    min_trust: str | None
    min_warm: int
    network: bool
    openai: str | None
    openai_models: Sequence[str]
    openai_served_model: str | None
    priority: str | None
    queue_timeout_s: int | None
    regions: Sequence[str]
    retry: JobRetry | None
    secrets: Sequence[str]
    timeout_s: int
    vram_fraction: float | None
    vram_gib: float
    warmup: Sequence[Any]


@dataclass(frozen=True)
class OptionsFields:
    """The options of an endpoint, with their defaults."""

    name: str | None = None
    after: Sequence[Step] = ()
    before: Sequence[Step] = ()
    gpu_models: Sequence[str] = ()
    gpus: int = 1
    keep_warm_s: int = 0
    max_attempts: int = 3
    max_batch_size: int = 1
    max_concurrency: int = 1
    max_wait_ms: float = 0
    min_compute_capability: str | None = None
    min_cuda: str | None = None
    min_sandbox: str | None = None
    min_trust: str | None = None
    min_warm: int = 0
    network: bool = False
    openai: str | None = None
    openai_models: Sequence[str] = ()
    openai_served_model: str | None = None
    priority: str | None = None
    queue_timeout_s: int | None = None
    regions: Sequence[str] = ()
    retry: JobRetry | None = None
    secrets: Sequence[str] = ()
    timeout_s: int = 600
    vram_fraction: float | None = None
    vram_gib: float = 0
    warmup: Sequence[Any] = ()


@dataclass(frozen=True)
class StepFields:
    """An endpoint that decides on a job.

    endpoint: The endpoint that decides.
    name: The step's name in the job's record. Default: its endpoint's name.
    version: The version; default: the version that is current at each submit.
    thresholds: The highest allowed score of each label, 0 to 1.
    timeout_s: The longest that one attempt of the step may run, seconds. 1 to 604,800. Default: the deciding
        endpoint's.
    """

    endpoint: str
    name: str | None = None
    version: int | None = None
    thresholds: Mapping[str, float] = field(default_factory=dict)
    timeout_s: int | None = None


@dataclass(frozen=True)
class RetryFields:
    """When and after which errors a job is retried.

    `max_attempts` limits how often.

    backoff_s: The longest wait before the first retry, seconds; it doubles with each retry. 0 to 86,400. Default 1.
    backoff_max_s: The longest wait before any retry, seconds. 0 to 86,400. Default 60.
    jitter: The random part of the wait, 0 to 1. Default 0.5.
    on: The job error codes that are retried. Default: all that may be.
    """

    backoff_s: float | None = None
    backoff_max_s: float | None = None
    jitter: float | None = None
    on: Sequence[str] | None = None
