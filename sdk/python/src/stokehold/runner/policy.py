"""The options of `@endpoint` that describe steps and retries, and the checks of its other options."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from stokehold._generated.decorator import RETRY_BOUNDS, STEP_BOUNDS, RetryFields, StepFields
from stokehold.runner.bounds import check_all, is_number, is_whole

WARMUP_BYTES_MAX = 64 * 1024

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_VERSION = re.compile(r"[0-9]{1,4}\.[0-9]{1,4}")
_CODE = re.compile(r"[a-z][a-z0-9_]{0,62}")


@dataclass(frozen=True)
class Step(StepFields):
    """An endpoint that checks the input of a job before it runs, or its output after: `Step("prompt-check")`.

    The handler of the endpoint returns `allow`, `reject`, `rewrite`, or scores.
    """

    def __post_init__(self) -> None:
        if not isinstance(self.endpoint, str) or not NAME.fullmatch(self.endpoint):
            raise ValueError(f"Step endpoint {self.endpoint!r}: use the name of an endpoint, 1 to 63 of a-z, 0-9 and -")
        where = f"Step({self.endpoint!r})"
        if self.name is not None and not NAME.fullmatch(self.name):
            raise ValueError(f"{where} name={self.name!r}: use 1 to 63 of a-z, 0-9 and -, and do not start with -")
        if self.version is not None and not (is_whole(self.version) and self.version >= 1):
            raise ValueError(f"{where} version={self.version!r}: use a whole number of at least 1")
        check_all(STEP_BOUNDS, self, f"{where} ")
        for label, threshold in self.thresholds.items():
            if not isinstance(label, str) or not is_share(threshold):
                raise ValueError(
                    f"{where} thresholds: {label!r}: {threshold!r}: use a number from 0 to 1 for each label"
                )

    def to_json(self) -> dict[str, Any]:
        """The JSON of a deploy, without options that are not given."""
        return _given(self)


@dataclass(frozen=True)
class JobRetry(RetryFields):
    """When a failed job is retried. The number of attempts is `max_attempts` of `@endpoint`.

    The random part of a wait makes jobs that failed together retry at different times.
    """

    def __post_init__(self) -> None:
        check_all(RETRY_BOUNDS, self, "JobRetry ")
        if self.backoff_s is not None and self.backoff_max_s is not None and self.backoff_s > self.backoff_max_s:
            raise ValueError(f"JobRetry backoff_s={self.backoff_s!r} is more than backoff_max_s={self.backoff_max_s!r}")
        if isinstance(self.on, str):
            raise ValueError(f'JobRetry on={self.on!r}: use a list of error codes, e.g. ["timeout"]')
        if self.on is not None and not self.on:
            raise ValueError(
                "JobRetry on=[]: list at least one error code; for no retries, use @endpoint(max_attempts=1)"
            )
        for code in self.on or ():
            if not isinstance(code, str) or not _CODE.fullmatch(code):
                raise ValueError(f"JobRetry on: {code!r} is not an error code, e.g. 'timeout'")

    def to_json(self) -> dict[str, Any]:
        """The JSON of a deploy, without options that are not given."""
        return _given(self)


def checked_steps(option: str, steps: Any) -> tuple[Step, ...]:
    """Checks the steps of `before` or `after`."""
    if isinstance(steps, (Step, str)) or not isinstance(steps, Sequence):
        raise ValueError(f'{option}={steps!r}: use a list, e.g. [Step("prompt-check")]')
    for step in steps:
        if not isinstance(step, Step):
            raise ValueError(f"{option}: {step!r} is not a Step; use Step({step!r})")
    names = [step.name or step.endpoint for step in steps]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{option} has two steps named {twice!r}; set a different name= for one of them")
    return tuple(steps)


def checked_warmup(option: str, inputs: Any) -> tuple[dict[str, Any], ...]:
    """Checks the inputs of `warmup`."""
    if isinstance(inputs, (str, Mapping)) or not isinstance(inputs, Sequence):
        raise ValueError(f'warmup={inputs!r}: use a list of inputs, e.g. [{{"prompt": "warm up"}}]')
    for number, one in enumerate(inputs):
        if not isinstance(one, Mapping):
            raise ValueError(f"warmup[{number}]={one!r}: use a mapping from arguments to values")
        try:
            size = len(json.dumps(dict(one), allow_nan=False))
        except (TypeError, ValueError) as error:
            raise ValueError(f"warmup[{number}] cannot be encoded as JSON: {error}") from None
        if size > WARMUP_BYTES_MAX:
            raise ValueError(f"warmup[{number}] has {size} bytes as JSON; the limit is {WARMUP_BYTES_MAX}")
    return tuple(dict(one) for one in inputs)


def check_batching(max_batch_size: int, max_wait_ms: float, max_concurrency: int) -> None:
    """Checks the options of a batched handler."""
    if max_wait_ms and max_batch_size == 1:
        raise ValueError(f"max_wait_ms={max_wait_ms!r}: it requires a max_batch_size above 1")
    if max_batch_size > 1 and max_concurrency > 1:
        raise ValueError("max_batch_size and max_concurrency: use only one of them; batches run one at a time")


def checked_names(option: str, names: Any) -> tuple[str, ...]:
    """Checks the names of an option."""
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise ValueError(f"{option}={names!r}: use a list of names")
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"{option}: {name!r} is not a name")
    return tuple(names)


def checked_variables(option: str, names: Any) -> tuple[str, ...]:
    """Checks the names of `secrets`."""
    for name in (checked := checked_names(option, names)):
        if not _VARIABLE.fullmatch(name):
            raise ValueError(f"{option}: {name!r} cannot be an environment variable; use A-Z, 0-9 and _, e.g. HF_TOKEN")
    return checked


def check_version(option: str, version: Any) -> None:
    if version is not None and not (isinstance(version, str) and _VERSION.fullmatch(version)):
        raise ValueError(f'{option}={version!r}: use a string of two numbers, e.g. "8.0"')


def is_share(value: Any) -> bool:
    return is_number(value) and 0 <= value <= 1


def with_members(text: str | None, described: str | None) -> str | None:
    """A docstring with the members that a generated docstring describes after its first paragraphs."""
    if text is None or described is None:
        return text
    return f"{text.rstrip()}\n\n{described[described.rindex(chr(10) * 2) :].lstrip(chr(10))}"


def _given(options: Step | JobRetry) -> dict[str, Any]:
    members = {field.name: getattr(options, field.name) for field in fields(options)}
    return {name: json_of(value) for name, value in members.items() if value is not None and value != {}}


def json_of(value: Any) -> Any:
    """The JSON of an option: of a `Step`, a `JobRetry`, a mapping, or a list of them."""
    if isinstance(value, (list, tuple)):
        return [json_of(item) for item in value]
    if isinstance(value, Mapping):
        return dict(value)
    return value.to_json() if isinstance(value, (Step, JobRetry)) else value


for _public, _fields in ((Step, StepFields), (JobRetry, RetryFields)):
    _public.__module__ = "stokehold"
    # `help` shows the docstring of a class, not those of its bases.
    _public.__doc__ = with_members(_public.__doc__, _fields.__doc__)
