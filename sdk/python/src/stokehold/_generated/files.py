# Generated from api/openapi.json by `make models`; do not edit.
"""The files of the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from stokehold._read import decode_time

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class FileSummary:
    """A file of a list.

    uploaded_at: When its bytes were uploaded.
    """

    id: str
    name: str
    size_bytes: int
    content_type: str
    uploaded_at: datetime | None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            id=raw["id"],
            name=raw.get("name") or "",
            size_bytes=raw.get("size_bytes") or 0,
            content_type=raw.get("content_type") or "",
            uploaded_at=decode_time(raw.get("uploaded_at")),
        )
