"""The `@endpoint` decorator."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, Callable, TypeVar, overload

from stokehold.runner.policy import (
    GPUS_MAX,
    KEEP_WARM_MAX_S,
    MIN_WARM_MAX,
    NAME,
    PRIORITIES,
    SANDBOXES,
    TRUSTS,
    JobRetry,
    Step,
    check_at_most,
    check_batching,
    check_one_of,
    check_version,
    checked_names,
    checked_steps,
    checked_variables,
    checked_warmup,
    is_count,
)

T = TypeVar("T", bound=Callable[..., Any])

_ATTRIBUTE = "__stokehold_endpoint__"


@dataclass(frozen=True)
class Options:
    """The options of an endpoint."""

    name: str | None = None
    vram_gib: float = 0
    vram_fraction: float | None = None
    max_concurrency: int = 1
    timeout_s: int = 600
    max_attempts: int = 3
    before: Sequence[Step] = ()
    after: Sequence[Step] = ()
    retry: JobRetry | None = None
    warmup: Sequence[Mapping[str, Any]] = ()
    max_batch_size: int = 1
    max_wait_ms: float = 0
    keep_warm_s: int = 0
    min_warm: int = 0
    gpus: int = 1
    gpu_models: Sequence[str] = ()
    min_compute_capability: str | None = None
    min_cuda: str | None = None
    regions: Sequence[str] = ()
    min_trust: str | None = None
    min_sandbox: str | None = None
    network: bool = False
    secrets: Sequence[str] = ()
    priority: str | None = None

    def __post_init__(self) -> None:
        if self.name is not None and not NAME.fullmatch(self.name):
            raise ValueError(f"endpoint name {self.name!r}: use 1 to 63 of a-z, 0-9 and -, not starting with -")
        if self.vram_gib < 0:
            raise ValueError(f"vram_gib={self.vram_gib}: use 0 for a model that needs no GPU")
        if self.vram_fraction is not None:
            is_number = isinstance(self.vram_fraction, (int, float)) and not isinstance(self.vram_fraction, bool)
            if not is_number or not 0 < self.vram_fraction <= 1:
                raise ValueError(f"vram_fraction={self.vram_fraction!r}: use a number above 0 and up to 1")
            if self.vram_gib == 0:
                raise ValueError("vram_fraction requires vram_gib: the minimum GPU memory that the endpoint runs with")
        for option in ("max_concurrency", "timeout_s", "max_attempts", "max_batch_size"):
            value = getattr(self, option)
            if not is_count(value):
                raise ValueError(f"{option}={value!r}: use a whole number of 1 or more")
        check_batching(self.max_batch_size, self.max_wait_ms, self.max_concurrency)
        for option in ("before", "after"):
            object.__setattr__(self, option, checked_steps(option, getattr(self, option)))
        if self.retry is not None and not isinstance(self.retry, JobRetry):
            raise ValueError(f"retry={self.retry!r}: use JobRetry(backoff_s=..., on=[...])")
        for option in ("gpu_models", "regions"):
            object.__setattr__(self, option, checked_names(option, getattr(self, option)))
        for option in ("min_compute_capability", "min_cuda"):
            check_version(option, getattr(self, option))
        check_one_of("min_trust", self.min_trust, TRUSTS)
        check_one_of("min_sandbox", self.min_sandbox, SANDBOXES)
        check_one_of("priority", self.priority, PRIORITIES)
        if not isinstance(self.network, bool):
            raise ValueError(f"network={self.network!r}: use True or False")
        object.__setattr__(self, "secrets", checked_variables("secrets", self.secrets))
        check_at_most("gpus", self.gpus, 1, GPUS_MAX)
        check_at_most("keep_warm_s", self.keep_warm_s, 0, KEEP_WARM_MAX_S)
        check_at_most("min_warm", self.min_warm, 0, MIN_WARM_MAX)
        if self.vram_gib == 0 and (self.gpus > 1 or self.gpu_models or self.min_compute_capability is not None):
            raise ValueError(
                "gpus, gpu_models and min_compute_capability require GPUs: set vram_gib, the memory needed on each"
            )
        object.__setattr__(self, "warmup", checked_warmup(self.warmup))


@overload
def endpoint(target: T, /) -> T: ...


@overload
def endpoint(
    *,
    name: str | None = None,
    vram_gib: float = 0,
    vram_fraction: float | None = None,
    max_concurrency: int = 1,
    timeout_s: int = 600,
    max_attempts: int = 3,
    before: Sequence[Step] = (),
    after: Sequence[Step] = (),
    retry: JobRetry | None = None,
    warmup: Sequence[Mapping[str, Any]] = (),
    max_batch_size: int = 1,
    max_wait_ms: float = 0,
    keep_warm_s: int = 0,
    min_warm: int = 0,
    gpus: int = 1,
    gpu_models: Sequence[str] = (),
    min_compute_capability: str | None = None,
    min_cuda: str | None = None,
    regions: Sequence[str] = (),
    min_trust: str | None = None,
    min_sandbox: str | None = None,
    network: bool = False,
    secrets: Sequence[str] = (),
    priority: str | None = None,
) -> Callable[[T], T]: ...


def endpoint(target: T | None = None, /, **options: Any) -> T | Callable[[T], T]:
    """Marks a function, or a class with a `predict()` method, as an endpoint. The object stays callable as before.

    name: name of the endpoint; default: the object's name in lower case, with `-` instead of `_`.
    vram_gib: GPU memory needed on one GPU, in GiB; 0 runs without a GPU.
    vram_fraction: fraction of a GPU's memory to use on any GPU, above 0 and up to 1, for engines that use all memory
        that they get. `vram_gib` is then the minimum. The handler finds the memory reserved for it in `STOKE_VRAM_MIB`
        and, as a fraction of the GPU, in `STOKE_VRAM_FRACTION`. Default: the memory needed.
    max_concurrency: jobs that one process runs concurrently; more than 1 only makes sense for an async handler.
    timeout_s, max_attempts: defaults for its jobs; 600 seconds and 3.
    before, after: up to 8 steps each, which check every job's input or output in order and may reject or change it.
    retry: when to retry a failed job; default: the API's policy.
    warmup: up to 8 inputs that a worker runs once after `setup()`, before the first job. Code that is compiled on
        first use is compiled then, and the peak GPU memory of these runs replaces `vram_gib`. Name the largest shapes.
    max_batch_size: maximum number of jobs in one call of the handler, at most 256. Above 1, each argument is a list
        with one item per job, and the handler returns a list with one result per job; an exception in that list fails
        only its job. If the call itself raises, it is repeated with each half, so that only the jobs at fault fail.
    max_wait_ms: how long the first job of a batch may wait for others, at most 10,000; 0 does not wait.
    keep_warm_s: how long the model stays loaded after its last job even if others need its GPU memory, at most 86,400.
    min_warm: number of workers that keep the model loaded even without jobs.
    gpus: number of GPUs in one machine, at most 16. More than one are not shared; `vram_gib` is needed on each.
    gpu_models: accepted GPUs, e.g. "RTX 4090" or "A100": words that occur in the name that the driver reports.
    min_compute_capability, min_cuda: minimum versions, e.g. "8.0" and "12.4"; min_cuda is what the driver supports.
    regions: accepted regions, as named in the operator's join tokens.
    min_trust: minimum trust in the machines that may see the jobs: "owned" (the operator's), "datacenter" (the
        default) or "community" (anyone's).
    min_sandbox: minimum isolation of handlers: "L0" (the default, any worker), "L1" or "L2".
    network: whether the handler can access the worker's network; by default it can access only the loopback of its own
        machine, on workers that can restrict it.
    priority: priority of jobs that set none: "interactive", "standard" (the default) or "batch".
    secrets: names of secrets to provide in `os.environ`, e.g. "HF_TOKEN"; set them with `stoke secret set`.

    Raises `ValueError` for an invalid option.
    """
    allowed = [field.name for field in fields(Options)]
    if unknown := [name for name in options if name not in allowed]:
        close = get_close_matches(unknown[0], allowed, n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise TypeError(f"@endpoint has no option {unknown[0]}{hint}; its options are {', '.join(allowed)}")
    marked = Options(**options)

    def mark(target: T) -> T:
        setattr(target, _ATTRIBUTE, marked)
        return target

    return mark if target is None else mark(target)


def options_of(target: Any) -> Options | None:
    """The options of an object that is marked itself, not those of a base class."""
    found = vars(target).get(_ATTRIBUTE) if hasattr(target, "__dict__") else None
    return found if isinstance(found, Options) else None


def default_name(target: Any) -> str:
    """The endpoint name derived from an object's name."""
    name = getattr(target, "__name__", type(target).__name__)
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:63] or "endpoint"
