"""The kind `runpod`: scripts as RunPod's documentation has them, and what their jobs return."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from stokehold._wire import BODY_BYTES_MAX

from .models import Script, error_of

pytest.importorskip("runpod", reason="needs Python 3.10")


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
    returned, oom, raised = (error_of(peer.end(peer.start({"what": what}))) for what in ("returned", "oom", "raised"))
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
    error = error_of(peer.run())
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
    lost = error_of(peer.run({"hopeless": True}))
    assert (lost["code"], lost["message"]) == (
        "handler_error",
        "the script ended the job without a result; see its log",
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
    huge, nan = (error_of(peer.end(peer.start({"huge": huge}))) for huge in (True, False))
    assert (huge["code"], nan["code"]) == ("bad_output", "bad_output")
    assert f"the output has more than {BODY_BYTES_MAX} bytes" in huge["message"]
    assert "result is nan" in nan["message"]
