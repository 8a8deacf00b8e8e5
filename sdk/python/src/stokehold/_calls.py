"""How every route is asked, as plans (see `_request.py`). Nothing here does I/O."""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Callable
from urllib.parse import urlencode, urljoin

import httpx

from stokehold._config import Settings
from stokehold._errors import StokeholdError, WaitTimeout
from stokehold._files import InputEncoder
from stokehold._request import OK, Call, Pause, Plan, Reply, ask
from stokehold._retry import Retry
from stokehold._transfer import Body, Sink

# One long poll: below the 60 s that the API allows and that many proxies cut at.
POLL_S = 30

# How much later than it was asked to a held request may answer before the connection counts as dead.
LATE_S = 10.0

REDIRECTS_MAX = 5

Pairs = Sequence[tuple[str, str]]


class Calls:
    """Builds requests to one API and repeats them as its policy says."""

    def __init__(self, settings: Settings, retry: Retry, timeout_s: float, user_agent: str) -> None:
        self.settings = settings
        self.retry = retry
        self.timeout_s = timeout_s
        self.headers = {"Accept": "application/json", "User-Agent": user_agent}
        if settings.token is not None:
            self.headers["Authorization"] = f"Bearer {settings.token}"

    def call(self, method: str, path: str, *, hold_s: float = 0.0, **more: Any) -> Call:
        url = self.settings.base_url + path
        return Call(method, url, more.pop("headers", self.headers), read_timeout_s=self.timeout_s + hold_s, **more)

    def get_json(self, path: str, query: Pairs = ()) -> Plan[Any]:
        reply = yield from ask(self.call("GET", with_query(path, query)), self.retry)
        return reply.json()

    def delete(self, path: str) -> Plan[None]:
        yield from ask(self.call("DELETE", path), self.retry)

    def post_json(self, path: str, body: Any = None, idempotency_key: str | None = None) -> Plan[Any]:
        """Without a body when there is none."""
        reply = yield from self.post(path, b"" if body is None else encode_json(body), idempotency_key)
        return reply.json()

    def post(
        self,
        path: str,
        body: bytes | Body,
        idempotency_key: str | None,
        headers: Mapping[str, str] | None = None,
        hold_s: float = 0.0,
    ) -> Plan[Reply]:
        """Every try carries the same key, so that a create whose answer was lost is not done twice."""
        sent = {
            **self.headers,
            "Content-Type": "application/json",
            "Idempotency-Key": idempotency_key or str(uuid.uuid4()),
            **(headers or {}),
        }
        return (yield from ask(self.call("POST", path, hold_s=hold_s, headers=sent, body=body), self.retry))

    def put_json(self, path: str, body: Any) -> Plan[Any]:
        """Replaces what is there; doing it twice is doing it once."""
        headers = {**self.headers, "Content-Type": "application/json"}
        reply = yield from ask(self.call("PUT", path, headers=headers, body=encode_json(body)), self.retry)
        return reply.json()

    def put(self, url: str, headers: Mapping[str, str], body: Body) -> Plan[Reply]:
        """To a presigned URL: it carries its own right, and the token stays here."""
        sent = httpx.Headers(dict(headers))  # which sees through `content-length` and `Content-Length`
        sent.update({"Content-Length": str(body.size_bytes), "User-Agent": self.headers["User-Agent"]})
        url = urljoin(f"{self.settings.base_url}/", url)
        return (yield from ask(Call("PUT", url, sent, body, self.timeout_s), self.retry))

    def fetch(self, url: str, sink: Sink) -> Plan[None]:
        """Gets what may live in the object store. The token goes to the API's own paths and nowhere else."""
        call = self.call("GET", url, sink=sink) if url.startswith("/") else self._foreign(url, sink)
        for _ in range(REDIRECTS_MAX):
            reply = yield from ask(call, self.retry)
            if reply.status == OK:
                return
            url = urljoin(call.url, reply.headers.get("location", ""))
            call = self._foreign(url, sink)
        raise StokeholdError(f"{url.partition('?')[0]} redirects again and again")

    def wait_until_ended(
        self,
        path: str,
        raw: dict[str, Any],
        ended: frozenset[str],
        timeout_s: float | None,
        what: str = "job",
        poll_s: int = POLL_S,
        look: Callable[[dict[str, Any]], None] | None = None,
    ) -> Plan[dict[str, Any]]:
        """Until its state is one of `ended`. `look` is shown what each poll brought.

        Holds one request open at a time; the last second before a deadline is polled.
        """
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        early = 0
        while raw["state"] not in ended:
            asked = time.monotonic()
            hold_s = max(0, min(poll_s, math.floor(min(deadline - asked, poll_s))))
            url = f"{self.settings.base_url}{path}?wait_s={hold_s}"
            call = Call("GET", url, self.headers, read_timeout_s=hold_s + min(self.timeout_s, LATE_S))
            reply = yield from ask(call, self.retry, deadline)
            raw = reply.json()
            if look is not None:
                look(raw)
            now = time.monotonic()
            if raw["state"] in ended:
                break
            if timeout_s is not None and now >= deadline:
                raise WaitTimeout(raw["id"], timeout_s, raw["state"], what)
            if now - asked < hold_s / 2 or hold_s == 0:
                # Not held as asked (a proxy, a server that shuts down) or the last second: do not spin.
                yield Pause(min(0.02 * 2.0 ** min(early, 6), max(0.0, deadline - now)))
                early += 1
        return raw

    def _foreign(self, url: str, sink: Sink) -> Call:
        return Call("GET", url, {"User-Agent": self.headers["User-Agent"]}, read_timeout_s=self.timeout_s, sink=sink)


def with_query(path: str, query: Pairs) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def encode_json(value: Any, default: InputEncoder | None = None) -> bytes:
    """Compact JSON. Raises `TypeError` or `ValueError` that names what cannot be sent."""
    try:
        text = json.dumps(value, default=default, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return text.encode()
    except RecursionError:
        raise ValueError("the input is nested too deep for JSON, or holds itself") from None
    except ValueError as error:
        raise ValueError(f"the input cannot be sent as JSON: {error}") from error
