# Generated from api/openapi.json by `make models`; do not edit.
"""The webhooks of the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from stokehold._read import decode_time, word

if TYPE_CHECKING:
    from typing_extensions import Self


HookEvent = Literal["job.started", "job.output", "job.progress", "job.completed", "batch.completed"]
"""An event that a webhook can receive."""

DeliveryState = Literal["pending", "delivered", "exhausted", "disabled"]
"""The state of a delivery."""


class DeliveryTry(NamedTuple):
    """One try at a delivery.

    at: When it started.
    status: The receiver's status code.
    error: Why there is no response, or why it counts as failed.
    """

    at: datetime | None
    status: int | None
    error: str | None
    duration_ms: int

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            at=decode_time(raw.get("at")),
            status=raw.get("status"),
            error=raw.get("error"),
            duration_ms=raw.get("duration_ms") or 0,
        )


@dataclass(frozen=True)
class Delivery:
    """A webhook event and its delivery.

    id: The `webhook-id` of every try.
    event: The event, e.g. `job.completed`.
    state: The state of a delivery.
    created_at: When the event happened.
    tries: The latest tries, oldest first.
    batch_id: The batch, unless the event is about a job.
    job_id: The job, unless the event is about a batch.
    next_try_at: When the next try is due; None once the delivery has ended.
    """

    id: str
    event: HookEvent
    url: str
    state: DeliveryState
    created_at: datetime | None
    tries: tuple[DeliveryTry, ...]
    batch_id: str | None = None
    job_id: str | None = None
    next_try_at: datetime | None = None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            id=raw["id"],
            event=word(raw, "event"),
            url=raw.get("url") or "",
            state=raw["state"],
            created_at=decode_time(raw.get("created_at")),
            tries=tuple(DeliveryTry.decode(each) for each in raw.get("tries") or ()),
            batch_id=raw.get("batch_id"),
            job_id=raw.get("job_id"),
            next_try_at=decode_time(raw.get("next_try_at")),
        )


@dataclass(frozen=True)
class WebhookSecretFields:
    """The secret that signs webhooks, as Standard Webhooks describes.

    secret: `whsec_` and base64, the format of Standard Webhooks libraries.
    previous: The previous secret, for one day after a rotation. Until then each webhook has a signature by both.
    previous_until: When `previous` expires.
    """

    secret: str = field(repr=False)
    previous: str | None = field(default=None, repr=False)
    previous_until: datetime | None = None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            secret=raw["secret"],
            previous=raw.get("previous"),
            previous_until=decode_time(raw.get("previous_until")),
        )
