"""The kind `runpod`: the process of a script, its end, and cancels."""

from __future__ import annotations

import http.client
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from stokehold.runner.kinds.runpod_api import TAKE_HOLD_S

from ..peer import Peer
from .models import Script, began, error_of

pytest.importorskip("runpod", reason="needs Python 3.10")


COUNTING = """
import os, runpod

jobs = 0

def handler(job):
    global jobs
    jobs += 1
    return {**job["input"], "jobs": jobs, "pid": os.getpid()}
"""


@pytest.mark.parametrize(
    ("wanted_by", "settings"),
    [({"refresh_worker": True}, '{"handler": handler}'), ({}, '{"handler": handler, "refresh_worker": True}')],
)
def test_a_job_that_asks_for_it_is_followed_by_a_fresh_process(
    script: Script, wanted_by: dict[str, bool], settings: str
) -> None:
    peer = script(COUNTING + f"\nrunpod.serverless.start({settings})\n", max_concurrency=2)
    # The second one waits for the new process.
    runs = [peer.start(wanted_by), peer.start()]
    first, second = (peer.end(run).json for run in runs)
    assert (first["jobs"], second["jobs"]) == (1, 1)
    assert first["pid"] != second["pid"]


def test_a_script_that_ends_before_it_asks_for_jobs_says_how(
    package: Callable[..., Path], start: Callable[[Path], Peer]
) -> None:
    peer = start(package("import runpod\nraise RuntimeError('no weights')", "handler.py"))
    error = _error_of_load(peer)
    assert error["code"] == "setup_failed"
    assert "exited with code 1 before it was ready" in error["message"]
    assert peer.read_to_the_end() == 1
    assert "RuntimeError: no weights" in peer.stderr()


def _error_of_load(peer: Peer) -> dict[str, str]:
    report = peer.load("handler.py", kind="runpod")
    assert report.type == "failed", report.header
    error: dict[str, str] = report.header["error"]
    return error


