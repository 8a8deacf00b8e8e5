"""Webhooks: the signing secret and the deliveries. Does no I/O; see also `_verify.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import quote

from stokehold._models import decode_time
from stokehold._request import Plan

if TYPE_CHECKING:
    from stokehold._api import Api

DeliveryState = Literal["pending", "delivered", "exhausted", "disabled"]

PATH = "/v1/webhooks"
DELIVERIES_PATH = f"{PATH}/deliveries"


@dataclass(frozen=True)
class WebhookSecret:
    """The secret that signs deliveries. Until `previous_until`, deliveries are also signed with the previous one."""

    secret: str = field(repr=False)
    previous: str | None = field(default=None, repr=False)
    previous_until: datetime | None = None

    @property
    def secrets(self) -> list[str]:
        """The secrets that are valid now, for `verify_webhook`."""
        return [self.secret] if self.previous is None else [self.secret, self.previous]

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> WebhookSecret:
        return cls(raw["secret"], raw.get("previous"), decode_time(raw.get("previous_until")))


class DeliveryTry(NamedTuple):
    """A request to a webhook. `status` is the status of its response, `error` the reason if there was no response."""

    at: datetime | None
    status: int | None
    error: str | None
    duration_ms: int


@dataclass(frozen=True)
class Delivery:
    """A message to a webhook. `id` is its `webhook-id`, which is the same for every try and replay."""

    id: str
    event: str
    url: str
    state: DeliveryState
    job_id: str | None
    batch_id: str | None
    created_at: datetime | None
    next_try_at: datetime | None
    tries: tuple[DeliveryTry, ...]

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Delivery:
        return cls(
            id=raw["id"],
            event=raw["event"],
            url=raw["url"],
            state=raw["state"],
            job_id=raw.get("job_id"),
            batch_id=raw.get("batch_id"),
            created_at=decode_time(raw.get("created_at")),
            next_try_at=decode_time(raw.get("next_try_at")),
            tries=tuple(
                DeliveryTry(
                    decode_time(each.get("at")), each.get("status"), each.get("error"), each.get("duration_ms") or 0
                )
                for each in raw.get("tries") or ()
            ),
        )


def secret(api: Api) -> Plan[WebhookSecret]:
    return WebhookSecret.decode((yield from api.get_json(f"{PATH}/secret")))


def rotate_secret(api: Api) -> Plan[WebhookSecret]:
    return WebhookSecret.decode((yield from api.post_json(f"{PATH}/secret/rotate")))


def delivery(api: Api, delivery_id: str) -> Plan[Delivery]:
    return Delivery.decode((yield from api.get_json(_delivery_path(delivery_id))))


def replay(api: Api, delivery_id: str) -> Plan[Delivery]:
    return Delivery.decode((yield from api.post_json(f"{_delivery_path(delivery_id)}/replay")))


def _delivery_path(delivery_id: str) -> str:
    return f"{DELIVERIES_PATH}/{quote(delivery_id, safe='')}"
