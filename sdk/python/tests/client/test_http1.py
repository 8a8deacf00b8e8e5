"""Requests and responses as bytes, without a connection."""

from __future__ import annotations

import collections

import pytest

from stokehold._http1 import (
    HEAD_BYTES_MAX,
    RESPONSE_BYTES_MAX,
    RequestError,
    ResponseError,
    ResponseReader,
    UnreadableError,
    write_head,
)
from stokehold._origin import direct_origin

LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Request-Id:  req-1\t\r\n\r\nhello"
CHUNKS = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n"
    b'3;name="value"\r\nhel\r\n0002 \r\nlo\r\n0\r\nTrailer: dropped\r\n\r\n'
)
NO_TRAILERS = CHUNKS.replace(b"Trailer: dropped\r\n", b"")
INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + LENGTH


def read(*pieces: bytes) -> ResponseReader:
    reader = ResponseReader()
    for number, piece in enumerate(pieces):
        assert reader.feed(piece) is (number == len(pieces) - 1)
    return reader


@pytest.mark.parametrize("response", [LENGTH, CHUNKS, NO_TRAILERS, INTERIM])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_a_response_arrives_in_pieces_of_any_size(response: bytes, size: int) -> None:
    reader = read(*(response[at : at + size] for at in range(0, len(response), size)))
    assert (reader.status, reader.body, reader.reusable) == (200, b"hello", True)


def test_names_of_headers_are_in_lower_case_and_repeated_ones_are_joined() -> None:
    reader = read(b"HTTP/1.1 200 OK\r\ncontent-LENGTH: 0\r\nVary: a\r\nVARY:b\r\nX-Request-Id:  req-1\t\r\n\r\n")
    assert reader.headers == {"content-length": "0", "vary": "a, b", "x-request-id": "req-1"}


@pytest.mark.parametrize("status", [204, 304])
def test_a_response_that_never_has_a_body(status: int) -> None:
    reader = read(f"HTTP/1.1 {status} x\r\nContent-Length: 9\r\n\r\n".encode())
    assert (reader.status, reader.body, reader.reusable) == (status, b"", True)


def test_a_body_that_ends_with_its_connection() -> None:
    reader = ResponseReader()
    assert not reader.feed(b"HTTP/1.0 200\r\n\r\nhel")
    assert not reader.feed(b"lo")
    assert reader.end()
    assert (reader.body, reader.reusable) == (b"hello", False)


@pytest.mark.parametrize(
    ("head", "reusable"),
    [
        ("HTTP/1.1 200 OK", True),
        ("HTTP/1.1 200 OK\r\nConnection: close", False),
        ("HTTP/1.1 200 OK\r\nConnection: Keep-Alive, Close", False),
        ("HTTP/1.0 200 OK", False),
        ("HTTP/1.0 200 OK\r\nConnection: keep-alive", True),
    ],
)
def test_whether_a_connection_can_be_used_again(head: str, reusable: bool) -> None:
    assert read(f"{head}\r\nContent-Length: 1\r\n\r\nx".encode()).reusable is reusable


@pytest.mark.parametrize("response", [LENGTH, CHUNKS, NO_TRAILERS])
def test_a_connection_with_more_bytes_than_the_response_is_not_used_again(response: bytes) -> None:
    reader = read(response + b"HTTP/1.1 200 OK\r\n")
    assert (reader.body, reader.reusable) == (b"hello", False)


def test_a_length_beside_chunks_is_ignored_and_the_connection_closed() -> None:
    reader = read(CHUNKS.replace(b"\r\n\r\n", b"\r\nContent-Length: 1\r\n\r\n", 1))
    assert (reader.body, reader.reusable) == (b"hello", False)


@pytest.mark.parametrize(
    "response",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 0200 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nspace : x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n folded\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1_0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"9" * 5000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * HEAD_BYTES_MAX,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"x" * HEAD_BYTES_MAX,
    ],
)
def test_what_is_no_response_is_refused(response: bytes) -> None:
    with pytest.raises(ResponseError):
        ResponseReader().feed(response)


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 268435457\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n10000000\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
    ],
)
def test_a_response_of_more_than_256_mib_is_refused(response: bytes) -> None:
    pieces = [response] + [b"x" * (64 << 20)] * 5
    with pytest.raises(UnreadableError, match="more than 256 MiB; request less at once"):
        collections.deque(map(ResponseReader().feed, pieces))


