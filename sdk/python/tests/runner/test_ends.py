"""Cancel, exit, crash, and a worker that goes away."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Gate, Serve
from .peer import Peer

STARTED = "print('started')"


def _cancelled(peer: Peer) -> dict[str, str]:
    run = peer.start()
    peer.until(lambda report: report.type == "log" and report.header["run"] == run)
    peer.cancel(run)
    report = peer.end(run)
    assert report.type == "error"
    error: dict[str, str] = report.header["error"]
    return error


@pytest.mark.parametrize(
    "busy",
    ["while True: pass", "time.sleep(3600)", "os.read(os.pipe()[0], 1)", "threading.Event().wait()"],
)
def test_cancel_reaches_a_plain_handler_whatever_it_does(serve: Serve, busy: str) -> None:
    peer = serve(f"import os, threading, time\ndef handler():\n    {STARTED}\n    {busy}")
    error = _cancelled(peer)
    assert (error["code"], error["class"]) == ("cancelled", "stokehold.Cancelled")
    assert "in handler" in error["traceback"]
    assert _cancelled(peer)["code"] == "cancelled"


def test_cancel_passes_except_exception_and_lets_the_handler_clean_up(serve: Serve) -> None:
    peer = serve(
        f"""
        def handler():
            try:
                {STARTED}
                while True: pass
            except Exception:
                print("swallowed")
            finally:
                print("cleaned up")
        """
    )
    assert _cancelled(peer)["code"] == "cancelled"
    assert peer.log(1) == "started\ncleaned up\n"


def test_cancel_of_a_generator(serve: Serve) -> None:
    peer = serve(
        f"""
        def handler():
            try:
                {STARTED}
                while True: yield 1
            finally:
                print("closed")
        """
    )
    assert _cancelled(peer)["code"] == "cancelled"
    assert peer.log(1).endswith("closed\n")


@pytest.mark.parametrize(
    "source",
    [
        "await asyncio.sleep(3600)",
        "while True: await asyncio.sleep(0)",
        "yield 1; await asyncio.sleep(3600)",
    ],
)
def test_cancel_reaches_an_async_handler(serve: Serve, source: str) -> None:
    peer = serve(f"import asyncio\nasync def handler():\n    {STARTED}\n    {source}", max_concurrency=2)
    error = _cancelled(peer)
    assert (error["code"], error["class"]) == ("cancelled", "asyncio.exceptions.CancelledError")
    assert _cancelled(peer)["code"] == "cancelled"


def test_a_cancelled_error_of_the_handlers_own_is_an_error(serve: Serve) -> None:
    peer = serve("import asyncio\nasync def handler(): raise asyncio.CancelledError")
    assert peer.run().header["error"]["code"] == "handler_error"


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_cancel_of_a_waiting_run_skips_it_and_no_other(serve: Serve, gate: Gate, kind: str) -> None:
    wait = f"open({str(gate.path)!r}, 'rb', buffering=0).read(1)"
    peer = serve(f"{kind} handler(n: int):\n    {STARTED}\n    {wait}\n    return n")
    first = peer.start({"n": 1})
    peer.until(lambda report: report.type == "log")
    second, third = peer.start({"n": 2}), peer.start({"n": 3})
    peer.cancel(second)
    gate.open(2)
    assert peer.end(first).json == 1
    assert peer.end(second).header["error"]["code"] == "cancelled"
    assert peer.end(third).json == 3
    assert peer.log(second) == ""


def test_cancel_of_what_has_ended_or_never_was_harms_nobody(serve: Serve) -> None:
    peer = serve("def handler(): return 1")
    peer.run()
    for run in (1, 2, 99):
        peer.cancel(run)
    assert peer.run().json == 1


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize(("leave", "code"), [("sys.exit(3)", 3), ("raise SystemExit", 0), ("os._exit(4)", 4)])
def test_exit_is_an_exit(serve: Serve, kind: str, leave: str, code: int) -> None:
    peer = serve(f"import os, sys\n{kind} handler():\n    print('last words')\n    {leave}")
    run = peer.start()
    assert peer.read_to_the_end() == code
    assert peer.log(run) == "last words\n"
    assert not peer.seen("done")
    assert not peer.seen("error")


def test_sys_exit_sends_the_unfinished_line(serve: Serve) -> None:
    peer = serve("import sys\ndef handler():\n    print('unfinished', end='')\n    sys.exit(1)")
    run = peer.start()
    assert peer.read_to_the_end() == 1
    assert peer.log(run) == "unfinished"


def test_a_segfault_closes_the_wire_and_says_where(serve: Serve) -> None:
    peer = serve("import ctypes\ndef handler(): ctypes.string_at(0)")
    peer.start()
    assert peer.read_to_the_end() == -signal.SIGSEGV
    stderr = peer.stderr()
    assert "Segmentation fault" in stderr
    assert "in handler" in stderr


def test_a_child_that_outlives_a_crash_does_not_hide_it(serve: Serve, gate: Gate) -> None:
    peer = serve(
        f"""
        import os, warnings
        warnings.simplefilter("ignore")
        def handler():
            if os.fork() == 0:
                open({str(gate.path)!r}, "rb", buffering=0).read(1)
                os._exit(0)
            os._exit(5)
        """
    )
    peer.start()
    assert peer.read_to_the_end() == 5
    gate.open()


@pytest.mark.parametrize(
    "busy",
    ["ctypes.PyDLL(None).read(os.open(GATE, os.O_RDONLY), ctypes.create_string_buffer(1), 1)", "while True: pass"],
)
def test_a_runner_without_a_worker_exits_at_once_whatever_it_does(serve: Serve, gate: Gate, busy: str) -> None:
    peer = serve(
        f"""
        import ctypes, os
        GATE = {str(gate.path)!r}
        def handler():
            {STARTED}
            try:
                {busy}
            finally: os._exit(1)
        """
    )
    peer.start()
    peer.until(lambda report: report.type == "log")
    assert peer.hang_up() == -signal.SIGKILL


def test_an_idle_runner_without_a_worker_exits(serve: Serve) -> None:
    assert serve("def handler(): pass").hang_up() == -signal.SIGKILL
    assert serve("async def handler(): pass").hang_up() == -signal.SIGKILL


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x02\x00\x00\x00\x00\x00\x00\x00{}", "header is not a valid message"),
        (b"\xff\xff\xff\xff\x00\x00\x00\x00", "more than"),
        (b'\x13\x00\x00\x00\x00\x00\x00\x00{"type":"shutdown"}', "first message must be load"),
    ],
)
def test_a_broken_worker_is_told_and_left(
    package: Callable[[str], Path], start: Callable[[Path], Peer], data: bytes, message: str
) -> None:
    peer = start(package(""))
    peer.send_raw(data)
    assert peer.read_to_the_end() == 70
    [fatal] = peer.seen("fatal")
    assert message in fatal.header["message"]


def test_more_runs_than_a_runner_can_keep_are_a_broken_worker(serve: Serve, gate: Gate) -> None:
    peer = serve(f"def handler():\n    open({str(gate.path)!r}, 'rb', buffering=0).read(1)")
    message = {"type": "run", "job": "j", "attempt": 1, "scratch": "/"}
    for run in range(1_100):
        try:
            peer.send({**message, "run": run}, b"{}")
        except BrokenPipeError:
            break
    assert peer.read_to_the_end() == 70
    assert "more runs" in peer.seen("fatal")[0].header["message"]
