"""A job's result inside another job's input: `{"$job": ..., "pointer": ...}`, which the API fills in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

if TYPE_CHECKING:
    from stokehold._models import JobRecord

Dependency = Union["JobRecord", str, Mapping[str, Any]]
"""A job, its id, or `{"job": one of these, "on": "success" | "completion"}`."""


class Reference:
    """A part of what a job will return: `job["boxes"][0]`. May stand anywhere in another job's input."""

    __slots__ = ("job", "path")

    # Or Python would take `[]` for a sequence and iterate it for ever.
    __iter__ = None
    __contains__ = None

    def __init__(self, job: JobRecord, path: tuple[str | int, ...]) -> None:
        self.job = job
        self.path = path

    def __getitem__(self, key: str | int) -> Reference:
        return Reference(self.job, (*self.path, checked_key(key)))

    def __repr__(self) -> str:
        return f"Reference({self.job.id!r}, pointer={self.pointer!r})"

    @property
    def pointer(self) -> str:
        """Its place in the result, as a JSON pointer."""
        return "".join(f"/{str(key).replace('~', '~0').replace('/', '~1')}" for key in self.path)


def checked_key(key: str | int) -> str | int:
    """A member's name or an item's number; refused otherwise, since nothing else can be found in JSON."""
    if isinstance(key, bool) or not isinstance(key, (str, int)) or (isinstance(key, int) and key < 0):
        raise TypeError(f"[{key!r}]: name a member, or number an item from 0")
    return key


def job_id(job: JobRecord | str, planned: Sequence[JobRecord] = ()) -> str:
    """What a request names a job by: `#n` for one that is planned in the same pipeline."""
    if isinstance(job, str):
        return job
    name = job.id
    if name.startswith("#") and not any(job is member for member in planned):
        raise ValueError(f"job {name} ({job.endpoint}) is not sent yet: it can be named within its own pipeline only")
    return name


def depends_on(dependencies: Sequence[Dependency], planned: Sequence[JobRecord] = ()) -> list[Any]:
    """The `depends_on` member."""
    named: list[Any] = []
    for dependency in dependencies:
        if isinstance(dependency, Mapping):
            named.append({**dependency, "job": job_id(dependency["job"], planned)})
        else:
            named.append(job_id(dependency, planned))
    return named
