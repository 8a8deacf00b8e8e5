"""References to the result of a job in the input of another: `{"$job": ..., "pointer": ...}`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

if TYPE_CHECKING:
    from stokehold._models import JobRecord

Dependency = Union["JobRecord", str, Mapping[str, Any]]
"""A job, its id, or `{"job": one of these, "on": "success" | "completion"}`."""


class Reference:
    """A part of the future result of a job: `job["boxes"][0]`. Can be used anywhere in the input of another job."""

    __slots__ = ("job", "path")

    # Without these, Python would treat a class with `[]` as a sequence and iterate over it endlessly.
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
        """The JSON pointer to that part of the result."""
        return "".join(f"/{str(key).replace('~', '~0').replace('/', '~1')}" for key in self.path)


def checked_key(key: str | int) -> str | int:
    """Returns the name of a member or the index of an item. Raises `TypeError` for anything else."""
    if isinstance(key, bool) or not isinstance(key, (str, int)) or (isinstance(key, int) and key < 0):
        raise TypeError(f"[{key!r}] is not valid here; use the name of a member, or the index of an item from 0")
    return key


def job_id(job: JobRecord | str, planned: Sequence[JobRecord] = ()) -> str:
    """The id of a job in a request; `#n` for a job of the same pipeline."""
    if isinstance(job, str):
        return job
    name = job.id
    if name.startswith("#") and not any(job is member for member in planned):
        raise ValueError(
            f"job {name} ({job.endpoint}) is not sent yet; until then, use it only within its own pipeline"
        )
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
