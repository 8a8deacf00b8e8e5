"""Feedback: ratings of results. Shared by both clients; does no I/O."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from stokehold._calls import with_query
from stokehold._lines import LineReader
from stokehold._models import decode_time
from stokehold._request import Plan

if TYPE_CHECKING:
    from stokehold._api import Api


@dataclass(frozen=True)
class Feedback:
    """The rating of the result of a job. `score` is from 1 to 5."""

    job_id: str
    endpoint: str
    version: int | None
    accepted: bool | None
    score: int | None
    labels: tuple[str, ...]
    comment: str | None
    at: datetime | None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Feedback:
        return cls(
            job_id=raw["job_id"],
            endpoint=raw.get("endpoint") or "",
            version=raw.get("version"),
            accepted=raw.get("accepted"),
            score=raw.get("score"),
            labels=tuple(raw.get("labels") or ()),
            comment=raw.get("comment"),
            at=decode_time(raw.get("at")),
        )


@dataclass(frozen=True)
class FeedbackStats:
    """The ratings of a version of an endpoint.

    `success_rate` is the share, from 0 to 1, of accepted results among those that were accepted or not. `mean_score` is
    from 1 to 5.
    """

    endpoint: str
    version: int
    rated: int
    accepted: int
    success_rate: float | None
    mean_score: float | None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> FeedbackStats:
        return cls(
            endpoint=raw["endpoint"],
            version=raw["version"],
            rated=raw.get("rated") or 0,
            accepted=raw.get("accepted") or 0,
            success_rate=raw.get("success_rate"),
            mean_score=raw.get("mean_score"),
        )


def give(
    api: Api,
    path: str,
    accepted: bool | None,
    score: int | None,
    labels: Sequence[str] | None,
    comment: str | None,
) -> Plan[Feedback]:
    given = {"accepted": accepted, "score": score, "labels": None if labels is None else list(labels)}
    body = {name: value for name, value in {**given, "comment": comment}.items() if value is not None}
    if not body:
        raise ValueError("no feedback given; pass at least one of accepted, score, labels and comment")
    return Feedback.decode((yield from api.post_json(f"{path}/feedback", body)))


def stats(api: Api, endpoint: str | None) -> Plan[list[FeedbackStats]]:
    page = yield from api.get_json("/v1/feedback", () if endpoint is None else [("endpoint", endpoint)])
    return [FeedbackStats.decode(raw) for raw in page["versions"]]


def export(api: Api, endpoint: str | None, version: int | None, sample: int | None, seed: int | None) -> LineReader:
    """Always sets a seed. Without one, a repeated request would draw another sample and could not resume."""
    asked = {"endpoint": endpoint, "version": version, "sample": sample}
    asked["seed"] = random.getrandbits(63) if seed is None else seed
    query = [(name, str(value)) for name, value in asked.items() if value is not None]
    headers = {**api.headers, "Accept": "application/jsonl"}
    return LineReader(api.call("GET", with_query("/v1/feedback/export", query), headers=headers), api.retry)
