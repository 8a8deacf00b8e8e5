"""Whether a request to your webhook came from your Stokehold: Standard Webhooks, standardwebhooks.com."""

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
from stokehold._models import decode_time

_PREFIX = "whsec_"
_VERSION = "v1"
# Of a SHA-256 in base64.
_SIGNATURE_CHARS = 44

# More than any sender has secrets; each costs a comparison.
_SIGNATURES_MAX = 32


@dataclass(frozen=True)
class WebhookEvent:
    """What happened: `type` is such as "job.completed", `data` the job or batch. `id` is the same with every try."""

    id: str
    type: str
    timestamp: datetime | None
    data: Any


def verify_webhook(
    payload: bytes | str, headers: Mapping[str, str], secret: str | Sequence[str], tolerance_s: float = 300
) -> WebhookEvent:
    """Checks a delivery and decodes it. Raises `WebhookVerificationError` unless it is genuine and fresh.

    payload: the body exactly as it came; JSON that was decoded and encoded again has another signature.
    headers: the request's; their names in any case.
    secret: what `client.webhooks.secret()` told; several while one takes the place of another.
    tolerance_s: how far the sender's clock may be from this one, before or behind; default five minutes.

    A delivery may come twice: do nothing for an `id` that you have seen.
    """
    body = payload.encode() if isinstance(payload, str) else bytes(payload)
    keys = [_key(one) for one in ([secret] if isinstance(secret, str) else secret)]
    if not keys:
        raise ValueError("give at least one secret")
    found = {name.lower(): value for name, value in headers.items()}
    message_id, timestamp, signatures = (
        _header(found, name) for name in ("webhook-id", "webhook-timestamp", "webhook-signature")
    )
    _check_age(timestamp, tolerance_s)
    signed = f"{message_id}.{timestamp}.".encode() + body
    expected = [base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()) for key in keys]
    # Every pair is compared, so that the time tells nothing of which one fits.
    matches = [hmac.compare_digest(ours, theirs) for theirs in _signatures(signatures) for ours in expected]
    if not any(matches):
        raise WebhookVerificationError("no signature fits: another secret, or the body is not the one that was signed")
    return _decode(message_id, body)


def _key(secret: str) -> bytes:
    """The secret's bytes. A wrong one is a mistake of the caller's, not of the sender's."""
    encoded = secret[len(_PREFIX) :] if secret.startswith(_PREFIX) else secret
    try:
        key = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("the secret is not base64; it looks like whsec_MfKQ...") from None
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
        raise WebhookVerificationError("the header webhook-timestamp is no count of seconds")
    age_s = time.time() - int(timestamp)
    if age_s > tolerance_s:
        raise WebhookVerificationError(f"the delivery is {age_s:.0f} s old; is this machine's clock right?")
    if age_s < -tolerance_s:
        raise WebhookVerificationError(f"the delivery is {-age_s:.0f} s early; is this machine's clock right?")


def _signatures(header: str) -> list[bytes]:
    """Those of version 1 that have a signature's whole length. Others are another version's, or forged.

    They stay in base64: the last character of one can be changed without a change of what it decodes to.
    """
    parts = (part.partition(",") for part in header.split(" ")[:_SIGNATURES_MAX])
    found = (signature.encode("utf-8", "replace") for version, _, signature in parts if version == _VERSION)
    return [signature for signature in found if len(signature) == _SIGNATURE_CHARS]


def _decode(message_id: str, body: bytes) -> WebhookEvent:
    try:
        told = json.loads(body)
        return WebhookEvent(message_id, told["type"], decode_time(told.get("timestamp")), told.get("data"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WebhookVerificationError(
            f"the body is signed, but no event that this version of stokehold knows: {error!r}"
        ) from error
