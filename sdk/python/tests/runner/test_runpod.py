"""The kind `runpod`: scripts as RunPod's own documentation has them, and the package `runpod` as it is."""

from __future__ import annotations

import http.client
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from stokehold._wire import BODY_BYTES_MAX
from stokehold.runner import failure
from stokehold.runner.handler import HandlerNotFound
from stokehold.runner.kinds import runpod as kind
from stokehold.runner.kinds.runpod_api import TAKE_HOLD_S
from stokehold.runner.kinds.runpod_words import failure_of, fraction_of, message_of

from .peer import Peer, Report

pytest.importorskip("runpod", reason="needs Python 3.10")

Script = Callable[..., Peer]


@pytest.fixture
def script(package: Callable[..., Path], start: Callable[[Path], Peer]) -> Script:
    """Starts a runner whose script is `source`, and gives its peer when the script asks for jobs."""

    def script(source: str, max_concurrency: int = 1) -> Peer:
        peer = start(package(source, "handler.py"))
        report = peer.load("handler.py", max_concurrency, "runpod")
        assert report.type == "ready", report.header
        return peer

    return script


def _raised(class_name: str, message: str) -> str:
    """As the package posts what a handler has raised."""
    told = {"error_type": f"<class '{class_name}'>", "error_message": message, "error_traceback": "Traceback ..."}
    return json.dumps({**told, "hostname": "unknown"})


def _began(peer: Peer, run: int) -> None:
    """Waits until the handler has told of its progress."""
    if not peer.seen("progress", run):
        peer.until(lambda report: report.type == "progress" and report.header["run"] == run)


def _error(report: Report) -> dict[str, str]:
    assert report.type == "error", report.header
    error: dict[str, str] = report.header["error"]
    return error


