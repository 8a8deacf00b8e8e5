"""What goes wrong, and when it is tried again."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import pytest

import stokehold
from stokehold import (
    ApiError,
    BadRequest,
    Client,
    Conflict,
    ConnectionFailed,
    Forbidden,
    InvalidInput,
    NotFound,
    NothingToRetry,
    NotRetryable,
    QuotaExceeded,
    RateLimited,
    Retry,
    ServerError,
    StokeholdError,
    TimedOut,
    Unauthorized,
    Unavailable,
)
from stokehold._request import Reply, decode_error

from .conftest import FAST, JOB_ID, Answer, Exchange, Server, drop, hang, job, ok, problem

NEVER = Retry(max_retries=0)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "invalid_json", BadRequest),
        (400, "invalid_input", InvalidInput),
        (413, "body_too_large", BadRequest),
        (422, "file_missing", BadRequest),
        (422, "idempotency_conflict", Conflict),
        (401, "unauthorized", Unauthorized),
        (403, "forbidden", Forbidden),
        (404, "unknown_endpoint", NotFound),
        (409, "not_ready", Conflict),
        (409, "not_retryable", NotRetryable),
        (409, "nothing_to_retry", NothingToRetry),
        (429, "queue_full", RateLimited),
        (429, "quota_exceeded", QuotaExceeded),
        (500, "internal", ServerError),
        (503, "unavailable", Unavailable),
        (504, "a code of a newer server", Unavailable),
    ],
)
def test_each_cause_has_its_class(api: Server, status: int, code: str, kind: type[ApiError]) -> None:
    api.on("POST /v1/jobs", problem(status, code, "do this instead", [{"path": "/input/text", "message": "is wrong"}]))
    with Client(api.url, "sk_test", retry=NEVER) as client, pytest.raises(ApiError) as caught:
        client.submit("echo")
    error = caught.value
    assert type(error) is kind
    assert (error.status, error.code, error.detail, error.request_id) == (status, code, "do this instead", "req-7")
    assert error.errors == (("/input/text", "is wrong"),)
    assert str(error) == f"do this instead (/input/text: is wrong; {status} {code})"


@pytest.mark.parametrize("trouble", [drop, *(problem(status, "x", "y") for status in (429, 502, 503, 504))])
def test_a_create_is_repeated_with_the_same_key_and_body(api: Server, client: Client, trouble: Answer) -> None:
    api.on("POST /v1/jobs", trouble, trouble, ok(job(), 202))
    client.submit("echo", {"text": "hi"})
    tries = api.seen("POST /v1/jobs")
    assert len(tries) == 3
    assert len({(request.headers["idempotency-key"], request.body) for request in tries}) == 1


def test_two_calls_have_two_keys(api: Server, client: Client) -> None:
    api.on("POST /v1/jobs", ok(job(), 202))
    client.submit("echo")
    client.submit("echo")
    assert len({request.headers["idempotency-key"] for request in api.requests}) == 2


@pytest.mark.parametrize(
    ("status", "code"), [(400, "invalid_input"), (404, "not_found"), (409, "not_ready"), (500, "internal")]
)
def test_what_repeating_cannot_help_is_not_repeated(api: Server, client: Client, status: int, code: str) -> None:
    api.on("POST /v1/jobs", problem(status, code, "no"))
    with pytest.raises(ApiError):
        client.submit("echo")
    assert len(api.requests) == 1


def test_retries_end(api: Server) -> None:
    api.on("POST /v1/jobs", problem(503, "unavailable", "away"))
    with Client(api.url, retry=Retry(max_retries=2, base_s=0.001)) as client, pytest.raises(Unavailable, match="away"):
        client.submit("echo")
    assert len(api.requests) == 3


def test_a_server_that_is_not_there(api: Server) -> None:
    with (
        Client("http://127.0.0.1:1", retry=FAST) as client,
        pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1:1") as caught,
    ):
        client.endpoints()
    assert isinstance(caught.value, ConnectionError)
    assert caught.value.__cause__ is not None


def test_a_server_that_sends_no_response(api: Server) -> None:
    arrivals = threading.Semaphore(0)

    def arrive(exchange: Exchange) -> None:
        arrivals.release()
        hang(exchange)

    api.on("GET /v1/workers", arrive)
    with Client(api.url, timeout_s=0.02, retry=Retry(1, 0.001)) as client, pytest.raises(TimedOut):
        client.workers()
    # A slow server may read a request after its client has given up.
    assert all(arrivals.acquire(timeout=60) for _ in range(2))
    assert not arrivals.acquire(blocking=False)


def test_something_else_answers(api: Server, client: Client) -> None:
    api.on("GET /v1/workers", lambda exchange: exchange.reply(200, b"<html>a proxy's page"))
    with pytest.raises(ConnectionFailed, match="proxy"):
        client.workers()
    api.on(f"GET /v1/jobs/{JOB_ID}", lambda exchange: exchange.reply(404, b"<html>" + b"x" * 5000))
    with pytest.raises(NotFound) as caught:
        client.get(JOB_ID)
    assert caught.value.code == "http_404"
    assert len(caught.value.detail) == 500


@pytest.mark.parametrize("status", [200, 400])
def test_a_response_that_is_too_large_is_not_repeated(
    api: Server, client: Client, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    for module in ("_http1", "_streams"):
        monkeypatch.setattr(f"stokehold.{module}.RESPONSE_BYTES_MAX", 4 << 20)
    api.on("GET /v1/workers", lambda exchange: exchange.reply(status, b"x" * (4 << 20) + b"x"))
    with pytest.raises(StokeholdError, match=r"GET http://.*/v1/workers: the response has more than 4 MiB") as caught:
        client.workers()
    assert type(caught.value) is StokeholdError
    assert len(api.requests) == 1


def test_json_that_is_nested_too_deeply(api: Server, client: Client) -> None:
    api.on("GET /v1/workers", lambda exchange: exchange.reply(200, b"[" * 100_000))
    with pytest.raises(ConnectionFailed, match="not JSON"):
        client.workers()


def test_delays_are_capped_and_jittered() -> None:
    retry = Retry(max_retries=40, base_s=0.5, cap_s=8.0)
    failure = ConnectionFailed("x")
    assert [retry.delay_s(n, failure, 1.0) for n in range(6)] == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0]
    assert retry.delay_s(39, failure, 0.25) == 2.0
    assert retry.delay_s(3, failure, 0.0) == 0.0
    assert retry.delay_s(40, failure, 1.0) is None
    assert retry.delay_s(0, StokeholdError("x"), 1.0) is None


def _rate_limited(retry_after: str) -> ApiError:
    return decode_error(Reply(429, {"retry-after": retry_after}, b"{}"))


def test_retry_after_is_kept_to() -> None:
    retry = Retry()
    assert retry.delay_s(0, _rate_limited("7"), 0.0) == 7.0
    assert retry.delay_s(0, _rate_limited("7"), 1.0) == 7.5
    assert retry.delay_s(0, _rate_limited("3600"), 0.0) is None, "better to know than to sleep for an hour"
    soon = format_datetime(datetime.now(timezone.utc) + timedelta(seconds=30), usegmt=True)
    delay_s = retry.delay_s(0, _rate_limited(soon), 0.0)
    assert delay_s is not None
    assert 0.0 < delay_s <= 30.0
    for text in ("soon", "²", "9" * 5000, f"Wed, 25 Nov {'9' * 20} 10:00:00 GMT"):
        error = _rate_limited(text)
        assert retry.delay_s(0, error, 1.0) == (None if text[0] == "9" else 0.5)


def test_errors_have_the_names_that_people_import() -> None:
    for name in ("StokeholdError", "NotFound", "JobFailed", "WaitTimeout", "WebhookVerificationError"):
        kind = getattr(stokehold, name)
        assert (kind.__module__, kind.__qualname__) == ("stokehold", name)