@pytest.mark.parametrize(
    ("death", "ending"),
    [("os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV), ("sys.exit(0)", 1)],
)
def test_the_end_of_the_script_is_the_runner_s(script: Script, death: str, ending: int) -> None:
    peer = script(
        f"""
        import os, signal, sys
        import runpod

        def handler(job):
            {death}

        runpod.serverless.start({{"handler": handler}})
        """
    )
    peer.start()
    assert peer.read_to_the_end() == ending


def test_a_job_reaches_the_question_that_waits_for_it(script: Script) -> None:
    # Without the package, which takes its time between two jobs.
    peer = script(
        """
        import http.client, json, os
        from urllib.parse import urlsplit

        take, post = (urlsplit(os.environ[f"RUNPOD_WEBHOOK_{name}"]) for name in ("GET_JOB", "POST_OUTPUT"))
        api = http.client.HTTPConnection(take.hostname, take.port)

        def ask(method, path, body=None):
            api.request(method, path, body)
            response = api.getresponse()
            body = response.read()
            return json.loads(body) if response.status == 200 else None

        while True:
            job = ask("GET", take.path + "?&job_in_progress=0")
            if job is not None:
                ask("POST", post.path.replace("$ID", job["id"]), json.dumps({"output": job["input"]}))
        """
    )
    began = time.monotonic()
    assert [peer.run({"n": n}).json["n"] for n in range(1_000)] == list(range(1_000))
    # One that misses its question waits for the next one.
    assert time.monotonic() - began < TAKE_HOLD_S


def test_a_shutdown_lets_the_script_end_by_itself(script: Script, tmp_path: Path) -> None:
    peer = script(
        f"""
        import atexit, pathlib, runpod

        atexit.register(pathlib.Path({str(tmp_path / "ended")!r}).touch)
        runpod.serverless.start({{"handler": lambda job: None}})
        """
    )
    peer.send({"type": "shutdown"})
    assert peer.read_to_the_end() == 0
    assert (tmp_path / "ended").exists()


CANCELLED = """
import asyncio, os, threading
import runpod

jobs = 0

async def handler(job):
    global jobs
    jobs += 1
    if "answer" in job["input"]:
        return {"jobs": jobs, "pid": os.getpid(), "cleaned": cleaned}
    if "wait_for" in job["input"]:
        runpod.serverless.progress_update(job, "begun")
        return await asyncio.to_thread(open, job["input"]["wait_for"], "rb") and "has waited"
    while True:
        try:
            runpod.serverless.progress_update(job, "begun")
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cleaned.append(job["id"])
            if "stubborn" not in job["input"]:
                raise

cleaned = []
runpod.serverless.start({"handler": handler, "concurrency_modifier": lambda current: CONCURRENCY})
"""


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_cancel_stops_an_async_handler_which_may_clean_up(script: Script, concurrency: int) -> None:
    peer = script(CANCELLED.replace("CONCURRENCY", str(concurrency)), max_concurrency=concurrency)
    run = peer.start()
    began(peer, run)
    peer.cancel(run)
    assert error_of(peer.end(run))["code"] == "cancelled"
    after = peer.run({"answer": True}).json
    # In the same process.
    assert (after["jobs"], after["cleaned"]) == (2, ["job-1"])


def test_a_cancel_of_a_handler_that_goes_on_costs_its_process(script: Script) -> None:
    peer = script(
        """
        import os, threading
        import runpod

        def handler(job):
            if job["input"].get("answer"):
                return os.getpid()
            runpod.serverless.progress_update(job, {"pid": os.getpid()})
            threading.Event().wait()

        runpod.serverless.start({"handler": handler})
        """
    )
    run = peer.start()
    began(peer, run)
    peer.cancel(run)
    assert error_of(peer.end(run))["code"] == "cancelled"
    pid = peer.run({"answer": True}).json
    assert peer.seen("progress", run)[0].header["message"] != f'{{"pid": {pid}}}'


def test_the_other_jobs_of_a_process_that_is_given_up_may_finish(script: Script, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    peer = script(CANCELLED.replace("CONCURRENCY", "4"), max_concurrency=4)
    stubborn = peer.start({"stubborn": True})
    began(peer, stubborn)
    other = peer.start({"wait_for": str(tmp_path / "gate")})
    began(peer, other)
    peer.cancel(stubborn)
    assert error_of(peer.end(stubborn))["code"] == "cancelled"
    late = peer.start({"answer": True})
    (tmp_path / "gate").write_bytes(b"")
    assert peer.end(other).json == "has waited"
    after = peer.end(late).json
    assert (after["jobs"], after["cleaned"]) == (1, [])


def test_a_cancel_of_a_job_that_waits_leaves_the_script_alone(script: Script, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    peer = script(CANCELLED.replace("CONCURRENCY", "1"), max_concurrency=2)
    first = peer.start({"wait_for": str(tmp_path / "gate")})
    began(peer, first)
    second = peer.start({"answer": True})
    peer.cancel(second)
    assert error_of(peer.end(second))["code"] == "cancelled"
    (tmp_path / "gate").write_bytes(b"")
    assert peer.end(first).json == "has waited"
    assert peer.run({"answer": True}).json["jobs"] == 2


def test_only_the_script_is_talked_to_and_a_job_is_answered_once(script: Script) -> None:
    peer = script(
        """
        import os, runpod

        def handler(job):
            return os.environ["RUNPOD_WEBHOOK_POST_OUTPUT"]

        runpod.serverless.start({"handler": handler})
        """
    )
    url = urlsplit(peer.run().json)
    assert url.port is not None
    neighbour = http.client.HTTPConnection("127.0.0.1", url.port)
    for path in ("/job-take/x?&job_in_progress=0", f"/{'x' * 43}/job-take/x?&job_in_progress=0"):
        neighbour.request("GET", path)
        with pytest.raises(http.client.RemoteDisconnected):
            neighbour.getresponse()
        neighbour.close()
    again = http.client.HTTPConnection("127.0.0.1", url.port)
    again.request("POST", url.path.replace("$ID", "job-1") + "?&isStream=false", b'{"output": "another"}')
    assert again.getresponse().status == 200
    again.close()
    peer.run()
    assert len(peer.seen("done", 1)) == 1
