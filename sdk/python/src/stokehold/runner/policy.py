"""Policies of an endpoint's jobs: steps before and after them, and retries."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

STEPS_MAX = 8
WARMUPS_MAX = 8
WARMUP_BYTES_MAX = 64 * 1024
NAMES_MAX = 16
TRUSTS = ("community", "datacenter", "owned")
SANDBOXES = ("L0", "L1", "L2")
PRIORITIES = ("interactive", "standard", "batch")
BATCH_SIZE_MAX = 256
BATCH_WAIT_MS_MAX = 10_000
GPUS_MAX = 16
KEEP_WARM_MAX_S = 86_400
MIN_WARM_MAX = 1_000

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_VERSION = re.compile(r"[0-9]{1,4}\.[0-9]{1,4}")
_CODE = re.compile(r"[a-z][a-z0-9_]{0,62}")


@dataclass(frozen=True)
class Step:
    """An endpoint that checks a job's input before it runs, or its output after: `Step("prompt-check")`.

    endpoint: its name; its handler answers with `allow`, `reject`, `rewrite`, or scores.
    name: what the job shows it as; default the endpoint's name.
    version: of the endpoint; default the one that is current when the job runs.
    thresholds: for each label the score, 0 to 1, above which the job is rejected when the step answers scores.
    timeout_s: seconds it may take; default the step endpoint's.
    """

    endpoint: str
    name: str | None = None
    version: int | None = None
    thresholds: Mapping[str, float] = field(default_factory=dict)
    timeout_s: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.endpoint, str) or not NAME.fullmatch(self.endpoint):
            raise ValueError(f"Step endpoint {self.endpoint!r}: use an endpoint name of 1 to 63 of a-z, 0-9 and -")
        where = f"Step({self.endpoint!r})"
        if self.name is not None and not NAME.fullmatch(self.name):
            raise ValueError(f"{where} name={self.name!r}: use 1 to 63 of a-z, 0-9 and -, not starting with -")
        for option in ("version", "timeout_s"):
            value = getattr(self, option)
            if value is not None and not is_count(value):
                raise ValueError(f"{where} {option}={value!r}: use a whole number of 1 or more")
        for label, threshold in self.thresholds.items():
            if not isinstance(label, str) or not is_share(threshold):
                raise ValueError(f"{where} thresholds: {label!r}: {threshold!r}: give each label a number from 0 to 1")

    def to_json(self) -> dict[str, Any]:
        """The form in a deploy request, without unset options."""
        return _given(
            {
                "name": self.name,
                "endpoint": self.endpoint,
                "version": self.version,
                "thresholds": dict(self.thresholds) or None,
                "timeout_s": self.timeout_s,
            }
        )


@dataclass(frozen=True)
class JobRetry:
    """When to retry a failed job. `max_attempts` of `@endpoint` limits the number of attempts.

    backoff_s: seconds before the first retry, twice as many before each further one; default 1.
    backoff_max_s: the longest pause, in seconds; default 60.
    jitter: the share of each pause, 0 to 1, that is left to chance, so that jobs that failed together come apart;
        default 0.5.
    on: the error codes to retry, e.g. "timeout" or "handler_error"; default: all that can be retried.
    """

    backoff_s: float | None = None
    backoff_max_s: float | None = None
    jitter: float | None = None
    on: Sequence[str] | None = None

    def __post_init__(self) -> None:
        for option in ("backoff_s", "backoff_max_s"):
            value = getattr(self, option)
            if value is not None and not (is_number(value) and value >= 0):
                raise ValueError(f"JobRetry {option}={value!r}: use a number of seconds of 0 or more")
        if self.backoff_s is not None and self.backoff_max_s is not None and self.backoff_s > self.backoff_max_s:
            raise ValueError(f"JobRetry backoff_s={self.backoff_s!r} is more than backoff_max_s={self.backoff_max_s!r}")
        if self.jitter is not None and not is_share(self.jitter):
            raise ValueError(f"JobRetry jitter={self.jitter!r}: use a number from 0 to 1")
        if isinstance(self.on, str):
            raise ValueError(f'JobRetry on={self.on!r}: give a list of error codes, such as ["timeout"]')
        if self.on is not None and not self.on:
            raise ValueError("JobRetry on=[]: name at least one error code; @endpoint(max_attempts=1) disables retries")
        for code in self.on or ():
            if not isinstance(code, str) or not _CODE.fullmatch(code):
                raise ValueError(f"JobRetry on: {code!r} is not an error code; use e.g. 'timeout'")

    def to_json(self) -> dict[str, Any]:
        """The form in a deploy request, without unset options."""
        return _given(
            {
                "backoff_s": self.backoff_s,
                "backoff_max_s": self.backoff_max_s,
                "jitter": self.jitter,
                "on": None if self.on is None else list(self.on),
            }
        )


def checked_steps(option: str, steps: Any) -> tuple[Step, ...]:
    """The steps of `before` or `after`, in order."""
    if isinstance(steps, (Step, str)) or not isinstance(steps, Sequence):
        raise ValueError(f'{option}={steps!r}: give a list, such as [Step("prompt-check")]')
    for step in steps:
        if not isinstance(step, Step):
            raise ValueError(f"{option}: {step!r} is not a Step: write Step({step!r})")
    if len(steps) > STEPS_MAX:
        raise ValueError(f"{option} has {len(steps)} steps, but at most {STEPS_MAX} are allowed")
    names = [step.name or step.endpoint for step in steps]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{option} has two steps named {twice!r}: set a different name= for one of them")
    return tuple(steps)


def checked_warmup(inputs: Any) -> tuple[dict[str, Any], ...]:
    """The inputs of `warmup`, in order."""
    if isinstance(inputs, (str, Mapping)) or not isinstance(inputs, Sequence):
        raise ValueError(f'warmup={inputs!r}: give a list of inputs, such as [{{"prompt": "warm up"}}]')
    if len(inputs) > WARMUPS_MAX:
        raise ValueError(f"warmup has {len(inputs)} inputs, but at most {WARMUPS_MAX} are allowed")
    for number, one in enumerate(inputs):
        if not isinstance(one, Mapping):
            raise ValueError(f"warmup[{number}]={one!r}: an input is a mapping from argument to value")
        try:
            size = len(json.dumps(dict(one), allow_nan=False))
        except (TypeError, ValueError) as error:
            raise ValueError(f"warmup[{number}] cannot be represented as JSON: {error}") from None
        if size > WARMUP_BYTES_MAX:
            raise ValueError(f"warmup[{number}] has {size} bytes as JSON, but at most {WARMUP_BYTES_MAX} are allowed")
    return tuple(dict(one) for one in inputs)


def check_batching(max_batch_size: int, max_wait_ms: Any, max_concurrency: int) -> None:
    """Validates the options of a batched handler."""
    if max_batch_size > BATCH_SIZE_MAX:
        raise ValueError(f"max_batch_size={max_batch_size!r}: use at most {BATCH_SIZE_MAX}")
    if not is_number(max_wait_ms) or not 0 <= max_wait_ms <= BATCH_WAIT_MS_MAX:
        raise ValueError(f"max_wait_ms={max_wait_ms!r}: use a number from 0 to {BATCH_WAIT_MS_MAX}")
    if max_wait_ms and max_batch_size == 1:
        raise ValueError(f"max_wait_ms={max_wait_ms!r}: it has an effect only with max_batch_size above 1")
    if max_batch_size > 1 and max_concurrency > 1:
        raise ValueError("max_batch_size and max_concurrency cannot be combined: batched calls run one at a time")


def checked_names(option: str, names: Any) -> tuple[str, ...]:
    """The names of `gpu_models` or `regions`."""
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise ValueError(f"{option}={names!r}: give a list of names")
    if len(names) > NAMES_MAX:
        raise ValueError(f"{option} has {len(names)} names, but at most {NAMES_MAX} are allowed")
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"{option}: {name!r} is not a name")
    return tuple(names)


def checked_variables(option: str, names: Any) -> tuple[str, ...]:
    """The names of `secrets`."""
    for name in (checked := checked_names(option, names)):
        if not _VARIABLE.fullmatch(name):
            raise ValueError(f"{option}: {name!r} cannot be an environment variable; use A-Z, 0-9 and _, e.g. HF_TOKEN")
    return checked


def check_version(option: str, version: Any) -> None:
    if version is not None and not (isinstance(version, str) and _VERSION.fullmatch(version)):
        raise ValueError(f'{option}={version!r}: give two numbers as a string, e.g. "8.0"')


def check_one_of(option: str, value: Any, words: Sequence[str]) -> None:
    if value is not None and value not in words:
        raise ValueError(f"{option}={value!r}: use {', '.join(words)}")


def check_at_most(option: str, value: Any, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"{option}={value!r}: use a whole number from {least} to {most}")


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def is_share(value: Any) -> bool:
    return is_number(value) and 0 <= value <= 1


def is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _given(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


for _public in (Step, JobRetry):
    _public.__module__ = "stokehold"
