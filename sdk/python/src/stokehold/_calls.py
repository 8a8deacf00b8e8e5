"""Requests to the API, as plans (see `_request.py`). Does no I/O."""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Callable
from urllib.parse import urlencode, urljoin

from stokehold._config import Settings
from stokehold._errors import StokeholdError, WaitTimeout
from stokehold._files import InputEncoder
from stokehold._request import OK, Call, Pause, Plan, Reply, ask
from stokehold._retry import Retry
from stokehold._transfer import Body, Sink

# The length of a long poll, below the 60 s that the API allows and after which many proxies close connections.
POLL_S = 30

# How much longer than asked a long poll may take before the connection counts as lost.
LATE_S = 10.0

REDIRECTS_MAX = 5

# The answer to a deletion whose response was lost. What depended on it is not known any more.
GONE = Reply(OK, {}, b'{"deleted":true,"dependents":[],"freed_bytes":0}')

Pairs = Sequence[tuple[str, str]]


class Calls:
    """Builds requests to an API and repeats them by its retry policy."""

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

    def delete(self, path: str, query: Pairs = ()) -> Plan[Any]:
        """Deletes something. Returns the decoded answer; None if it is empty.

        If a retry finds nothing to delete, an earlier try deleted it and its response was lost: that is a success.
        """
        gone = None if ("dry_run", "true") in query else GONE
        reply = yield from ask(self.call("DELETE", with_query(path, query)), self.retry, gone=gone)
        return reply.json() if reply.body else None

    def delete_json(self, path: str, query: Pairs = ()) -> Plan[Any]:
        """Sends a DELETE request that deletes a part of something, which has to exist at every try."""
        reply = yield from ask(self.call("DELETE", with_query(path, query)), self.retry)
        return reply.json()

    def post_json(self, path: str, body: Any = None, idempotency_key: str | None = None) -> Plan[Any]:
        """Sends a POST request. The body is empty if there is none."""
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
        """Sends a POST request. Every try has the same key, so that nothing is created twice if a response is lost."""
        sent = {
            **self.headers,
            "Content-Type": "application/json",
            "Idempotency-Key": idempotency_key or str(uuid.uuid4()),
            **(headers or {}),
        }
        return (yield from ask(self.call("POST", path, hold_s=hold_s, headers=sent, body=body), self.retry))

    def post_once(self, path: str, body: Any = None) -> Plan[Any]:
        """Sends a POST request that is not repeated, because a second one would have another effect."""
        headers = {**self.headers, "Content-Type": "application/json"}
        call = self.call("POST", path, headers=headers, body=b"" if body is None else encode_json(body))
        reply = yield from ask(call, replace(self.retry, max_retries=0))
        return reply.json()

    def put_json(self, path: str, body: Any) -> Plan[Any]:
        """Sends a PUT request, which is idempotent."""
        headers = {**self.headers, "Content-Type": "application/json"}
        reply = yield from ask(self.call("PUT", path, headers=headers, body=encode_json(body)), self.retry)
        return reply.json()

    def put(self, url: str, headers: Mapping[str, str], body: Body) -> Plan[Reply]:
        """Uploads to a presigned URL. The URL is the authorization; the token is not sent."""
        ours = {"Content-Length": str(body.size_bytes), "User-Agent": self.headers["User-Agent"]}
        sent = {name: value for name, value in headers.items() if name.title() not in ours} | ours
        url = urljoin(f"{self.settings.base_url}/", url)
        return (yield from ask(Call("PUT", url, sent, body, self.timeout_s), self.retry))

    def fetch(self, url: str, sink: Sink) -> Plan[None]:
        """Downloads from the API or from the object store. The token is sent to the API only."""
        call = self.call("GET", url, sink=sink) if url.startswith("/") else self._foreign(url, sink)
        for _ in range(REDIRECTS_MAX):
            reply = yield from ask(call, self.retry)
            if reply.status == OK:
                return
            url = urljoin(call.url, reply.headers.get("location", ""))
            call = self._foreign(url, sink)
        raise StokeholdError(f"{url.partition('?')[0]}: too many redirects")

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
        """Waits until the state is one of `ended`. Calls `look` with the record after each poll.

        Long polls are used until the last second before the deadline, and short polls after that.
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
                # Not held as asked (a proxy, a server that shuts down), or the last second: do not spin.
                yield Pause(min(0.02 * 2.0 ** min(early, 6), max(0.0, deadline - now)))
                early += 1
        return raw

    def _foreign(self, url: str, sink: Sink) -> Call:
        return Call("GET", url, {"User-Agent": self.headers["User-Agent"]}, read_timeout_s=self.timeout_s, sink=sink)


def present_members(given: Mapping[str, Any]) -> dict[str, Any]:
    """The members that are not None. Other sequences than lists and tuples become lists."""
    return {
        name: list(value) if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else value
        for name, value in given.items()
        if value is not None
    }


def pairs(given: Mapping[str, Any]) -> Pairs:
    """The query of the members that are not None."""
    text = {True: "true", False: "false"}
    return [
        (name, text[value] if isinstance(value, bool) else str(value))
        for name, value in given.items()
        if value is not None
    ]


def with_query(path: str, query: Pairs) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def encode_json(value: Any, default: InputEncoder | None = None) -> bytes:
    """Encodes compact JSON. Raises a `TypeError` or `ValueError` that names the value that cannot be sent."""
    try:
        text = json.dumps(value, default=default, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return text.encode()
    except RecursionError:
        raise ValueError("the input cannot be sent as JSON: it is nested too deeply, or contains itself") from None
    except ValueError as error:
        raise ValueError(f"the input cannot be sent as JSON: {error}") from error
