"""The kind `server`: a program that serves HTTP is started, waited for, and asked."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .peer import Gone, Peer, golden

Serve = Callable[..., Peer]

# Serves what the tests ask for by path; ready once it has looked twice.
SERVER = """
import json, os, signal, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    looks = 0

    def do_GET(self):
        if self.path == "/health":
            Answers.looks += 1
            self.answer(200 if Answers.looks > 2 else 503, "application/json", b"{}")
        elif self.path == "/metrics" and os.path.exists("metrics"):
            self.answer(200, "text/plain; version=0.0.4", open("metrics", "rb").read())
        else:
            self.answer(200, "application/json", json.dumps({"got": self.path}).encode())

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        if self.path == "/echo":
            self.answer(200, "application/json", body)
        elif self.path == "/text":
            self.answer(200, "text/plain; charset=latin-1", "gr\\u00fcn".encode("latin-1"))
        elif self.path == "/image":
            self.answer(200, "image/png", b"\\x89PNG")
        elif self.path == "/read":
            self.answer(200, "application/json", json.dumps(open(json.loads(body)["file"]).read()).encode())
        elif self.path == "/events":
            plain = b": still here\\n\\ndata: plain\\ndata: text\\n\\n"
            self.answer(200, "text/event-stream", b'data: {"n": 1}\\n\\n' + plain + b"data: [DONE]\\n\\n")
        elif self.path == "/lines":
            self.answer(200, "application/x-ndjson", b'{"n": 1}\\n\\n{"n": 2}\\n')
        elif self.path == "/wrong":
            self.answer(422, "application/json", b'{"detail": "no such voice"}')
        elif self.path == "/busy":
            self.answer(429, "text/plain", b"")
        elif self.path == "/broken":
            self.answer(500, "text/plain", b"out of luck")
        elif self.path == "/nonsense":
            self.answer(200, "application/json", b"{")
        elif self.path == "/empty":
            self.answer(204, "application/json", b"")
        elif self.path == "/hang":
            with open(json.loads(body)["gate"], "w") as gate:
                gate.write("here")
            # Until whoever asked hangs up.
            self.connection.recv(1)
            with open(json.loads(body)["gate"], "w") as gate:
                gate.write("gone")
        elif self.path == "/die":
            os.kill(os.getpid(), signal.SIGSEGV)
        elif self.path == "/exit":
            os._exit(3)

    def answer(self, status, kind, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *values):
        print("asked for", self.path, file=sys.stderr, flush=True)

ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answers).serve_forever()
"""


@pytest.fixture
def server(package: Callable[..., Path], start: Callable[[Path], Peer]) -> Serve:
    """Starts a runner whose server is `SERVER`."""

    def server(max_concurrency: int = 1, **settings: Any) -> Peer:
        peer = start(package(SERVER, "serve.py"))
        command = [sys.executable, "serve.py", "{port}"]
        report = peer.load("", max_concurrency, "server", {"command": command, "ready_path": "/health", **settings})
        assert report.type == "ready", report.header
        return peer

    return server


def test_an_input_is_posted_and_the_answer_is_the_result(server: Serve) -> None:
    peer = server(path="/echo")
    report = peer.run({"prompt": "grün", "n": 1})
    assert (report.type, report.json) == ("done", {"prompt": "grün", "n": 1})


# Serves its arguments.
ARGUMENTS = """
import json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Arguments(BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps(sys.argv[2:]).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Arguments).serve_forever()
"""


def test_the_command_contains_the_folder_of_the_weights(
    package: Callable[..., Path], start: Callable[..., Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "serve.py", "{port}", "--model", "{weights}/a.gguf", "{vram_fraction}"]
    settings = {"command": command, "ready_path": "/health"}
    monkeypatch.setenv("STOKE_VRAM_FRACTION", "0.9")
    report = start(package(ARGUMENTS, "serve.py")).load("", 1, "server", settings)
    assert "the command contains {weights}, but the endpoint has no weights" in str(report.header)
    monkeypatch.setenv("STOKE_WEIGHTS", "/weights/7")
    peer = start(package(ARGUMENTS, "serve.py"))
    assert peer.load("", 1, "server", settings).type == "ready"
    assert peer.run({"path": "/", "method": "GET"}).json == ["--model", "/weights/7/a.gguf", "0.9"]


def test_without_a_path_a_job_says_which(server: Serve) -> None:
    peer = server()
    assert peer.run({"path": "/echo", "body": [1, 2]}).json == [1, 2]
    assert peer.run({"path": "/v1/models", "method": "GET"}).json == {"got": "/v1/models"}
    for wrong, message in [
        ({"path": "no"}, "input.path: 'no' is not a path"),
        ({"path": "/echo HTTP/1.1\r\nX: y"}, "is not a path"),
        ({"path": "/echo", "method": "BREW"}, "input.method: 'BREW'"),
        ({"path": "/echo", "text": "x"}, "input: unknown members text; use path, body and method"),
    ]:
        report = peer.run(wrong)
        assert report.header["error"]["code"] == "rejected"
        assert message in report.header["error"]["message"]


def test_what_kind_of_answer_it_is_decides_what_the_result_is(server: Serve) -> None:
    peer = server()
    assert peer.run({"path": "/text", "body": 0}).json == "grün"
    assert peer.run({"path": "/empty", "body": 0}).json is None
    image = peer.run({"path": "/image", "body": 0})
    assert image.json == {"$file": "answer.png"}
    assert Path(image.header["files"][0]["path"]).read_bytes() == b"\x89PNG"
    nonsense = peer.run({"path": "/nonsense", "body": 0})
    assert nonsense.header["error"]["code"] == "bad_output"


def test_a_streamed_answer_is_told_piece_by_piece(server: Serve) -> None:
    peer = server()
    events = peer.run({"path": "/events", "body": 0})
    assert events.json == [{"n": 1}, "plain\ntext"]
    assert [report.json for report in peer.seen("output", 1)] == [{"n": 1}, "plain\ntext"]
    assert peer.run({"path": "/lines", "body": 0}).json == [{"n": 1}, {"n": 2}]


def test_files_of_the_input_are_paths(server: Serve, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("from afar")
    report = server(path="/read").run({"file": {"$file": "f1"}}, {"f1": str(tmp_path / "note.txt")})
    assert report.json == "from afar"


def test_what_it_refuses_is_refused_for_good_and_what_it_fails_at_is_not(server: Serve) -> None:
    peer = server()
    for path, code, message in [
        ("/wrong", "rejected", 'the server returned 422 Unprocessable Entity: {"detail": "no such voice"}'),
        ("/busy", "handler_error", "the server returned 429 Too Many Requests"),
        ("/broken", "handler_error", "the server returned 500 Internal Server Error: out of luck"),
    ]:
        error = peer.run({"path": path, "body": 0}).header["error"]
        assert (error["code"], error["message"]) == (code, message)


def test_its_metrics_bound_the_jobs_that_it_is_sent(server: Serve, tmp_path: Path) -> None:
    metrics = tmp_path / "package" / "metrics"
    metrics.parent.mkdir()
    metrics.write_text('engine:waiting{model="a"} 0.0\nengine:waiting{model="b"} 2.0\n')
    peer = server(16, busy="engine:waiting > 0")
    assert peer.until(lambda report: report.type == "capacity").header == {**golden("report_capacity"), "runs": 1}
    metrics.write_text('engine:waiting{model="a"} 0.0\n')
    assert peer.until(lambda report: report.type == "capacity").header["runs"] == 2
    # Without the metric the number goes on rising, and the log has the reason once.
    metrics.write_text("engine:others 5\n")
    assert peer.until(lambda report: report.type == "capacity" and report.header["runs"] >= 4)
    logs = b"".join(report.body for report in peer.seen("log"))
    assert logs.count(b"server.busy has no effect: /metrics has no metric engine:waiting") == 1


def test_a_cancelled_job_hangs_up(server: Serve, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    os.mkfifo(gate)
    peer = server(path="/hang")
    run = peer.start({"gate": str(gate)})
    assert gate.read_text() == "here"
    peer.cancel(run)
    assert peer.end(run).header["error"]["code"] == "cancelled"
    assert gate.read_text() == "gone"


@pytest.mark.parametrize(("path", "ending"), [("/die", -signal.SIGSEGV), ("/exit", 3)])
def test_its_end_is_the_runner_s(server: Serve, path: str, ending: int) -> None:
    peer = server(path=path)
    peer.start({})
    assert peer.read_to_the_end() == ending


def test_a_server_that_ends_before_it_is_ready_says_how(
    package: Callable[..., Path], start: Callable[[Path], Peer]
) -> None:
    peer = start(package("import sys; sys.exit('no weights')", "serve.py"))
    settings = {"command": [sys.executable, "serve.py"], "ready_path": "/health"}
    error = peer.load("", kind="server", settings=settings).header["error"]
    assert error["code"] == "setup_failed"
    assert "exited with code 1 before it was ready" in error["message"]
    assert peer.read_to_the_end() == 1
    assert "no weights" in peer.stderr()


def test_a_program_that_is_not_there_is_named(package: Callable[..., Path], start: Callable[[Path], Peer]) -> None:
    peer = start(package("", "serve.py"))
    error = peer.load("", kind="server", settings={"command": ["./absent"], "ready_path": "/"}).header["error"]
    assert "./absent cannot be started" in error["message"]


def test_it_ends_with_the_runner(server: Serve) -> None:
    peer = server(path="/echo")
    pid = peer.run({}) and _children(peer.process.pid)[0]
    peer.send({"type": "shutdown"})
    assert peer.read_to_the_end() == 0
    assert not Path(f"/proc/{pid}").exists()


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_gone_is_what_a_dead_runner_says(server: Serve) -> None:
    peer = server(path="/exit")
    run = peer.start({})
    with pytest.raises(Gone):
        peer.end(run)
    assert json.dumps(peer.seen("done")) == "[]"
