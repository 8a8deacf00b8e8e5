# Generated from api/openapi.json by `make models`; do not edit.
"""The deletion of the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from stokehold._generated.endpoints import (
    EndpointRequirements,
)
from stokehold._read import word

if TYPE_CHECKING:
    from typing_extensions import Self


DependentKind = Literal["job", "step", "schedule", "batch", "endpoint", "version", "traffic", "rollback"]
"""A kind of dependents."""


@dataclass(frozen=True)
class Dependent:
    """What depends on a resource, of one kind.

    kind: The kind.
    count: How many there are.
    examples: Up to five of them: ids, or names. At most 5.
    """

    kind: DependentKind
    count: int
    examples: tuple[str, ...]

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            kind=word(raw, "kind"),
            count=raw.get("count") or 0,
            examples=tuple(raw.get("examples") or ()),
        )


@dataclass(frozen=True)
class Deletion:
    """The outcome of a deletion.

    deleted: Whether it was deleted; False after a dry run.
    dependents: What depended on it. Open jobs and batches were cancelled and schedules paused.
    freed_bytes: The size of the stored files that were deleted with it, or that would be.
    """

    deleted: bool
    dependents: tuple[Dependent, ...]
    freed_bytes: int

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            deleted=bool(raw.get("deleted")),
            dependents=tuple(Dependent.decode(each) for each in raw.get("dependents") or ()),
            freed_bytes=raw.get("freed_bytes") or 0,
        )


@dataclass(frozen=True)
class RequirementSet:
    """A requirement set: all that endpoints require of workers besides memory.

    id: The id. It follows from the requirements: the same set always has the same id.
    demands: An endpoint's requirements for workers besides memory. Absent members require nothing.
    versions: The versions with these requirements, as `name@version`.
    """

    id: str
    demands: EndpointRequirements
    versions: tuple[str, ...]

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            id=raw["id"],
            demands=EndpointRequirements.decode(raw.get("demands") or {}),
            versions=tuple(raw.get("versions") or ()),
        )
