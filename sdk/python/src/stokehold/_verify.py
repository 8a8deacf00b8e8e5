"""Verifies that a request to your webhook is from your Stokehold: Standard Webhooks, standardwebhooks.com."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from stokehold._errors import WebhookVerificationError
from stokehold._read import decode_time

_PREFIX = "whsec_"
_VERSION = "v1"
# The length of a SHA-256 in base64.
_SIGNATURE_CHARS = 44

# Far more than a sender has secrets. Each signature costs a comparison.
_SIGNATURES_MAX = 32


@dataclass(frozen=True)
class WebhookEvent:
    """An event. `type` is e.g. "job.completed", and `data` the job or batch. `id` is the same for every try."""

    id: str
    type: str
    timestamp: datetime | None
    data: Any


def verify_webhook(
    payload: bytes | str, headers: Mapping[str, str], secret: str | Sequence[str], tolerance_s: float = 300
) -> WebhookEvent:
    """Verifies a delivery and decodes it. Raises `WebhookVerificationError` unless it is authentic and recent.

    payload: the body exactly as received. JSON that was decoded and encoded again has another signature.
    headers: the headers of the request, with names in any case.
    secret: the secret from `client.webhooks.secret()`, or several during a rotation.
    tolerance_s: the allowed difference between the clocks of the sender and of this machine; default five minutes.

    A delivery may arrive more than once: ignore an `id` that you have already processed.
    """
    body = payload.encode() if isinstance(payload, str) else bytes(payload)
    keys = [_key(one) for one in ([secret] if isinstance(secret, str) else secret)]
    if not keys:
        raise ValueError("no secret given; pass at least one")
    found = {name.lower(): value for name, value in headers.items()}
    message_id, timestamp, signatures = (
        _header(found, name) for name in ("webhook-id", "webhook-timestamp", "webhook-signature")
    )
    _check_age(timestamp, tolerance_s)
    signed = f"{message_id}.{timestamp}.".encode() + body
    expected = [base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()) for key in keys]
    # Every pair is compared, so that the time does not reveal which one matches.
    matches = [hmac.compare_digest(ours, theirs) for theirs in _signatures(signatures) for ours in expected]
    if not any(matches):
        raise WebhookVerificationError("no signature matches: the secret is another one, or the body was changed")
    return _decode(message_id, body)


def _key(secret: str) -> bytes:
    """Decodes a secret. A malformed secret is an error of the caller, not of the sender."""
    encoded = secret[len(_PREFIX) :] if secret.startswith(_PREFIX) else secret
    try:
        key = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("the secret is not base64; a secret looks like whsec_MfKQ...") from None
    if not key:
        raise ValueError("the secret is empty")
    return key


def _header(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name)
    if not value:
        raise WebhookVerificationError(f"the header {name} is missing")
    return value


def _check_age(timestamp: str, tolerance_s: float) -> None:
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 15):
        raise WebhookVerificationError("the header webhook-timestamp is not a number of seconds")
    age_s = time.time() - int(timestamp)
    if age_s > tolerance_s:
        raise WebhookVerificationError(f"the delivery is {age_s:.0f} s old; check the clock of this machine")
    if age_s < -tolerance_s:
        raise WebhookVerificationError(
            f"the delivery is dated {-age_s:.0f} s in the future; check the clock of this machine"
        )


def _signatures(header: str) -> list[bytes]:
    """The signatures of version 1 that have the full length. Others are of another version, or forged.

    They are compared in base64, because different last characters can decode to the same bytes.
    """
    parts = (part.partition(",") for part in header.split(" ")[:_SIGNATURES_MAX])
    found = (signature.encode("utf-8", "replace") for version, _, signature in parts if version == _VERSION)
    return [signature for signature in found if len(signature) == _SIGNATURE_CHARS]


def _decode(message_id: str, body: bytes) -> WebhookEvent:
    try:
        event = json.loads(body)
        return WebhookEvent(message_id, event["type"], decode_time(event.get("timestamp")), event.get("data"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WebhookVerificationError(
            f"the body is signed, but it is not a known event: {error!r}; if the server is newer, upgrade stokehold"
        ) from error
