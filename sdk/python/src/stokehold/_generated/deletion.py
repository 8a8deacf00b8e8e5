# Generated from api/openapi.json by `make models`; do not edit.
"""The deletion of the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stokehold._generated.endpoints import (
    EndpointRequirements,
)

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class Dependent:
    """Things of one kind that depend on what is deleted.

    kind: The kind, e.g. `jobs` or `schedules`.
    count: How many there are.
    examples: The ids or names of some.
    """

    kind: str
    count: int
    examples: tuple[str, ...]

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            kind=raw.get("kind") or "",
            count=raw.get("count") or 0,
            examples=tuple(raw.get("examples") or ()),
        )


@dataclass(frozen=True)
class Deletion:
    """What was deleted, or would be.

    deleted: Whether it was deleted; False for a dry run.
    dependents: What depends on it.
    freed_bytes: The bytes that are freed in the object store.
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
    """Requirements for workers that endpoints share.

    id: The id.
    requirements: The requirements.
    """

    id: int
    requirements: EndpointRequirements

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            id=raw["id"],
            requirements=EndpointRequirements.decode(raw.get("requirements") or {}),
        )
