"""The `@endpoint` decorator."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Callable, TypeVar, overload

from stokehold._generated.decorator import DEMANDS, ENDPOINT_BOUNDS, EndpointOptions, OptionsFields
from stokehold.runner.bounds import check_all
from stokehold.runner.policy import (
    NAME,
    JobRetry,
    check_batching,
    check_version,
    checked_names,
    checked_steps,
    checked_variables,
    checked_warmup,
    json_of,
    with_members,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T", bound=Callable[..., Any])

_ATTRIBUTE = "__stokehold_endpoint__"

# The options that a description always has. An older API rejects some of the others.
_ALWAYS = ("vram_gib", "max_concurrency", "timeout_s", "max_attempts")


@dataclass(frozen=True)
class Options(OptionsFields):
    """The options of an endpoint."""

    def __post_init__(self) -> None:
        if self.name is not None and not NAME.fullmatch(self.name):
            raise ValueError(f"endpoint name {self.name!r}: use 1 to 63 of a-z, 0-9 and -, and do not start with -")
        check_all(ENDPOINT_BOUNDS, self)
        if self.vram_fraction is not None and self.vram_gib == 0:
            raise ValueError("vram_fraction requires vram_gib, the least GPU memory that the model runs with")
        check_batching(self.max_batch_size, self.max_wait_ms, self.max_concurrency)
        if self.retry is not None and not isinstance(self.retry, JobRetry):
            raise ValueError(f"retry={self.retry!r}: use JobRetry(backoff_s=..., on=[...])")
        for option in ("min_compute_capability", "min_cuda"):
            check_version(option, getattr(self, option))
        if not isinstance(self.network, bool):
            raise ValueError(f"network={self.network!r}: use True or False")
        for check, options in _CHECKED.items():
            for option in options:
                object.__setattr__(self, option, check(option, getattr(self, option)))
        if self.vram_gib == 0 and (self.gpus > 1 or self.gpu_models or self.min_compute_capability is not None):
            raise ValueError(
                "gpus, gpu_models and min_compute_capability require vram_gib, the GPU memory needed of each GPU"
            )

    def to_json(self) -> dict[str, Any]:
        """The JSON of a deploy, without the name and without options that have their default."""
        found: dict[str, Any] = {}
        demands: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "name" and (value != field.default or field.name in _ALWAYS):
                (demands if field.name in DEMANDS else found)[field.name] = json_of(value)
        return {**found, "demands": demands} if demands else found


# The checks of lists, each of which returns a tuple.
_CHECKED: dict[Callable[[str, Any], tuple[Any, ...]], tuple[str, ...]] = {
    checked_steps: ("before", "after"),
    checked_names: ("gpu_models", "openai_models", "regions"),
    checked_variables: ("secrets",),
    checked_warmup: ("warmup",),
}


@overload
def endpoint(target: T, /) -> T: ...


@overload
def endpoint(**options: Unpack[EndpointOptions]) -> Callable[[T], T]: ...


def endpoint(target: T | None = None, /, **options: Any) -> T | Callable[[T], T]:
    """Marks a function, or a class with `predict()`, as the handler of an endpoint. The object stays callable.

    The name of the endpoint is by default the name of the object, in lower case and with `-` for `_`. The values of
    `secrets` are in `os.environ`.

    With a `max_batch_size` above 1, each argument is a list with one item per job, and the handler returns a list with
    one result per job. An exception in that list fails its job only. If the call raises, each half of the batch is
    called again, so that only the faulty jobs fail.

    With a `vram_fraction`, the handler finds its reservation in `STOKE_VRAM_MIB` and, as a share of the GPU, in
    `STOKE_VRAM_FRACTION`. The peak of the GPU memory that `warmup` uses replaces `vram_gib`, so include the largest
    shapes.

    Raises `ValueError` for an invalid option.
    """
    if isinstance(target, str):
        raise TypeError(f'@endpoint takes its options by name: write @endpoint(name="{target}")')
    allowed = [field.name for field in fields(Options)]
    if unknown := [name for name in options if name not in allowed]:
        close = get_close_matches(unknown[0], allowed, n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise TypeError(f"@endpoint has no option {unknown[0]}{hint}; the options are {', '.join(allowed)}")
    marked = Options(**options)

    def mark(target: T) -> T:
        setattr(target, _ATTRIBUTE, marked)
        return target

    return mark if target is None else mark(target)


endpoint.__doc__ = with_members(endpoint.__doc__, EndpointOptions.__doc__)


def options_of(target: Any) -> Options | None:
    """The options of an object that is marked itself. A marked base class does not count."""
    found = vars(target).get(_ATTRIBUTE) if hasattr(target, "__dict__") else None
    return found if isinstance(found, Options) else None


def default_name(target: Any) -> str:
    """Derives the name of an endpoint from the name of an object."""
    name = getattr(target, "__name__", type(target).__name__)
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:63] or "endpoint"
