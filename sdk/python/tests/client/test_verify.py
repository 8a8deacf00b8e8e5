"""Webhook signatures: Standard Webhooks to the letter, computed here a second time."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import random
import subprocess
import sys
import time
from datetime import datetime, timezone

import pytest

from stokehold import WebhookEvent, WebhookVerificationError, verify_webhook

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 (the one of the standard's own examples)
OTHER = "whsec_" + base64.b64encode(b"another secret of 24 byt").decode()
BODY = json.dumps({"type": "job.completed", "timestamp": "2026-11-21T05:50:00Z", "data": {"text": "grüß"}}).encode()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stops the clock, so that two calls of `headers` in a test have the same timestamp."""
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)


def sign(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    key = base64.b64decode(secret.partition("_")[2])
    digest = hmac.new(key, b".".join((message_id.encode(), str(timestamp).encode(), body)), hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode()


def headers(
    signature: str | None = None, *, age_s: int = 0, secret: str = SECRET, body: bytes = BODY
) -> dict[str, str]:
    timestamp = int(time.time()) - age_s
    return {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(timestamp),
        "webhook-signature": sign(secret, "msg_1", timestamp, body) if signature is None else signature,
    }


def refused(match: str, sent: dict[str, str], body: bytes = BODY, secret: str = SECRET) -> None:
    with pytest.raises(WebhookVerificationError, match=match):
        verify_webhook(body, sent, secret)


def test_the_standard_s_own_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that the specification and all its libraries are tested with; its body is no event of ours."""
    monkeypatch.setattr(time, "time", lambda: 1614265330.0)
    vector = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    refused("not a known event", vector, b'{"test": 2432232314}')
    refused("no signature matches", vector, b'{"test": 2432232315}')


def test_a_genuine_delivery_is_decoded() -> None:
    event = verify_webhook(BODY, headers(), SECRET)
    at = datetime(2026, 11, 21, 5, 50, tzinfo=timezone.utc)
    assert event == WebhookEvent("msg_1", "job.completed", at, {"text": "grüß"})
    assert verify_webhook(BODY.decode(), headers(), SECRET) == event
    assert verify_webhook(BODY, headers(), SECRET.partition("_")[2]) == event, "the prefix may be left out"


def test_header_names_come_in_any_case() -> None:
    for change in (str.upper, str.title):
        verify_webhook(BODY, {change(name): value for name, value in headers().items()}, SECRET)


def test_one_signature_of_several_and_one_secret_of_several_suffice() -> None:
    ours = headers()["webhook-signature"]
    theirs = headers(secret=OTHER)["webhook-signature"]
    for sent in (f"{ours} {theirs}", f"{theirs} {ours}", f"v1a,AAAA {ours}", f"v2,x {theirs} {ours}", f" {ours}  "):
        verify_webhook(BODY, headers(sent), SECRET)
        verify_webhook(BODY, headers(sent), [OTHER, SECRET])
    refused("no signature matches", headers(theirs))
    verify_webhook(BODY, headers(theirs), [SECRET, OTHER])


def test_any_changed_byte_is_refused() -> None:
    chance = random.Random(7)  # noqa: S311 (a test's choices)
    for size in (60, 61, 500, 5000):
        body = json.dumps({"type": "x", "data": "y" * size}).encode()
        genuine = headers(body=body)
        verify_webhook(body, genuine, SECRET)
        for _ in range(50):
            place = chance.randrange(len(body))
            changed = bytearray(body)
            changed[place] ^= 1 << chance.randrange(8)
            refused("no signature matches", genuine, bytes(changed))
        refused("no signature matches", genuine, body + b" ")
        refused("no signature matches", {**genuine, "webhook-id": "msg_2"}, body)
        later = str(int(genuine["webhook-timestamp"]) + 1)
        refused("no signature matches", {**genuine, "webhook-timestamp": later}, body)


def test_any_changed_character_of_the_signature_is_refused() -> None:
    genuine = headers()
    signature = genuine["webhook-signature"]
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
    for place in range(len(signature)):
        for other in {*alphabet, " ", ","} - {signature[place]}:
            changed = signature[:place] + other + signature[place + 1 :]
            refused("no signature matches", {**genuine, "webhook-signature": changed})


@pytest.mark.parametrize("size", range(46))
def test_a_part_of_the_signature_is_refused(size: int) -> None:
    genuine = headers()["webhook-signature"]
    refused("no signature matches", headers("v1," + genuine[3:][:size] if size < 44 else genuine + "=" * (size - 43)))


@pytest.mark.parametrize(
    "signature", ["v1", "v1,", ",", " ", "v1,=", "v1,ä", "v1,\0", "v1;x", "V1,{}", "v2,{}", "v1a,{}", "{}", "v1,{},{}"]
)
def test_what_is_no_signature_of_version_1_is_refused(signature: str) -> None:
    encoded = headers()["webhook-signature"][3:]
    refused("no signature matches", headers(signature.replace("{}", encoded)))


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_missing_or_empty_header_is_refused(name: str) -> None:
    refused(f"the header {name} is missing", {**headers(), name: ""})
    refused(f"the header {name} is missing", {other: value for other, value in headers().items() if other != name})


def test_old_and_early_ones_are_refused() -> None:
    for age_s in (-295, 0, 295):
        verify_webhook(BODY, headers(age_s=age_s), SECRET)
    refused("s old", headers(age_s=302))
    refused("in the future", headers(age_s=-302))
    verify_webhook(BODY, headers(age_s=3000), SECRET, tolerance_s=3600)
    for timestamp in ("soon", "1e9", "-5", " 5", "5.0", "\u0665", "9" * 400, "nan"):
        refused("not a number of seconds", {**headers(), "webhook-timestamp": timestamp})


def test_a_secret_that_is_none_is_the_caller_s_mistake() -> None:
    wrong: tuple[str | list[str], ...] = ("", "whsec_", "whsec_not base64!", [])
    for secret in wrong:
        with pytest.raises(ValueError, match="secret") as caught:
            verify_webhook(BODY, headers(), secret)
        assert not isinstance(caught.value, WebhookVerificationError)


def test_it_needs_no_httpx() -> None:
    script = "import sys; sys.modules['httpx'] = None; from stokehold import verify_webhook, WebhookVerificationError"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
