"""Feedback: ratings of results. Shared by both clients; does no I/O."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stokehold._calls import with_query
from stokehold._generated.feedback import Feedback, FeedbackStats
from stokehold._generated.options import Rating
from stokehold._lines import LineReader
from stokehold._options import present
from stokehold._request import Plan

if TYPE_CHECKING:
    from stokehold._api import Api

__all__ = ["Feedback", "FeedbackStats", "Rating"]


def give(api: Api, path: str, rating: Mapping[str, Any]) -> Plan[Feedback]:
    body = present(rating, Rating.__annotations__)
    if not body:
        raise ValueError(f"no feedback given; pass at least one of {', '.join(Rating.__annotations__)}")
    if "labels" in body:
        body["labels"] = list(body["labels"])
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
