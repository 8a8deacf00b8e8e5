"""Logs, progress and heartbeats."""

from __future__ import annotations

from itertools import count

import pytest

from .conftest import Gate, Serve


def test_prints_are_logs_of_the_run(serve: Serve) -> None:
    peer = serve(
        """
        import logging, sys
        print("at import")
        logging.basicConfig(format="%(levelname)s %(message)s")
        def handler(who: str):
            print("hello", who, end="")
            print("!")
            print("oops", file=sys.stderr)
            logging.warning("careful")
            sys.stdout.buffer.write("bytes \\u00fc\\n".encode())
            sys.stdout.write("no newline \\ud800")
        """
    )
    assert peer.log(0) == "at import\n"
    peer.run({"who": "Ada"})
    peer.run({"who": "Bob"})
    assert peer.log(1) == "hello Ada!\nbytes ü\nno newline \\ud800"
    assert peer.log(2) == "hello Bob!\nbytes ü\nno newline \\ud800"
    assert peer.log(1, "stderr") == "oops\nWARNING careful\n"


def test_a_log_comes_before_the_end_of_its_run(serve: Serve) -> None:
    peer = serve("def handler():\n    print('tail', end='')\n    return 1")
    peer.run()
    assert peer.log(1) == "tail"


def test_a_huge_print_arrives_whole_in_bounded_frames(serve: Serve) -> None:
    peer = serve("def handler(): print('é' * 5_000_000); print('x' * 100, end='')")
    peer.run()
    assert peer.log(1) == "é" * 5_000_000 + "\n" + "x" * 100
    assert max(len(report.body) for report in peer.seen("log")) < 256 * 1024


def test_prints_of_a_thread_belong_to_no_run(serve: Serve) -> None:
    peer = serve(
        """
        import threading
        def handler():
            thread = threading.Thread(target=print, args=("from a thread",))
            thread.start(); thread.join()
        """
    )
    peer.run()
    assert peer.log(0) == "from a thread\n"


def test_what_c_code_prints_comes_through_the_real_streams(serve: Serve) -> None:
    peer = serve(
        """
        import os, subprocess, sys
        def handler():
            os.write(1, b"raw out\\n"); os.write(2, b"raw err\\n")
            subprocess.run(["echo", "child"], stdout=sys.stdout, check=True)
        """
    )
    assert peer.run().type == "done"
    peer.send({"type": "shutdown"})
    assert peer.read_to_the_end() == 0
    out, err = peer.process.communicate()
    assert out == b"raw out\nchild\n"
    assert err == b"raw err\n"


def test_progress_is_limited_and_the_last_word_arrives(serve: Serve) -> None:
    peer = serve(
        """
        from stokehold import progress
        def handler():
            for i in range(10_000): progress(i / 10_000, f"step {i}")
            progress(7)
        """
    )
    peer.run()
    reports = [(report.header["fraction"], report.header["message"]) for report in peer.seen("progress", 1)]
    assert reports[0] == (0, "step 0")
    assert reports[-1] == (1, "")
    assert len(reports) < 1_000


def test_progress_that_was_put_off_comes_while_the_handler_is_busy(serve: Serve, gate: Gate) -> None:
    peer = serve(
        f"""
        from stokehold import progress
        def handler():
            progress(0.1, "first"); progress(0.2, "second"); progress(0.3, "third")
            open({str(gate.path)!r}, "rb", buffering=0).read(1)
        """
    )
    run = peer.start()
    report = peer.until(lambda report: report.type == "progress" and report.header["fraction"] == 0.3)
    assert report.header["message"] == "third"
    gate.open()
    assert peer.end(run).type == "done"


def test_progress_says_what_is_wrong_with_it(serve: Serve) -> None:
    peer = serve("from stokehold import progress\ndef handler(): progress(float('nan'))")
    assert "from 0 to 1" in peer.run().header["error"]["message"]


def test_progress_outside_of_a_job_does_nothing() -> None:
    from stokehold import current_job, progress

    progress(0.5, "nobody hears this")
    with pytest.raises(RuntimeError, match="no job is running here"):
        current_job()


def test_it_beats_while_the_handler_holds_the_gil(serve: Serve, gate: Gate) -> None:
    # PyDLL keeps the GIL during the call, as a long regular expression or a busy C extension does.
    peer = serve(
        f"""
        import ctypes, os
        def handler():
            fd = os.open({str(gate.path)!r}, os.O_RDONLY)
            print("holding")
            return ctypes.PyDLL(None).read(fd, ctypes.create_string_buffer(1), 1)
        """
    )
    run = peer.start()
    peer.until(lambda report: report.type == "log")
    beats = count()
    last = peer.until(lambda report: report.type == "heartbeat" and next(beats) == 1)
    assert last.header["running"] == 1
    assert 0 < last.header["rss_bytes"] <= last.header["peak_rss_bytes"]
    gate.open()
    assert peer.end(run).json == 1
    assert peer.until(lambda report: report.type == "heartbeat").header["running"] == 0


def test_a_forked_child_says_nothing_on_the_wire(serve: Serve) -> None:
    peer = serve(
        """
        import os, warnings
        from stokehold import progress
        warnings.simplefilter("ignore")
        def handler():
            child = os.fork()
            if child == 0:
                print("child", flush=True); progress(0.5); os._exit(0)
            os.waitpid(child, 0)
            print("parent")
        """
    )
    assert peer.run().type == "done"
    assert peer.log(1) == "parent\n"
    assert not peer.seen("progress")
    peer.send({"type": "shutdown"})
    assert peer.read_to_the_end() == 0
    assert peer.stdout() == "child\n"