def test_a_handler_gets_the_job_and_what_it_returns_is_the_result(script: Script, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("from afar")
    peer = script(
        """
        import runpod

        def handler(job):
            return f"{job['id']}: hello, {job['input']['name']}, {open(job['input']['file']).read()}!"

        runpod.serverless.start({"handler": handler})
        """
    )
    report = peer.run({"name": "Jörg", "file": {"$file": "f1"}}, {"f1": str(tmp_path / "note.txt")})
    assert (report.type, report.json) == ("done", "job-1: hello, Jörg, from afar!")


def test_a_script_that_takes_several_jobs_runs_them_at_once(script: Script) -> None:
    peer = script(
        """
        import asyncio, runpod

        everybody = asyncio.Event()
        names = []

        async def handler(job):
            names.append(job["input"]["name"])
            if len(names) == 3:
                everybody.set()
            await everybody.wait()
            return len(names)

        runpod.serverless.start({"handler": handler, "concurrency_modifier": lambda current: 3})
        """,
        max_concurrency=8,
    )
    runs = [peer.start({"name": name}) for name in "abc"]
    assert [peer.end(run).json for run in runs] == [3, 3, 3]


@pytest.mark.parametrize("apart_s", [0.0, 0.015, 0.06])
def test_a_burst_runs_at_once_as_far_as_the_script_takes_it(script: Script, apart_s: float) -> None:
    peer = script(
        """
        import asyncio, runpod

        now = most = 0

        async def handler(job):
            global now, most
            now += 1
            most = max(most, now)
            await asyncio.sleep(0.6)
            now -= 1
            return most

        runpod.serverless.start({"handler": handler, "concurrency_modifier": lambda current: 4})
        """,
        max_concurrency=4,
    )
    began = time.monotonic()
    runs = []
    for _ in range(4):
        runs.append(peer.start())
        time.sleep(apart_s)
    assert max(peer.end(run).json for run in runs) == 4
    # A job that the package did not ask for with the others would wait for the second that it sleeps.
    assert time.monotonic() - began < 1.6


def test_each_of_many_jobs_gets_its_own_result(script: Script) -> None:
    peer = script(
        """
        import runpod

        runpod.serverless.start({
            "handler": lambda job: job["input"]["n"] ** 2,
            "concurrency_modifier": lambda current: 16,
        })
        """,
        max_concurrency=16,
    )
    runs = [peer.start({"n": n}) for n in range(50)]
    assert [peer.end(run).json for run in runs] == [n**2 for n in range(50)]


@pytest.mark.parametrize(("asynchronous", "aggregate"), [("", ""), ("async ", ', "return_aggregate_stream": True')])
def test_a_generator_streams_and_the_result_is_all_of_it(script: Script, asynchronous: str, aggregate: str) -> None:
    peer = script(
        f"""
        import runpod

        {asynchronous}def handler(job):
            for count in range(job["input"]["count"]):
                yield {{"token": count}}

        runpod.serverless.start({{"handler": handler{aggregate}}})
        """
    )
    assert peer.run({"count": 3}).json == [{"token": 0}, {"token": 1}, {"token": 2}]
    assert [(report.header["index"], report.json) for report in peer.seen("output", 1)] == [
        (0, {"token": 0}),
        (1, {"token": 1}),
        (2, {"token": 2}),
    ]
    assert peer.run({"count": 0}).json == []


def test_an_empty_answer_is_an_empty_result(script: Script) -> None:
    peer = script(
        """
        import runpod

        ANSWERS = {"list": [], "object": {}, "none": None, "false": False}

        runpod.serverless.start({
            "handler": lambda job: ANSWERS[job["input"]["kind"]],
            "concurrency_modifier": lambda current: 4,
        })
        """,
        max_concurrency=4,
    )
    runs = [peer.start({"kind": kind}) for kind in ("list", "object", "none", "false")]
    # The package leaves out an empty object: RunPod's API has no `output` then.
    assert [peer.end(run).json for run in runs] == [[], None, None, False]


def test_progress_is_told_and_comes_to_nothing_once_the_job_has_ended(script: Script) -> None:
    peer = script(
        """
        import threading, runpod

        jobs = []

        def handler(job):
            jobs.append(job)
            runpod.serverless.progress_update(jobs[0], "Update 1/4")
            for thread in threading.enumerate():
                if thread is not threading.current_thread() and "_thread_target" in thread.name:
                    thread.join()
            return "done"

        runpod.serverless.start({"handler": handler})
        """
    )
    assert [peer.run().json, peer.run().json] == ["done", "done"]
    assert [
        (report.header["run"], report.header["fraction"], report.header["message"]) for report in peer.seen("progress")
    ] == [(1, 0.25, "Update 1/4")]


def test_progress_reports_100_ms_apart_all_arrive_in_order(script: Script) -> None:
    peer = script(
        """
        import time, runpod

        def handler(job):
            for step in range(1, 21):
                runpod.serverless.progress_update(job, f"step {step}/20")
                if step < 20:
                    time.sleep(0.1)
            return "done"

        runpod.serverless.start({"handler": handler})
        """
    )
    assert peer.run().json == "done"
    # Also the last one, which the result may overtake.
    assert [report.header["message"] for report in peer.seen("progress")] == [f"step {n}/20" for n in range(1, 21)]


def test_a_job_fails_with_what_was_raised_or_returned_as_its_error(script: Script) -> None:
    peer = script(
        """
        import runpod

        class Odd(Exception):
            pass

        def handler(job):
            what = job["input"]["what"]
            if what == "returned":
                return {"error": "no face found", "seen": 3}
            if what == "oom":
                raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB")
            raise Odd("half way\\nthere")

        runpod.serverless.start({"handler": handler, "concurrency_modifier": lambda current: 3})
        """,
        max_concurrency=3,
    )
    returned, oom, raised = (_error(peer.end(peer.start({"what": what}))) for what in ("returned", "oom", "raised"))
    assert (returned["code"], returned["message"], returned["traceback"]) == ("handler_error", "no face found", "")
    assert (oom["code"], oom["class"]) == ("oom_gpu", "RuntimeError")
    assert (raised["code"], raised["class"], raised["message"]) == ("handler_error", "Odd", "half way there")
    assert raised["traceback"].endswith('in handler\n    raise Odd("half way\\nthere")\nOdd: half way\nthere\n')


def test_a_generator_that_raises_keeps_what_it_streamed(script: Script) -> None:
    peer = script(
        """
        import runpod

        def handler(job):
            yield 1
            raise ValueError("half way")

        runpod.serverless.start({"handler": handler, "return_aggregate_stream": True})
        """
    )
    error = _error(peer.run())
    assert (error["code"], error["class"], error["message"]) == ("handler_error", "ValueError", "half way")
    assert "in handler" in error["traceback"]
    assert [report.json for report in peer.seen("output", 1)] == [1]


def test_what_the_package_cannot_post_fails_and_the_next_job_runs(script: Script) -> None:
    peer = script(
        """
        import runpod

        def handler(job):
            return object() if job["input"] else "fine"

        runpod.serverless.start({"handler": handler})
        """
    )
    lost = _error(peer.run({"hopeless": True}))
    assert (lost["code"], lost["message"]) == (
        "handler_error",
        "the script ended the job without a result; see its log for the reason",
    )
    assert peer.run().json == "fine"


def test_an_output_that_cannot_be_sent_on_fails(script: Script) -> None:
    peer = script(
        f"""
        import runpod

        def handler(job):
            return "x" * {BODY_BYTES_MAX} if job["input"]["huge"] else float("nan")

        runpod.serverless.start({{"handler": handler, "concurrency_modifier": lambda current: 2}})
        """,
        max_concurrency=2,
    )
    huge, nan = (_error(peer.end(peer.start({"huge": huge}))) for huge in (True, False))
    assert (huge["code"], nan["code"]) == ("bad_output", "bad_output")
    assert f"the output is larger than {BODY_BYTES_MAX} bytes" in huge["message"]
    assert "result is nan" in nan["message"]


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
            said = response.read()
            return json.loads(said) if response.status == 200 else None

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
    _began(peer, run)
    peer.cancel(run)
    assert _error(peer.end(run))["code"] == "cancelled"
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
    _began(peer, run)
    peer.cancel(run)
    assert _error(peer.end(run))["code"] == "cancelled"
    pid = peer.run({"answer": True}).json
    assert peer.seen("progress", run)[0].header["message"] != f'{{"pid": {pid}}}'


def test_the_other_jobs_of_a_process_that_is_given_up_may_finish(script: Script, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    peer = script(CANCELLED.replace("CONCURRENCY", "4"), max_concurrency=4)
    stubborn = peer.start({"stubborn": True})
    _began(peer, stubborn)
    other = peer.start({"wait_for": str(tmp_path / "gate")})
    _began(peer, other)
    peer.cancel(stubborn)
    assert _error(peer.end(stubborn))["code"] == "cancelled"
    late = peer.start({"answer": True})
    (tmp_path / "gate").write_bytes(b"")
    assert peer.end(other).json == "has waited"
    after = peer.end(late).json
    assert (after["jobs"], after["cleaned"]) == (1, [])


def test_a_cancel_of_a_job_that_waits_leaves_the_script_alone(script: Script, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    peer = script(CANCELLED.replace("CONCURRENCY", "1"), max_concurrency=2)
    first = peer.start({"wait_for": str(tmp_path / "gate")})
    _began(peer, first)
    second = peer.start({"answer": True})
    peer.cancel(second)
    assert _error(peer.end(second))["code"] == "cancelled"
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


def test_a_script_is_described_without_being_run(package: Callable[..., Path]) -> None:
    described = kind.describe(
        str(package("from runpod import serverless\nraise SystemExit", "handler.py") / "handler.py")
    )
    assert described == {
        "name": None,
        "entry": "handler.py",
        "kind": "runpod",
        "options": {},
        "input_schema": {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object"},
        "output_schema": {},
    }


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ('start({"handler": f, "concurrency_modifier": lambda current: 4})', {"max_concurrency": 4}),
        ("start(dict(handler=f, concurrency_modifier=lambda current: current + 1))", {"max_concurrency": 16}),
        ('def four(n):\n    return 4\nstart({"concurrency_modifier": four})', {"max_concurrency": 4}),
        ('def some(n):\n    return min(n, 9)\nstart({"concurrency_modifier": some})', {"max_concurrency": 16}),
        ('config = {}\nconfig["concurrency_modifier"] = lambda n: 5_000\nstart(config)', {"max_concurrency": 1_000}),
        ('start({"handler": f})', {}),
    ],
)
def test_a_script_with_a_concurrency_modifier_is_offered_several_jobs(
    package: Callable[..., Path], source: str, options: dict[str, int]
) -> None:
    folder = package(f"from runpod.serverless import start\n{source}", "handler.py")
    assert kind.describe(str(folder / "handler.py"))["options"] == options


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (None, "handler.py: no such file in package"),
        ("def handler(:", "handler.py is not valid Python"),
        ("import runpodder\nfrom . import runpod", "handler.py does not import runpod: name the script that ends with"),
    ],
)
def test_what_is_no_runpod_script_is_told_why(package: Callable[..., Path], source: str | None, says: str) -> None:
    folder = package("") if source is None else package(source, "handler.py")
    with pytest.raises(HandlerNotFound, match=says):
        kind.describe(str(folder / "handler.py"))