def test_the_largest_response() -> None:
    assert not ResponseReader().feed(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % RESPONSE_BYTES_MAX)


def test_a_compressed_response_is_refused() -> None:
    with pytest.raises(UnreadableError, match="content coding 'gzip', and the request accepts none"):
        ResponseReader().feed(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\n")
    assert read(b"HTTP/1.1 200 OK\r\nContent-Encoding: Identity\r\nContent-Length: 0\r\n\r\n").status == 200


def test_the_longest_length_that_is_read() -> None:
    reader = ResponseReader()
    assert not reader.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 000000000000005\r\n\r\nhell")
    assert reader.feed(b"o")


@pytest.mark.parametrize("end", [0, 5, 20, len(LENGTH) - 1])
def test_a_response_that_ends_early_is_refused(end: int) -> None:
    reader = ResponseReader()
    if end:
        assert not reader.feed(LENGTH[:end])
    with pytest.raises(ResponseError, match="before the end of" if end else "without a response"):
        reader.end()


def test_a_request() -> None:
    assert write_head("POST", "/v1/jobs?x=1", "h:1", {"A": "b", "C": "d"}, b"1234") == (
        b"POST /v1/jobs?x=1 HTTP/1.1\r\nHost: h:1\r\nAccept-Encoding: identity\r\n"
        b"A: b\r\nC: d\r\nContent-Length: 4\r\n\r\n"
    )
    assert write_head("GET", "/", "h", {}, None) == b"GET / HTTP/1.1\r\nHost: h\r\nAccept-Encoding: identity\r\n\r\n"


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "a\r\nb", "a\0b", "é", "\ud800"])
def test_a_header_that_cannot_be_sent(value: str) -> None:
    with pytest.raises(RequestError):
        write_head("GET", "/", "h", {"Idempotency-Key": value}, None)


@pytest.mark.parametrize(
    ("base_url", "host", "port", "header"),
    [
        ("http://127.0.0.1:7070", "127.0.0.1", 7070, "127.0.0.1:7070"),
        ("https://API.example.com", "api.example.com", 443, "api.example.com"),
        ("http://api.example.com:80/stoke", "api.example.com", 80, "api.example.com"),
        ("https://[::1]:7070", "::1", 7070, "[::1]:7070"),
    ],
)
def test_the_server_of_a_url(base_url: str, host: str, port: int, header: str) -> None:
    origin = direct_origin(base_url)
    assert origin is not None
    assert (origin.host, origin.port, origin.header) == (host, port, header)
    assert origin.is_tls is base_url.startswith("https")
    path = base_url[len(origin.url) :]
    assert origin.target(f"{base_url}/v1/jobs?wait_s=1") == f"{path}/v1/jobs?wait_s=1"
    assert origin.target(f"{base_url}0/v1/jobs") != "0/v1/jobs"
    assert origin.target("http://elsewhere.example.com/v1/jobs") is None
    assert origin.target(f"{base_url}/a b") is None


@pytest.mark.parametrize(
    "base_url",
    ["http://user:password@h", "http://münchen.example.com", "http://h/a/../b", "http://h/a?b", "http://h:99999"],
)
def test_an_unusual_url_is_left_to_httpx(base_url: str) -> None:
    assert direct_origin(base_url) is None


@pytest.mark.parametrize(
    ("variables", "is_direct"),
    [
        ({"HTTP_PROXY": "http://p:1"}, False),
        ({"all_proxy": "http://p:1"}, False),
        ({"HTTPS_PROXY": "http://p:1"}, True),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "x, api.example.com"}, True),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "*"}, True),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": ".example.com"}, False),
        ({"HTTP_PROXY": "", "NO_PROXY": ""}, True),
    ],
)
def test_a_proxy_is_left_to_httpx(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], is_direct: bool) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert (direct_origin("http://api.example.com") is not None) is is_direct
