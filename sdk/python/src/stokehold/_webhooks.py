"""Webhooks: the signing secret and the deliveries. Does no I/O; see also `_verify.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from stokehold._generated.webhooks import Delivery, DeliveryState, DeliveryTry, WebhookSecretFields
from stokehold._request import Plan

if TYPE_CHECKING:
    from stokehold._api import Api

__all__ = ["Delivery", "DeliveryState", "DeliveryTry", "WebhookSecret"]

PATH = "/v1/webhooks"
DELIVERIES_PATH = f"{PATH}/deliveries"


class WebhookSecret(WebhookSecretFields):
    """The secret that signs deliveries. Until `previous_until`, deliveries are also signed with the previous one."""

    @property
    def secrets(self) -> list[str]:
        """The secrets that are valid now, for `verify_webhook`."""
        return [self.secret] if self.previous is None else [self.secret, self.previous]


def secret(api: Api) -> Plan[WebhookSecret]:
    return WebhookSecret.decode((yield from api.get_json(f"{PATH}/secret")))


def rotate_secret(api: Api) -> Plan[WebhookSecret]:
    return WebhookSecret.decode((yield from api.post_once(f"{PATH}/secret/rotate")))


def delivery(api: Api, delivery_id: str) -> Plan[Delivery]:
    return Delivery.decode((yield from api.get_json(_delivery_path(delivery_id))))


def replay(api: Api, delivery_id: str) -> Plan[Delivery]:
    return Delivery.decode((yield from api.post_json(f"{_delivery_path(delivery_id)}/replay")))


def _delivery_path(delivery_id: str) -> str:
    return f"{DELIVERIES_PATH}/{quote(delivery_id, safe='')}"
