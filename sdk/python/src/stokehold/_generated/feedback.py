# Generated from api/openapi.json by `make models`; do not edit.
"""The feedback of the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from stokehold._read import decode_time

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class Feedback:
    """Stored feedback.

    job_id: The job that was rated.
    endpoint: The endpoint of the job.
    version: The version of the endpoint that the job ran on.
    labels: Your own labels.
    at: When it was given.
    accepted: Whether the result was useful.
    comment: Your own words.
    score: 1 to 5; 5 is best.
    """

    job_id: str
    endpoint: str
    version: int
    labels: tuple[str, ...]
    at: datetime | None
    accepted: bool | None = None
    comment: str | None = None
    score: int | None = None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            job_id=raw.get("job_id") or "",
            endpoint=raw.get("endpoint") or "",
            version=raw.get("version") or 0,
            labels=tuple(raw.get("labels") or ()),
            at=decode_time(raw.get("at")),
            accepted=raw.get("accepted"),
            comment=raw.get("comment"),
            score=raw.get("score"),
        )


@dataclass(frozen=True)
class FeedbackStats:
    """The feedback on one version of an endpoint.

    rated: Jobs with feedback.
    accepted: Jobs whose result was accepted.
    mean_score: 1 to 5; None if no feedback has a score.
    success_rate: The share of accepted results among feedback with `accepted`, 0 to 1; None without any.
    """

    endpoint: str
    version: int
    rated: int
    accepted: int
    mean_score: float | None = None
    success_rate: float | None = None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            endpoint=raw.get("endpoint") or "",
            version=raw.get("version") or 0,
            rated=raw.get("rated") or 0,
            accepted=raw.get("accepted") or 0,
            mean_score=raw.get("mean_score"),
            success_rate=raw.get("success_rate"),
        )
