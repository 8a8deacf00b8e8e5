"""The connections of both clients: reuse, ends, limits, TLS, proxies, threads and forks."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stokehold import ApiError, AsyncClient, Client, ConnectionFailed, StokeholdError
from stokehold._request import IDLE_CONNECTIONS_MAX

from .conftest import FAST, JOB_ID, Exchange, Server, cut, job, ok, problem, start, stop
from .either import LARGE, Connect, served

WORKERS = b'{"workers": []}'

# A certificate for localhost and 127.0.0.1, signed by itself.
OPENSSL = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost "
    "-addext subjectAltName=DNS:localhost,IP:127.0.0.1"
)


# What only the connections of the clients themselves do; the other tests run through httpx as well.
pytestmark = pytest.mark.parametrize("way", ["direct"], indirect=True)


def test_a_connection_is_used_again(api: Server, counted: list[Exchange], connect: Connect) -> None:
    api.on("GET /v1/workers", ok({"workers": []}))
    api.on("POST /v1/jobs", ok(job(), 202), problem(400, "invalid_json", "no"), ok(job(), 202))
    client = connect(api.url)
    client.workers(3)
    client.submit()
    with pytest.raises(ApiError):
        client.submit()
    client.submit({"text": "é"})
    assert len(counted) == 1
    request = api.requests[-1]
    assert request.json()["input"] == {"text": "é"}
    assert request.headers["host"] == api.url[len("http://") :]
    assert request.headers["authorization"] == "Bearer sk_test"
    assert request.headers["accept-encoding"] == "identity"


def test_a_connection_that_the_server_closed_while_idle_is_replaced(
    api: Server, counted: list[Exchange], connect: Connect
) -> None:
    api.on("GET /v1/workers", ok({"workers": []}))
    client = connect(api.url)
    client.workers()
    # Its end has arrived once the server's side is shut down: both are on this machine.
    counted[0].connection.shutdown(socket.SHUT_RDWR)
    client.workers(2)
    assert len(counted) == 2


def test_a_connection_that_the_server_announced_to_close_is_not_used_again(
    api: Server, counted: list[Exchange], connect: Connect
) -> None:
    api.on("GET /v1/workers", ok({"workers": []}, connection="close"))
    connect(api.url).workers(3)
    assert len(counted) == 3


def test_a_connection_that_was_idle_for_long_is_replaced(
    api: Server, counted: list[Exchange], connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stokehold._pool.IDLE_S", -1.0)
    monkeypatch.setattr("stokehold._async_pool.IDLE_S", -1.0)
    api.on("GET /v1/workers", ok({"workers": []}))
    connect(api.url).workers(2)
    assert len(counted) == 2


def test_a_hundred_at_once_keep_few_connections(api: Server, counted: list[Exchange], connect: Connect) -> None:
    barrier = threading.Barrier(100)

    def together(exchange: Exchange) -> None:
        barrier.wait(60)
        ok(job(), 202)(exchange)

    api.on("POST /v1/jobs", *[together] * 100, ok(job(), 202))
    client = connect(api.url)
    client.at_once(100)
    assert len(counted) == 100
    assert sorted(request.json()["input"] for request in api.requests) == list(range(100))
    pool = client.client._transport._pool  # type: ignore[attr-defined]
    assert len(pool._idle) == IDLE_CONNECTIONS_MAX
    client.at_once(1)
    assert len(counted) == 100


def test_more_requests_than_connections_wait_for_one(
    api: Server, counted: list[Exchange], connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stokehold._pool.CONNECTIONS_MAX", 2)
    monkeypatch.setattr("stokehold._async_pool.CONNECTIONS_MAX", 2)
    api.on("POST /v1/jobs", ok(job(), 202))
    connect(api.url).at_once(20)
    assert len(api.requests) == 20
    assert len(counted) == 2


def test_bodies_of_many_mebibytes(api: Server, connect: Connect) -> None:
    text = "ü" * (3 << 20)
    api.on("POST /v1/jobs", ok(job(input={"text": text}), 202))
    client = connect(api.url)
    for _ in range(2):
        assert client.submit({"text": text}).raw["input"] == {"text": text}
        assert api.requests[-1].json()["input"] == {"text": text}


def test_a_body_in_chunks(api: Server, counted: list[Exchange], connect: Connect) -> None:
    def chunked(exchange: Exchange) -> None:
        exchange.send_response(200)
        exchange.send_header("transfer-encoding", "chunked")
        exchange.end_headers()
        for byte in WORKERS:
            exchange.wfile.write(b"1\r\n" + bytes([byte]) + b"\r\n")
        exchange.wfile.write(b"0\r\n\r\n")

    api.on("GET /v1/workers", chunked)
    connect(api.url).workers(2)
    assert len(counted) == 1


def test_a_response_that_ends_early_is_repeated_on_another_connection(
    api: Server, counted: list[Exchange], connect: Connect
) -> None:
    api.on("GET /v1/workers", cut, ok({"workers": []}))
    connect(api.url, FAST).workers()
    assert len(counted) == 2


@pytest.mark.parametrize("is_read", [True, False])
def test_a_refusal_before_the_end_of_the_request(connect: Connect, is_read: bool) -> None:
    """A server that responds after the head of a large request, and then reads the rest, or closes the connection."""
    body = json.dumps({"code": "body_too_large", "detail": "too large"}).encode()

    def refuse(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 413 x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        while is_read and connection.recv(1 << 16):
            pass

    with served(refuse) as url, pytest.raises(ApiError, match="too large"):
        connect(url, timeout_s=10).submit("x" * (4 << 20))


@pytest.mark.parametrize("garbage", [b"SSH-2.0-OpenSSH_9.6\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\r\n", b""])
def test_a_server_of_something_else(connect: Connect, garbage: bytes) -> None:
    def answer(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(garbage)

    with served(answer) as url, pytest.raises(ConnectionFailed, match="no response"):
        connect(url).workers()


def test_a_header_that_cannot_be_sent(api: Server, connect: Connect) -> None:
    client = connect(api.url, FAST)
    for key in ("a\r\nX-Other: b", "é"):
        with pytest.raises(StokeholdError, match="cannot be sent"):
            client.submit(key=key)
    assert api.requests == []


def test_a_server_whose_name_cannot_exist(connect: Connect) -> None:
    for host in (f"{'x' * 64}.invalid", "a..invalid"):
        with pytest.raises(StokeholdError, match="GET http://"):
            connect(f"http://{host}").workers()


def test_a_client_that_is_closed(api: Server, connect: Connect) -> None:
    api.on("GET /v1/workers", ok({"workers": []}))
    blocking = Client(api.url)
    blocking.workers()
    blocking.close()
    with pytest.raises(RuntimeError, match="closed"):
        blocking.workers()

    async def play() -> None:
        client = AsyncClient(api.url)
        await client.workers()
        await client.aclose()
        with pytest.raises(RuntimeError, match="closed"):
            await client.workers()

    asyncio.run(play())


def test_an_async_client_moves_to_another_event_loop(api: Server) -> None:
    api.on("GET /v1/workers", ok({"workers": []}, connection="close"))
    client = AsyncClient(api.url)
    for _ in range(2):
        assert asyncio.run(client.workers()) == []


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    paths = folder / "key.pem", folder / "certificate.pem"
    command = [*OPENSSL.split(), "-keyout", str(paths[0]), "-out", str(paths[1])]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return paths


@pytest.fixture
def secure(certificate: tuple[Path, Path]) -> Iterator[Server]:
    key, chain = certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    server, thread = start()
    # The handshake takes place in the thread of the connection, with its first read.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.handle_error = lambda *_: None  # type: ignore[method-assign] # a client that refuses the certificate
    yield server
    stop(server, thread)


def test_tls_with_a_certificate_of_ones_own(
    secure: Server,
    certificate: tuple[Path, Path],
    counted: list[Exchange],
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    secure.on("GET /v1/workers", ok({"workers": []}))
    url = secure.url.replace("http", "https")
    with pytest.raises(ConnectionFailed, match="CERTIFICATE_VERIFY_FAILED"):
        connect(url).workers()
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[1]))
    before = len(counted)
    connect(url).workers(3)
    assert len(counted) == before + 1


def test_a_large_body_over_tls(
    secure: Server, certificate: tuple[Path, Path], connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[1]))
    secure.on("POST /v1/jobs", ok(job(), 202))
    client = connect(secure.url.replace("http", "https"))
    for _ in range(2):
        client.submit(LARGE)
        assert secure.requests[-1].json()["input"] == LARGE


def test_a_proxy_of_the_environment(
    api: Server, counted: list[Exchange], connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scripted server is the proxy: it receives the request for a server that does not exist."""
    monkeypatch.setenv("HTTP_PROXY", api.url)
    api.on("GET /v1/workers", ok({"workers": []}))
    connect("http://stokehold.invalid").workers()
    assert api.requests[-1].headers["host"] == "stokehold.invalid"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
def test_a_forked_process_has_connections_of_its_own(api: Server, counted: list[Exchange], client: Client) -> None:
    script = f"""
import os
from stokehold import Client, Retry

client = Client({api.url!r}, retry=Retry(max_retries=0))
client.workers()
client._transport._pool._places.acquire()
children = [os.fork() for _ in range(1)]
assert client.workers() == []
if children[0] == 0:
    assert client._transport._pool._places._value == 100, "the place that the parent had taken is free"
    os._exit(0)
assert os.waitpid(children[0], 0)[1] == 0
assert client.workers() == []
client.close()
"""
    api.on("GET /v1/workers", ok({"workers": []}))
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    assert len(counted) == 2
    assert len(api.requests) == 4


def test_the_hot_path_does_not_import_httpx(api: Server) -> None:
    script = f"""
import sys
from stokehold import Client

with Client({api.url!r}) as client:
    assert client.submit("echo").result() == {{"text": "hi"}}
assert "httpx" not in sys.modules
"""
    api.on("POST /v1/jobs", ok(job(), 202))
    api.on(f"GET /v1/jobs/{JOB_ID}", ok(job("succeeded")))
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
