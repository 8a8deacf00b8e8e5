"""Reads the JSON of the API."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, Callable, TypeVar

T = TypeVar("T")


def optional(decode: Callable[[Mapping[str, Any]], T], raw: Mapping[str, Any] | None) -> T | None:
    """Decodes an object that can be null."""
    return None if raw is None else decode(raw)


def word(raw: Mapping[str, Any], name: str) -> Any:
    """A member that is one of a few words. It is empty if the server is too old to have it."""
    return raw.get(name) or ""


def decode_time(text: str | None) -> datetime | None:
    """Parses RFC 3339 in UTC, to the millisecond. Python before 3.11 parses neither `Z` nor a one-digit fraction."""
    if text is None:
        return None
    whole, _, fraction = text.rstrip("Zz").partition(".")
    stamp = datetime.fromisoformat(whole).replace(tzinfo=timezone.utc)
    return stamp.replace(microsecond=int(fraction[:6].ljust(6, "0"))) if fraction else stamp


def encode_time(stamp: datetime) -> str:
    """Formats a time as RFC 3339 in UTC. Raises `ValueError` for a time without a zone, which is ambiguous."""
    if stamp.tzinfo is None:
        raise ValueError(f"{stamp!r} has no time zone; use datetime.now(timezone.utc) or .astimezone()")
    return stamp.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