@pytest.mark.parametrize(
    ("said", "fraction", "message"),
    [
        ("Update 1/4", 0.25, "Update 1/4"),
        ("12.5 % of 8 files", 0.125, "12.5 % of 8 files"),
        ("1/0", None, "1/0"),
        ("loading", None, "loading"),
        (0.5, 0.5, ""),
        (1, 0.01, ""),
        (1.0, 1.0, ""),
        (50, 0.5, ""),
        (50.0, 0.5, ""),
        pytest.param(10**400, 1.0, "", id="huge"),
        (float("nan"), None, ""),
        (True, None, ""),
        ({"progress": 50, "message": "half"}, 0.5, "half"),
        ({"step": 3}, None, '{"step": 3}'),
        (None, None, "null"),
    ],
)
def test_how_far_a_job_is_can_be_said_in_many_ways(said: Any, fraction: float | None, message: str) -> None:
    assert (fraction_of(said), message_of(said)) == (fraction, message)


@pytest.mark.parametrize(
    ("error", "class_name", "message", "code"),
    [
        (
            {"reason": "no face"},
            "stokehold.runner.kinds.runpod_words.HandlerError",
            '{"reason": "no face"}',
            "handler_error",
        ),
        ("CUDA out of memory", "stokehold.runner.kinds.runpod_words.HandlerError", "CUDA out of memory", "oom_gpu"),
        (_raised("torch.OutOfMemoryError", "no room"), "torch.OutOfMemoryError", "no room", "oom_gpu"),
        (_raised("MemoryError", ""), "MemoryError", "", "oom_host"),
        (_raised("ValueError", "CUDA out of memory"), "ValueError", "CUDA out of memory", "handler_error"),
        (_raised("__main__.Odd", "x"), "Odd", "x", "handler_error"),
    ],
)
def test_an_error_is_judged_as_the_one_it_tells_of(error: Any, class_name: str, message: str, code: str) -> None:
    described = failure.describe(failure_of(error))
    assert (described.class_name, described.message, described.code) == (class_name, message, code)
